"""Snapshot: tables copied at known positions of the log, each in one Delta commit.

    plan     each table is cut into chunks, or the chunks that a dead snapshot lacks are taken up
    wave     as many chunks as there are cores (or fewer, see config.SnapshotConfig) open their read views at one
             position (binlake.source.locks, read_lock), and are copied by one connection each, as the server sends
             the rows, to data files in the table's folder, which no commit knows yet; of tables of few rows, many by
             one connection
    commit   the files of a table whose chunks are all staged become its Delta table, in one commit with its positions

Chunks of one table may have different positions: replaying the log from the lowest one makes them equal, since row
images are full. Tables without a key have one chunk, thus one position, and tables of engines without read views are
copied while they are locked. Where the server can't be locked within its limit, the snapshot continues without a lock,
or with locks of single tables where there are no GTIDs.

Spark copies and commits; where the reader is ``direct`` and Spark would do all its work in this process, this process
does both itself, except what it leaves to Spark (process_copies.py, merge/engine/begin_in_process.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from binlake.binlog.integrity import format_description
from binlake.config import PipelineConfig
from binlake.errors import (
    OF_CODE,
    UNREADABLE_REMEDY,
    BinlakeError,
    LakeError,
    LeaseHeld,
    LogUnreadable,
    TableError,
    unexpected,
)
from binlake.faults import fault
from binlake.kernels.cores import available_cores
from binlake.position import Position
from binlake.records.step_progress import shown_progress
from binlake.report import ProgressCallback, Report, counted
from binlake.retries import Retries, steady
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, may_be_renamed, may_be_swapped
from binlake.schema.table import TableName, TableSchema
from binlake.schema.virtual import generated_columns
from binlake.snapshot import few_rows, resultset
from binlake.snapshot.chunks import CHUNK_ROWS, Records, TableSnapshot, plan
from binlake.snapshot.commit import SnapshotResult, commit, committed_result
from binlake.snapshot.spark_sessions import SparkSessions
from binlake.snapshot.waves import Copying, Member, TableChanged, TableRefused, run_wave
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.endpoint import Endpoint
from binlake.source.locks import LockMode, StaysPrepared, allows_no_lock
from binlake.source.read_lock import BRIEF_PATIENCE, PATIENCE, LockBlocked
from binlake.source.server import Source
from binlake.spark import settings
from binlake.spark.starting import SessionFactory
from binlake.storage import files, java_errors
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow

if TYPE_CHECKING:
    from pyspark import SparkContext

    from binlake.spark.session import OwnSessions

__all__ = ["LockMode", "SnapshotResult", "SnapshotTask", "snapshot"]

_TRIES = 4
"""How often one table's chunks may fail, or its columns change, before its snapshot is given up."""
_PAUSE = 2.0
_COMMITS_AT_ONCE = 4


class BesideBatches(Protocol):
    """The additional work where tables are copied while batches are carried: commits wait for a moment between two of
    them. Its methods are called by one thread, but for ``can_begin``."""

    def can_begin(self, low: Position) -> bool:
        """Return whether a life can begin at a position, and go through the batches behind it."""
        ...

    def turn(self) -> AbstractContextManager[Callable[[TableName, Position], int]]:
        """Hold the lease. Gives a function that returns the newest batch before a position at which a table was copied,
        and raises TableError where no life can begin there."""
        ...

    def begin(self, results: Sequence[SnapshotResult]) -> None:
        """Begin the lives of tables that were committed in this turn."""
        ...

    def let_follow(self, name: TableName) -> None:
        """Carry a table through the batches that it missed. Raises TableError."""
        ...


