"""Snapshot: tables copied at known positions of the log, each in one Delta commit.

    plan     each table is cut into chunks, or the chunks that a dead snapshot lacks are taken up
    wave     as many chunks as Spark has cores (or fewer, see config.SnapshotConfig) open their read views at one
             position (binlake.source.locks), and are copied by one connection each, as the server sends the rows, to
             data files in the table's folder, which no commit knows yet; of tables of few rows, many by one connection
    commit   the files of a table whose chunks are all staged become its Delta table, in one commit with its positions

Chunks of one table may have different positions: replaying the log from the lowest one makes them equal, since row
images are full. Tables without a key have one chunk, thus one position, and engines without read views are copied
while the lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from binlake.binlog.integrity import format_description
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LakeError, TableError, UsageError
from binlake.faults import fault
from binlake.metadata.metadata import Metadata
from binlake.metadata.step_progress import shown_progress
from binlake.position import Position
from binlake.report import ProgressCallback, Report, counted
from binlake.schema.table import TableName
from binlake.schema.virtual import generated_columns
from binlake.snapshot import few_rows
from binlake.snapshot.chunks import CHUNK_ROWS, Records, TableSnapshot, plan
from binlake.snapshot.commit import SnapshotResult, commit, committed_result
from binlake.snapshot.waves import Copying, Member, TableChanged, TableRefused, run_wave
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.connection import Endpoint
from binlake.source.locks import LockMode, StaysPrepared
from binlake.source.server import Source
from binlake.spark import cluster, functions, settings
from binlake.spark.session import OwnSessions
from binlake.storage import files, java_errors

__all__ = ["LockMode", "SnapshotResult", "SnapshotTask", "snapshot"]

_TRIES = 4
"""How often one table's chunks may fail, or its columns change, before its snapshot is given up."""
_PAUSE = 2.0
_COMMITS_AT_ONCE = 4


