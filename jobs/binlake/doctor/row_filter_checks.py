"""The share of the tables' rows that the conditions of ``rows`` leave, as far as the server's plans say it."""

from __future__ import annotations

from binlake.errors import SourceError
from binlake.schema.row_condition import conditions_of
from binlake.source import filtered_rows_estimate
from binlake.source.catalog import SourceTable
from binlake.source.server import Source


def rows_left(source: Source, table: SourceTable) -> str:
    """Return about how many rows a table's conditions leave, as a part of a sentence; empty without a condition."""
    if not (conditions := conditions_of(table.schema)):
        return ""
    said = conditions[0] if len(conditions) == 1 else " AND ".join(f"({text})" for text in conditions)
    if table.schema.snapshot_where:
        said += " (in snapshots alone)" if len(conditions) == 1 else " (the latter in snapshots alone)"
    try:
        left = filtered_rows_estimate.rows_left(source, table)
    except SourceError as error:
        return f", of which {said} leaves some ({error.message})"
    return f", of which {said} leaves about {left:,}"
