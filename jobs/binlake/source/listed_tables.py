"""The names of the server's databases and tables, without their shapes (catalog.py)."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import SYSTEM_DATABASES, PipelineConfig
from binlake.names import matches_database
from binlake.schema.table import TableName
from binlake.source.server import Source

BASE_TABLE, SEQUENCE, SYSTEM_VERSIONED = "BASE TABLE", "SEQUENCE", "SYSTEM VERSIONED"
MIRRORED = frozenset({BASE_TABLE, SEQUENCE, SYSTEM_VERSIONED})
"""Values of TABLE_TYPE that can be mirrored."""


@dataclass(frozen=True)
class Listed:
    """A table or view in the catalog, without its columns."""

    name: TableName
    kind: str
    engine: str
    rows: int
    size: int


def list_tables(source: Source) -> list[Listed]:
    """Return every table and view that the account may see, sorted by name, without columns."""
    rows = source.query(
        "SELECT table_schema AS d, table_name AS t, table_type AS kind, engine AS engine,"
        " COALESCE(table_rows, 0) AS n, COALESCE(data_length, 0) AS size FROM information_schema.tables"
        " WHERE table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"
    )
    tables = [
        Listed(TableName(row["d"], row["t"]), row["kind"], row["engine"] or "", int(row["n"]), int(row["size"]))
        for row in rows
    ]
    return sorted(tables, key=lambda listed: listed.name)


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
