"""Shapes under which a table had values, or rows, that are withheld from the lake by now."""

from __future__ import annotations

from binlake.planner.steps import Life
from binlake.schema.table import TableSchema
from binlake.store.conditions import literal, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import ShapeRow


def shows_more(former: TableSchema, now: TableSchema) -> bool:
    """Return whether the lake had values of a table under a former shape that it is not to have now: of columns that
    are excluded or masked otherwise since, or of rows that a condition may leave out."""
    if now.where and former.where != now.where:
        return True
    masks, had = now.masks, former.masks
    names = {column.served_name.lower() for column in former.mirrored}
    return any(name in now.excluded or (name in masks and had.get(name) != masks[name]) for name in names)


def showed_more(metadata: Metadata, life: Life) -> bool:
    """Return whether the lake had more under any shape that was recorded of a table, or of its name. Raises
    LakeError."""
    where = f"({rows_of(life.name)}) OR table_id = {literal(life.id)}"
    return any(shows_more(row.shape, life.schema) for row in ShapeRow.read(metadata, where=where))
