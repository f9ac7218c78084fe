"""Schema changes that a table doesn't follow by itself, as ``on_schema_change`` in the YAML has it.

The table stops before the statement: nothing of the statement's batch is merged into it. It catches up once the policy,
or somebody's answer, lets it. Statements of a schema change tool on its copy of a table are followed; the copy is held
back where it takes the table's place with other columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from binlake.config.schema_change_tools import copied_table, has_tools_name, is_copy_of
from binlake.config.schema_changes import ALL_KINDS, FOLLOW_ALL, SchemaChangePolicy
from binlake.errors import answer_command, resnapshot_again, resume_command
from binlake.planner.answers import ANSWERED_NO, Answer, HeldChange
from binlake.planner.column_changes import ColumnChange, column_changes, copy_changes
from binlake.planner.noted_statements import NOT_APPLIED, STOPPED, WAITS
from binlake.planner.shape_changes import PlacedStatement
from binlake.planner.steps import Life, Standstill, TableSteps
from binlake.planner.tool_tables import RenameOutcome, is_alike
from binlake.planner.walk import Walk
from binlake.schema.table import TableName, TableSchema

_HOLDING = ("following", "stopped", "paused", "catching up")
"""Statuses of tables whose place a tool's copy with other columns doesn't take."""


@dataclass(frozen=True)
class Ruling:
    """The decision of the YAML, or of somebody's answer, about a statement. stops: what was done, and why, where the
    table doesn't follow it. keeps_dropped: columns that it drops stay in the lake."""

    stops: tuple[str, str] | None = None
    keeps_dropped: bool = False


def ruling(
    walk: Walk, here: PlacedStatement, table: TableSteps, after: TableSchema, origins: Sequence[str | None]
) -> Ruling:
    """Stop a table before a statement that it doesn't follow by itself, and return what becomes of the statement.

    after, origins: of the table's columns behind the statement.
    """
    name, before = table.life.name, table.life.schema
    policy, answer = walk.rules.schema_changes(name), _answer(walk, here, table)
    if answer is not None:  # it counts whatever the YAML says by now
        return _answered(walk, here, table, after, origins, answer)
    if policy == FOLLOW_ALL or _is_tools(walk, name):
        return Ruling()
    changes = column_changes(before, after, origins)
    action = policy.strictest(change.kind for change in changes)
    if action == "follow":
        return Ruling()
    if action == "freeze":
        again = f"let on_schema_change follow it in the YAML, then {resume_command(name)}; or {_as_it_is(name)}"
        return Ruling(_stop(walk, table, here.standstill(_why(policy, changes), again)))
    return Ruling(_wait(walk, here, table, _held_change(policy, changes, before, after)))


def _answered(
    walk: Walk,
    here: PlacedStatement,
    table: TableSteps,
    after: TableSchema,
    origins: Sequence[str | None],
    answer: Answer,
) -> Ruling:
    """Return what somebody's answer makes of a statement; stop the table where it is a no without an exact meaning."""
    name, before = table.life.name, table.life.schema
    policy, changes = walk.rules.schema_changes(name), column_changes(before, after, origins)
    freezes = answer.freezes
    if freezes is None:
        freezes = _held_change(policy, changes, before, after).freezes
    if not answer.yes and freezes:
        again = f"{answer_command(name, '--yes')}; or {_as_it_is(name)}"
        standstill = here.standstill(f"{_why(policy, changes)}{ANSWERED_NO}", again)
        return Ruling(_stop(walk, table, replace(standstill, frozen=True)))
    return Ruling(keeps_dropped=not answer.yes)


def _answer(walk: Walk, here: PlacedStatement, table: TableSteps) -> Answer | None:
    return next((answer for answer in walk.answers if answer.is_about(table.life.id, here.position)), None)


def _stop(walk: Walk, table: TableSteps, standstill: Standstill) -> tuple[str, str]:
    walk.stop_table(table, standstill)
    return STOPPED, standstill.reason


