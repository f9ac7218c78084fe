"""The values of a mirror's own columns, which tell of its rows: see lake_columns.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import OwnCommit
from binlake.merge.filled_rows import files_to_replace, replacing, rows_of, together
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
    if (table.transaction_version(log) or -1) >= version:
        return
    plain_tables.check_is_plain(log)
    adds = files_to_replace(table.path, log, config.merge.without_spark_bytes)
    rows = together(log, list(rows_of(table.path, adds)))
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