@dataclass(frozen=True)
class SnapshotTask:
    """How tables are copied.

    source: a control connection, used for nothing else at the same time. batch: the newest batch number given out.
    read_from: the position from which the log is read; chunks that an ended run copied before it can't be used.
    in_process: whether this process copies and commits what it can. beside: for tables that are copied while batches
    are carried, by which ``batch`` and ``read_from`` aren't used; None where the lease is held. refusal: returns why a
    table of a shape isn't copied, as a withheld column may have another name; None where somebody named the tables.
    """

    config: PipelineConfig
    endpoint: Endpoint
    source: Source
    metadata: Metadata
    report: Report
    batch: int
    read_from: Position | None = None
    lock: LockMode = "flush"
    chunk_rows: int = CHUNK_ROWS
    in_process: bool = False
    beside: BesideBatches | None = None
    refusal: Callable[[TableName, TableSchema], TableError | None] | None = None


def snapshot(
    session: SessionFactory, task: SnapshotTask, names: Sequence[TableName]
) -> tuple[list[SnapshotResult], list[TableError]]:
    """Copy the tables into the lake. Return their results, in the order of ``names``, and the errors of single
    tables."""
    return _Snapshotter(SparkSessions(session), task).run(names)


def works_with(
    sessions: Callable[[], OwnSessions], task: SnapshotTask, records: Records, watch: Callable[[int], None]
) -> Copying:
    """Return what all waves of a task share. Without another lock mode to take, the lock is awaited for longer."""
    transport = task.source.transport()
    return Copying(
        sessions,
        task.endpoint,
        task.source,
        records,
        lambda file: format_description(transport, file),
        task.config.invalid,
        watch,
        task.config.snapshot.reader,
        task.in_process,
        task.config.snapshot.max_writes_stopped,
        BRIEF_PATIENCE if task.lock == "flush" else PATIENCE,
        task.report.say,
    )


