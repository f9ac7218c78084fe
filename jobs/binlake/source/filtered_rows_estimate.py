"""About how many of a table's rows its conditions leave, as the server's plans say it: no row is read for that."""

from __future__ import annotations

from binlake.schema.row_condition import conditions_of, parsed, server_sql
from binlake.source.catalog import SourceTable
from binlake.source.server import Source


def rows_left(source: Source, table: SourceTable) -> int | None:
    """Return the estimate; None for a table without conditions. Raises SourceError."""
    if not (conditions := conditions_of(table.schema)):
        return None
    condition = " AND ".join(server_sql(parsed(text), table.schema) for text in conditions)
    verb = "EXPLAIN EXTENDED" if source.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    plan = source.query(f"{verb} SELECT 1 FROM {table.name.quoted} WHERE {condition}")[0]
    return round(int(plan["rows"] or 0) * float(plan["filtered"] or 100) / 100)
