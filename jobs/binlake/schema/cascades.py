"""Foreign keys whose actions the server doesn't log: rows of the child change without a word in the binlog."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from binlake.schema.lake_forms import lake_form, server_shape
from binlake.schema.table import TableName, TableSchema

CASCADE_REMEDY = (
    "set on_unlogged_cascade: derive (or resnapshot) for the table, exclude it, or replace the cascade by a trigger or "
    "the application"
)
Action = Literal["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"]
PASSIVE = frozenset({"RESTRICT", "NO ACTION"})
"""Actions that change no row of the child."""
_EQUAL_BY_VALUE = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "binary", "uuid"})
"""Types whose values are equal to the server exactly where they are equal in the lake: no collations, no padding."""


@dataclass(frozen=True)
class Cascade:
    """A foreign key by which deletes or updates of ``parent`` change rows of ``child`` without a word in the log.

    columns: the child's columns that hold the values of the parent's columns ``referenced``, in this order. delete,
    update: the actions ON DELETE and ON UPDATE.
    """

    child: TableName
    parent: TableName
    key: str
    columns: tuple[str, ...]
    referenced: tuple[str, ...]
    delete: Action
    update: Action

    @property
    def on_delete(self) -> bool:
        """Return whether deletes of the parent's rows change rows of the child."""
        return self.delete not in PASSIVE

    @property
    def on_update(self) -> bool:
        """Return whether updates of the parent's keys change rows of the child."""
        return self.update not in PASSIVE


def touched(
    cascades: Iterable[Cascade], deleted: Collection[TableName], updated: Collection[TableName]
) -> dict[TableName, Cascade]:
    """Return the children whose rows may have changed unlogged, through all levels, each with the key that acted.

    deleted, updated: tables of which the log has deletes or updates.
    """
    pending = list(cascades)
    changed: dict[TableName, Cascade] = {}
    while True:
        acting = [
            cascade for cascade in pending if cascade.child not in changed and acts(cascade, changed, deleted, updated)
        ]
        if not acting:
            return changed
        changed |= {cascade.child: cascade for cascade in acting}


def acts(
    cascade: Cascade, changed: Collection[TableName], deleted: Collection[TableName], updated: Collection[TableName]
) -> bool:
    """Return whether a foreign key may have acted. changed: tables whose rows changed unlogged."""
    return (
        (cascade.on_delete and cascade.parent in deleted)
        or (cascade.on_update and cascade.parent in updated)
        or cascade.parent in changed
    )


def cascading(cascade: Cascade) -> str:
    """Return the sentence that names the foreign key and says that its changes aren't logged."""
    return (
        f"foreign key {cascade.key!r} cascades from {cascade.parent}, and this server doesn't log what cascades change"
    )


def not_derivable(cascade: Cascade, child: TableSchema, parent: TableSchema) -> str:
    """Return why a foreign key's changes can never be derived from the parent's mutations; empty if they can."""
    in_lake = child, parent
    child, parent = server_shape(child), server_shape(parent)
    if child.versioned or parent.versioned:
        return f"{cascade.key!r} is of a system-versioned table"
    for schema, names in ((child, cascade.columns), (parent, cascade.referenced)):
        mirrored = {column.name.lower(): column for column in schema.mirrored}
        if any(name.lower() not in mirrored for name in names):
            return f"a column of {cascade.key!r} isn't mirrored"
        if any(name.lower() in schema.masks for name in names):
            return f"a column of {cascade.key!r} is masked"
        if any(mirrored[name.lower()].type not in _EQUAL_BY_VALUE for name in names):
            return f"a column of {cascade.key!r} is of a type whose equality the server decides"
    mine, others = (lake_form(schema).types for schema in in_lake)
    pairs = zip(cascade.columns, cascade.referenced, strict=True)
    if any(mine.get(own.lower()) != others.get(other.lower()) for own, other in pairs):
        return f"the columns of {cascade.key!r} have different types in the lake"
    if not _is_unique(parent, cascade.referenced):
        return f"what {cascade.key!r} refers to isn't unique"
    if "SET DEFAULT" in (cascade.delete, cascade.update):
        return f"{cascade.key!r} sets a default"
    rewrites = cascade.on_update or cascade.delete != "CASCADE"
    if rewrites and {name.lower() for name in cascade.columns} & {name.lower() for name in child.key}:
        return f"{cascade.key!r} changes the table's own key"
    if rewrites and any(column.generated for column in child.columns):
        return "it has generated columns"
    return ""


def _is_unique(schema: TableSchema, names: tuple[str, ...]) -> bool:
    wanted = {name.lower() for name in names}
    if schema.key_kind == "primary" and {name.lower() for name in schema.key} == wanted:
        return True
    return any(
        index.unique
        and all(index.columns)
        and not any(index.prefixes)
        and {str(name).lower() for name in index.columns} == wanted
        for index in schema.indexes
    )
