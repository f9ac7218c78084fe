"""The columns of a table in the lake, and in the images that are staged from the log.

Each column of the server has a column with its values. A value that no Delta type holds is NULL there. If the YAML
keeps such values, a side column follows that holds them; it is NULL where the value is valid:

| policy                   | columns                               | beside it          | holds |
|--------------------------|---------------------------------------|--------------------|-------|
| invalid_dates: keep_text | DATE, DATETIME, TIMESTAMP             | ``{name}__text``   | the server's text |
| invalid_text: keep_bytes | text in utf8mb4, utf8mb3, ucs2, utf32 | ``{name}__bytes``  | the bytes as they are stored |

A masked column has none: an invalid value of it is NULL.

A mirror may have columns of its own behind these. Where deleted rows stay (soft_delete), ``_deleted`` is false in a row
that the server has, and ``_deleted_at`` has the commit time of the transaction that deleted it. With row_metadata
``_binlake_batch``, ``_binlake_committed`` and ``_binlake_position`` are those of the mutation that last wrote the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from binlake.schema import datatypes
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import Column, TableSchema
from binlake.schema.types import text_types

Holds = Literal["value", "text", "bytes", "own"]
DELETED, DELETED_AT = "_deleted", "_deleted_at"
BATCH, COMMITTED, POSITION = "_binlake_batch", "_binlake_committed", "_binlake_position"
COPIED: Mapping[str, bool | None] = {DELETED: False, DELETED_AT: None, BATCH: None, COMMITTED: None, POSITION: None}
"""Values of a mirror's own columns in rows that were read from the server, before the position is known."""
MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class LakeColumn:
    """One column of the lake.

    name, delta, arrow: its name and types in the lake. source: the server's column that it comes from. holds: that
    column's value, or for a side column the text or bytes of invalid values. A mirror's own column has no other source.
    """

    name: str
    delta: str
    arrow: pa.DataType
    source: Column
    holds: Holds = "value"

    @property
    def comment(self) -> str:
        """Return what the server says of the column; empty for side columns and the mirror's own."""
        return self.source.comment if self.holds == "value" else ""

    @property
    def is_side(self) -> bool:
        """Return whether it is a side column, which has the texts of invalid dates or the bytes of invalid text."""
        return self.holds in ("text", "bytes")


def lake_columns(schema: TableSchema, invalid: InvalidValues) -> tuple[LakeColumn, ...]:
    """Return the Delta table's columns, except those that the server dropped and the lake keeps (``schema.kept``)."""
    return columns_of(schema.mirrored, invalid)


_MARKS = (
    LakeColumn(DELETED, "BOOLEAN", pa.bool_(), Column(DELETED, "bit", length=1), "own"),
    LakeColumn(DELETED_AT, "TIMESTAMP", MOMENT, Column(DELETED_AT, "timestamp", fraction=6), "own"),
)
_ROW_METADATA = {
    "batch": LakeColumn(BATCH, "BIGINT", pa.int64(), Column(BATCH, "bigint"), "own"),
    "committed": LakeColumn(COMMITTED, "TIMESTAMP", MOMENT, Column(COMMITTED, "timestamp", fraction=6), "own"),
    "position": LakeColumn(POSITION, "STRING", pa.string(), Column(POSITION, "text", charset="utf8mb4"), "own"),
}


def own_columns(schema: TableSchema) -> tuple[LakeColumn, ...]:
    """Return the columns of the mirror that have facts about a row and aren't the server's."""
    marks = _MARKS if schema.soft_delete else ()
    return (*marks, *(column for name, column in _ROW_METADATA.items() if name in schema.row_metadata))


def mirror_columns(schema: TableSchema, invalid: InvalidValues) -> tuple[LakeColumn, ...]:
    """Return ``lake_columns``, and behind them the mirror's own."""
    return (*lake_columns(schema, invalid), *own_columns(schema))


def columns_of(columns: Iterable[Column], invalid: InvalidValues) -> tuple[LakeColumn, ...]:
    """Return the lake's column of each column, followed by its side column. Raises UnsupportedColumn."""
    return tuple(lake_column for column in columns for lake_column in _columns_for(column, invalid))


TWICE_REMEDY = "rename the column, or exclude the table in the YAML"


def named_twice(schema: TableSchema, invalid: InvalidValues) -> str:
    """Return a text that says which column has the name of another's side column; empty if none has."""
    if invalid.dates != "keep_text" and invalid.text != "keep_bytes":
        return ""
    counted = Counter(column.name.lower() for column in lake_columns(schema, invalid))
    twice = next((name for name, count in counted.items() if count > 1), None)
    if twice is None:
        return ""
    return f"the column {twice!r} has the name of the side column that keeps another's invalid values"


def side_columns(columns: Iterable[Column], invalid: InvalidValues) -> tuple[LakeColumn, ...]:
    """Return the side columns that the policies on invalid values add for these columns."""
    return tuple(column for column in columns_of(columns, invalid) if column.is_side)


def side_names(columns: Iterable[Column]) -> dict[str, tuple[str, ...]]:
    """Return, by column, the names under which rows may hold its invalid values; none that another column has."""
    names = [column.name for column in columns]
    own = set(names)
    return {name: tuple(side for side in (f"{name}__text", f"{name}__bytes") if side not in own) for name in names}


def _columns_for(column: Column, invalid: InvalidValues) -> Iterable[LakeColumn]:
    entry = datatypes.entry(column)
    yield LakeColumn(column.name, entry.delta(column), entry.arrow(column), column)
    if column.mask is not None:
        return  # a side column would show what the mask hides
    if invalid.dates == "keep_text" and entry.may_be_invalid_date:
        yield LakeColumn(f"{column.name}__text", "STRING", pa.string(), column, "text")
    if invalid.text == "keep_bytes" and text_types.may_be_invalid_text(column):
        yield LakeColumn(f"{column.name}__bytes", "BINARY", pa.binary(), column, "bytes")