@dataclass(frozen=True)
class SnapshotTask:
    """How tables are copied.

    source: a control connection, used for nothing else at the same time. batch: the newest batch number given out.
    read_from: the position from which the log is read; chunks that an ended run copied before it can't be used.
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


def snapshot(
    session: SparkSession, task: SnapshotTask, names: Sequence[TableName]
) -> tuple[list[SnapshotResult], list[TableError]]:
    """Copy the tables into the lake. Return their results, in the order of ``names``, and the errors of single
    tables."""
    refuse_retries(session)
    return _Snapshotter(session, task).run(names)


def refuse_retries(session: SparkSession) -> None:
    """Raise UsageError if Spark may retry or speculate: such a task would open a later view under an old position."""
    conf = session.sparkContext.getConf()
    local = settings.is_local(str(session.sparkContext.master))
    if not local and conf.get("spark.task.maxFailures", "4") != "1":
        raise UsageError("spark.task.maxFailures isn't 1", remedy="submit the job with --conf spark.task.maxFailures=1")
    if conf.get("spark.speculation", "false") == "true":
        raise UsageError("spark.speculation is on", remedy="submit the job with --conf spark.speculation=false")


def works_with(session: SparkSession, task: SnapshotTask, records: Records, watch: Callable[[int], None]) -> Copying:
    """Return what all waves of a task share."""
    transport = task.source.transport()
    return Copying(
        OwnSessions(session, functions.register),
        task.endpoint,
        task.source,
        records,
        lambda file: format_description(transport, file),
        task.config.invalid,
        watch,
        task.config.snapshot.reader,
    )


class _Snapshotter:
    def __init__(self, session: SparkSession, task: SnapshotTask) -> None:
        self.session = session
        self.task = task
        self.records = Records(self.task.config, self.task.metadata)
        self.transport = self.task.source.transport()
        self.results: dict[TableName, SnapshotResult] = {}
        self.failed: list[TableError] = []
        self.fatal: list[BaseException] = []
        self.committing = OwnSessions(session)

    def created(self, file: str) -> int:
        return format_description(self.transport, file)

    def run(self, names: Sequence[TableName]) -> tuple[list[SnapshotResult], list[TableError]]:
        files.make_private_folder(self.task.config.staging_path("snapshot"))
        self.records.clean()
        open_tables = self._begin(names)
        with shown_progress(self.task.config, self.task.report, "snapshot") as show:
            copying = works_with(self.session, self.task, self.records, self._watch(list(open_tables), show))
            with ThreadPoolExecutor(_COMMITS_AT_ONCE, thread_name_prefix="commit") as pool:
                while open_tables and not self.fatal:
                    for table in [table for table in open_tables if not table.pending]:
                        open_tables.remove(table)
                        pool.submit(self._commit, table)
                    if open_tables:
                        wave, mode, held = self._next_wave(open_tables)
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
                begun.append(self._plan(tables[name]))
        self.records.save(*begun)
        return sorted(begun, key=lambda table: -table.estimate)

    def _already_committed(self, table: SourceTable) -> SnapshotResult | None:
        """Return the result of a committed snapshot that no watermark follows yet, else None."""
        last = self.records.committed(table)
        if last is None or not self._usable(last.low):
            return None
        if any(row["table_id"] == last.table_id for row in self.task.metadata.read("watermarks")):
            return None
        return committed_result(self.task.config, last)

    def _plan(self, table: SourceTable) -> TableSnapshot:
        resumed = self.records.unfinished(table, self._usable)
        self.records.forget(table.name, but=resumed.id if resumed else None)
        if resumed:
            if lost := self.records.lost(resumed):
                self.records.copy_again(resumed, lost)
            staged = len(resumed.chunks) - len(resumed.pending)
            self.task.report.say(f"{table.name}: goes on, {staged} of {len(resumed.chunks)} chunks are staged")
            return resumed
        for why in generated_columns(table.schema).left_out.values():
            self.task.report.say(f"{table.name}: {why}")
        return self._cut(table)

    def _cut(self, table: SourceTable) -> TableSnapshot:
        chunk_rows, connections = self.task.chunk_rows, self._connections()
        invalid = self.task.config.invalid
        return plan(self.task.source, table, invalid, chunk_rows=chunk_rows, connections=connections)

    def _connections(self) -> int:
        """Return how many connections copy in parallel: one without a free core would wait at its gate."""
        free = _cores(self.session)
        return min(self.task.config.snapshot.connections or free, free)

    def _usable(self, position: Position) -> bool:
        """Tell whether the server still has the log from ``position`` on, and this run will read it."""
        if position.server != self.task.source.server_identity or not position.reaches(self.task.read_from):
            return False
        size = dict(self.task.source.binary_logs()).get(position.file)
        return size is not None and position.offset <= size and self.created(position.file) == position.created

    def _next_wave(self, tables: Sequence[TableSnapshot]) -> tuple[list[Member], LockMode, bool]:
        """Return the chunks to copy at once, the lock they need, and whether it is held until they are copied."""

        def needs(table: TableSnapshot) -> tuple[LockMode, bool]:
            alone = not table.transactional or not table.schema.key
            # Without a key the log can't mend what a view has already; without views nothing but a lock helps.
            return "tables" if alone and self.task.lock == "none" else self.task.lock, not table.transactional

        kind, together = needs(tables[0]), few_rows.fits(tables[0])
        alike = [table for table in tables if (needs(table), few_rows.fits(table)) == (kind, together)]
        members = [Member(table, chunk) for table in alike for chunk in table.pending]
        return members[: few_rows.MOST_TABLES if together else self._connections()], *kind

    @contextmanager
    def _sorting_failures(self, open_tables: list[TableSnapshot], wave: Sequence[Member]) -> Iterator[None]:
        """Put what failed in a wave into a later one; a table whose columns changed starts again."""
        try:
            yield
        except TableChanged as changed:
            for table in changed.tables:
                open_tables.remove(table)
                self._start_again(open_tables, table, changed)
        except TableRefused as refused:
            open_tables.remove(refused.table)
            self._fail(refused.table.name, refused.error)
        except BinlakeError as error:
            if not error.retryable or isinstance(error, LakeError | StaysPrepared):
                raise  # a full disk stays full while the lock is taken, and who is prepared was waited for
            tables = {id(member.table): member.table for member in wave}.values()
            for table in tables:
                table.tries += 1
            if any(table.tries >= _TRIES for table in tables):
                raise
            self.task.report.say(f"a wave failed and is repeated: {error.message}")
            time.sleep(_PAUSE)

    def _start_again(self, open_tables: list[TableSnapshot], old: TableSnapshot, error: TableChanged) -> None:
        self.task.report.say(f"{old.name}: DDL during its snapshot, which begins anew")
        self.records.drop(old)
        current = read_tables(self.task.source, [old.name], self.task.config.excluding).get(old.name)
        if current is None or old.tries + 1 >= _TRIES:
            gone = current is None
            reason = f"{old.name} was dropped" if gone else f"{old.name} changes its shape again and again"
            self._fail(old.name, TableError(reason, remedy="run the snapshot again when the DDL is done"))
            return
        with self._failing(old.name):
            planned = self._cut(current)
            planned.tries = old.tries + 1
            self.records.save(planned)
            open_tables.append(planned)

    def _commit(self, table: TableSnapshot) -> None:
        """Commit a table in a thread while the next wave is copied, in a session of its own for Delta's options."""
        try:
            with self._failing(table.name):
                self.task.metadata.check()
                result = self._commit_with_retries(table)
                self.results[table.name] = result
                self.task.report.say(_sentence(result))
                fault("snapshot committed")
        except BaseException as error:
            self.fatal.append(error)

    def _commit_with_retries(self, table: TableSnapshot) -> SnapshotResult:
        """Commit a table and return its result; a commit that failed because an executor was lost is repeated."""

        def once() -> SnapshotResult:
            with self.committing.lend() as session:
                return commit(session, self.task.config, table, self.records, batch=self.task.batch)

        for _ in range(_TRIES - 1):
            try:
                return once()
            except LakeError as error:
                if error.__cause__ is None or not java_errors.executor_lost(error.__cause__):
                    raise
                self.task.report.say(f"{error.message}; it is repeated")
                time.sleep(_PAUSE)
        return once()

    @contextmanager
    def _failing(self, name: TableName) -> Iterator[None]:
        """Record an error of one table, so that the others go on."""
        try:
            yield
        except TableError as error:
            self._fail(name, error)

    def _fail(self, name: TableName, error: TableError) -> None:
        self.task.report.say(f"{name}: {error}")
        self.failed.append(error)

    def _watch(self, tables: Sequence[TableSnapshot], progress: ProgressCallback) -> Callable[[int], None]:
        """Return a function that reports progress, given the bytes that the running wave has written."""
        began = time.monotonic()
        before = sum(table.rows for table in tables)

        def watch(running: int) -> None:
            rows = sum(table.rows for table in tables)
            staged = sum(table.bytes for table in tables)
            # What a row weighs tells how many the running wave has written.
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


def _cores(session: SparkSession) -> int:
    """Return the number of cores of the executors that are ready: a connection without one would wait at its gate."""
    context = session.sparkContext
    return context.defaultParallelism if settings.is_local(str(context.master)) else cluster.ready(context)


def _sentence(result: SnapshotResult) -> str:
    rate = result.rows / result.seconds if result.seconds else 0
    return (
        f"{result.name}: {counted(result.rows, 'row')}, {result.bytes / 1e6:,.1f} MB, {rate:,.0f} rows/s, "
        f"writes stopped for {result.lock_ms} ms, at {result.low.short}, Delta version {result.delta_version}"
    )
