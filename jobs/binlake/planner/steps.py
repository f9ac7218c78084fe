"""A batch's steps: what is done to each table in the lake, in the order of the log.

Steps are numbered from 1 within a life. Each is one Delta commit under its number, which can be repeated safely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from binlake.binlog.border import XaEvent
from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode
from binlake.errors import SNAPSHOTTED_BY_ITSELF
from binlake.planner.manifest import StagedFile
from binlake.planner.noted_statements import NotedStatement
from binlake.position import Position, file_number
from binlake.schema.cascades import Cascade
from binlake.schema.hidden import without_hashes
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import Base64

Status = Literal["following", "stopped", "paused", "catching up", "resnapshot", "excluded", "dropped", "missing"]
"""Whether a table follows the log. resnapshot: it waits for a new snapshot, which is taken automatically. paused: it
waits until somebody resumes it. catching up: it was copied beside the batches, and goes through those that it missed.
excluded: it waits until the YAML includes it again."""


@dataclass(frozen=True)
class Standstill:
    """Why a table doesn't follow the log, and what to do about it.

    file, offset: the place of the event at which it stopped; None if no event stopped it, or if only the reason is
    known. raw: an event that can't be decoded, or its first bytes. frozen: somebody's no leaves the table as it is.
    """

    reason: str
    remedy: str = ""
    file: str | None = None
    offset: int | None = None
    raw: Base64 = b""
    frozen: bool = False

    @classmethod
    def at(cls, file: str, offset: int, why: str, remedy: str = "", raw: bytes = b"") -> Standstill:
        """Return a standstill at a place of the log. Its reason begins with the place."""
        return cls(f"{file}:{offset}: {why}", remedy, file, offset, raw)


LEFT_OUT = Standstill(
    "tables.include and tables.exclude in the YAML leave it out: the lake keeps it as it was then",
    "nothing, unless it is to be mirrored: then include it, and it is brought up to date",
)
LEFT_GHOST = Standstill("tables.exclude in the YAML leaves it out: it isn't taken for a schema change tool's copy")


@dataclass(frozen=True)
class Life:
    """One life of a table, as metadata has it before a batch.

    low: mutations before this position are in the snapshot already; the position of CREATE TABLE for tables created in
    the log. high: the table equals the server once it is merged up to this position. delta_version: the last commit
    that was recorded. standstill: why a life doesn't follow; None if it does.
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
        """Return why the life doesn't follow; empty if it does."""
        return self.standstill.reason if self.standstill else ""

    @property
    def remedy(self) -> str:
        """Return what lets the table follow again; empty if nothing stopped it."""
        return self.standstill.remedy if self.standstill else ""

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of its shape."""
        return self.schema.fingerprint


def rebased(life: Life, watermark: Position | None, start: Position) -> Life:
    """Return the life for a range of another server: everything before ``start`` is in it.

    watermark: the lake's position on the former server. A table that is ahead of it needs a new snapshot.
    """
    if life.low.server == start.server:
        return life
    on = replace(life, low=start, high=start)
    ahead = watermark is None or life.low.server != watermark.server or max(life.low, life.high) > watermark
    if life.status != "following" or not ahead:
        return on
    reason = f"it was snapshotted at {life.high.short} of another server, ahead of the lake"
    return replace(on, status="resnapshot", standstill=Standstill(reason, SNAPSHOTTED_BY_ITSELF))


@dataclass(frozen=True)
class TableOutcome:
    """The changes that a batch made to one life of a table. Counts are the log's mutations, not Delta's rows.

    why_spark: why Spark did some of its steps; empty where the process itself did them all.
    """

    life: Life
    inserted: int
    updated: int
    deleted: int
    delta_version: int | None
    seconds: float
    why_spark: str = ""


@dataclass(frozen=True)
class XaCommit:
    """An XA transaction that was committed at (file number, offset) ``committed``.

    Its rows carry ``xid`` and lie in the file with the number ``file``, after the offset ``after`` and up to
    ``prepared``, the offset of XA PREPARE or of the compressed transaction that holds it. The bounds are needed because
    an XA id may be used again. committed_us, gtid: commit time and GTID of the outcome.
    """

    xid: str
    file: int
    after: int
    prepared: int
    committed: tuple[int, int]
    committed_us: int = 0
    gtid: str | None = None


@dataclass(frozen=True)
class PreparedXa:
    """An XA transaction without an outcome yet. The staging of ``batch`` is kept for its rows. Fields: see XaCommit.

    left_out: tables of which a condition left rows out in its slice, so that it may lack some.
    """

    xid: str
    batch: int
    file: int
    after: int
    prepared: int
    files: tuple[StagedFile, ...]
    left_out: tuple[TableName, ...] = ()

    def read_otherwise(self, name: TableName, life: Life) -> str:
        """Return why its rows of a table can't be merged into a life that began since they were staged, under another
        condition or other masks; empty where they can."""
        schema = life.schema
        columns = [column for file in self.files if file.name == name for column in file.columns]
        if any(column.mask != schema.masks.get(column.name.lower()) for column in columns if schema.has(column.name)):
            return "columns were masked otherwise when its rows were read"
        has_chosen_rows = name in self.left_out or (schema.where and columns)
        if has_chosen_rows and life.low.order > (self.file, self.prepared):
            return "the condition in rows may have been another one when its rows were read"
        return ""

    def commit(self, outcome: XaEvent) -> XaCommit:
        """Return its commit by an event of the log."""
        committed = (file_number(outcome.file), outcome.offset)
        return XaCommit(self.xid, self.file, self.after, self.prepared, committed, outcome.committed_us, outcome.gtid)


@dataclass(frozen=True)
class ParentMutations:
    """A foreign key that changed rows without a word in the log, and the parent's mutations that caused it.

    parent: the parent's life before the batch; None if the table refers to itself. step: the parent's merge.
    """

    cascade: Cascade
    parent: Life | None = None
    step: MergeStep | None = None


@dataclass(frozen=True)
class MergeStep:
    """The merge of one epoch's mutations, all in ``schema``'s shape.

    files: their rows outside XA transactions are merged. xa: only the rows of that XA transaction, which ends here, are
    merged from the file. parents: foreign keys by which the parents' mutations changed this table's rows without a word
    in the log.
    """

    schema: TableSchema
    files: tuple[StagedFile, ...]
    xa: tuple[tuple[StagedFile, XaCommit], ...] = ()
    parents: tuple[ParentMutations, ...] = ()

    @property
    def staged(self) -> tuple[StagedFile, ...]:
        """Return all files that are read, each once."""
        return tuple({file.path: file for file in (*self.files, *(file for file, _ in self.xa))}.values())

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of inserts, updates and deletes."""
        plain = [(file.inserted, file.updated, file.deleted) for file in self.files]
        ended = [file.xids[commit.xid] for file, commit in self.xa]
        inserted, updated, deleted = zip((0, 0, 0), *plain, *ended, strict=True)
        return sum(inserted), sum(updated), sum(deleted)


