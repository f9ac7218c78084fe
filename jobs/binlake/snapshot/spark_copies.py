"""Copies by Spark: a task for each chunk, or for few rows Spark's JDBC reader in the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from binlake.delta import plain_files
from binlake.delta.delta_actions import DataFile
from binlake.merge.own_values import WrittenInSql
from binlake.merge.position_texts import boundary_text
from binlake.schema import hash_key
from binlake.schema.lake_columns import LakeColumn, mirror_columns
from binlake.snapshot import direct, direct_tasks, few_rows, jdbc, restore
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import Chunk, TableSnapshot
from binlake.snapshot.copying import (
    ChunkCopy,
    ChunkFailed,
    Copying,
    Member,
    Selected,
    TableRefused,
    server_failure,
)
from binlake.snapshot.direct import DataFiles, SqlError, ViewsOpened
from binlake.snapshot.few_rows import FewRows
from binlake.snapshot.own_files import as_written
from binlake.source.locks import SPENT
from binlake.spark import data_files, settings
from binlake.spark.java import to_scala_map
from binlake.spark.jdbc_calls import JdbcCalls
from binlake.storage import java_errors, storage_errors

_FORWARD_ONLY, _READ_ONLY = 1003, 1007
"""Constants of java.sql.ResultSet."""


class SparkCopy(ChunkCopy):
    """A copy by a Spark job."""

    def __init__(self, copying: Copying, member: Member, opened: Callable[[], ViewsOpened]) -> None:
        super().__init__(copying, member, opened)
        self.group = f"binlake-{uuid.uuid4().hex[:12]}"

    def run(self, query: jdbc.ChunkQuery) -> Chunk:
        """Copy the rows of a query to data files by a Spark task, and return the staged chunk."""
        return self._run(partial(self._copy_by_task, query))

    def run_few(self, selected: Selected) -> Chunk:
        """Write rows that are in memory to data files by a Spark task, and return the staged chunk."""
        return self._run(partial(self._copy_few, selected))

    def cancel(self) -> None:
        """Cancel the Spark job; ``run`` then raises in its thread."""
        with suppress(Exception):  # its JVM may be gone
            self._copying.sessions().context.cancelJobGroup(self.group)

    def _run(self, copy: Callable[[SparkSession], Copied]) -> Chunk:
        with self._copying.sessions().lend() as session:
            session.sparkContext.setJobGroup(self.group, f"snapshot of {self._member}")
            return self._noted(partial(copy, session))

    def _translated(self, error: Exception) -> Exception:
        return translated(self._copying, self._member, self.folder, error)

    def _copy_by_task(self, query: jdbc.ChunkQuery, session: SparkSession) -> Copied:
        table, copying = self._member.table, self._copying
        own = copying.reads_directly(in_driver=settings.is_local(str(session.sparkContext.master)))
        if own and plain_files.can_hold(mirror_columns(table.schema, copying.invalid)):
            path, rows_per_file = self._attempts.table_path, table.rows_per_file
            keys = hash_key.keys_of(table.schema.masks.values())
            target = DataFiles(path, self._attempt, table.schema, copying.invalid, rows_per_file, keys)
            return direct_tasks.copy(session, query, target)
        read = direct_tasks.read if own else jdbc.read
        return self._write_by_spark(session, self._restored(read(session, query)))

    def _copy_few(self, selected: Selected, session: SparkSession) -> Copied:
        """Write a few rows without a Spark job where the columns allow it: a job that writes takes many times as long
        as one that returns the rows."""
        schema, invalid = self._member.table.schema, self._copying.invalid
        rows, columns = self._restored(selected(session)), mirror_columns(schema, invalid)
        if schema.row_metadata:
            opened = self._opened()
            written = WrittenInSql.at_once(0, opened.at_us, boundary_text(*opened.position.order))
            rows = as_written(rows, schema, written)
        return replace(self._write_few(session, rows, columns), has_row_metadata=bool(schema.row_metadata))

    def _write_few(self, session: SparkSession, rows: DataFrame, columns: Sequence[LakeColumn]) -> Copied:
        if not plain_files.can_hold(columns):
            return self._write_by_spark(session, rows)
        arrow = rows.toArrow()
        if [(field.name, field.type) for field in arrow.schema] != [(column.name, column.arrow) for column in columns]:
            return self._write_by_spark(session, rows)
        try:
            numbered = pa.Table.from_arrays(arrow.columns, schema=plain_files.numbered_as_new(arrow.schema))
            written = plain_files.write(self._attempts.table_path, self._attempt, numbered)
        except OSError as error:
            raise storage_errors.failed(f"copying {self._member} to {self.folder} failed", error) from error
        return self._counted(rows, written)

    def _restored(self, selected: DataFrame) -> DataFrame:
        return restore.restored(selected, self._member.table.schema, self._copying.invalid)

    def _write_by_spark(self, session: SparkSession, rows: DataFrame) -> Copied:
        table, copying = self._member.table, self._copying
        written = data_files.write(
            session,
            self._attempts.table_path,
            self._attempt,
            copying.records.delta_schema(table),
            rows,
            rows_per_file=table.rows_per_file,
        )
        return self._counted(rows, written)

    def _counted(self, rows: DataFrame, written: Sequence[DataFile]) -> Copied:
        schema, invalid = self._member.table.schema, self._copying.invalid
        return Copied(tuple(written), restore.invalid_dates(rows, schema, invalid))


def translated(copying: Copying, member: Member, folder: str, error: Exception) -> Exception:
    """Return Spark's error as one of binlake's, without row values: only the server's own message is repeated.

    folder: of the data files.
    """
    chain = java_errors.causes(error)
    if not chain:
        return error
    place = java_errors.place(chain)
    if refused := restore.refused_text(member.table.name, member.table.schema, storage_errors.messages(error)):
        return TableRefused(member.table, refused)
    place_of_error = f"{member}" + (f", {place}" if place else "")
    sql = _sql_error_of(error)
    if java_errors.executor_lost(error) or (sql and sql.code == SPENT):
        return ChunkFailed(
            f"{place_of_error}: the executor that copied it was lost",
            remedy="see in Spark's and the cluster's logs why executors end (memory, preemption), then run again",
        )
    cause = java_errors.root_cause(chain)
    if sql:
        whole = sql if sql.code or sql.text in cause else SqlError(0, f"{sql.text}: {cause}")
        unreached = "check that the server runs and that Spark's executors reach it, then run again"
        return server_failure(copying, member, place_of_error, whole, unreached)
    if stored := direct_tasks.storage_error(storage_errors.messages(error)):
        return storage_errors.failed(f"copying {place_of_error} to {folder} failed", OSError(stored))
    if storage_errors.is_cause(error):
        return storage_errors.failed(f"copying {place_of_error} to {folder} failed", error)
    return ChunkFailed(f"{place_of_error}: {cause}", remedy=storage_errors.remedy_of(cause))


def _sql_error_of(error: Exception) -> SqlError | None:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        if str(cause.getClass().getName()).startswith(("java.sql.", "com.mysql.cj.jdbc.exceptions.")):
            return SqlError(int(cause.getErrorCode()), str(cause.getMessage()).partition("\n")[0])
        if server_answer := direct.sql_error(str(cause.getMessage())):
            return server_answer
        cause = cause.getCause()
    return None


class SparkFewRows(FewRows):
    """Few rows by Spark's JDBC reader: it makes the rows of the query that ``jdbc.read`` would send, in the driver."""

    @contextmanager
    def _reader(self) -> Iterator[_Reader]:
        with self._copying.sessions().lend() as session:
            with self._translating(self._wave[0]):
                reader = _Reader(session, self._copying)
            try:
                yield reader
            finally:
                reader.close()

    def _translated(self, member: Member, error: Exception) -> Exception:
        return translated(self._copying, member, "no folder yet", error)


