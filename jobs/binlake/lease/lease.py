"""The lease: the process that works on a source, the one batch that may be open, and the state that is recorded.

It is one row in metadata. Every change is a compare and swap on the holder's token. The frozen plan of the open batch
and the recorded state are in the same row, so that ownership, plan and position can't disagree. The lease keeps two
runs from doing the same work; Delta's transaction ids keep a run that wakes up late from doing harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from binlake import gtid
from binlake.config import TablesConfig
from binlake.errors import LeaseHeld
from binlake.lease.held_row import BRIEF, HeldRow, SharedRow
from binlake.lease.holder import BY_TURNS, Watch, died, wait_remedy
from binlake.moment import moment_text
from binlake.planner.answers import Answer, patterns_left_out, renamed
from binlake.planner.outcome import BatchOutcome
from binlake.planner.steps import PreparedXa
from binlake.position import Flavour, Position, Range
from binlake.schema.cascades import Cascade
from binlake.schema.log_gaps import LogGap
from binlake.store import formats
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import LeaseRow

BatchState = Literal["planned", "staged", "merged"]


@dataclass(frozen=True)
class OpenBatch:
    """The frozen plan of a batch and how far it has come.

    attempt: the chosen staging folder. outcome: what merge did. phases: names of the phases that are done, and their
    seconds. why_spark: names of the phases that asked for Spark, and the first reason of each. content: of its first
    staging, see Manifest; a later one must have the same where a part is merged. cascades: when it was planned, the
    foreign keys that act below the log, None where the log has what they do. lower_case_names: the server has
    lower_case_table_names=1. committed_us: when the newest transaction up to the stop committed, by the log; 0 before
    it is staged, or without a transaction. tables: the settings under which it was merged.
    """

    batch: int
    range: Range
    state: BatchState = "planned"
    attempt: str = ""
    until_us: int | None = None
    planned_us: int = 0
    outcome: BatchOutcome = field(default_factory=BatchOutcome)
    phases: tuple[tuple[str, float], ...] = ()
    why_spark: tuple[tuple[str, str], ...] = ()
    cascades: tuple[Cascade, ...] | None = None
    content: str = ""
    lower_case_names: bool = False
    committed_us: int = 0
    tables: TablesConfig | None = None
    gaps: tuple[LogGap, ...] = ()
    replicated: str | None = None

    def executing(self, gtid_sets: Iterable[str], flavour: Flavour) -> OpenBatch:
        """Return the plan with exactly the GTIDs up to the stop: those at the start and those of the range's
        transactions.

        The GTID set that a server reports with its log's end may lack transactions that are in the log and still
        commit.
        """
        start, stop = self.range.start, self.range.stop
        executed = gtid.parse(start.gtid_set, flavour)
        for text in gtid_sets:
            executed = executed.union(gtid.parse(text, flavour))  # type: ignore[arg-type]  # of one flavour
        return replace(self, range=replace(self.range, stop=replace(stop, gtid_set=str(executed))))

    def with_phase(self, name: str, seconds: float, why_spark: str = "") -> OpenBatch:
        """Return the plan with one more phase done. seconds: how long it took. why_spark: why it asked for Spark."""
        reasons = ((name, why_spark),) if why_spark else ()
        return replace(
            self,
            phases=(*self.phases, (name, round(seconds, 2))),
            why_spark=(*(reason for reason in self.why_spark if reason[0] != name), *reasons),
        )


@dataclass(frozen=True)
class RecordedState:
    """The state that the batch recorded last left for all tables, whatever their number: one commit moves it.

    Every life that follows is merged up to ``position``, unless its own watermark is further. charsets: the databases'
    default character sets there, None where no server was asked yet. prepared: XA transactions without an outcome,
    whose staged rows are kept. reading: the YAML's settings with which all lives were compared, see
    PipelineConfig.reading; empty where some weren't. tables: the settings under which the batch was merged; None where
    the log is read on from another position than the batch's stop. committed_us: when the newest transaction before the
    position committed, at the latest; 0 where that isn't known. answers: what somebody decided about schema changes.
    """

    batch: int
    position: Position
    charsets: Mapping[str, str] | None = None
    prepared: tuple[PreparedXa, ...] = ()
    reading: str = ""
    tables: TablesConfig | None = None
    committed_us: int = 0
    replicated: str | None = None
    answers: tuple[Answer, ...] = ()

    def after(self, plan: OpenBatch) -> RecordedState:
        """Return the state once a batch is recorded."""
        changed = plan.outcome.charsets
        charsets = self.charsets if changed is None else {default.database: default.charset for default in changed}
        committed_us = plan.committed_us or self.committed_us
        replicated = self.replicated if plan.replicated is None else plan.replicated
        return RecordedState(
            plan.batch, plan.range.stop, charsets, plan.outcome.prepared, self.reading, plan.tables, committed_us,
            replicated, renamed(self.answers, plan.outcome.renamed),
        )  # fmt: skip


@dataclass(frozen=True)
class Control:
    """The lease's row: holder, newest batch number, the open batch, and the state that is recorded."""

    holder: str | None
    token: str | None
    since_us: int
    expires_us: int
    batch: int
    open: OpenBatch | None
    recorded_state: RecordedState | None

    @property
    def position(self) -> Position | None:
        """Return the position up to which everything is recorded; None before the first bootstrap."""
        return self.recorded_state.position if self.recorded_state else None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return what somebody decided about schema changes."""
        return self.recorded_state.answers if self.recorded_state else ()

    @property
    def columns_left_out(self) -> tuple[str, ...]:
        """Return patterns of the columns that the lake goes without by somebody's decision."""
        return patterns_left_out(self.answers)

    @property
    def planned_to(self) -> Position | None:
        """Return the position up to which the log is read, or planned to be read: a life must not begin before it."""
        return self.open.range.stop if self.open else self.position

    @property
    def holder_died(self) -> bool:
        """Return whether the holder is known to be dead, which can't be known of one on another machine."""
        return died(self.holder, self.token)