@dataclass(frozen=True)
class CreateStep:
    """The creation of an empty table, in the place of whatever lies at its path."""

    schema: TableSchema


@dataclass(frozen=True)
class ReshapeStep:
    """The change of a table's columns; its rows are kept.

    origins: for each column of ``after``, the column of ``before`` that has its values; None for a new one.
    kept_origins: for each of ``after.kept``, the lake's column that has its values. fills: for a new column, the
    constant that old rows get, as the server writes it (TIMESTAMP in UTC); for another, the value that replaces NULLs.
    With fills or changed Delta types every row is rewritten; else no data file is written.
    """

    before: TableSchema
    after: TableSchema
    origins: tuple[str | None, ...]
    kept_origins: tuple[str, ...] = ()
    fills: tuple[tuple[Column, str], ...] = ()


@dataclass(frozen=True)
class DescribeStep:
    """The change of the comments of a table and its columns to those of ``schema``, by metadata alone."""

    schema: TableSchema


@dataclass(frozen=True)
class TruncateStep:
    """The deletion of all rows. committed_us: when it committed, where deleted rows stay; None where they go. place: of
    the statement, as (file number, offset)."""

    committed_us: int | None
    place: tuple[int, int]


@dataclass(frozen=True)
class MoveStep:
    """The copy of a table inside the lake to the path of its new name, where it continues."""

    old: TableName
    new: TableName


