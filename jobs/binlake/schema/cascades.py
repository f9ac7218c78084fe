"""Foreign keys whose actions the server carries out below its log, so that rows change without a word in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from binlake.schema.table import TableName

CASCADE_REMEDY = (
    "replace the cascade by a trigger or the application, exclude the table, or set on_unlogged_cascade: resnapshot"
)


@dataclass(frozen=True)
class Cascade:
    """Rows of ``child`` go or change, unlogged, where rows of ``parent`` do."""

    child: TableName
    parent: TableName
    key: str
    on_delete: bool
    on_update: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Cascade:
        return cls(**{**value, "child": TableName(**value["child"]), "parent": TableName(**value["parent"])})


def touched(
    cascades: Iterable[Cascade], deleted: Collection[TableName], updated: Collection[TableName]
) -> dict[TableName, Cascade]:
    """Children whose rows may have changed unlogged, through several levels, where rows of these tables were deleted
    or updated; each with the foreign key that did it."""
    pending = list(cascades)
    changed: dict[TableName, Cascade] = {}
    while True:
        acting = [
            one
            for one in pending
            if one.child not in changed
            and (
                (one.on_delete and one.parent in deleted)
                or (one.on_update and one.parent in updated)
                or one.parent in changed
            )
        ]
        if not acting:
            return changed
        changed |= {one.child: one for one in acting}


def cascading(one: Cascade) -> str:
    return f"foreign key {one.key!r} cascades from {one.parent}, and this server doesn't log what cascades change"
