"""Reading the source through Spark's JDBC: one chunk, one connection, one partition.

The columns travel under plain names (``c0``, ``c1`` …): Spark's dialects don't double quotes inside names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from binlake.ddl.keys import key_index
from binlake.names import mysql_quote
from binlake.schema import datatypes
from binlake.schema.row_condition import beyond_snapshot, server_condition
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import bounds, keystores, socks_door
from binlake.snapshot.bounds import Bound
from binlake.source import authentication, session_settings
from binlake.source.endpoint import Endpoint
from binlake.spark import settings
from binlake.spark.jdbc_calls import JdbcCalls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER = "com.mysql.cj.jdbc.Driver"
_STREAM_ROWS = str(-(2**31))
"""Connector/J's fetch size that streams row by row; otherwise the whole result is held in memory."""
_GROUP = 32
STALLED = 3600
"""Seconds for which either side waits for the other within a result set."""


def select_list(schema: TableSchema) -> str:
    """Return the select list: the type registry's expression of each column, as ``c0``, ``c1`` …"""
    return ", ".join(f"{value} AS c{number}" for number, value in enumerate(_values(schema)))


def _values(schema: TableSchema) -> list[str]:
    return [_value(schema.column(column.name)) for column in schema.mirrored]


def _value(column: Column) -> str:
    if column.mask is not None and column.mask.kind == "nothing":
        return "CAST(NULL AS CHAR)"
    return datatypes.entry(column).select(column)


def weight_query(name: TableName, schema: TableSchema, most: int) -> str:
    """Return a SELECT of the row count and the total bytes of the values, over ``most`` rows at most."""
    weight = _sum([f"COALESCE(OCTET_LENGTH({value}), 0)" for value in _values(schema)])
    rows = f"{name.quoted}{_where(server_condition(schema))} LIMIT {0 if schema.without_rows else most}"
    return f"SELECT COUNT(*), COALESCE(SUM(weight), 0) FROM (SELECT {weight} AS weight FROM {rows}) few"


def _sum(terms: list[str]) -> str:
    """Return the SQL sum of terms, nested in groups: MariaDB's stack overflows on a thousand terms in one row."""
    while len(terms) > 1:
        groups = (terms[start : start + _GROUP] for start in range(0, len(terms), _GROUP))
        terms = [f"({' + '.join(group)})" for group in groups]
    return terms[0]


def chunk_query(
    name: TableName,
    schema: TableSchema,
    lower: Bound | None,
    upper: Bound | None,
    *,
    partitions: Sequence[str] = (),
    unpruned: bool = False,
    beyond: bool = False,
) -> str:
    """Return a SELECT of the rows whose key is in [lower, upper) in the order of its index; None is no bound.

    partitions: rows of these alone. unpruned, beyond: see ``between``.
    """
    # Without FORCE INDEX, the server's estimates would decide whether it reads a range of the key or the whole table,
    # or another index that has all columns, whose rows come in another order than the key's.
    index = key_index(schema)
    forced = f" FORCE INDEX ({mysql_quote(index)})" if index else ""
    chosen = f" PARTITION ({', '.join(map(mysql_quote, partitions))})" if partitions else ""
    return (
        f"{whole_query(name, schema)}{chosen}{forced}{between(schema, lower, upper, unpruned=unpruned, beyond=beyond)}"
    )


def whole_query(name: TableName, schema: TableSchema) -> str:
    """Return a SELECT without a WHERE clause: of all rows, in any order, also of those that a condition leaves out."""
    return f"SELECT {select_list(schema)} FROM {name.quoted}"


def between(
    schema: TableSchema, lower: Bound | None, upper: Bound | None, *, unpruned: bool = False, beyond: bool = False
) -> str:
    """Return the WHERE clause for the rows whose key is in [lower, upper) that a snapshot copies, by the table's
    conditions; empty without both. A mirror without rows takes none of them. unpruned: it looks at the rows of all
    partitions, see ``as_unpruned``. beyond: for those that the mirror may have and a snapshot doesn't copy."""
    if schema.without_rows:
        return " WHERE FALSE"
    condition = within(schema, lower, upper)
    wanted = (beyond_snapshot if beyond else server_condition)(schema)
    return _where(as_unpruned([condition]) if unpruned and condition else condition, wanted)


def _where(*conditions: str) -> str:
    wanted = [condition for condition in conditions if condition]
    return f" WHERE {' AND '.join(wanted)}" if wanted else ""


def in_ranges(schema: TableSchema, conditions: Sequence[str], *, beyond: bool = False) -> str:
    """Return the WHERE clause for the mirror's rows that meet one of some conditions, whatever partition they are in.
    beyond: see ``between``."""
    return _where(as_unpruned(conditions), (beyond_snapshot if beyond else server_condition)(schema))


