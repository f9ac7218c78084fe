"""Calls of Spark's JDBC reader have the arguments that the release takes."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from binlake.spark.jdbc_calls import JdbcCalls


def of_release(version: str) -> tuple[JdbcCalls, MagicMock]:
    session = MagicMock()
    session.sparkContext.version = version
    return JdbcCalls(session), session.sparkContext._jvm.scala.Option.apply.return_value


@pytest.mark.parametrize(("version", "by_options"), [("4.0.4", False), ("4.1.1", False), ("4.2.0", True)])
def test_a_dialect_takes_options_since_4_2(version: str, by_options: bool) -> None:
    calls, nothing = of_release(version)
    dialect, options, reader, connection = (MagicMock() for _ in range(4))
    calls.before_fetch(dialect, connection, options)
    dialect.beforeFetch.assert_called_once_with(connection, options if by_options else options.parameters())
    size = calls.fetch_size(dialect, options)
    assert size is (dialect.getFetchSize.return_value if by_options else options.fetchSize.return_value)
    calls.schema(reader, options, connection)
    by = [] if version.startswith("4.0") else [connection]
    reader.resolveTable.assert_called_once_with(options, *by, *([nothing, nothing] if by_options else []))


@pytest.mark.parametrize(("version", "has_metrics"), [("4.0.4", False), ("4.1.1", True), ("4.2.0", True)])
def test_there_are_metrics_since_4_1(version: str, has_metrics: bool) -> None:
    calls, nothing = of_release(version)
    utilities, relation, options = MagicMock(), MagicMock(), MagicMock()
    calls.rows(utilities, "result", "dialect", "schema", "metrics")
    given = utilities.resultSetToSparkInternalRows.call_args.args
    assert given == ("result", "dialect", "schema", "metrics", *([nothing] if has_metrics else []))
    calls.with_options(relation, options)
    metrics = [relation.additionalMetrics()] if has_metrics else []
    relation.copy.assert_called_once_with(
        relation.schema(), relation.parts(), options, *metrics, relation.sparkSession()
    )
