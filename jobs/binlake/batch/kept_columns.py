"""Columns that the server dropped and the lake keeps (``on_drop_column: keep``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import side_columns
from binlake.schema.table import Column, TableSchema


def keeping(
    before: TableSchema, after: TableSchema, origins: Sequence[str | None], invalid: InvalidValues, *, more: bool
) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the shape after a change, with dropped columns kept, and the lake's names of all kept columns before it.

    A kept column whose name is taken gets the suffix ``__dropped``, and a number if that is taken, too. more: columns
    that the change drops are kept as well as those that were kept before.
    """
    dropped = [column for column in before.mirrored if more and column.name not in origins]
    taken = {column.name.lower() for column in after.columns}
    taken |= {column.name.lower() for column in side_columns(after.mirrored, invalid)}
    kept: list[Column] = []
    for column in (*before.kept, *dropped):
        base, name, number = column.name.partition("__dropped")[0], column.name, 1
        while name.lower() in taken:
            name = f"{base}__dropped" + (f"_{number}" if number > 1 else "")
            number += 1
        taken.add(name.lower())
        kept.append(replace(column, name=name))
    return replace(after, kept=tuple(kept)), tuple(column.name for column in (*before.kept, *dropped))
