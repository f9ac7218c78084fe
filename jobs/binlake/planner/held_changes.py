"""Schema changes that a table doesn't follow by itself, as ``on_schema_change`` in the YAML has it.

The table stands still before the statement: nothing of the statement's batch is merged into it. What a schema change
tool does to its copy of a table is followed; the copy is held back where it takes the table's place with other columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from binlake.config.schema_change_tools import copied_table, has_tools_name, is_copy_of
from binlake.config.schema_changes import ALL_KINDS, FOLLOW_ALL, SchemaChangePolicy
from binlake.errors import resnapshot_again, resume_command
from binlake.planner.column_changes import ColumnChange, column_changes, copy_changes
from binlake.planner.shape_changes import PlacedStatement
from binlake.planner.steps import Life, Standstill, TableSteps
from binlake.planner.tool_tables import RenameOutcome, is_alike
from binlake.planner.walk import STOPPED, Walk
from binlake.schema.table import TableName, TableSchema

_HOLDING = ("following", "stopped", "paused", "catching up")
"""Statuses of tables whose place a tool's copy with other columns doesn't take."""


def hold(
    walk: Walk, here: PlacedStatement, table: TableSteps, after: TableSchema, origins: Sequence[str | None]
) -> tuple[str, str] | None:
    """Stop a table before a statement that the YAML doesn't let it follow. Returns what was done, and why; None where
    it follows. after, origins: of the table's columns behind the statement."""
    name = table.life.name
    policy = walk.rules.schema_changes(name)
    if policy == FOLLOW_ALL or _is_tools(walk, name):
        return None
    changes = column_changes(table.life.schema, after, origins)
    if policy.strictest(change.kind for change in changes) == "follow":
        return None
    again = f"let on_schema_change follow it in the YAML, then {resume_command(name)}; or {_as_it_is(name)}"
    standstill = here.standstill(_why(policy, changes), again)
    walk.stop_table(table, standstill)
    return STOPPED, standstill.reason


def _is_tools(walk: Walk, name: TableName) -> bool:
    """Return whether a table is the copy that a tool fills of a mirrored one."""
    copied = copied_table(name.table)
    return walk.rules.ghost(name) or (copied is not None and walk.at(TableName(name.database, copied)) is not None)


def renamed(
    here: PlacedStatement, policy: SchemaChangePolicy, life: Life, shape: TableSchema | None
) -> Standstill | None:
    """Return why a table that stood still before a change of its columns does so under another name, too; None where it
    may be snapshotted. policy: under that name. shape: at the server; None if it isn't known."""
    changes = copy_changes(life.schema, shape) if shape else ()
    kinds = {change.kind for change in changes} if shape else ALL_KINDS
    if policy == FOLLOW_ALL or policy.strictest(kinds) == "follow":
        return None
    return here.standstill(_why(policy, changes, "it is renamed, and a statement before "), _as_it_is(life.name))


@dataclass(frozen=True)
class HeldSwap:
    """A table whose place a tool's copy would have taken. copy: its life; None where it has none. old: its name."""

    table: TableSteps
    copy: TableSteps | None
    old: TableName

    @property
    def lives(self) -> set[str]:
        """Return the ids of both lives."""
        return {self.table.life.id} | ({self.copy.life.id} if self.copy else set())


def hold_swaps(
    walk: Walk, here: PlacedStatement, outcome: RenameOutcome, there: Mapping[TableName, str]
) -> Iterator[HeldSwap]:
    """Stop the tables whose place a tool's copy takes with columns that the YAML doesn't let them follow, under their
    names, end the copies' lives, and yield what was held. there: lives by their names before the statement."""
    moved = {life_id: (old, new) for life_id, old, new in outcome.moved}
    arriving = [(old, new, life_id) for life_id, (old, new) in moved.items()]
    for old, new, copy_id in (*arriving, *((old, new, None) for old, new in outcome.unknown)):
        original_id, policy = there.get(new, ""), walk.rules.schema_changes(new)
        if policy == FOLLOW_ALL or original_id not in moved:
            continue
        table, copy = walk.tables[original_id], walk.tables[copy_id] if copy_id else None
        if table.life.status not in _HOLDING or not _is_copy(old, new, table, copy):
            continue
        changes = copy_changes(table.life.schema, copy.life.schema) if copy else ()
        kinds = {change.kind for change in changes} if copy else ALL_KINDS
        if policy.strictest(kinds) == "follow":
            continue
        why = _why(policy, changes, f"{old} takes the table's place, and ")
        _stand(walk, table, here.standstill(why, _as_it_is(new)))
        if copy:
            walk.end(copy, f"it took the place of {new} at {here.position.short}, which stands still there")
        yield HeldSwap(table, copy, old)


def _stand(walk: Walk, table: TableSteps, standstill: Standstill) -> None:
    """Stop a table that follows; one that is stopped already does so for this reason from now on."""
    if table.life.status == "stopped":
        table.life = replace(table.life, standstill=standstill)
    walk.stop_table(table, standstill)


def _is_copy(old: TableName, new: TableName, table: TableSteps, copy: TableSteps | None) -> bool:
    if is_copy_of(old, new):
        return True
    return copy is not None and has_tools_name(old.table) and is_alike(copy.life.schema, table.life.schema)


def _why(policy: SchemaChangePolicy, changes: Sequence[ColumnChange], how: str = "the statement ") -> str:
    held = [change for change in changes if policy.of(change.kind) != "follow"]
    kinds = dict.fromkeys(change.kind for change in held)
    settings = ", ".join(f"{kind}: {policy.of(kind)}" for kind in kinds)
    if not changes:
        return f"{how}its columns aren't known here (on_schema_change)"
    return f"{how}{', '.join(change.text for change in changes)} (on_schema_change, {settings})"


def _as_it_is(name: TableName) -> str:
    return f"take the table as it is now: {resnapshot_again(name)}"
