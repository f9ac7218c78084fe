"""The changes that a statement, or a schema change tool's copy, makes to the columns that a table has in the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from binlake.config.schema_changes import SchemaChangeKind
from binlake.schema.table import INTEGERS, Column, TableSchema


@dataclass(frozen=True)
class ColumnChange:
    """One change. name: the column's, after it if the column is new. text: what happens, in words."""

    kind: SchemaChangeKind
    name: str
    text: str


def column_changes(before: TableSchema, after: TableSchema, origins: Sequence[str | None]) -> tuple[ColumnChange, ...]:
    """Return what a statement changes. origins: for each column of ``after`` the name that it had; None if it is new.

    Places, defaults, comments and keys of columns don't count, nor do columns that aren't mirrored.
    """
    was = {column.name: origin for column, origin in zip(after.columns, origins, strict=True)}
    left = {column.name: column for column in before.mirrored}
    changes: list[ColumnChange] = []
    for column in after.mirrored:
        old = left.pop(was[column.name] or "", None)
        if old is None:
            changes.append(ColumnChange("add", column.name, f"adds {column.name!r} {column.declared}"))
            continue
        if old.name != column.name:
            changes.append(ColumnChange("rename", old.name, f"renames {old.name!r} to {column.name!r}"))
        if _type_of(old) != _type_of(column):
            changes.append(ColumnChange("retype", old.name, _retyped(old, column)))
    changes += [ColumnChange("drop", name, f"drops {name!r}") for name in left]
    return tuple(changes)


def copy_changes(before: TableSchema, copy: TableSchema) -> tuple[ColumnChange, ...]:
    """Return what changes when a tool's copy takes the place of a table; columns are the same by their names.

    Where columns came and others went, nobody knows whether they were renamed: it counts as all three.
    """
    names = {column.name.lower(): column.name for column in before.mirrored}
    changes = column_changes(before, copy, [names.get(column.name.lower()) for column in copy.columns])
    kinds = {change.kind for change in changes}
    if {"add", "drop"} <= kinds:
        dropped = next(change.name for change in changes if change.kind == "drop")
        changes += (ColumnChange("rename", dropped, f"perhaps renames {dropped!r}"),)
    return changes


def _retyped(old: Column, new: Column) -> str:
    more = "" if old.declared != new.declared else ", with another character set or other members"
    return f"changes the type of {old.name!r} from {old.declared} to {new.declared}{more}"


def _type_of(column: Column) -> tuple[object, ...]:
    """Return what is a column's type; not the width at which an integer is shown."""
    length = None if column.type in INTEGERS else column.length
    sizes = (length, column.precision, column.scale, column.fraction)
    return column.type, column.unsigned, sizes, column.charset, column.values
