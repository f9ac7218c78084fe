"""Descriptions of a lake's tables and columns: the server's types, keys and comments, and up to where rows are
verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from binlake.delta.delta_schema import COMMENT
from binlake.errors import BinlakeError
from binlake.lake.table_at import TableAt
from binlake.names import ansi_string
from binlake.records import ddl_history, verified
from binlake.records.verified import VerifiedThrough
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn, mirror_columns
from binlake.schema.table import Column, KeyKind, TableName, TableSchema
from binlake.store.metadata import Metadata

_KEYS = {"primary": "PRI", "unique": "UNI"}


@dataclass(frozen=True)
class DictionaryColumn:
    """A column of the lake.

    position: from 1 on. server_type: as the server declares it, with an ENUM's values; empty for a column that isn't
    the server's. server_name: its name there, also where it is the same; empty likewise. in_key: its place in the key,
    from 1 on; 0 outside of it.
    """

    name: str
    position: int
    lake_type: str
    server_type: str
    nullable: bool
    in_key: int
    comment: str
    server_name: str = ""


@dataclass(frozen=True)
class DictionaryTable:
    """A table of the lake at a batch.

    key_kind: none also for tables beside mirrors, of which no shape is recorded. verified_batch, verified: up to which
    batch every row is known equal to the server's, and when that was compared; None where it isn't known.
    """

    at: TableAt
    comment: str
    columns: tuple[DictionaryColumn, ...]
    key: tuple[str, ...]
    key_kind: KeyKind
    verified_batch: int | None
    verified: datetime | None

    @property
    def name(self) -> TableName:
        """Return the table's name on the server."""
        return self.at.name


def dictionary(
    metadata: Metadata, tables: Iterable[TableAt], lives: Mapping[TableName, str], batch: int
) -> list[DictionaryTable]:
    """Return what is known of tables. lives: their table ids. batch: the version's. Raises LakeError."""
    chosen = list(tables)
    ids = {lives[table.name] for table in chosen if table.name in lives}
    shapes = ddl_history.schemas_now(metadata, ids, up_to=batch)
    through = verified.read(metadata).through
    return [_described(table, shapes.get(life := lives.get(table.name, "")), through.get(life)) for table in chosen]


def _described(table: TableAt, shape: TableSchema | None, through: VerifiedThrough | None) -> DictionaryTable:
    opened = table.opened()
    known = {column.name: column for column in mirror_columns(shape, shape.invalid or InvalidValues())} if shape else {}
    key = shape.key if shape else ()
    columns = tuple(
        _column(number, field, known.get(field.name), key, shape)
        for number, field in enumerate(opened.schema().fields, start=1)
    )
    return DictionaryTable(
        at=table,
        comment=opened.metadata().description or "",
        columns=columns,
        key=key,
        key_kind=shape.key_kind if shape else "none",
        verified_batch=through.batch if through else None,
        verified=datetime.fromtimestamp(through.at_us / 1e6, UTC) if through and through.at_us else None,
    )


def _column(
    number: int, field: object, known: LakeColumn | None, key: Sequence[str], shape: TableSchema | None
) -> DictionaryColumn:
    name, kind, metadata = (getattr(field, part) for part in ("name", "type", "metadata"))
    of_server = shape.column(known.source.name) if shape and known and known.holds == "value" else None
    return DictionaryColumn(
        name=name,
        position=number,
        lake_type=delta_text(kind),
        server_type=server_text(of_server) if of_server else "",
        nullable=known.source.nullable if known and of_server else True,  # a masked column may be NULL
        in_key=key.index(name) + 1 if name in key else 0,
        comment=str(metadata.get(COMMENT, "")),
        server_name=of_server.served_name if of_server else "",
    )


def delta_text(kind: object) -> str:
    """Return a Delta type as text."""
    element = getattr(kind, "element_type", None)
    return f"array<{delta_text(element)}>" if element is not None else str(getattr(kind, "type", kind))


def server_text(column: Column) -> str:
    """Return a column's type as the server declares it."""
    if not column.values:
        return column.declared
    return f"{column.type}({','.join(map(ansi_string, column.values))})"


@dataclass(frozen=True)
class TableExtent:
    """How large a table is: its rows, and its data files' bytes and number."""

    rows: int
    bytes: int
    files: int


def extents_of(tables: Iterable[TableAt]) -> dict[TableName, TableExtent]:
    """Return how large tables are, without those that this process can't read."""
    extents: dict[TableName, TableExtent] = {}
    for table in tables:
        with suppress(BinlakeError):
            extents[table.name] = extent_of(table)
    return extents


def extent_of(table: TableAt) -> TableExtent:
    """Return how large a table is at its version, by Delta's log. Raises LakeError."""
    from binlake.lake.sql_session import SqlSession

    added = pa.table(table.opened().get_add_actions())
    rows = SqlSession([TableAt(_ONE, table.path, table.version)]).table(f"SELECT count(*) AS n FROM {_ONE}")
    return TableExtent(rows["n"][0].as_py(), int(pc.sum(added["size_bytes"]).as_py() or 0), added.num_rows)


_ONE = TableName("lake", "counted")


def tables_table(
    described: Sequence[DictionaryTable], extents: Mapping[TableName, TableExtent], batch: int, committed: datetime
) -> pa.Table:
    """Return ``information_schema.tables``. extents: of the tables that can be counted."""
    time = pa.timestamp("us", "UTC")
    kinds = {
        "table_schema": pa.string(), "table_name": pa.string(), "table_type": pa.string(), "table_rows": pa.int64(),
        "data_length": pa.int64(), "data_files": pa.int64(), "key_columns": pa.string(), "table_comment": pa.string(),
        "batch": pa.int64(), "committed": time, "verified_batch": pa.int64(), "verified_at": time,
        "delta_version": pa.int64(), "path": pa.string(),
    }  # fmt: skip
    rows = [
        (
            *vars(table.name).values(),
            "BASE TABLE",
            *((extent.rows, extent.bytes, extent.files) if extent else _NO_EXTENT),
            ", ".join(table.key),
            table.comment,
            batch,
            committed,
            table.verified_batch,
            table.verified,
            table.at.version,
            table.at.path,
        )
        for table in described
        for extent in (extents.get(table.name),)
    ]
    return _rows(kinds, rows)


_NO_EXTENT = (None, None, None)
OF_DESCRIBE = ["column_name", "column_type", "is_nullable", "column_key", "lake_type", "column_comment"]
"""Columns of information_schema.columns that DESCRIBE shows."""


def columns_table(described: Sequence[DictionaryTable]) -> pa.Table:
    """Return ``information_schema.columns``."""
    kinds = {
        "table_schema": pa.string(), "table_name": pa.string(), "column_name": pa.string(),
        "ordinal_position": pa.int64(), "data_type": pa.string(), "column_type": pa.string(),
        "is_nullable": pa.string(), "column_key": pa.string(), "key_position": pa.int64(), "lake_type": pa.string(),
        "column_comment": pa.string(),
    }  # fmt: skip
    rows = [
        (*vars(table.name).values(), *_column_row(table, column)) for table in described for column in table.columns
    ]
    return _rows(kinds, rows)


def _column_row(table: DictionaryTable, column: DictionaryColumn) -> tuple[object, ...]:
    return (
        column.name,
        column.position,
        column.server_type.partition("(")[0].partition(" ")[0],
        column.server_type,
        "YES" if column.nullable else "NO",
        _KEYS.get(table.key_kind, "") if column.in_key else "",
        column.in_key or None,
        column.lake_type,
        column.comment,
    )


def _rows(kinds: Mapping[str, pa.DataType], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)], [*kinds])
