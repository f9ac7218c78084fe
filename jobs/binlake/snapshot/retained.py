"""Deleted rows that stay in a mirror when it is snapshotted again: those of the lake that the server has no more.

They are read once no other life can commit any more, and written into a data file of the snapshot's own. Those that
were deleted before keep their marks; the others are marked as deleted when the snapshot is committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from binlake.delta.attempts import Copied, DataFile
from binlake.errors import TableError
from binlake.merge.lake_table import LakeTable
from binlake.metadata.metadata import now_us
from binlake.names import spark_quote
from binlake.schema.lake_columns import DELETED, DELETED_AT, LakeColumn
from binlake.schema.table import TableName, TableSchema
from binlake.snapshot.chunks import Records, TableSnapshot
from binlake.spark import data_files

_AS_THEY_ARE = ("BINARY", "ARRAY")
"""Types whose values aren't made others of."""


class Retained:
    """The data files of one snapshot's retained rows. attempt: the newest that wrote them; empty before."""

    def __init__(self, session: SparkSession, table: TableSnapshot, records: Records, target: LakeTable) -> None:
        self._session, self._table, self._records, self._target = session, table, records, target
        self.attempt = ""
        self.rows = 0

    def write(self) -> Sequence[DataFile]:
        """Write the rows that are to stay of those at the table's place, and return the files. Raises TableError where
        the table's key doesn't tell them apart."""
        schema = self._table.schema
        if not schema.soft_delete or not self._target.exists():
            return ()
        there = self._session.read.format("delta").load(self._target.path)
        if DELETED not in there.columns:
            return ()
        _refuse_other_key(self._table.name, schema, there)
        attempts, delta_schema = self._records.attempts(self._table), self._records.delta_schema(self._table)
        copied = [file for chunk in self._table.chunks for file in attempts.copied(chunk.attempt).files]
        server = data_files.read(self._session, attempts.table_path, delta_schema, copied)
        attempt = self.attempt = attempts.new()
        attempts.begin(attempt)
        files = data_files.write(
            self._session,
            attempts.table_path,
            attempt,
            delta_schema,
            retained_rows(there, server, schema, self._records.columns(self._table)),
            rows_per_file=self._table.rows_per_file,
        )
        attempts.done(attempt, Copied(files))
        self.rows = sum(file.rows for file in files)
        if files:
            written = data_files.read(self._session, attempts.table_path, delta_schema, files)
            _refuse_twins(self._table.name, schema, written)
        return files


def retained_rows(there: DataFrame, server: DataFrame, schema: TableSchema, columns: Sequence[LakeColumn]) -> DataFrame:
    """Return the rows of the lake whose keys the server doesn't have, marked as deleted.

    there: the lake's rows, of whatever shape. server: the server's, of the mirror's columns. A value that can't be of
    its column's type by now is NULL.
    """
    kinds = {field.name: field.dataType.simpleString().upper() for field in there.schema.fields}
    marks = {DELETED: "true", DELETED_AT: f"IF({DELETED}, {DELETED_AT}, timestamp_micros({now_us()}L))"}

    def value(column: LakeColumn) -> str:
        kind, quoted = kinds.get(column.name), spark_quote(column.name)
        if column.name in marks:
            return marks[column.name]
        if kind == column.delta.upper():
            return quoted
        castable = kind is not None and not any(one.startswith(_AS_THEY_ARE) for one in (kind, column.delta))
        return f"TRY_CAST({quoted} AS {column.delta})" if castable else f"CAST(NULL AS {column.delta})"

    rows = there.selectExpr(*(f"{value(column)} AS {spark_quote(column.name)}" for column in columns))
    same = " AND ".join(f"lake.{name} = server.{name}" for name in map(spark_quote, schema.key))
    return rows.alias("lake").join(server.alias("server"), expr(same), "left_anti")


def _refuse_other_key(name: TableName, schema: TableSchema, there: DataFrame) -> None:
    if lacking := [column for column in schema.key if column not in there.columns]:
        raise TableError(
            f"{name}: its deleted rows have no {lacking[0]}, which is of its key by now", remedy=_other_key_remedy(name)
        )


def _refuse_twins(name: TableName, schema: TableSchema, rows: DataFrame) -> None:
    key = [spark_quote(column) for column in schema.key]
    unknown = " OR ".join(f"{column} IS NULL" for column in key)
    if rows.where(unknown).head() or rows.groupBy(*key).count().where("count > 1").head():
        raise TableError(
            f"{name}: its key is another by now, by which its deleted rows can't be told apart",
            remedy=_other_key_remedy(name),
        )


def _other_key_remedy(name: TableName) -> str:
    return f"move the Delta table of {name} away: it is begun anew, without the deleted rows; or take soft_delete off"
