"""Shapes under which a table had values, or rows, that are withheld from the lake by now."""

from __future__ import annotations

from binlake.config.units import HOUR_US
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


def showed_more(metadata: Metadata, life: Life, since_us: int) -> bool:
    """Return whether the lake had more under a shape that a table, or another of its name, had at a time or since.
    since_us: the time, in microseconds since 1970, by a clock that differs from this one's by an hour at most. Raises
    LakeError."""
    where = f"({rows_of(life.name)}) OR table_id = {literal(life.id)}"
    rows = sorted(ShapeRow.read(metadata, where=where), key=lambda row: row.at_us)
    earlier = [row for row in rows if row.at_us <= since_us - HOUR_US]
    later = rows[len(earlier) :]
    return any(shows_more(row.shape, life.schema) for row in (*earlier[-1:], *later))
