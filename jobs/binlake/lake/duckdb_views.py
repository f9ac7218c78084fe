"""A DuckDB connection in which tables of the lake, each at one version, are views. Needs the extra ``duckdb``."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from binlake import versions
from binlake.errors import LakeError, UsageError
from binlake.lake.table_at import TableAt
from binlake.lake.view_statements import duckdb_scan
from binlake.names import ansi_quote, ansi_string
from binlake.storage import accounts, stores

if TYPE_CHECKING:
    import duckdb

INSTALL = "pip install 'binlake[duckdb]'"
_CATALOG = "memory"
"""The catalog of a new connection, which a schema needs that is called like one of DuckDB's: temp, system, memory."""


def connection_of(tables: Sequence[TableAt]) -> duckdb.DuckDBPyConnection:
    """Return a new connection with a view of each table. Raises UsageError where DuckDB isn't installed or can't reach
    the store; LakeError."""
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(f"DuckDB isn't installed: {error}", remedy=INSTALL) from error
    versions.refuse_misfit("duckdb", extra="duckdb")
    connection = duckdb.connect()
    try:
        load_extension(connection, "delta")
        for secret in {secret for table in tables if (secret := _secret(table.path))}:
            load_extension(connection, "httpfs")
            connection.execute(secret)
        for database in sorted({table.name.database for table in tables}):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_CATALOG}.{ansi_quote(database)}")
        for table in tables:
            _create_view(connection, table)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_view(connection: duckdb.DuckDBPyConnection, table: TableAt) -> None:
    import duckdb

    name = f"{_CATALOG}.{ansi_quote(table.name.database)}.{ansi_quote(table.name.table)}"
    try:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {duckdb_scan(table.path, table.version)}")
    except duckdb.CatalogException as error:
        raise UsageError(
            f"DuckDB can't distinguish {table.name} from another table, whose name differs in its case alone",
            remedy="choose tables: .duckdb('database.table', …)",
        ) from error
    except duckdb.Error as error:
        raise table.failure(error) from error


def load_extension(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Load an extension: of the package that the extra brings, else one that was installed by INSTALL. Raises
    LakeError."""
    import duckdb

    package = importlib.util.find_spec(f"duckdb_extension_{extension}")
    folders = package.submodule_search_locations or () if package else ()
    files = [
        Path(folder, "extensions", f"v{duckdb.__version__}", f"{extension}.duckdb_extension") for folder in folders
    ]
    packed = next((file for file in files if file.is_file()), None)
    try:
        connection.execute(f"LOAD {ansi_string(str(packed))}" if packed else f"LOAD {extension}")
    except duckdb.Error as error:
        raise LakeError(
            f"DuckDB's extension {extension} can't be loaded: {str(error).splitlines()[0]}",
            remedy=f"{INSTALL}, or run INSTALL {extension} in DuckDB where it reaches its own server",
        ) from error


def _secret(path: str) -> str | None:
    """Return the statement by which DuckDB reaches a path's bucket; None for a folder. Raises UsageError,
    ConfigurationError."""
    if "://" not in path:
        return None
    if stores.store_of(path) != "s3":
        raise UsageError(
            f"DuckDB isn't offered for {path}: only lakes in folders and on S3 were tried",
            remedy="read tables by arrow(…), and query these in DuckDB",
        )
    stores.check(path)
    environment, s3 = accounts.environment_of(path), stores.S3.at(path)
    key, secret, token = (environment.get(variable, "") for variable in accounts.SECRETS)
    if not key:
        raise UsageError(
            "DuckDB isn't offered for a lake on S3 by a profile or a role: only by a key was it tried",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or read tables by arrow(…)",
        )
    bucket = stores.container_and_name(path)[0]
    options = {"KEY_ID": key, "SECRET": secret, "SESSION_TOKEN": token, "REGION": s3.region}
    if s3.endpoint:
        options |= {"ENDPOINT": s3.endpoint.partition("://")[2], "URL_STYLE": "path"}
        options |= {"USE_SSL": "false" if s3.is_plain else "true"}
    named = ", ".join(f"{name} {ansi_string(value)}" for name, value in options.items() if value)
    return f"CREATE OR REPLACE SECRET {ansi_quote(bucket)} (TYPE s3, SCOPE {ansi_string(f's3://{bucket}')}, {named})"
