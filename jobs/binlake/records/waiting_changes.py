"""Schema changes at which tables wait for somebody's yes or no (``on_schema_change: ask``), and the answers.

The statement, and what is asked about it, are in the DDL history; the answers are in the lease's row, so that whatever
reads the log again follows the same. A table continues by itself with the next sync, or the process that follows: it
catches up, or is snapshotted where a tool's copy brought its new shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog
from binlake.errors import SNAPSHOTTED_BY_ITSELF, UsageError, answer_command, resnapshot_again
from binlake.faults import fault
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.planner.answers import ANSWERED_NO, Answer, HeldChange
from binlake.planner.steps import Standstill
from binlake.position import Position
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, metadata_of, now_us
from binlake.store.rows import StatementRow, WatermarkRow

_WAITS = "action = 'waits'"
_CONTINUES = "nothing to do: the next sync, or the process that follows, continues with it"


@dataclass(frozen=True)
class WaitingChange:
    """A schema change at which a table waits. needs: the place from which the server's log is needed for a yes. behind:
    how many later statements of the table wait behind it. before, after: its columns, as ``name type``."""

    table: TableName
    statement: StatementRow
    held: HeldChange
    needs: str
    behind: int = 0

    @property
    def before(self) -> list[str]:
        """Return the columns before the statement, as ``name type``."""
        return _columns(self.statement.before)

    @property
    def after(self) -> list[str]:
        """Return the columns behind the statement, as ``name type``."""
        return _columns(self.statement.after)

    @property
    def yes(self) -> str:
        """Say what a yes does."""
        if self.held.copies:
            return "the table is snapshotted again: the rows of its new shape came by a schema change tool's copy"
        return "the table catches up through the statement, from the server's log"

    @property
    def answer(self) -> str:
        """Return the command that answers."""
        return answer_command(self.table, "--yes|--no")

    def to_json(self) -> dict[str, Any]:
        """Return what a person needs to decide, as plain values for JSON."""
        return {
            "table": str(self.table),
            "place": f"{self.statement.file}:{self.statement.offset}",
            "statement": self.statement.statement,
            "committed_us": self.statement.committed_us,
            "changes": list(self.held.changes),
            "asked": list(self.held.asked),
            "before": self.before,
            "after": self.after,
            "yes": self.yes,
            "no": self.held.no,
            "needs": self.needs,
            "behind": self.behind,
            "answer": self.answer,
        }


def waiting(metadata: Metadata, rows: Iterable[WatermarkRow]) -> list[WaitingChange]:
    """Return the schema changes at which tables wait. rows: watermarks."""
    stopped = [row for row in rows if row.status == "stopped"]
    if not stopped:
        return []
    known = StatementRow.read(metadata, where=_WAITS)
    answers = lease.read(metadata).answers if known else ()
    found = ((row, _held_at(known, row)) for row in stopped)
    return [
        _described(metadata, row, statement)
        for row, statement in found
        if statement is not None and _answer_to(answers, statement) is None
    ]


def answer(config: PipelineConfig, name: TableName, reason: Reason, *, yes: bool, place: str | None = None) -> str:
    """Record the answer to the schema change at which a table waits, let the table continue, and return a message.

    place: of the statement that is answered; None for the one at which the table waits. Raises UsageError where the
    table waits for none, or for another, or a batch is open.
    """
    with lease.held(metadata_of(config)) as held:
        metadata, control = held.metadata, held.control()
        decisions.refuse_open_batch(held)
        row = decisions.row_of(metadata, name, "stopped")
        waits = StatementRow.read(metadata, where=f"{_WAITS} AND table_id = {literal(row.table_id)}")
        statement, state = _held_at(waits, row), control.recorded_state
        before = None if statement is None else _answer_to(control.answers, statement)
        if statement is None or state is None or (before is not None and before.yes == yes):
            raise UsageError(
                f"{name} waits for no answer: {row.reason}", remedy=row.remedy or "see what binlake status says of it"
            )
        if place not in (None, f"{statement.file}:{statement.offset}"):
            at = f"{statement.file}:{statement.offset}"
            raise UsageError(f"{name} waits at {at} by now, for another statement", remedy="look at that one")
        change = _held(statement)
        result, standing = _outcome(config, row, change, yes=yes)
        given = _given(row, statement, change, yes=yes)
        others = tuple(known for known in control.answers if known is not before)
        about = {"file": statement.file, "offset": statement.offset, "created": given.created, "batch": statement.batch}
        said = f"schema-change {'yes' if yes else 'no'}"
        decisions.note(metadata, said, reason, [name], **about, result=result)
        held.know_answers(state, (*others, given))
        fault("answer known")
        watermarks.write(metadata, [replace(standing, updated_us=now_us())])  # else the next plan does it
    return result


def let_continue(config: PipelineConfig, held: Lease) -> None:
    """Let the tables continue whose answer is known, though whoever gave it was ended before they did. One that stopped
    again behind the answer, at the same statement, stays as it is.

    Call it without an open batch.
    """
    answers, metadata = held.control().answers, held.metadata
    stopped = [row for row in watermarks.read(metadata) if row.status == "stopped"] if answers else []
    known = StatementRow.read(metadata, where=_WAITS) if stopped else []
    for row in stopped:
        statement = _held_at(known, row)
        given = None if statement is None else _answer_to(answers, statement)
        if statement is not None and given is not None:
            change = _held(statement)
            continues = given.yes or not change.freezes
            if continues if row.is_frozen else (row.reason or "") == statement.reason:
                _, standing = _outcome(config, row, change, yes=given.yes)
                watermarks.write(metadata, [replace(standing, updated_us=now_us())])


def take_in(config: PipelineConfig, name: TableName, column: str, reason: Reason) -> str:
    """Let the lake have a column again that it goes without by a no, and return a message.

    Raises UsageError where it goes without no such column, or a batch is open.
    """
    with lease.held(metadata_of(config)) as held:
        decisions.refuse_open_batch(held)
        control = held.control()
        state, kept = control.recorded_state, tuple(_with(known, name, column) for known in control.answers)
        if state is None or kept == control.answers:
            left = sorted({column for known in control.answers if known.name == name for column in known.left_out})
            raise UsageError(
                f"no answer leaves {name}'s column {column!r} out",
                remedy=f"name one of {', '.join(left)}" if left else "see tables.exclude_columns in the YAML",
            )
        result = f"{name} has {column!r} again once the next sync has snapshotted it"
        decisions.note(held.metadata, "schema-change yes", reason, [name], batch=control.batch, result=result)
        held.know_answers(state, kept)
    return result


def _with(answer: Answer, name: TableName, column: str) -> Answer:
    """Return an answer that leaves a column in."""
    if answer.name != name:
        return answer
    return replace(answer, left_out=tuple(left for left in answer.left_out if left.lower() != column.lower()))


def _outcome(config: PipelineConfig, row: WatermarkRow, change: HeldChange, *, yes: bool) -> tuple[str, WatermarkRow]:
    """Return a message and the table's watermark after an answer. Raises UsageError."""
    name = row.name
    if not yes and change.freezes:
        again = f"{answer_command(name, '--yes')}; or take the table as it is now: {resnapshot_again(name)}"
        frozen = row.standing("stopped", Standstill(f"{row.reason}{ANSWERED_NO}", again, frozen=True))
        return f"{name} stays as it is: {change.no}", frozen
    does = "follows the statement" if yes else change.no
    if change.copies or _has_part(config, row):
        if config.source.is_files:
            raise UsageError(
                f"{name} can continue by a snapshot alone, and a folder of log files has no table to copy",
                remedy="mirror the server itself, or exclude the table",
            )
        asked = row.standing("resnapshot", Standstill(f"answered: {does}", SNAPSHOTTED_BY_ITSELF))
        return f"{name} is snapshotted again by the next sync: {does}", asked
    why = Standstill(f"answered: {does}, and it goes through what it missed", _CONTINUES)
    going_on = replace(row.standing("catching up", why), batch=row.batch - 1)
    return f"{name} continues with the next sync: {does}", going_on


