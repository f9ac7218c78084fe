"""Schemas and Delta properties of the metadata tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from arro3.core import DataType, Field, Schema
from deltalake import DeltaTable

from binlake.store import rows, run_rows  # noqa: F401  # they are in ROWS
from binlake.store.typed_rows import ROWS

_TEXT = DataType.utf8()
_KINDS = {
    "str": _TEXT, "Status": _TEXT, "RowKind": _TEXT, "int": DataType.int64(), "float": DataType.float64(),
    "bool": DataType.bool(), "bytes": DataType.binary(),
}  # fmt: skip
"""Types of columns, by those of fields."""


def _field(column: dataclasses.Field[Any]) -> Field:
    return Field(column.name, _KINDS[str(column.type).removesuffix(" | None")], nullable=True)


SCHEMAS = {table: Schema([_field(column) for column in dataclasses.fields(row)]) for table, row in ROWS.items()}
"""Arrow schemas of the metadata tables."""


TOMBSTONE_SECONDS = 60
"""For so long a checkpoint lists files that were replaced. Nobody asks it: upkeep looks at commits and at the age of
files. Of Delta's week a source that is followed would write 100,000 of them behind every tenth commit."""
CHECKPOINT_EACH = 10
"""Commits to a metadata table from one checkpoint to the next, at least. A process that follows writes one a minute, or
behind fifty commits, see plain_writes: it doesn't read the log behind each commit."""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EACH),
    "delta.deletedFileRetentionDuration": f"interval {TOMBSTONE_SECONDS} seconds",
}
"""A sync opens these tables some thirty times, and each commit since the last checkpoint is read again: of the
default's hundred that is 40 ms for each time, of ten it is 9."""


def kind_read(name: str, column: str, encoded: bool) -> DataType:
    """Return the type in which a column is read. encoded: text is dictionary-encoded."""
    kind = SCHEMAS[name].field(column).type
    return DataType.dictionary(DataType.int32(), _TEXT) if encoded and kind == _TEXT else kind


def columns_lacking(name: str, table: DeltaTable) -> list[Field]:
    """Return the columns that a table lacks because an older binlake created it; none of a table that only that one
    knew."""
    there = {field.name for field in table.schema().fields}
    return [field for field in fields_of(name) if field.name not in there] if name in SCHEMAS else []


def fields_of(name: str) -> list[Field]:
    """Return the columns of a metadata table."""
    schema = SCHEMAS[name]
    return [schema.field(column) for column in schema.names]
