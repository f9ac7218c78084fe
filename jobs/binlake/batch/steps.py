"""A batch's steps: what is done to each table in the lake, in the order of the log.

Steps are numbered within a life from 1; each is one idempotent Delta commit under the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from binlake.batch.manifest import StagedFile
from binlake.errors import SNAPSHOTTED_BY_ITSELF
from binlake.position import Position
from binlake.schema.cascades import Cascade
from binlake.schema.hidden import without_hashes
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import Base64

Status = Literal["following", "stopped", "paused", "resnapshot", "excluded", "dropped", "missing"]
"""resnapshot: stands until it is snapshotted anew, which happens by itself. paused: until somebody resumes it.
excluded: until the YAML includes it again."""


@dataclass(frozen=True)
class Standstill:
    """Why a table doesn't follow the log, and what to do about it.

    file, offset: of the log's event at which it stopped; None where it wasn't the log that stopped it, or where no more
    than the words is known. raw: the event, or its first bytes, where it can't be decoded.
    """

    reason: str
    remedy: str = ""
    file: str | None = None
    offset: int | None = None
    raw: Base64 = b""

    @classmethod
    def at(cls, file: str, offset: int, why: str, remedy: str = "", raw: bytes = b"") -> Standstill:
        """At a place of the log, with which the reason begins."""
        return cls(f"{file}:{offset}: {why}", remedy, file, offset, raw)


@dataclass(frozen=True)
class Life:
    """One life of a table, as metadata knows it before a batch.

    low: mutations before it are in the snapshot already (the position of creation for tables born in the log).
    high: the table equals the server once merged up to it. delta_version: of the last commit that was recorded.
    standstill: of a life that doesn't follow.
    """

    id: str
    name: TableName
    schema: TableSchema
    low: Position
    high: Position
    status: Status = "following"
    standstill: Standstill | None = None
    delta_version: int | None = None

    @property
    def reason(self) -> str:
        """Why it doesn't follow; empty where it does."""
        return self.standstill.reason if self.standstill else ""

    @property
    def remedy(self) -> str:
        return self.standstill.remedy if self.standstill else ""

    @property
    def fingerprint(self) -> str:
        return self.schema.fingerprint


def rebased(life: Life, standing: Position | None, start: Position) -> Life:
    """A life as a range of another server takes it: everything before ``start`` is in it.

    standing: where the lake stands on the server before. A table that is ahead of that is to be snapshotted anew.
    """
    if life.low.server == start.server:
        return life
    on = replace(life, low=start, high=start)
    ahead = standing is None or life.low.server != standing.server or max(life.low, life.high) > standing
    if life.status != "following" or not ahead:
        return on
    reason = f"it was snapshotted at {life.high.short} of another server, ahead of the lake"
    return replace(on, status="resnapshot", standstill=Standstill(reason, SNAPSHOTTED_BY_ITSELF))


@dataclass(frozen=True)
class TableOutcome:
    """What a batch did to one life of a table. Counts are the log's mutations, not Delta's rows."""

    life: Life
    inserted: int
    updated: int
    deleted: int
    delta_version: int | None
    seconds: float


@dataclass(frozen=True)
class XaCommit:
    """An XA transaction that was committed at (file number, offset) ``committed``.

    Its rows have ``xid``, and lie in the file with the number ``file`` behind the offset ``after`` and up to
    ``prepared``, where a compressed transaction has both: an XA id may be used again.
    """

    xid: str
    file: int
    after: int
    prepared: int
    committed: tuple[int, int]


@dataclass(frozen=True)
class PreparedXa:
    """An XA transaction without an outcome yet; the staging of ``batch`` is kept for its rows. See XaCommit."""

    xid: str
    batch: int
    file: int
    after: int
    prepared: int
    files: tuple[StagedFile, ...]

    def commit(self, committed: tuple[int, int]) -> XaCommit:
        return XaCommit(self.xid, self.file, self.after, self.prepared, committed)


@dataclass(frozen=True)
class ParentMutations:
    """A foreign key that acted below the log, and the parent's mutations that made it act.

    parent: as it was before the batch; None where the table refers to itself.
    """

    cascade: Cascade
    parent: Life | None = None
    step: MergeStep | None = None


@dataclass(frozen=True)
class MergeStep:
    """Mutations of one epoch, all in ``schema``'s shape.

    files: of their rows, those outside XA transactions. xa: of a file, the rows of one XA transaction that ends here.
    parents: what the rows' own foreign keys changed beside them without a word in the log.
    """

    schema: TableSchema
    files: tuple[StagedFile, ...]
    xa: tuple[tuple[StagedFile, XaCommit], ...] = ()
    parents: tuple[ParentMutations, ...] = ()

    @property
    def staged(self) -> tuple[StagedFile, ...]:
        """All files that are read, each once."""
        return tuple({file.path: file for file in (*self.files, *(file for file, _ in self.xa))}.values())

    @property
    def counts(self) -> tuple[int, int, int]:
        """Mutations inserted, updated, deleted."""
        plain = [(file.inserted, file.updated, file.deleted) for file in self.files]
        ended = [file.xids[commit.xid] for file, commit in self.xa]
        inserted, updated, deleted = zip((0, 0, 0), *plain, *ended, strict=True)
        return sum(inserted), sum(updated), sum(deleted)


