"""Tables that modes keep beside mirrors: each step of each of them once, in commits of their own.

A step has two versions of Delta's transaction id: one for a commit that changes the columns, where they change, and one
for its rows. The application id is that of the source and the mode: the table belongs to a name, whatever lives had it.
The steps that a table has are read from the table itself, never from the mirror: a kill between the two commits repeats
neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from binlake.config import PipelineConfig, TablesConfig
from binlake.config.table_modes import BesideMode, beside_table
from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog, transaction_version
from binlake.errors import BinlakeError, LogUnreadable, SparkNeeded, TableError, repair_beside
from binlake.faults import fault
from binlake.merge import log_table
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.conflicts import tried
from binlake.merge.history import history_table
from binlake.merge.history.history_state import is_in_step
from binlake.merge.shared_reads import SharedReads
from binlake.merge.table_engine import EngineChoice
from binlake.merge.unexpected_errors import of_table
from binlake.planner.outcome import BesideOutcome, BesideStatus
from binlake.planner.steps import BatchSteps, BesideStep, BesideSteps, EventBeside, Life, RowsBeside
from binlake.position import Position, Range
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.storage import storage_errors

_BEHIND_ALL = 1 << 60
"""A turn behind those of a batch's statements."""
BesideWriter = Callable[[BesideStep, BesideCommit], None]
WRITERS: Mapping[BesideMode, BesideWriter] = {"history": history_table.write, "log": log_table.write}
"""The function of each mode that does a step. It may be called again with the same step, and commits nothing twice."""


