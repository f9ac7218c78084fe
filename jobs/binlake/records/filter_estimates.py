"""About how many rows of tables met their conditions (``rows`` in the YAML) when they were copied."""

from __future__ import annotations

from collections.abc import Collection

from binlake.schema.row_condition import conditions_of
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dumps
from binlake.store.conditions import rows_of
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import FilterEstimateRow


def row_of(name: TableName, schema: TableSchema, *, rows: int, left: int) -> FilterEstimateRow:
    """Return the row of a table. rows, left: of all of its rows and of those that meet its conditions, as the server
    estimates them now."""
    conditions = dumps(conditions_of(schema))
    return FilterEstimateRow(**vars(name), conditions=conditions, rows=rows, left=left, at_us=now_us())


def write(metadata: Metadata, estimates: Collection[FilterEstimateRow]) -> None:
    """Put rows in the place of those of the same tables."""
    if estimates:
        names = {row.name for row in estimates}
        kept = [row for row in FilterEstimateRow.read(metadata) if row.name not in names]
        FilterEstimateRow.replace(metadata, "true", [*kept, *estimates])


def of_table(metadata: Metadata, name: TableName, schema: TableSchema) -> FilterEstimateRow | None:
    """Return the row of a table; None without one of the conditions that it has."""
    row = FilterEstimateRow.first(metadata, where=rows_of(name)) if conditions_of(schema) else None
    return row if row and row.conditions == dumps(conditions_of(schema)) else None
