"""What a batch made of the tables: what waits in the open batch from the end of its merge until it is recorded.

It grows with what the batch changed, not with the number of tables: of a life that isn't named all stands as before,
and where it follows it is merged up to the batch's stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from binlake.batch.steps import BatchSteps, Life, PreparedXa, Standstill, Status, TableOutcome
from binlake.position import Position
from binlake.schema.table import TableName

NEVER_SNAPSHOTTED = "included, but never snapshotted"


@dataclass(frozen=True)
class LifeOutcome:
    """One life of a table after the batch.

    fingerprint: of its shape. changed: steps were done, or somebody else had changed its Delta table; inserted,
    updated, deleted are the log's mutations then, and delta_version the last commit.
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

    @property
    def mutations(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def reason(self) -> str:
        return self.standstill.reason if self.standstill else ""

    @property
    def remedy(self) -> str:
        return self.standstill.remedy if self.standstill else ""


@dataclass(frozen=True)
class LifelessOutcome:
    """An included table that has no life here: missing or to be snapshotted; dropped where none has the name now."""

    name: TableName
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class DefaultCharset:
    """Of a database."""

    database: str
    charset: str


@dataclass(frozen=True)
class BatchOutcome:
    """Everything that merge found out and record writes down.

    lives: those that the batch changed. prepared: XA transactions that wait for their outcome at the batch's stop.
    charsets: the databases' default character sets there, None where they are what they were at its start.
    """

    lives: tuple[LifeOutcome, ...] = ()
    lifeless: tuple[LifelessOutcome, ...] = ()
    prepared: tuple[PreparedXa, ...] = ()
    charsets: tuple[DefaultCharset, ...] | None = None


def outcome_of(steps: BatchSteps, done: Iterable[TableOutcome], before: Iterable[Life]) -> BatchOutcome:
    """done: of the lives that the batch worked at. before: all lives as metadata have them."""
    by_life = {one.life.id: one for one in done}
    known = {life.id: life for life in before}
    lives = tuple(
        _of_life(life, by_life.get(life.id))
        for life in (table.life for table in steps.tables)
        if life.id in by_life or _differs(known.get(life.id), life)
    )
    gone = (LifelessOutcome(name, "dropped") for name in steps.gone)
    missing = (LifelessOutcome(name, "missing", NEVER_SNAPSHOTTED) for name in steps.missing)
    asked = (LifelessOutcome(name, "resnapshot", why) for name, why in steps.asked)
    charsets = None if steps.charsets is None else tuple(DefaultCharset(*one) for one in steps.charsets.items())
    return BatchOutcome(lives, (*gone, *missing, *asked), steps.prepared, charsets)


def _differs(before: Life | None, life: Life) -> bool:
    """In anything that its watermark tells. A life that didn't follow keeps its place, whatever server is followed."""
    if before is None:
        return True
    if before.status != "following" and before.status == life.status:
        return (before.name, before.reason, before.remedy) != (life.name, life.reason, life.remedy)
    return before != life or (before.schema is not life.schema and before.fingerprint != life.fingerprint)


def _of_life(life: Life, done: TableOutcome | None) -> LifeOutcome:
    changed = done is not None
    one = done or TableOutcome(life, 0, 0, 0, None, 0.0)
    life = one.life
    return LifeOutcome(
        life.id,
        life.name,
        life.low,
        life.high,
        life.status,
        life.standstill,
        life.fingerprint,
        changed,
        one.inserted,
        one.updated,
        one.deleted,
        one.delta_version,
        one.seconds,
    )