class BesideFailed(TableError):
    """A step of a table beside a mirror raised an error that concerns that table alone."""

    def __init__(self, name: TableName, mode: BesideMode, message: str, *, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.name = name
        self.mode = mode


@dataclass(frozen=True)
class BesideWork:
    """A batch's work on the tables beside one name's mirror.

    position: the batch's stop. engines: of which one changes a table. lost: paths of staged files that can't be read.
    mirror: returns the log of a life's mirror as far as the batch has come, or, where that is asked, at its stop; None
    where the mirror isn't there. reads: of staged files, by the mirrors and by this.
    """

    config: PipelineConfig
    batch: int
    position: str
    table: BesideSteps
    engines: EngineChoice
    lost: frozenset[str]
    mirror: Callable[[Life, bool], LakeLog | None]
    reads: SharedReads

    def do(self, number: int) -> None:
        """Do the step with this number, from 0, in each of the name's tables. Raises BinlakeError."""
        modes = self.table.written_modes(self.config)
        for mode in modes if number else [mode for mode in modes if mode in self.table.begins]:
            log = LakeLog.beside(self.config, self.table.name, mode)
            version = transaction_version(self.batch, 2 * number)
            recorded = log.recorded()
            if recorded < 0 and log.exists():
                raise BesideFailed(
                    self.table.name,
                    mode,
                    f"{log.path} is there, and isn't the {mode} of {self.table.name}",
                    remedy=f"move {log.path} away, or take {mode} out of tables.modes",
                )
            if recorded >= transaction_version(self.batch + 1, 0):
                raise BesideFailed(
                    self.table.name,
                    mode,
                    f"{log.path} has mutations of batch {recorded // STEPS_PER_BATCH}, and this is batch {self.batch}:"
                    " it was written before the lake was begun again",
                    remedy=f"move {log.path} away; it is begun again",
                )
            if recorded <= version:
                self._commit(mode, self.table.steps[number], BesideCommit(
                    log, self.table.name, self.config, self.batch, version, self._note(mode, number), self.engines,
                    self.lost, self.table.start, self.mirror, self.reads,
                ))  # fmt: skip

    def _commit(self, mode: BesideMode, step: BesideStep, commit: BesideCommit) -> None:
        try:
            tried(partial(WRITERS[mode], step, commit), lambda: commit.table.recorded() > commit.version)
        except (BinlakeError, SparkNeeded):
            raise
        except Exception as error:
            staged = step.merge.staged if isinstance(step, RowsBeside) else ()
            own = of_table(
                error, TableName(self.table.name.database, beside_table(self.table.name.table, mode)), staged
            )
            if own is not None:
                again = "nothing: the next batch tries to begin it again; report what is said here where it fails, too"
                remedy = repair_beside(self.table.name) if commit.table.exists() else again
                raise BesideFailed(self.table.name, mode, own.message, remedy=remedy) from error
            raise storage_errors.failed(f"writing the {mode} {commit.table.path} failed", error) from error
        fault("epoch committed")

    def _note(self, mode: BesideMode, number: int) -> dict[str, Any]:
        """Return the note of the commits in the table's history."""
        origin = {"source": self.config.source.name, "batch": self.batch, "position": self.position}
        return {"binlake": {**origin, "beside": mode, "of": str(self.table.name), "number": number}}


def beginning(
    config: PipelineConfig, before: TablesConfig | None, steps: BatchSteps, start: Position, report: Report
) -> BatchSteps:
    """Return a batch's steps with the modes that begin with it, as they didn't read the log up to its start.

    before: the settings of the batch recorded last; None where the log wasn't read on from there.
    """
    if before == config.tables or not (config.tables.modes or (before and before.modes)):
        return steps
    tables = {table.name: table for table in steps.beside}
    left: list[tuple[TableName, BesideMode]] = []
    living = (table.life.name for table in steps.tables if table.life.status != "dropped")
    for name in sorted({*tables, *living}):
        has, had = config.beside(name), before.beside(name.database, name.table) if before else ()
        begins = tuple(mode for mode in has if mode not in had)
        for mode in [mode for mode in had if mode not in has]:
            report.say(f"{name}: tables.modes leaves its {mode} out; {config.beside_path(name, mode)} stays as it is")
            left.append((name, mode))
        if begins:
            report.say(f"{name}: its {' and '.join(begins)} begin{'s' if len(begins) == 1 else ''} at {start.short}")
            tables[name] = replace(tables.get(name) or BesideSteps.at(start, name), begins=begins)
    return replace(steps, beside=tuple(tables.values()), left=tuple(left))


@dataclass(frozen=True)
class BatchTimes:
    """When the newest transactions committed before a batch's start and stop, by the log; None where none is known."""

    start_us: int | None
    stop_us: int | None


def with_mirrors(config: PipelineConfig, steps: BatchSteps, span: Range, times: BatchTimes) -> BatchSteps:
    """Return a batch's steps in which those of histories begin and end with the mirrors as they are there."""
    if not config.tables.modes:
        return steps
    beside = {table.name: table for table in steps.beside}
    for table in steps.tables:
        name = table.life.name
        is_new = table.life.status == "following" and table.life.low.order >= span.start.order
        if is_new and name not in beside and config.history(name):
            beside[name] = BesideSteps.at(span.start, name)
    at_start = _equal_lives((table.began for table in steps.tables), span.start)
    at_stop = _equal_lives((table.life for table in steps.tables), span.stop)
    for name, ours in beside.items():
        if config.history(name):
            first = ours.steps[0]
            assert isinstance(first, EventBeside)
            ours.steps[0] = replace(first, committed_us=times.start_us, life=at_start.get(name))
            end = EventBeside("end", *span.stop.order, committed_us=times.stop_us or times.start_us)
            ours.add(replace(end, life=at_stop.get(name)), _BEHIND_ALL)
    return replace(steps, beside=tuple(beside.values()))


def _equal_lives(lives: Iterable[Life], position: Position) -> dict[TableName, Life]:
    """Return the lives whose mirrors equal the server's tables at a position, by name."""
    return {life.name: life for life in lives if life.status == "following" and life.high.order <= position.order}


def outcomes_beside(
    config: PipelineConfig, steps: BatchSteps, known_id: Callable[[TableName], str | None]
) -> list[BesideOutcome]:
    """Return what became of the tables beside mirrors that have a part of a batch, once its steps are done. known_id:
    returns the id under which a table was noted whose Delta log can't be read."""
    ours = [(table.name, mode) for table in steps.beside for mode in config.beside(table.name)]
    standing = {(table.name, mode) for table in steps.beside for mode in table.standing}
    outcomes = []
    for name, mode in (*ours, *steps.left):
        log = LakeLog.beside(config, name, mode)
        if not log.exists():
            continue
        status: BesideStatus = "following"
        if (name, mode) in steps.left:
            status = "excluded"
        elif (name, mode) in standing:
            status = "stopped"
        elif mode == "history" and not is_in_step(log):
            status = "out of step"
        try:
            outcomes.append(outcome_beside(name, mode, log, status))
        except LogUnreadable:
            if (name, mode) not in standing:
                raise
            own = TableName(name.database, beside_table(name.table, mode))
            if table_id := known_id(own):
                outcomes.append(BesideOutcome(own, table_id, status, None))
    return outcomes


def outcome_beside(name: TableName, mode: BesideMode, log: LakeLog, status: BesideStatus) -> BesideOutcome:
    """Return the present state of a table beside a mirror. name: the mirror's."""
    opened = log.opened()
    own = TableName(name.database, beside_table(name.table, mode))
    version = int(opened.version()) if status == "following" else None
    return BesideOutcome(own, str(opened.metadata().id), status, version)
