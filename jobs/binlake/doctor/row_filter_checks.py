"""What the conditions of ``rows`` leave of the tables, as far as the server's plans say it."""

from __future__ import annotations

from binlake.errors import SourceError
from binlake.schema.row_condition import conditions_of, parsed, server_sql
from binlake.source.catalog import SourceTable
from binlake.source.server import Source


def rows_left(source: Source, table: SourceTable) -> str:
    """Return about how many rows a table's conditions leave, as a part of a sentence; empty without a condition.

    The server estimates it (EXPLAIN), and reads no row for that.
    """
    if not (conditions := conditions_of(table.schema)):
        return ""
    condition = " AND ".join(server_sql(parsed(text), table.schema) for text in conditions)
    said = conditions[0] if len(conditions) == 1 else " AND ".join(f"({text})" for text in conditions)
    if table.schema.snapshot_where:
        said += " (in snapshots alone)" if len(conditions) == 1 else " (the latter in snapshots alone)"
    verb = "EXPLAIN EXTENDED" if source.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    try:
        plan = source.query(f"{verb} SELECT 1 FROM {table.name.quoted} WHERE {condition}")[0]
    except SourceError as error:
        return f", of which {said} leaves some ({error.message})"
    left = int(plan["rows"] or 0) * float(plan["filtered"] or 100) / 100
    return f", of which {said} leaves about {left:,.0f}"
