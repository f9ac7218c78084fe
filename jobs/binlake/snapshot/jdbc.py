"""Reading the source through Spark's JDBC: one chunk, one connection, one partition.

The columns travel under plain names (``c0``, ``c1`` …): Spark's dialects don't double quotes inside names.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlake.ddl.keys import key_index
from binlake.names import mysql_quote
from binlake.schema import datatypes
from binlake.schema.table import TableName, TableSchema
from binlake.snapshot import bounds, keystores
from binlake.snapshot.bounds import Bound
from binlake.source import session_settings
from binlake.source.connection import Endpoint
from binlake.spark import settings

DRIVER = "com.mysql.cj.jdbc.Driver"
_STREAM_ROWS = str(-(2**31))
"""Connector/J's fetch size that streams row by row; otherwise the whole result stands in memory."""
_GROUP = 32
STALLED = 3600
"""Seconds for which either side waits for the other within a result set."""


def select_list(schema: TableSchema) -> str:
    """The registry's expression of each column, as ``c0``, ``c1`` …"""
    return ", ".join(f"{value} AS c{number}" for number, value in enumerate(_values(schema)))


def _values(schema: TableSchema) -> list[str]:
    return [datatypes.entry(column).select(column) for column in schema.mirrored]


def weight_query(name: TableName, schema: TableSchema, most: int) -> str:
    """SELECT of how many rows there are, and of how many bytes their values; of ``most`` rows at most."""
    weight = _sum([f"COALESCE(OCTET_LENGTH({value}), 0)" for value in _values(schema)])
    table = f"{mysql_quote(name.database)}.{mysql_quote(name.table)}"
    return f"SELECT COUNT(*), COALESCE(SUM(weight), 0) FROM (SELECT {weight} AS weight FROM {table} LIMIT {most}) few"


def _sum(terms: list[str]) -> str:
    """In groups: a thousand in one row overrun MariaDB's stack, which goes down a level for each."""
    while len(terms) > 1:
        groups = (terms[start : start + _GROUP] for start in range(0, len(terms), _GROUP))
        terms = [f"({' + '.join(group)})" for group in groups]
    return terms[0]


def chunk_query(name: TableName, schema: TableSchema, lower: Bound | None, upper: Bound | None) -> str:
    """SELECT of the rows whose key is in [lower, upper) by the order of its index; None is no bound."""
    # Whether the server takes a range of the key for cheaper than the whole table would hang on its estimates, and an
    # index that holds all columns for cheaper than the table, whose rows then come in another order than the key's.
    index = key_index(schema)
    forced = f" FORCE INDEX ({mysql_quote(index)})" if index else ""
    return f"{whole_query(name, schema)}{forced}{between(schema, lower, upper)}"


def whole_query(name: TableName, schema: TableSchema) -> str:
    """SELECT of all rows, in any order."""
    return f"SELECT {select_list(schema)} FROM {mysql_quote(name.database)}.{mysql_quote(name.table)}"


def between(schema: TableSchema, lower: Bound | None, upper: Bound | None) -> str:
    """WHERE of the rows whose key is in [lower, upper); empty without bounds."""
    conditions = [bounds.from_on(schema, lower)] if lower else []
    conditions += [bounds.before(schema, upper)] if upper else []
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


@dataclass(frozen=True)
class ChunkQuery:
    """What a connection asks the server for. mariadb: its kind.

    init_statements: run before. seen: a user-level lock that somebody takes once he saw that they were.
    """

    endpoint: Endpoint
    text: str
    mariadb: bool
    init_statements: str = ""
    seen: str = ""


def read(spark: SparkSession, query: ChunkQuery) -> DataFrame:
    """A frame of one partition; its connection runs the statements before the query.

    Resolving the columns opens a connection of its own, without the statements.
    """
    options = connection_options(query.endpoint, mariadb=query.mariadb)
    if query.init_statements:
        options["sessionInitStatement"] = query.init_statements
    frame = spark.read.format("jdbc").options(**options).option("dbtable", f"({query.text}) AS chunk").load()
    return frame if settings.is_local(str(spark.sparkContext.master)) else _for_executors(spark, frame, options)


def _for_executors(spark: SparkSession, frame: DataFrame, options: dict[str, str]) -> DataFrame:
    """The same with its stores as executors have them: a frame's options are the driver's, who resolved it."""
    shipped = keystores.shipped(spark.sparkContext, options)
    if not shipped:
        return frame
    jvm: Any = spark.sparkContext._jvm
    java_session: Any = spark._jsparkSession
    relation = frame._jdf.queryExecution().analyzed().relation()
    parameters = relation.jdbcOptions().parameters()
    for option, url in shipped.items():
        parameters = parameters.updated(option, url)
    chosen = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(parameters)
    there = relation.copy(
        relation.schema(), relation.parts(), chosen, relation.additionalMetrics(), relation.sparkSession()
    )
    return DataFrame(java_session.baseRelationToDataFrame(there), spark)


def connection_options(endpoint: Endpoint, *, mariadb: bool) -> dict[str, str]:
    """Options of Spark's reader; what it doesn't know goes to Connector/J as properties.

    The password is an option, never in the URL: Spark redacts it in plans and logs.
    """
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return {
        "url": f"jdbc:mysql://{host}:{endpoint.port}/",
        "driver": DRIVER,
        "user": endpoint.user,
        "password": endpoint.password,
        "fetchsize": _STREAM_ROWS,
        "tinyInt1isBit": "false",
        "yearIsDateType": "false",
        "connectionTimeZone": "UTC",
        "forceConnectionTimeZoneToSession": "false",
        "characterEncoding": "UTF-8",
        "allowMultiQueries": "true",
        "jdbcCompliantTruncation": "false",
        "connectTimeout": "20000",
        "netTimeoutForStreamingResults": str(STALLED),
        "sessionVariables": ",".join(session_variables(mariadb)),
        **_tls(endpoint),
    }


def session_variables(mariadb: bool) -> tuple[str, ...]:
    """Assignments by which both readers' sessions are set."""
    return (
        *session_settings.assignments(mariadb=mariadb),
        f"net_write_timeout={STALLED}",
        "optimizer_switch='derived_merge=on'",  # Spark wraps the query; it must not be materialised
        "optimizer_switch='mrr=off'",  # rows come in the order of the key's index
    )


def _tls(endpoint: Endpoint) -> dict[str, str]:
    tls = endpoint.encryption
    if tls is None:
        # As the control connection: plain on the machine itself, encrypted where the server offers it elsewhere.
        mode = "DISABLED" if _is_loopback(endpoint.host) else "PREFERRED"
        return {"sslMode": mode, "allowPublicKeyRetrieval": "true"}
    if tls.verified:
        options = {"sslMode": "VERIFY_IDENTITY" if tls.by_name else "VERIFY_CA"}
        if tls.ca is not None:
            options.update(keystores.trusting(tls.ca))
    else:
        options = {"sslMode": "REQUIRED"}
    if tls.cert is not None:
        options.update(keystores.client(tls.cert, tls.key or tls.cert))
    return options


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