class _Query:
    """A table's query. options: of Spark's JDBC reader. schema: StructType of its rows."""

    def __init__(self, table: TableSnapshot, options: Any, schema: Any) -> None:
        self.weight = jdbc.weight_query(table.name, table.schema, few_rows.MOST_ROWS + 1)
        self.options, self.schema = options, schema


class _Reader:
    """Spark's JDBC reader run in the driver, with one connection for many queries."""

    def __init__(self, session: SparkSession, copying: Copying) -> None:
        self._session = session
        jvm: Any = session.sparkContext._jvm
        self._jvm, self._sql = jvm, jvm.org.apache.spark.sql
        self._jdbc = self._sql.execution.datasources.jdbc
        self._nothing = jvm.scala.Option.apply(None)
        self._calls = JdbcCalls(session)
        self._given = jdbc.connection_options(copying.endpoint, mariadb=copying.source.is_mariadb)
        self._dialect = self._sql.jdbc.JdbcDialects.get(self._given["url"])
        options = self._options("SELECT 1")
        self._connection = self._dialect.createConnectionFactory(options).apply(-1)
        self._calls.before_fetch(self._dialect, self._connection, options)
        self._statement = self._connection.createStatement()

    def _options(self, query: str) -> Any:
        return self._jdbc.JDBCOptions(to_scala_map(self._session, {**self._given, "dbtable": f"({query}) AS chunk"}))

    def close(self) -> None:
        with suppress(Exception):  # of a connection that is gone
            self._connection.close()

    def execute(self, statement: str) -> None:
        self._statement.execute(statement)

    def prepared(self, table: TableSnapshot) -> _Query:
        options = self._options(jdbc.chunk_query(table.name, table.schema, None, None))
        reader = getattr(getattr(self._jdbc, "JDBCRDD$"), "MODULE$")
        return _Query(table, options, self._calls.schema(reader, options, self._connection))

    def read(self, query: _Query) -> Selected | None:
        """Return the rows, None if there are more than a few. One view serves both: the rows read are those counted."""
        weighed = self._statement.executeQuery(query.weight)
        weighed.next()
        if weighed.getLong(1) > few_rows.MOST_ROWS or weighed.getLong(2) > few_rows.MOST_BYTES:
            return None
        plan = self._plan(query)
        classic = self._sql.classic.Dataset

        def selected(session: SparkSession) -> DataFrame:
            java_session: Any = session._jsparkSession
            return DataFrame(classic.ofRows(java_session, plan), session)

        return selected

    def _plan(self, query: _Query) -> Any:
        """Return the rows as a LocalRelation. Each is copied, as the reader reuses one row object."""
        catalyst = self._sql.catalyst
        attributes = catalyst.types.DataTypeUtils.toAttributes(query.schema)
        names = ", ".join(self._dialect.quoteIdentifier(name) for name in query.schema.fieldNames())
        text = f"SELECT {names} FROM {query.options.tableOrQuery()}"
        statement = self._connection.prepareStatement(text, _FORWARD_ONLY, _READ_ONLY)
        try:
            statement.setFetchSize(self._calls.fetch_size(self._dialect, query.options))
            utilities = getattr(getattr(self._jdbc, "JdbcUtils$"), "MODULE$")
            metrics = self._jvm.org.apache.spark.executor.InputMetrics()
            rows = self._calls.rows(utilities, statement.executeQuery(), self._dialect, query.schema, metrics)
            copied = catalyst.expressions.InterpretedProjection(attributes, attributes)
            data = rows.map(copied).toVector()
        finally:
            statement.close()
        return catalyst.plans.logical.LocalRelation(attributes, data, False, self._nothing)
