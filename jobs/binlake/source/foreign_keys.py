"""All foreign keys of some databases, as the server has them now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from binlake.schema.foreign_key import ForeignKey
from binlake.schema.table import TableName
from binlake.source.server import Source


def read(source: Source, databases: Iterable[str]) -> list[ForeignKey]:
    """Return the foreign keys of tables that the account may see. Each database has its own query: without a name
    MariaDB opens every table of the server."""
    parts: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for database in sorted(set(databases)):
        for row in source.query(
            "SELECT table_name AS t, constraint_name AS c, column_name AS col, referenced_table_schema AS pd,"
            " referenced_table_name AS pt, referenced_column_name AS ref FROM information_schema.key_column_usage"
            " WHERE table_schema = %s AND referenced_table_name IS NOT NULL ORDER BY ordinal_position",
            [database],
        ):
            parts[database, row["t"], row["c"]].append(row)
    return sorted(
        ForeignKey(
            child=TableName(database, table),
            name=name,
            columns=tuple(row["col"] for row in rows),
            parent=TableName(rows[0]["pd"], rows[0]["pt"]),
            referenced=tuple(row["ref"] for row in rows),
        )
        for (database, table, name), rows in parts.items()
    )