class _Snapshotter:
    def __init__(self, spark: SparkSessions, task: SnapshotTask) -> None:
        self.spark = spark
        self.task = task
        self.records = Records(self.task.config, self.task.metadata)
        self.transport = self.task.source.transport()
        self.results: dict[TableName, SnapshotResult] = {}
        self.failed: list[TableError] = []
        self.fatal: list[BaseException] = []
        self.lock = task.lock

    def created(self, file: str) -> int:
        return format_description(self.transport, file)

    def run(self, names: Sequence[TableName]) -> tuple[list[SnapshotResult], list[TableError]]:
        if self.task.in_process:
            resultset.warm()
        else:
            self._sessions()
        files.make_private_folder(self.task.config.staging_path("snapshot"))
        self.records.clean()
        open_tables = self._begin(names)
        with shown_progress(self.task.config, self.task.report, "snapshot") as show:
            copying = works_with(self._sessions, self.task, self.records, self._watch(list(open_tables), show))
            at_once = 1 if self.task.beside else _COMMITS_AT_ONCE
            with ThreadPoolExecutor(at_once, thread_name_prefix="commit") as pool:
                if self.task.beside and self.results:
                    pool.submit(self._commit_beside, self.task.beside, [])
                while open_tables and not self.fatal:
                    copied = [table for table in open_tables if not table.pending]
                    for table in copied:
                        open_tables.remove(table)
                    self._submit_commits(pool, copied)
                    if open_tables:
                        wave, mode, held = self._next_wave(copying, open_tables)
                        together = few_rows.fits(wave[0].table)
                        with self._sorting_failures(open_tables, wave):
                            run_wave(copying, wave, mode, until_copied=held, together=together)
                        copying.watch(0)
            if self.fatal:
                raise self.fatal[0]
        return [self.results[name] for name in names if name in self.results], self.failed

    def _begin(self, names: Sequence[TableName]) -> list[TableSnapshot]:
        """Resume unfinished snapshots and plan the others; large tables first, so that a wave's chunks are of one
        size."""
        tables = read_tables(self.task.source, names, self.task.config.excluding)
        begun: list[TableSnapshot] = []
        for name in names:
            if name not in tables:
                self._fail(name, TableError(f"{name} isn't there any more", remedy="run the snapshot again"))
                continue
            if result := self._already_committed(tables[name]):
                self.task.report.say(f"{name}: its snapshot at {result.low.short} was committed before")
                self.results[name] = result
                continue
            with self._failing(name):
                self._refuse(tables[name])
                begun.append(self._plan(tables[name]))
        self.records.save(*begun)
        return sorted(begun, key=lambda table: -table.estimate)

    def _refuse(self, table: SourceTable, before: TableSchema | None = None) -> None:
        """Raise TableError for a table that may show a withheld column under another name. before: the shape with which
        its snapshot began."""
        if self.task.refusal and (error := self.task.refusal(table.name, table.schema)):
            raise error
        withheld = self.task.config.confidential(table.name) if before else ()
        if before and (
            may_be_renamed(before, table.schema, withheld, ()) or may_be_swapped(before, table.schema, withheld)
        ):
            why = "a column that the YAML masks or excludes may have another name since DDL during its snapshot"
            raise TableError(f"{table.name}: {why}", remedy=UNCOVERED_REMEDY)

    def _already_committed(self, table: SourceTable) -> SnapshotResult | None:
        """Return the result of a committed snapshot that no watermark follows yet, else None."""
        last = self.records.committed(table)
        if last is None or not self._usable(last.low):
            return None
        if any(row.table_id == last.table_id for row in WatermarkRow.read(self.task.metadata, "table_id")):
            return None
        return committed_result(self.task.config, last)

    def _plan(self, table: SourceTable) -> TableSnapshot:
        resumed = self.records.unfinished(table, self._usable)
        self.records.forget(table.name, but=resumed.id if resumed else None)
        if resumed:
            if lost := self.records.lost(resumed):
                self.records.copy_again(resumed, lost)
            staged = len(resumed.chunks) - len(resumed.pending)
            self.task.report.say(f"{table.name}: continues, {staged} of {len(resumed.chunks)} chunks are staged")
            return resumed
        for why in generated_columns(table.schema).left_out.values():
            self.task.report.say(f"{table.name}: {why}")
        return self._cut(table)

    def _cut(self, table: SourceTable) -> TableSnapshot:
        if table.unreadable:
            raise TableError(f"{table.name}: {table.unreadable}", remedy=table.remedy)
        chunk_rows, connections = self.task.chunk_rows, self._connections(in_process=self.task.in_process)
        invalid = self.task.config.invalid
        return plan(self.task.source, table, invalid, chunk_rows=chunk_rows, connections=connections)

    def _sessions(self) -> OwnSessions:
        if self.task.in_process:
            return self.spark.for_copies("some tables have columns that are written by Spark alone")
        return self.spark.for_copies("a snapshot copies rows on Spark's executors")

    def _connections(self, *, in_process: bool) -> int:
        """Return how many connections copy in parallel; of Spark's, one without a free core would wait at its gate."""
        asked = self.task.config.snapshot.connections
        if in_process:
            return asked or available_cores()
        free = _cores(self._sessions().context)
        return min(asked or free, free)

    def _usable(self, position: Position) -> bool:
        """Return whether the server still has the log from ``position`` on, and this run will read it."""
        if position.server != self.task.source.server_identity or not position.reaches(self.task.read_from):
            return False
        if self.task.beside and not self.task.beside.can_begin(position):
            return False
        size = dict(self.task.source.binary_logs()).get(position.file)
        return size is not None and position.offset <= size and self.created(position.file) == position.created

    def _next_wave(self, copying: Copying, tables: Sequence[TableSnapshot]) -> tuple[list[Member], LockMode, bool]:
        """Return the chunks to copy at once, the lock they need, and whether it is held until they are copied."""

        def needs(table: TableSnapshot) -> tuple[LockMode, bool]:
            if not table.transactional:
                # Without views nothing but a lock helps, which holds up the writers of this table alone. LOCK TABLES
                # lets NEXTVAL by, and a sequence's single row is read in a moment.
                by_flush = table.schema.sequence and self.lock == "flush" and not table.tries
                return "flush" if by_flush else "tables", True
            # Without a key the log can't fix what a view has already.
            return "tables" if not table.schema.key and self.lock == "none" else self.lock, False

        def way(table: TableSnapshot) -> tuple[bool, bool]:
            return copying.is_in_process(table), few_rows.fits(table)

        kind, (in_process, together) = needs(tables[0]), way(tables[0])
        alike = [table for table in tables if (needs(table), way(table)) == (kind, (in_process, together))]
        members = [Member(table, chunk) for table in alike for chunk in table.pending]
        self._say_locked([table for table in alike if not table.transactional and not table.schema.sequence])
        most = few_rows.MOST_TABLES if together else self._connections(in_process=in_process)
        return members[:most], *kind

    def _say_locked(self, tables: Sequence[TableSnapshot]) -> None:
        for table in tables:
            rows = counted(table.estimate, "row")
            self.task.report.say(
                f"{table.name}: writes to it wait until about {rows} are copied, as {table.engine} has no read views"
            )

    def _without_flushing(self, error: LockBlocked) -> None:
        """Choose another lock for the rest of the snapshot where the server can't be locked. Raises ``error`` where
        there is none."""
        if self.lock != "flush":
            raise error
        self.lock = "none" if allows_no_lock(self.task.source) else "tables"
        way = "continues without a lock" if self.lock == "none" else "locks its tables instead"
        self.task.report.say(f"{error.message}; the snapshot {way}")

    @contextmanager
    def _sorting_failures(self, open_tables: list[TableSnapshot], wave: Sequence[Member]) -> Iterator[None]:
        """Move failed chunks of a wave to a later one; a table whose columns changed starts again."""
        try:
            yield
        except TableChanged as changed:
            for table in changed.tables:
                open_tables.remove(table)
                self._start_again(open_tables, table, changed)
        except TableRefused as refused:
            open_tables.remove(refused.table)
            self._fail(refused.table.name, refused.error)
        except LockBlocked as blocked:
            self._without_flushing(blocked)
        except BinlakeError as error:
            if not error.retryable or isinstance(error, LakeError | StaysPrepared | LeaseHeld):
                raise  # a full disk stays full while the lock is taken, and who is prepared was waited for
            tables = {id(member.table): member.table for member in wave}.values()
            for table in tables:
                table.tries += 1
            if any(table.tries >= _TRIES for table in tables):
                raise
            self.task.report.say(f"a wave failed and is repeated: {error.message}")
            time.sleep(_PAUSE)

    def _start_again(self, open_tables: list[TableSnapshot], old: TableSnapshot, error: TableChanged) -> None:
        """Begin a table's snapshot again. What is noted of one that isn't begun again stays: the next snapshot reads
        there which columns the table had."""
        self.task.report.say(f"{old.name}: DDL during its snapshot, which begins again")
        current = read_tables(self.task.source, [old.name], self.task.config.excluding).get(old.name)
        if current is None or old.tries + 1 >= _TRIES:
            gone = current is None
            reason = f"{old.name} was dropped" if gone else f"{old.name} changes its shape again and again"
            self._fail(old.name, TableError(reason, remedy="run the snapshot again when the DDL is done"))
            return
        with self._failing(old.name):
            self._refuse(current, old.schema)
            planned = self._cut(current)
            planned.tries = old.tries + 1
            self.records.save(planned)
            self.records.drop(old)
            open_tables.append(planned)

    def _submit_commits(self, pool: ThreadPoolExecutor, copied: Sequence[TableSnapshot]) -> None:
        if self.task.beside is None:
            for table in copied:
                pool.submit(self._commit, table)
        elif copied:
            pool.submit(self._commit_beside, self.task.beside, copied)

    def _commit(self, table: TableSnapshot) -> None:
        """Commit a table in a thread while the next wave is copied."""
        try:
            with self._failing(table.name):
                self.task.metadata.check()
                self._commit_with_retries(table, self.task.batch)
        except BaseException as error:
            self.fatal.append(error)

    def _commit_beside(self, beside: BesideBatches, tables: Sequence[TableSnapshot]) -> None:
        """Commit tables between two batches, begin their lives, and carry them through what they missed, in a thread
        while the next wave is copied. Without tables: those that an ended run committed."""
        try:
            with beside.turn() as batch_before:
                begun: list[SnapshotResult] = []
                for result in () if tables else list(self.results.values()):
                    with self._failing(result.name):
                        batch_before(result.name, result.low)
                        begun.append(result)
                for table in tables:
                    with self._failing(table.name, table):
                        begun.append(self._commit_with_retries(table, batch_before(table.name, table.low)))
                beside.begin(begun)
                fault("lives begun")
            for result in begun:
                with self._failing(result.name):
                    beside.let_follow(result.name)
        except BaseException as error:
            self.fatal.append(error)

    def _commit_with_retries(self, table: TableSnapshot, batch: int) -> SnapshotResult:
        """Commit a table and return its result; a commit that failed because an executor was lost is repeated."""

        def once() -> SnapshotResult:
            task = self.task
            result = commit(self.spark, task.config, table, self.records, batch=batch, in_process=task.in_process)
            self.results[table.name] = result
            task.report.say(_sentence(result))
            fault("snapshot committed")
            return result

        def executor_lost(error: Exception) -> bool:
            cause = error.__cause__ if isinstance(error, LakeError) else None
            return cause is not None and java_errors.executor_lost(cause)

        def say(error: Exception, failures: int, seconds: float) -> None:
            self.task.report.say(f"{error.args[0]}; it is repeated")

        return Retries(steady(_PAUSE), attempts=_TRIES).call(once, executor_lost, say=say)

    @contextmanager
    def _failing(self, name: TableName, copied: TableSnapshot | None = None) -> Iterator[None]:
        """Record an error of one table, so that the others continue. copied: is removed then."""
        try:
            yield
        except (TableError, LogUnreadable, *OF_CODE) as error:
            if isinstance(error, LogUnreadable):
                error = TableError(error.message, remedy=error.remedy)
            elif not isinstance(error, TableError):
                said = f"{name}: its snapshot can't be taken: {unexpected(error)}"
                error = TableError(said, remedy=UNREADABLE_REMEDY)
            self._fail(name, error)
            if copied is not None:
                self.records.drop(copied)

    def _fail(self, name: TableName, error: TableError) -> None:
        self.task.report.say(f"{name}: {error}")
        error.table = str(name)
        self.failed.append(error)

    def _watch(self, tables: Sequence[TableSnapshot], progress: ProgressCallback) -> Callable[[int], None]:
        """Return a function that reports progress, given the bytes that the running wave has written."""
        began = time.monotonic()
        before = sum(table.rows for table in tables)

        def watch(running: int) -> None:
            rows = sum(table.rows for table in tables)
            staged = sum(table.bytes for table in tables)
            # The bytes of a row show how many rows the running wave has written.
            weight = staged / rows if rows else 0
            done = rows + (running / weight if weight else 0)
            total = max(done, sum(max(table.estimate, table.rows) for table in tables))
            progress(done, total, _pace(done, total, staged + running, done - before, time.monotonic() - began))

        return watch


def _pace(done: float, total: float, size: int, here: float, seconds: float) -> str:
    """Return progress and speed as text. done, total: rows, estimated. size: bytes. here: rows of this run."""
    rate = here / max(0.001, seconds)
    rows = f"{done:,.0f} of about {total:,.0f} rows, " if done else ""
    left = f", {rate:,.0f} rows/s, about {(total - done) / rate:,.0f} s left" if rate >= 1 else ""
    return f"{rows}{size / 1e6:,.1f} MB{left}"


def _cores(context: SparkContext) -> int:
    """Return the number of cores of the executors that are ready."""
    if settings.is_local(str(context.master)):
        return context.defaultParallelism
    from binlake.spark import cluster

    return cluster.ready(context)


def _sentence(result: SnapshotResult) -> str:
    rate = result.rows / result.seconds if result.seconds else 0
    return (
        f"{result.name}: {counted(result.rows, 'row')}, {result.bytes / 1e6:,.1f} MB, {rate:,.0f} rows/s, "
        f"writes stopped for {result.lock_ms} ms, at {result.low.short}, Delta version {result.delta_version}"
    )
