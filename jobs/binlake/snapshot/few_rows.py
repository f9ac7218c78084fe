"""Tables of few rows, read one after the other by one connection of the driver, in its one read view.

A Spark task with a connection of its own costs a hundred times what the rows of such a table do. Here, too, Spark's own
JDBC reader makes the rows, of the query that ``jdbc.read`` would send: only the place differs where it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlake.snapshot import jdbc
from binlake.snapshot.chunks import TableSnapshot
from binlake.snapshot.copying import Copying, Member, Selected, translated
from binlake.source.locks import Gate
from binlake.spark.java import to_scala_map

MOST_ROWS = 1000
"""Of a table."""
MOST_BYTES = 1 << 20
"""Of a table, as the server keeps it and as its values are sent: the driver holds those of a wave."""
MOST_TABLES = 50
"""Of a wave: what a run copies again that was killed in it, and how long writes wait for views that open in turn."""
_FORWARD_ONLY, _READ_ONLY = 1003, 1007
"""java.sql.ResultSet's."""


def fits(table: TableSnapshot) -> bool:
    """As far as the server's estimates tell."""
    return (
        table.transactional
        and not table.many_rows
        and len(table.chunks) == 1
        and table.estimate <= MOST_ROWS
        and table.size <= MOST_BYTES
    )


class FewRows:
    """The connection that reads the tables of a wave. ``gate`` is its own."""

    def __init__(self, copying: Copying, wave: Sequence[Member]) -> None:
        self._copying = copying
        self._wave = wave
        self.gate = Gate(tuple(member.table.name for member in wave))

    def run(self) -> list[Selected | None]:
        """In a thread of its own, each table's rows; those that can't be read raise when they are asked for. None for a
        table of more than a few. Raises what ``translated`` makes of an error before the view is open."""
        with self._copying.sessions.one() as session:
            with self._about(self._wave[0]):
                reader = _Reader(session, self._copying)
            try:
                queries = [self._prepared(reader, member) for member in self._wave]
                self._open_view(reader)
                return [self._read(reader, *one) for one in zip(self._wave, queries, strict=True)]
            finally:
                reader.close()

    @contextmanager
    def _about(self, member: Member) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise translated(self._copying, member, "no folder yet", error) from None

    def _prepared(self, reader: _Reader, member: Member) -> _Query:
        with self._about(member):
            return reader.prepared(member.table)

    def _open_view(self, reader: _Reader) -> None:
        by_name = {member.table.name: member for member in self._wave}
        for name, statement in self.gate.statements(mariadb=self._copying.source.is_mariadb):
            with self._about(by_name[name] if name else self._wave[0]):
                reader.execute(statement)

    def _read(self, reader: _Reader, member: Member, query: _Query) -> Selected | None:
        try:
            with self._about(member):
                return reader.read(query)
        except Exception as error:
            failure = error

        def failed(_session: SparkSession) -> DataFrame:
            raise failure

        return failed


class _Query:
    """A table's query. options: Spark's. schema: of its rows, StructType."""

    def __init__(self, table: TableSnapshot, options: Any, schema: Any) -> None:
        self.weight = jdbc.weight_query(table.name, table.schema, MOST_ROWS + 1)
        self.options, self.schema = options, schema


class _Reader:
    """What Spark's JDBC reader does in a task, on the driver, by one connection for many queries."""

    def __init__(self, session: SparkSession, copying: Copying) -> None:
        self._session = session
        jvm: Any = session.sparkContext._jvm
        self._jvm, self._sql = jvm, jvm.org.apache.spark.sql
        self._jdbc = self._sql.execution.datasources.jdbc
        self._nothing = jvm.scala.Option.apply(None)
        self._given = jdbc.connection_options(copying.endpoint, mariadb=copying.source.is_mariadb)
        self._dialect = self._sql.jdbc.JdbcDialects.get(self._given["url"])
        options = self._options("SELECT 1")
        self._connection = self._dialect.createConnectionFactory(options).apply(-1)
        self._dialect.beforeFetch(self._connection, options)
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
        return _Query(table, options, reader.resolveTable(options, self._connection, self._nothing, self._nothing))

    def read(self, query: _Query) -> Selected | None:
        """None where there are more than a few; the view is one, so that the rows are those that were counted."""
        weighed = self._statement.executeQuery(query.weight)
        weighed.next()
        if weighed.getLong(1) > MOST_ROWS or weighed.getLong(2) > MOST_BYTES:
            return None
        plan = self._plan(query)
        classic = self._sql.classic.Dataset

        def selected(session: SparkSession) -> DataFrame:
            java_session: Any = session._jsparkSession
            return DataFrame(classic.ofRows(java_session, plan), session)

        return selected

    def _plan(self, query: _Query) -> Any:
        """The rows as a LocalRelation, each a copy: the reader hands on one row that changes."""
        catalyst = self._sql.catalyst
        attributes = catalyst.types.DataTypeUtils.toAttributes(query.schema)
        names = ", ".join(self._dialect.quoteIdentifier(name) for name in query.schema.fieldNames())
        text = f"SELECT {names} FROM {query.options.tableOrQuery()}"
        statement = self._connection.prepareStatement(text, _FORWARD_ONLY, _READ_ONLY)
        try:
            statement.setFetchSize(self._dialect.getFetchSize(query.options))
            rows = getattr(getattr(self._jdbc, "JdbcUtils$"), "MODULE$").resultSetToSparkInternalRows(
                statement.executeQuery(),
                self._dialect,
                query.schema,
                self._jvm.org.apache.spark.executor.InputMetrics(),
                self._nothing,
            )
            copied = catalyst.expressions.InterpretedProjection(attributes, attributes)
            data = rows.map(copied).toVector()
        finally:
            statement.close()
        return catalyst.plans.logical.LocalRelation(attributes, data, False, self._nothing)