def _wait(walk: Walk, here: PlacedStatement, table: TableSteps, change: HeldChange) -> tuple[str, str]:
    """Let a table wait for an answer."""
    how = "the statement " if not change.copies else "a tool's copy takes the table's place, and "
    what = ", ".join(change.changes) or "its columns aren't known here"
    why = f"{how}{what} (on_schema_change, {', '.join(change.asked)})"
    remedy = f"look at it in binlake status, then answer: {answer_command(table.life.name, '--yes|--no')}"
    _stand(walk, table, here.standstill(why, remedy))
    walk.held[table.life.id] = change
    return WAITS, table.life.reason


def _held_change(
    policy: SchemaChangePolicy,
    changes: Sequence[ColumnChange],
    before: TableSchema,
    after: TableSchema,
    *,
    copies: bool = False,
) -> HeldChange:
    """Return what is asked about a statement, or about a tool's copy (``copies``), and what a no does."""
    asked = [change for change in changes if policy.of(change.kind) == "ask"]
    kinds = {change.kind for change in asked}
    added = [after.column(change.name).served_name for change in asked if change.kind == "add"]
    had = {column.served_name.lower() for column in before.mirrored}
    keys = {after.column(name).served_name for name in after.key}
    nameless = [name for name in added if "." in name or name.lower() in had or name in keys]
    freezes = not changes or bool(nameless) or not kinds <= ({"add"} if copies else {"add", "drop"})
    parts = [f"the lake goes without {', '.join(map(repr, added))} from there on"] if added else []
    if dropped := [repr(change.name) for change in asked if change.kind == "drop"]:
        parts.append(f"the lake keeps {', '.join(dropped)}, with NULL in newer rows")
    return HeldChange(
        tuple(change.text for change in changes),
        tuple(f"{kind}: ask" for kind in ALL_KINDS if kind in kinds or not changes),
        () if freezes else tuple(added),
        "the table stays as it is, and follows no more" if freezes else "; ".join(parts),
        freezes,
        copies,
    )


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
    """A table whose place a tool's copy would have taken. copy: the copy; None where it has no life. old: the copy's
    name. done: what was done to the table, and why."""

    table: TableSteps
    copy: TableSteps | None
    old: TableName
    done: tuple[str, str]

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
        action = policy.strictest({change.kind for change in changes} if copy else ALL_KINDS)
        if action == "follow":
            continue
        if copy:
            walk.end(copy, f"it took the place of {new} at {here.position.short}, which waits there")
        yield HeldSwap(table, copy, old, _stand_at_swap(walk, here, table, copy, changes))


def _stand_at_swap(
    walk: Walk, here: PlacedStatement, table: TableSteps, copy: TableSteps | None, changes: Sequence[ColumnChange]
) -> tuple[str, str]:
    name, policy = table.life.name, walk.rules.schema_changes(table.life.name)
    if table.life.status not in ("following", "stopped"):
        return NOT_APPLIED, f"this table is {table.life.status}"
    if policy.strictest({change.kind for change in changes} if copy else ALL_KINDS) == "ask":
        after = copy.life.schema if copy else table.life.schema
        return _wait(walk, here, table, _held_change(policy, changes, table.life.schema, after, copies=True))
    why = _why(policy, changes, "a tool's copy takes the table's place, and ")
    _stand(walk, table, here.standstill(why, _as_it_is(name)))
    return STOPPED, table.life.reason


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
    if changes and not held:  # an answer counts, and the YAML lets the table follow by now
        return f"{how}{', '.join(change.text for change in changes)}"
    kinds = dict.fromkeys(change.kind for change in held)
    settings = ", ".join(f"{kind}: {policy.of(kind)}" for kind in kinds)
    if not changes:
        return f"{how}its columns aren't known here (on_schema_change)"
    return f"{how}{', '.join(change.text for change in changes)} (on_schema_change, {settings})"


def _as_it_is(name: TableName) -> str:
    return f"take the table as it is now: {resnapshot_again(name)}"