@dataclass(frozen=True)
class LeaveStep:
    """The deletion of the rows at the path of a name that no table has any more; the commit says where they moved."""

    old: TableName
    new: TableName


Step = MergeStep | CreateStep | ReshapeStep | DescribeStep | TruncateStep | MoveStep | LeaveStep


@dataclass
class TableSteps:
    """A life's steps in a batch, and the life after them.

    turns: a number for each step, 2 n + 1 for what statement n of the batch does and 2 n for mutations before it (the
    last of a merge's): it orders the steps of several tables at one path. empty: nothing was written since the table
    was created.
    """

    life: Life
    steps: list[Step] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    empty: bool = False

    def __post_init__(self) -> None:
        self.begins = self.life.name
        self._began_following = self.life.status == "following"
        self.first_schema = self.life.schema
        self.began = self.life

    def forget(self) -> None:
        """Remove all steps: the table keeps its position, from which it can catch up.

        A life that began or moved in this batch keeps its steps: its path may belong to another table by now.
        """
        if not any(isinstance(step, CreateStep | MoveStep | LeaveStep) for step in self.steps):
            self.steps, self.turns = [], []
            self.life = replace(self.life, schema=self.first_schema)

    def back_to(self, life: Life, count: int) -> None:
        """Give the table the life that it had when it had ``count`` steps, and remove those that came since."""
        self.life = life
        del self.steps[count:], self.turns[count:]

    def forget_mutations(self) -> None:
        """Remove the merge of the epoch that ends here: one of its mutations can't be decoded."""
        if self.steps and isinstance(self.steps[-1], MergeStep):
            self.steps.pop()
            self.turns.pop()

    def add(self, step: Step, turn: int) -> None:
        """Append a step. turn: see TableSteps."""
        self.steps.append(step)
        self.turns.append(turn)

    def add_comments(self, turn: int) -> None:
        """Add the last step of a batch, where statements changed comments or created the table again: such commits, by
        Spark above all, lose comments."""
        comments, before = ((s.comment, s.lake_comments) for s in (self.life.schema, self.first_schema))
        is_made = any(isinstance(step, CreateStep | ReshapeStep | MoveStep) for step in self.steps)
        if self.life.status == "following" and (comments != before or (is_made and comments != ("", {}))):
            self.add(DescribeStep(self.life.schema), turn)

    def add_file(self, file: StagedFile, turn: int) -> None:
        """Merge a staged file's rows in the present epoch."""
        self._merge(turn, files=(self._without_hashes(file),))

    def add_xa(self, rows: Sequence[tuple[StagedFile, XaCommit]], turn: int) -> None:
        """Merge the rows of committed XA transactions in the present epoch."""
        self._merge(turn, xa=tuple((self._without_hashes(file), commit) for file, commit in rows))

    def _without_hashes(self, file: StagedFile) -> StagedFile:
        """Return the file without the hidden hash columns of MariaDB's long unique keys."""
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
        """Add ``parents`` to the table's only step, a merge; create it if the log has no mutations of the table."""
        if not self.steps:
            self._merge(0)
        (step,) = self.steps
        assert isinstance(step, MergeStep)
        self.steps[0] = replace(step, parents=parents)

    @property
    def may_be_created_again(self) -> bool:
        """Return whether the table may get another shape by creating it again: it is empty and keeps no columns of
        former rows."""
        return self.empty and not self.life.schema.kept

    @property
    def was_versioned(self) -> bool:
        """Return whether updates may have removed rows: in a system-versioned table, by setting the end of their
        time."""
        return self.first_schema.versioned or self.life.schema.versioned

    @property
    def newly_stopped(self) -> bool:
        """Return whether the table followed before this batch, and is stopped by it."""
        return self._began_following and self.life.status == "stopped"

    @property
    def is_born(self) -> bool:
        """Return whether the life, or its table in the lake, begins in this batch."""
        return any(isinstance(step, CreateStep) for step in self.steps)

    @property
    def names(self) -> set[TableName]:
        """Return the names at whose paths the steps work."""
        moves = [step for step in self.steps if isinstance(step, MoveStep | LeaveStep)]
        return {self.begins, *(step.old for step in moves), *(step.new for step in moves if isinstance(step, MoveStep))}


