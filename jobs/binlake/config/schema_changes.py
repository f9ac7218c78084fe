"""The YAML's answer to schema changes: what becomes of a table in the lake when the server's gets other columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import model_validator

from binlake import names
from binlake.config.section import Section, TablePattern
from binlake.schema.table import TableName

SchemaChangeKind = Literal["add", "drop", "rename", "retype"]
ALL_KINDS: tuple[SchemaChangeKind, ...] = ("add", "drop", "rename", "retype")
SchemaAction = Literal["follow", "ask", "freeze"]
"""What becomes of a table at a statement that changes its columns, from the mildest to the strictest."""
_STRICTNESS: tuple[SchemaAction, ...] = ("follow", "ask", "freeze")


class SchemaChangePolicy(Section):
    """What becomes of a table when columns are added, dropped, renamed, or get another type.

    ``follow``: the lake's table gets the same change. ``ask``: the table waits before the statement for somebody's yes
    or no. ``freeze``: it stops there, until somebody changes the policy, or asks for a snapshot.
    """

    add: SchemaAction = "follow"
    drop: SchemaAction = "follow"
    rename: SchemaAction = "follow"
    retype: SchemaAction = "follow"

    def strictest(self, kinds: Iterable[SchemaChangeKind]) -> SchemaAction:
        """Return the strictest action that a statement with changes of these kinds asks for."""
        return max((self.of(kind) for kind in kinds), key=_STRICTNESS.index, default="follow")

    def of(self, kind: SchemaChangeKind) -> SchemaAction:
        """Return the action for one kind of change."""
        action: SchemaAction = getattr(self, kind)
        return action


class SchemaChangeEntry(SchemaChangePolicy):
    """An entry of the YAML's list. tables: a pattern of database.table."""

    tables: TablePattern

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model_fields_set == {"tables"}:
            raise ValueError("it says nothing; add one of add, drop, rename, retype")
        return self


FOLLOW_ALL = SchemaChangePolicy()


def policy_of(entries: Sequence[SchemaChangeEntry], name: TableName) -> SchemaChangePolicy:
    """Return a table's policy: what each entry that matches says, later ones over earlier ones."""
    chosen: dict[str, SchemaAction] = {}
    for entry in entries:
        if names.matches(entry.tables, name.database, name.table):
            chosen |= entry.model_dump(exclude_unset=True, exclude={"tables"})
    return SchemaChangePolicy(**chosen) if chosen else FOLLOW_ALL