def read(metadata: Metadata) -> Control:
    """Read the lease's row; an empty one before the first bootstrap. Raises UnknownFormat."""
    row = LeaseRow.first(metadata) or LeaseRow()
    return Control(
        holder=row.holder,
        token=row.token,
        since_us=row.since_us,
        expires_us=row.expires_us,
        batch=row.batch,
        open=formats.read(OpenBatch, row.plan) if row.plan else None,
        recorded_state=formats.read(RecordedState, row.position) if row.position else None,
    )


class Lease(HeldRow[LeaseRow]):
    """A held lease. Its methods raise LeaseHeld once another run took it over."""

    def __init__(self, metadata: Metadata, token: str) -> None:
        super().__init__(_row(metadata), token)
        self._metadata = metadata
        self.metadata = metadata.guarded(self.check)
        """For all that is written while the lease is held."""

    @property
    def by_turns(self) -> bool:
        """Return whether the lease is released after each batch, as a follower does every second."""
        return self._token.startswith(BY_TURNS)

    def control(self) -> Control:
        """Read the lease's row. Raises LeaseHeld, naming the holder, when another run took the lease over."""
        control = read(self._metadata)
        if control.token != self._token:
            raise _lost(control)
        return control

    def check(self) -> None:
        """Raise LeaseHeld when another run took the lease over."""
        if [row.token for row in LeaseRow.read(self._metadata, "token")] != [self._token]:
            raise _lost(read(self._metadata))

    def _refused(self, row: LeaseRow) -> LeaseHeld:
        return LeaseHeld(
            f"{row.holder} works on this source since {moment_text(row.since_us)}",
            remedy=wait_remedy(row.holder or ""),
        )

    def open(self, plan: OpenBatch) -> None:
        """Give out a batch number and freeze its plan."""
        self.update(batch=plan.batch, plan=formats.written(plan))

    def advance(self, plan: OpenBatch) -> None:
        """Write how far the open batch has come."""
        self.update(plan=formats.written(plan))

    def stand(self, recorded_state: RecordedState) -> None:
        """Close the open batch: everything up to the state's position is in the lake, and the log is read on from
        it."""
        self.update(plan=None, position=formats.written(recorded_state))
        self._metadata.remember()

    def know(self, recorded_state: RecordedState, charsets: Mapping[str, str]) -> None:
        """Write the databases' default character sets at the recorded position, where they weren't known."""
        self.update(position=formats.written(replace(recorded_state, charsets=charsets)))

    def know_prepared(self, recorded_state: RecordedState, prepared: tuple[PreparedXa, ...]) -> None:
        """Write which rows of XA transactions wait for an outcome at the recorded position."""
        self.update(position=formats.written(replace(recorded_state, prepared=prepared)))

    def know_answers(self, recorded_state: RecordedState, answers: tuple[Answer, ...]) -> None:
        """Write what somebody decided about schema changes."""
        self.update(position=formats.written(replace(recorded_state, answers=answers)))

    def know_unlogged(self, recorded_state: RecordedState, gtid_set: str, replicated: str | None) -> RecordedState:
        """Write the recorded position's GTID set and the replicated GTIDs, both with transactions that are missing from
        the log, and return the new state."""
        position = replace(recorded_state.position, gtid_set=gtid_set)
        known = replace(recorded_state, position=position, replicated=replicated)
        self.update(position=formats.written(known))
        return known

    def compared(self, recorded_state: RecordedState, reading: str) -> RecordedState:
        """Write under which settings of the YAML all lives were compared, and return the new state. reading: empty
        where they must be compared again."""
        compared = replace(recorded_state, reading=reading)
        self.update(position=formats.written(compared))
        return compared

    def read_under(self, reading: str) -> None:
        """Note that some lives are read under these settings: where all lives weren't compared with the same, they are
        compared again."""
        recorded_state = self.control().recorded_state
        if recorded_state is not None and recorded_state.reading not in ("", reading):
            self.compared(recorded_state, "")


def _lost(control: Control) -> LeaseHeld:
    if control.holder_died:
        return LeaseHeld(
            f"this run lost its lease to {control.holder}, which is dead by now",
            remedy="run again: the lease is taken over at once, and the batch carried on",
        )
    return LeaseHeld(
        f"this run lost its lease to {control.holder or 'another, which has ended'}",
        remedy="nothing to do: the other run carries the batch on",
    )


def _row(metadata: Metadata) -> SharedRow[LeaseRow]:
    return SharedRow(metadata, LeaseRow, None, "this source")


def take_away(metadata: Metadata) -> str | None:
    """Free the source's lease, and return its holder: see SharedRow.take_away."""
    return _row(metadata).take_away()


@contextmanager
def held(
    metadata: Metadata,
    *,
    patience: float = 0,
    brief: bool = False,
    by_turns: bool = False,
    watch: Watch | None = None,
) -> Iterator[Lease]:
    """Hold the lease, renewed by a thread, and give it back. Raises LeaseHeld, naming the holder; UnknownFormat.

    patience: seconds to wait for it. brief: it is held for a moment, for which everybody else waits. by_turns: it is
    given back after each batch, for which others wait, too. watch: by which this process looked at the lease before.
    """
    if read(metadata).position is None and not LeaseRow.read(metadata):
        LeaseRow.create(metadata, [LeaseRow()])
    row = Lease(metadata, Lease.new_token(prefix=BY_TURNS if by_turns else BRIEF if brief else ""))
    with row.held(patience=patience, changes={"since_us": now_us()}, watch=watch) as taken:
        yield taken