def _has_part(config: PipelineConfig, row: WatermarkRow) -> bool:
    """Return whether the table has a part of the batch in which it stopped, as one that was made or renamed there."""
    return LakeLog.of(config, row.name, row.table_id).recorded() >= row.batch * STEPS_PER_BATCH


def _given(row: WatermarkRow, statement: StatementRow, change: HeldChange, *, yes: bool) -> Answer:
    created, left_out = Position.parse(statement.position).created, () if yes else change.left_out
    return Answer(row.table_id, row.name, statement.file, statement.offset, created, yes, left_out, change.freezes)


def _held_at(waits: Iterable[StatementRow], row: WatermarkRow) -> StatementRow | None:
    """Return the statement at which a stopped table waits, or was frozen by a no; None where something else stopped it.
    waits: statements at which tables waited."""
    own = (known for known in waits if known.table_id == row.table_id)
    at = [known for known in own if (row.reason or "").startswith(f"{known.file}:{known.offset}: ")]
    return max(at, key=lambda known: known.order, default=None)


def _answer_to(answers: Iterable[Answer], statement: StatementRow) -> Answer | None:
    where = Position.parse(statement.position)
    return next((given for given in answers if given.is_about(statement.table_id or "", where)), None)


def _described(metadata: Metadata, row: WatermarkRow, statement: StatementRow) -> WaitingChange:
    where = f"table_id = {literal(row.table_id)} AND action = 'not applied'"
    later = [known for known in StatementRow.read(metadata, where=where) if known.order > statement.order]
    return WaitingChange(row.name, statement, _held(statement), row.reached.short, len(later))


def _held(statement: StatementRow) -> HeldChange:
    return loads(HeldChange, statement.held or "")


def _columns(shape: str | None) -> list[str]:
    return [f"{column.name} {column.declared}" for column in loads(TableSchema, shape).mirrored] if shape else []