def within(schema: TableSchema, lower: Bound | None, upper: Bound | None) -> str:
    """Return the SQL condition for the rows whose key is in [lower, upper); empty without bounds."""
    conditions = [bounds.from_on(schema, lower)] if lower else []
    conditions += [bounds.before(schema, upper)] if upper else []
    return " AND ".join(conditions)


def as_unpruned(conditions: Sequence[str]) -> str:
    """Return the SQL condition for the rows that meet one of some conditions, whatever partition they are in.

    A row may be in another partition than its values say (EXCHANGE PARTITION … WITHOUT VALIDATION), where a plain
    condition doesn't look: the server prunes partitions by it. No server prunes by IF (tried on MySQL 9.7 and MariaDB
    10.11 and 11.8); it reads the whole index.
    """
    return f"IF({' OR '.join(f'({condition})' for condition in conditions)}, 1, 0)"


@dataclass(frozen=True)
class ChunkQuery:
    """A chunk's query, and what its connection needs.

    mariadb: whether the server is MariaDB. init_statements: run before the query. seen: a user-level lock that the
    driver takes once it has seen that they were run.
    """

    endpoint: Endpoint
    text: str
    mariadb: bool
    init_statements: str = ""
    seen: str = ""


def read(spark: SparkSession, query: ChunkQuery) -> DataFrame:
    """Return a frame of one partition; its connection runs the init statements before the query.

    Resolving the columns opens a connection of its own, without the statements.
    """
    options = connection_options(query.endpoint, mariadb=query.mariadb)
    if query.init_statements:
        options["sessionInitStatement"] = query.init_statements
    frame = spark.read.format("jdbc").options(**options).option("dbtable", f"({query.text}) AS chunk").load()
    return frame if settings.is_local(str(spark.sparkContext.master)) else _for_executors(spark, frame, options)


def _for_executors(spark: SparkSession, frame: DataFrame, options: dict[str, str]) -> DataFrame:
    """Return the frame with its key stores at the executors' paths: its options were resolved with the driver's."""
    from pyspark.sql import DataFrame

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
    there = JdbcCalls(spark).with_options(relation, chosen)
    return DataFrame(java_session.baseRelationToDataFrame(there), spark)


def connection_options(endpoint: Endpoint, *, mariadb: bool) -> dict[str, str]:
    """Return options of Spark's JDBC reader; those it doesn't know go to Connector/J as properties.

    The password is an option, never in the URL: Spark redacts it in plans and logs.
    """
    account = endpoint.newest
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return {
        "url": f"jdbc:mysql://{host}:{endpoint.port}/",
        "driver": DRIVER,
        "user": account.user,
        "password": account.secret(),
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
        **(socks_door.options(endpoint.tunnel, endpoint.host, endpoint.port) if endpoint.tunnel else {}),
    }


def session_variables(mariadb: bool) -> tuple[str, ...]:
    """Return the assignments that set the session variables of both readers."""
    return (
        *session_settings.assignments(mariadb=mariadb),
        f"net_write_timeout={STALLED}",
        "optimizer_switch='derived_merge=on'",  # Spark wraps the query; it must not be materialised
        "optimizer_switch='mrr=off'",  # rows come in the order of the key's index
    )


def _tls(endpoint: Endpoint) -> dict[str, str]:
    tls = endpoint.encryption
    if tls is None:
        # Same as the control connection: plain on this machine, elsewhere encrypted if the server offers it.
        mode = "DISABLED" if endpoint.is_this_machine else "PREFERRED"
        return {"sslMode": mode, **_password_exchange(endpoint)}
    if tls.verified:
        options = {"sslMode": "VERIFY_IDENTITY" if tls.by_name else "VERIFY_CA"}
        if tls.ca is not None:
            options.update(keystores.trusting(tls.ca))
    else:
        options = {"sslMode": "REQUIRED", **_password_exchange(endpoint)}
    if tls.cert is not None:
        options.update(keystores.client(tls.cert, tls.key or tls.cert))
    return options


def _password_exchange(endpoint: Endpoint) -> dict[str, str]:
    """Return the options by which an unproved server doesn't get the password.

    Connector/J can't take part in caching_sha2_password without sending the password if it is asked to.
    """
    if endpoint.sends_password:
        return {"allowPublicKeyRetrieval": "true"}
    telling = (*authentication.ALWAYS_TELLING, authentication.CACHED)
    return {
        "allowPublicKeyRetrieval": "false",
        "disabledAuthenticationPlugins": ",".join(telling),
        "defaultAuthenticationPlugin": authentication.HASHED,
    }
