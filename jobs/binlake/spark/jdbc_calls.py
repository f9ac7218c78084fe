"""Calls of Spark's own JDBC reader that differ between releases of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JdbcCalls:
    """The calls as the session's release of Spark has them. Arguments are objects of the JVM."""

    def __init__(self, session: SparkSession) -> None:
        context = session.sparkContext
        major, minor = context.version.split(".")[:2]
        self._release = int(major), int(minor)
        jvm: Any = context._jvm
        self._nothing = jvm.scala.Option.apply(None)

    def before_fetch(self, dialect: Any, connection: Any, options: Any) -> None:
        """Make a connection ready for a query with these JDBCOptions."""
        dialect.beforeFetch(connection, options if self._release >= (4, 2) else options.parameters())

    def fetch_size(self, dialect: Any, options: Any) -> int:
        """Return how many rows are fetched at once."""
        size: int = dialect.getFetchSize(options) if self._release >= (4, 2) else options.fetchSize()
        return size

    def schema(self, reader: Any, options: Any, connection: Any) -> Any:
        """Return the StructType of a query's rows; Spark 4.0 asks for it by another connection. reader: the object
        JDBCRDD."""
        by = (connection,) if self._release >= (4, 1) else ()
        more = (self._nothing, self._nothing) if self._release >= (4, 2) else ()
        return reader.resolveTable(options, *by, *more)

    def rows(self, utilities: Any, result: Any, dialect: Any, schema: Any, metrics: Any) -> Any:
        """Return the rows of a ResultSet, one row object for all of them. utilities: the object JdbcUtils."""
        more = (self._nothing,) if self._release >= (4, 1) else ()
        return utilities.resultSetToSparkInternalRows(result, dialect, schema, metrics, *more)

    def with_options(self, relation: Any, options: Any) -> Any:
        """Return a JDBCRelation with other JDBCOptions."""
        metrics = (relation.additionalMetrics(),) if self._release >= (4, 1) else ()
        return relation.copy(relation.schema(), relation.parts(), options, *metrics, relation.sparkSession())
