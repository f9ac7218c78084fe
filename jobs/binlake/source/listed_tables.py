"""The names of the server's databases and tables, without their shapes (catalog.py)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from binlake.config import SYSTEM_DATABASES, PipelineConfig
from binlake.names import matches_database, mysql_string
from binlake.schema.table import TableName
from binlake.source.server import Source

BASE_TABLE, SEQUENCE, SYSTEM_VERSIONED = "BASE TABLE", "SEQUENCE", "SYSTEM VERSIONED"
MIRRORED = frozenset({BASE_TABLE, SEQUENCE, SYSTEM_VERSIONED})
"""Values of TABLE_TYPE that can be mirrored."""

_OF_USERS = "table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"


@dataclass(frozen=True)
class Listed:
    """A table or view in the catalog, without its columns. rows, size: the server's estimates."""

    name: TableName
    kind: str
    engine: str
    rows: int
    size: int
    partitioned: bool = False


def list_tables(source: Source) -> list[Listed]:
    """Return every table and view that the account may see, sorted by name, without columns."""
    rows = source.query(
        "SELECT table_schema AS d, table_name AS t, table_type AS kind, engine AS engine,"
        " COALESCE(table_rows, 0) AS n, COALESCE(data_length, 0) AS size,"
        " COALESCE(create_options LIKE '%%partitioned%%', 0) AS parts FROM information_schema.tables"
        f" WHERE {_OF_USERS}"
    )
    tables = [
        Listed(
            TableName(row["d"], row["t"]),
            row["kind"],
            row["engine"] or "",
            int(row["n"]),
            int(row["size"]),
            bool(int(row["parts"])),
        )
        for row in rows
    ]
    return sorted(tables, key=lambda listed: listed.name)


def included_among(source: Source, config: PipelineConfig, known: Container[TableName]) -> list[TableName]:
    """Return the included tables that aren't known, as ``included_tables`` does; no views.

    The names of all tables are asked for first: MariaDB opens a table's files for anything else.
    """
    rows = source.query(f"SELECT table_schema AS d, table_name AS t FROM information_schema.tables WHERE {_OF_USERS}")
    names = (TableName(row["d"], row["t"]) for row in rows)
    unknown = {name for name in names if name not in known and config.included(name)}
    if not unknown:
        return []
    databases = ", ".join(sorted({mysql_string(name.database) for name in unknown}))
    kinds = source.query(
        "SELECT table_schema AS d, table_name AS t, table_type AS kind FROM information_schema.tables"
        f" WHERE table_schema IN ({databases})"
    )
    tables = {TableName(row["d"], row["t"]) for row in kinds if row["kind"] in MIRRORED}
    return sorted(unknown & tables)


def included_tables(source: Source, config: PipelineConfig) -> list[TableName]:
    """Return the tables that the pipeline includes and the account may see, sorted by name; no views."""
    return [listed.name for listed in list_tables(source) if listed.kind in MIRRORED and config.included(listed.name)]


def included_databases(source: Source, config: PipelineConfig) -> list[str]:
    """Return the databases that the account may see and that may hold an included table."""
    patterns = config.tables.include
    visible = user_databases(source)
    return [database for database in visible if any(matches_database(pattern, database) for pattern in patterns)]


def user_databases(source: Source) -> list[str]:
    """Return the databases that the account may see, without the server's own, sorted by name."""
    rows = source.query("SELECT schema_name AS d FROM information_schema.schemata")
    return sorted(row["d"] for row in rows if row["d"].lower() not in SYSTEM_DATABASES)
