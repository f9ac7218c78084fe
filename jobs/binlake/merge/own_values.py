"""The values of a mirror's own columns, which tell of its rows: see lake_columns.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LeftToSpark
from binlake.merge.filled_rows import files_to_replace, replacing, rows_of
from binlake.names import spark_string
from binlake.schema.lake_columns import BATCH, COMMITTED, DELETED, DELETED_AT, MOMENT, POSITION, own_columns
from binlake.schema.table import TableSchema

LIVE = f"NOT {DELETED}"
"""Condition in SQL of rows that the server has."""


@dataclass(frozen=True)
class Written:
    """What wrote rows last.

    batch: its number; 0 for a snapshot. committed_us, position: of each row: when it committed, in microseconds since
    1970, and its place in the log as text.
    """

    batch: int
    committed_us: pa.Array | pa.ChunkedArray
    position: pa.Array | pa.ChunkedArray

    @classmethod
    def at_once(cls, batch: int, committed_us: int, position: str, rows: int) -> Written:
        """Return it for so many rows that were written together."""
        return cls(batch, pa.repeat(pa.scalar(committed_us, pa.int64()), rows), pa.repeat(pa.scalar(position), rows))


def with_own(rows: pa.Table, schema: TableSchema, written: Written, *, deleted: bool) -> pa.Table:
    """Return rows with the mirror's own columns behind the others. deleted: whether they are."""
    moments = written.committed_us.cast(MOMENT)
    values = {
        DELETED: pa.repeat(pa.scalar(deleted), rows.num_rows),
        DELETED_AT: moments if deleted else pa.nulls(rows.num_rows, MOMENT),
        BATCH: pa.repeat(pa.scalar(written.batch, pa.int64()), rows.num_rows),
        COMMITTED: moments,
        POSITION: written.position,
    }
    for column in own_columns(schema):
        rows = rows.append_column(column.name, values[column.name])
    return rows


@dataclass(frozen=True)
class WrittenInSql:
    """The same as SQL expressions."""

    batch: str
    committed_us: str
    position: str

    @classmethod
    def at_once(cls, batch: int, committed_us: int, position: str) -> WrittenInSql:
        return cls(f"{batch}L", f"{committed_us}L", spark_string(position))


def own_in_sql(schema: TableSchema, written: WrittenInSql, deleted: str) -> dict[str, str]:
    """Return the mirror's own columns as SQL, by name. deleted: whether the row is."""
    moment = f"timestamp_micros({written.committed_us})"
    values = {
        DELETED: deleted,
        DELETED_AT: f"IF({deleted}, {moment}, NULL)",
        BATCH: written.batch,
        COMMITTED: moment,
        POSITION: written.position,
    }
    return {column.name: values[column.name] for column in own_columns(schema)}


def mark_all(table: LakeLog, config: PipelineConfig, written: Written, *, version: int, note: dict[str, Any]) -> None:
    """Mark all rows of a small table as deleted that aren't yet, in one commit; repeating it changes nothing.

    written: of one row, by what they are deleted. Raises LeftToSpark; CommitFailedError as
    ``reshape_in_process.reshape`` does; LakeError, OSError.
    """
    plain_tables.check_is_wanted(table.path, config)
    log = table.log()
    if (log.transaction_version(table.app) or -1) >= version:
        return
    plain_tables.check_is_plain(log)
    adds = files_to_replace(table.path, log, config.merge.without_spark_bytes)
    rows = _together(log, list(rows_of(table.path, adds)))
    moment = written.committed_us[0].cast(MOMENT)
    values = {
        DELETED: pa.scalar(True), DELETED_AT: moment, BATCH: pa.scalar(written.batch, pa.int64()), COMMITTED: moment,
        POSITION: written.position[0],
    }  # fmt: skip
    names = [field["name"] for field in plain_tables.fields_of(log)]
    gone = rows.column(names.index(DELETED)) if rows.num_rows else None
    for place, name in enumerate(names if rows.num_rows else ()):
        if name in values:
            column = pc.if_else(gone, rows.column(place), values[name])
            rows = rows.set_column(place, rows.schema.field(place), column)
    own = OwnCommit("UPDATE", version, note, {"predicate": LIVE}, {"numRemovedFiles": len(adds)})
    plain_tables.commit(table, log, own, replacing(table.path, adds, rows))


def _together(log: DeltaTable, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of data files with the columns that the table has. Raises LeftToSpark."""
    if not parts:
        return pa.table({})
    fields = []
    for field in plain_tables.fields_of(log):
        name = plain_tables.stored_field(field, pa.null()).name
        kinds = {part.schema.field(name).type for part in parts if name in part.column_names}
        if len(kinds) != 1 or any(pa.types.is_timestamp(kind) and kind.unit != "us" for kind in kinds):
            raise LeftToSpark(f"column {field['name']!r} isn't stored in one type as it is written here")
        fields.append(plain_tables.stored_field(field, kinds.pop()))
    schema = pa.schema(fields)
    return pa.concat_tables(_with_columns(part, schema) for part in parts)


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