Happened = Literal["begin", "create", "alter", "truncate", "drop", "rename", "anew", "gap", "repair", "end"]


@dataclass(frozen=True)
class RowsBeside:
    """Mutations between two statements. life: one of the table's name, which begins with the batch."""

    life: Life
    merge: MergeStep


@dataclass(frozen=True)
class EventBeside:
    """A statement or a gap of a table's log.

    what: gap says that what changed there isn't known row by row; anew, that the mirror is copied again, though the log
    continues; begin, that what was before wasn't read; repair, that rows of the mirror were put right; end, that the
    batch ends there.
    file, offset, number: its place in the log, and which of several of one statement it is.
    committed_us, gtid: None where they aren't known.
    renamed: the columns that have new names since, as (old, new).
    life: the life whose rows the mirror holds behind it, where the mirror follows it there. reshape: the changes to the
    mirror's columns. is_replaced: the same statement gave the name to another table.
    """

    what: Happened
    file: int
    offset: int
    number: int = 0
    committed_us: int | None = None
    gtid: str | None = None
    detail: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    life: Life | None = None
    reshape: ReshapeStep | None = None
    is_replaced: bool = False


BesideStep = RowsBeside | EventBeside


@dataclass
class BesideSteps:
    """The steps of one name. turns: see TableSteps. begins: modes that didn't read the log up to the batch. standing:
    modes whose tables are stopped, and aren't written.

    The first step is the beginning, for these modes alone.
    """

    name: TableName
    begins: tuple[str, ...] = ()
    steps: list[BesideStep] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    standing: tuple[str, ...] = ()

    @classmethod
    def at(cls, start: Position, name: TableName) -> BesideSteps:
        """Return the steps of a batch in which nothing happened to the table. start: the batch's."""
        return cls(name, steps=[EventBeside("begin", *start.order)], turns=[0])

    def written_modes(self, config: PipelineConfig) -> list[BesideMode]:
        """Return the modes whose tables the batch writes."""
        return [mode for mode in config.beside(self.name) if mode not in self.standing]

    def add(self, step: BesideStep, turn: int) -> None:
        """Append a step. turn: see TableSteps."""
        self.steps.append(step)
        self.turns.append(turn)

    @property
    def start(self) -> tuple[int, int]:
        """Return the place in the log at which the batch begins."""
        first = self.steps[0]
        assert isinstance(first, EventBeside)
        return first.file, first.offset


@dataclass(frozen=True)
class BatchSteps:
    """Everything that a batch does.

    history: rows of the DDL history. missing: included tables with mutations that were never snapshotted. asked: names
    without a life that are to be snapshotted, and why. prepared: XA transactions that wait for their outcome at the
    batch's stop. gone: names without a life that no table has any more. charsets: the databases' default character
    sets at the stop; None if they are what they were at the start. beside: steps of the tables that modes keep beside
    mirrors. left: modes that end with the batch, and the tables that had them.
    """

    tables: tuple[TableSteps, ...]
    history: tuple[NotedStatement, ...]
    missing: tuple[TableName, ...]
    asked: tuple[tuple[TableName, str], ...]
    prepared: tuple[PreparedXa, ...] = ()
    gone: tuple[TableName, ...] = ()
    charsets: Mapping[str, str] | None = None
    beside: tuple[BesideSteps, ...] = ()
    left: tuple[tuple[TableName, BesideMode], ...] = ()
