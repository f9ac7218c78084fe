"""Shapes under which a table had values, or rows, that are withheld from the lake by now."""

from __future__ import annotations

from collections.abc import Mapping

from binlake.config.units import HOUR_US
from binlake.planner.steps import Life
from binlake.schema.mask import Mask
from binlake.schema.table import TableSchema
from binlake.store.conditions import literal, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import ShapeRow


def shows_more(former: TableSchema, now: TableSchema, masks: Mapping[str, Mask]) -> bool:
    """Return whether the lake had values of a table under a former shape that it is not to have now: of columns that
    are excluded or masked otherwise since, or of rows that a condition may leave out. masks: the YAML's, by the
    server's names in lower case; they count for columns that the table hasn't any more."""
    if now.where and former.where != now.where:
        return True
    there, has, had = _names(now), _masks(now), _masks(former)
    has |= {name: mask for name, mask in masks.items() if name not in there}
    names = {column.served_name.lower() for column in former.mirrored}
    return any(name in now.excluded or (name in has and had.get(name) != has[name]) for name in names)


def may_show_more(former: TableSchema, now: TableSchema) -> bool:
    """Return whether ``shows_more`` may be true under some masks of columns that the table hasn't any more."""
    names = {column.served_name.lower() for column in former.mirrored}
    return not names <= _names(now) or shows_more(former, now, {})


def showed_more(metadata: Metadata, life: Life, masks: Mapping[str, Mask], since_us: int) -> bool:
    """Return whether the lake had more under a shape that a table, or another of its name, had at a time or since.
    masks: see ``shows_more``. since_us: the time, in microseconds since 1970, by a clock that differs from this one's
    by an hour at most. Raises LakeError."""
    where = f"({rows_of(life.name)}) OR table_id = {literal(life.id)}"
    rows = sorted(ShapeRow.read(metadata, where=where), key=lambda row: row.at_us)
    earlier = [row for row in rows if row.at_us <= since_us - HOUR_US]
    later = rows[len(earlier) :]
    return any(shows_more(row.shape, life.schema, masks) for row in (*earlier[-1:], *later))


def _names(schema: TableSchema) -> set[str]:
    """Return the names that a table's columns have on the server, in lower case."""
    return {column.served_name.lower() for column in schema.columns}


def _masks(schema: TableSchema) -> dict[str, Mask]:
    """Return the masks of columns, by the names that these have on the server, in lower case."""
    return {column.served_name.lower(): column.mask for column in schema.columns if column.mask is not None}
