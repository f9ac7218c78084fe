"""The outcome of a batch: it is kept in the open batch from the end of the merge until it is recorded.

It names only what the batch changed. A life that isn't named stays as it was; if it follows, it is merged up to the
batch's stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from binlake.planner.steps import BatchSteps, Life, PreparedXa, Standstill, Status, TableOutcome
from binlake.position import Position
from binlake.schema.table import TableName

BesideStatus = Literal["following", "excluded", "out of step", "stopped"]
NEVER_SNAPSHOTTED = "included, but never snapshotted"


@dataclass(frozen=True)
class LifeOutcome:
    """One life of a table after the batch.

    fingerprint: its shape's. changed: steps were done, or somebody else had changed its Delta table; only then are
    inserted, updated and deleted (the log's mutations) and delta_version (the last commit) filled in.
    why_spark: see TableOutcome.
    """

    id: str
    name: TableName
    low: Position
    high: Position
    status: Status
    standstill: Standstill | None
    fingerprint: str
    changed: bool = False
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    delta_version: int | None = None
    seconds: float = 0.0
    why_spark: str = ""

    @property
    def mutations(self) -> int:
        """Return the number of the log's mutations that were merged."""
        return self.inserted + self.updated + self.deleted

    @property
    def reason(self) -> str:
        """Return why the life doesn't follow; empty if it does."""
        return self.standstill.reason if self.standstill else ""

    @property
    def remedy(self) -> str:
        """Return what lets the life follow again; empty if it follows."""
        return self.standstill.remedy if self.standstill else ""


@dataclass(frozen=True)
class UnsnapshottedOutcome:
    """The outcome for a name whose table has no life here.

    status: missing or resnapshot; dropped if no table has the name any more.
    """

    name: TableName
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class BesideOutcome:
    """A table that a mode keeps beside a mirror, after a batch that may have changed it.

    name: its own. table_id: the id that Delta gave the table. status: following, or why it isn't at the batch's stop;
    excluded where tables.modes leaves it out; stopped where it isn't written any more. delta_version: its last commit;
    None where it isn't at the stop. folder: of a merged table that several sources fill, in the lake; else empty.
    """

    name: TableName
    table_id: str
    status: BesideStatus
    delta_version: int | None = None
    folder: str = ""


@dataclass(frozen=True)
class DefaultCharset:
    """A database's default character set."""

    database: str
    charset: str


@dataclass(frozen=True)
class BatchOutcome:
    """The results that the merge hands to the record phase.

    lives: those that the batch changed. lifeless: names of tables without a life that are to be noted. prepared: XA
    transactions that wait for their outcome at the batch's stop. charsets: the databases' default character sets there;
    None if they are what they were at the batch's start. beside: tables beside mirrors. renamed: old and new names of
    lives.
    """

    lives: tuple[LifeOutcome, ...] = ()
    lifeless: tuple[UnsnapshottedOutcome, ...] = ()
    prepared: tuple[PreparedXa, ...] = ()
    charsets: tuple[DefaultCharset, ...] | None = None
    beside: tuple[BesideOutcome, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()


def with_stopped(done: Iterable[TableOutcome], stopped: Iterable[Life]) -> list[TableOutcome]:
    """Return the outcomes of a batch with lives that something beside their own tables stopped."""
    outcomes = {outcome.life.id: outcome for outcome in done}
    for life in stopped:
        known = outcomes.get(life.id) or TableOutcome(life, 0, 0, 0, life.delta_version, 0.0)
        outcomes[life.id] = replace(known, life=life)
    return [*outcomes.values()]


def outcome_of(
    steps: BatchSteps, done: Iterable[TableOutcome], before: Iterable[Life], beside: Iterable[BesideOutcome] = ()
) -> BatchOutcome:
    """Return the outcome of a batch whose steps are done.

    done: the outcomes of the lives that had steps. before: all lives as metadata have them. beside: what became of the
    tables beside mirrors.
    """
    by_life = {outcome.life.id: outcome for outcome in done}
    known = {life.id: life for life in before}
    lives = tuple(
        _of_life(life, by_life.get(life.id))
        for life in (table.life for table in steps.tables)
        if life.id in by_life or _differs(known.get(life.id), life)
    )
    gone = (UnsnapshottedOutcome(name, "dropped") for name in steps.gone)
    missing = (UnsnapshottedOutcome(name, "missing", NEVER_SNAPSHOTTED) for name in steps.missing)
    asked = (UnsnapshottedOutcome(name, "resnapshot", why) for name, why in steps.asked)
    charsets = None if steps.charsets is None else tuple(DefaultCharset(*item) for item in steps.charsets.items())
    renamed = tuple(
        (table.begins, table.life.name)
        for table in steps.tables
        if table.begins != table.life.name and table.life.status != "dropped"
    )
    return BatchOutcome(lives, (*gone, *missing, *asked), steps.prepared, charsets, tuple(beside), renamed)


def _differs(before: Life | None, life: Life) -> bool:
    """Return whether a life differs from before in anything that its watermark holds.

    The positions of a life that doesn't follow aren't compared: they stay what they were, on whatever server.
    """
    if before is None:
        return True
    if before.status != "following" and before.status == life.status:
        return (before.name, before.reason, before.remedy) != (life.name, life.reason, life.remedy)
    return before != life or (before.schema is not life.schema and before.fingerprint != life.fingerprint)


def _of_life(life: Life, done: TableOutcome | None) -> LifeOutcome:
    changed = done is not None
    table = done or TableOutcome(life, 0, 0, 0, None, 0.0)
    life = table.life
    return LifeOutcome(
        life.id,
        life.name,
        life.low,
        life.high,
        life.status,
        life.standstill,
        life.fingerprint,
        changed,
        table.inserted,
        table.updated,
        table.deleted,
        table.delta_version,
        table.seconds,
        table.why_spark,
    )
