"""The values of a mirror's own columns, which describe its rows: see lake_columns.py."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from binlake.names import spark_string
from binlake.schema.lake_columns import BATCH, COMMITTED, DELETED, DELETED_AT, MOMENT, POSITION, own_columns
from binlake.schema.table import TableSchema

LIVE = f"NOT {DELETED}"
"""Condition in SQL of rows that the server has."""


@dataclass(frozen=True)
class Written:
    """The batch and the transactions that wrote rows last.

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
    """The values of ``Written`` as SQL expressions."""

    batch: str
    committed_us: str
    position: str

    @classmethod
    def at_once(cls, batch: int, committed_us: int, position: str) -> WrittenInSql:
        """Return expressions of the same values for all rows. committed_us: microseconds since 1970."""
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