@dataclass(frozen=True)
class CreateStep:
    """An empty table takes the place of whatever lies at its path."""

    schema: TableSchema


@dataclass(frozen=True)
class ReshapeStep:
    """The rows stay, under other columns. ``origins``: for each column of ``after`` that of ``before``; None is new.

    kept_origins: for each of ``after.kept`` the lake's column that has its values. fills: of new columns, the constant
    that old rows got, as the server writes it (TIMESTAMP in UTC); of others, what their NULLs became. Without fills and
    changed Delta types it writes no data file; with one of them every row is written anew.
    """

    before: TableSchema
    after: TableSchema
    origins: tuple[str | None, ...]
    kept_origins: tuple[str, ...] = ()
    fills: tuple[tuple[Column, str], ...] = ()


@dataclass(frozen=True)
class TruncateStep:
    """All rows go."""


@dataclass(frozen=True)
class MoveStep:
    """The table's rows are copied, inside the lake, to the path of its new name; it goes on there."""

    old: TableName
    new: TableName


@dataclass(frozen=True)
class LeaveStep:
    """At the path of a name that no table has any more: its rows go, and its history says where to."""

    old: TableName
    new: TableName


Step = MergeStep | CreateStep | ReshapeStep | TruncateStep | MoveStep | LeaveStep


@dataclass
class TableSteps:
    """A life's steps in a batch, and what the life is afterwards.

    turns: of each step, 2 n + 1 for what the batch's statement n does, 2 n for mutations before it (of a merge, its
    last): the order between the steps of tables that meet at one path. empty: nothing was written since it was made.
    """

    life: Life
    steps: list[Step] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    empty: bool = False

    def __post_init__(self) -> None:
        self.begins = self.life.name
        self._began_following = self.life.status == "following"
        self.first_schema = self.life.schema

    def forget(self) -> None:
        """Nothing of this batch is done: the table keeps the position it has, from which it can catch up.

        A life that began or moved in this batch stays as far as it came, for others may have its path.
        """
        if not any(isinstance(step, CreateStep | MoveStep | LeaveStep) for step in self.steps):
            self.steps, self.turns = [], []
            self.life = replace(self.life, schema=self.first_schema)

    def forget_mutations(self) -> None:
        """Those of the epoch that ends here are not merged: one of them can't be told."""
        if self.steps and isinstance(self.steps[-1], MergeStep):
            self.steps.pop()
            self.turns.pop()

    def add(self, step: Step, turn: int) -> None:
        self.steps.append(step)
        self.turns.append(turn)

    def add_file(self, file: StagedFile, turn: int) -> None:
        self._merge(turn, files=(self._shown(file),))

    def add_xa(self, rows: Sequence[tuple[StagedFile, XaCommit]], turn: int) -> None:
        self._merge(turn, xa=tuple((self._shown(file), commit) for file, commit in rows))

    def _shown(self, file: StagedFile) -> StagedFile:
        """The file without columns that the server shows nobody."""
        return replace(file, columns=without_hashes(file.columns, self.life.schema))

    def _merge(
        self, turn: int, files: tuple[StagedFile, ...] = (), xa: tuple[tuple[StagedFile, XaCommit], ...] = ()
    ) -> None:
        self.empty = False
        last = self.steps[-1] if self.steps else None
        if isinstance(last, MergeStep) and last.schema == self.life.schema:
            self.steps[-1] = MergeStep(last.schema, last.files + files, last.xa + xa)
            self.turns[-1] = turn
        else:
            self.add(MergeStep(self.life.schema, files, xa), turn)

    def add_parents(self, parents: tuple[ParentMutations, ...]) -> None:
        """To the table's only step, a merge; it is made where the log has nothing of the table."""
        if not self.steps:
            self._merge(0)
        (step,) = self.steps
        assert isinstance(step, MergeStep)
        self.steps[0] = replace(step, parents=parents)

    @property
    def was_versioned(self) -> bool:
        """Whether rows may have gone by updates, which gave them an end."""
        return self.first_schema.versioned or self.life.schema.versioned

    @property
    def newly_stopped(self) -> bool:
        return self._began_following and self.life.status == "stopped"

    @property
    def is_born(self) -> bool:
        """Whether the life, or its table in the lake, begins in this batch."""
        return any(isinstance(step, CreateStep) for step in self.steps)

    @property
    def names(self) -> set[TableName]:
        """Names at whose paths the steps work."""
        moves = [step for step in self.steps if isinstance(step, MoveStep | LeaveStep)]
        return {self.begins, *(step.old for step in moves), *(step.new for step in moves if isinstance(step, MoveStep))}


@dataclass(frozen=True)
class BatchSteps:
    """Everything a batch does.

    missing: included tables with mutations that were never snapshotted. asked: names without a life that are to be
    snapshotted, and why. prepared: XA transactions that wait for their outcome when it is done. gone: names without a
    life that no table has any more. charsets: the databases' default character sets at its stop, None where they are
    what they were at its start.
    """

    tables: tuple[TableSteps, ...]
    history: tuple[dict[str, Any], ...]
    missing: tuple[TableName, ...]
    asked: tuple[tuple[TableName, str], ...]
    prepared: tuple[PreparedXa, ...] = ()
    gone: tuple[TableName, ...] = ()
    charsets: Mapping[str, str] | None = None
