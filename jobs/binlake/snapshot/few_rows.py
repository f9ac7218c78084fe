"""Tables of few rows, read one after the other by one connection of the driver, in one read view.

A Spark task with its own connection costs a hundred times as much as reading such a table. Spark's JDBC reader makes
the rows here, too, from the query that ``jdbc.read`` would send; only it runs in the driver.
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
"""The most rows of a table read this way."""
MOST_BYTES = 1 << 20
"""The most bytes of such a table, both as the server stores it and as sent: the driver holds a whole wave."""
MOST_TABLES = 50
"""The most tables of a wave: it bounds what a killed run copies again, and how long writes wait for the views."""
_FORWARD_ONLY, _READ_ONLY = 1003, 1007
"""Constants of java.sql.ResultSet."""


def fits(table: TableSnapshot) -> bool:
    """Tell whether a table can be read this way, by the server's estimates."""
    return (
        table.transactional
        and not table.many_rows
        and len(table.chunks) == 1
        and table.estimate <= MOST_ROWS
        and table.size <= MOST_BYTES
    )


class FewRows:
    """The connection that reads the tables of a wave, and its gate."""

    def __init__(self, copying: Copying, wave: Sequence[Member]) -> None:
        self._copying = copying
        self._wave = wave
        self.gate = Gate(tuple(member.table.name for member in wave))

    def run(self) -> list[Selected | None]:
        """Read each table's rows, in the wave's order; None for a table that has more than a few. Runs in its own
        thread.

        A table that can't be read raises when its rows are asked for; an error before the view is open is raised here,
        as ``translated`` returns it.
        """
        with self._copying.sessions.lend() as session:
            with self._translating(self._wave[0]):
                reader = _Reader(session, self._copying)
            try:
                queries = [self._prepared(reader, member) for member in self._wave]
                self._open_view(reader)
                return [self._read(reader, member, query) for member, query in zip(self._wave, queries, strict=True)]
            finally:
                reader.close()

    @contextmanager
    def _translating(self, member: Member) -> Iterator[None]:
        """Translate errors as errors of this member."""
        try:
            yield
        except Exception as error:
            raise translated(self._copying, member, "no folder yet", error) from None

    def _prepared(self, reader: _Reader, member: Member) -> _Query:
        with self._translating(member):
            return reader.prepared(member.table)

    def _open_view(self, reader: _Reader) -> None:
        by_name = {member.table.name: member for member in self._wave}
        for name, statement in self.gate.statements(mariadb=self._copying.source.is_mariadb):
            with self._translating(by_name[name] if name else self._wave[0]):
                reader.execute(statement)

    def _read(self, reader: _Reader, member: Member, query: _Query) -> Selected | None:
        try:
            with self._translating(member):
                return reader.read(query)
        except Exception as error:
            failure = error

        def failed(_session: SparkSession) -> DataFrame:
            raise failure

        return failed


class _Query:
    """A table's query. options: of Spark's JDBC reader. schema: StructType of its rows."""

    def __init__(self, table: TableSnapshot, options: Any, schema: Any) -> None:
        self.weight = jdbc.weight_query(table.name, table.schema, MOST_ROWS + 1)
        self.options, self.schema = options, schema


class _Reader:
    """Spark's JDBC reader run in the driver, with one connection for many queries."""

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
        """Return the rows, None if there are more than a few. One view serves both: the rows read are those counted."""
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
        """Return the rows as a LocalRelation. Each is copied, as the reader reuses one row object."""
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
