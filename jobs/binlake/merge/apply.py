"""Carry out a batch's steps: tables side by side in threads of one process; those that need Spark share an application,
each in a session of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog, NewestBatch, transaction_version
from binlake.delta.plain_tables import StepCommit
from binlake.errors import (
    BinlakeError,
    LakeError,
    LogUnreadable,
    SparkNeeded,
    StagedRowsLost,
    StagingError,
    TableError,
    resume_command,
    snapshot_again,
)
from binlake.faults import fault
from binlake.merge import turns
from binlake.merge.beside import BesideWork
from binlake.merge.conflicts import tried
from binlake.merge.delta_names import taken_by_delta
from binlake.merge.engine import reshape_in_process
from binlake.merge.engine.engine_choice import Engines
from binlake.merge.epoch import merge_epoch
from binlake.merge.position_texts import mutation_text
from binlake.merge.reshape import lake_columns_after
from binlake.merge.shared_reads import SharedReads
from binlake.merge.table_engine import TableEngine, Truncation
from binlake.merge.table_progress import TableProgress
from binlake.merge.unexpected_errors import of_table
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import (
    BatchSteps,
    BesideStep,
    BesideSteps,
    CreateStep,
    DescribeStep,
    LeaveStep,
    Life,
    MergeStep,
    MoveStep,
    ReshapeStep,
    RowsBeside,
    Step,
    TableOutcome,
    TableSteps,
    TruncateStep,
)
from binlake.records.step_progress import shown_progress
from binlake.report import ProgressCallback, Report, counted
from binlake.schema.lake_columns import mirror_columns
from binlake.schema.table import TableName
from binlake.staging.staged_files import check_file
from binlake.storage import storage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.starting import SessionFactory

SIDE_BY_SIDE = 4
"""Tables merged at once: half of a small MERGE is planning on the driver, so more than the cores pays. Few rows of
plain tables take turns."""

_READ_HERE = 256 << 20
"""Bytes of staged files that the driver checks itself: a JVM that nothing else needs takes longer to begin."""
_LOOKS = 16
"""Small files looked at at once: storage behind a URL answers slowly."""
_LOOK_AGAIN = 0.2
"""Seconds, between two looks whether cancelled jobs have ended: a MERGE has several, one after the other."""
_SAID_EVERY, _NAMED = 1.0, 3
"""Seconds; tables that are named at once."""
_ACTIONS: dict[type[Step], str] = {
    MergeStep: "merge", CreateStep: "creation", ReshapeStep: "reshape", DescribeStep: "description",
    TruncateStep: "truncation", MoveStep: "move", LeaveStep: "removal of the rows",
}  # fmt: skip
"""The steps as the run's log names them."""


def damaged(spark: SessionFactory, staged: Sequence[StagedFile]) -> dict[str, StagingError]:
    """Return the error of each staged file that doesn't equal its manifest, by path."""

    def check(file: StagedFile) -> tuple[str, StagingError | None]:
        try:
            check_file(file)
        except StagingError as error:
            return file.path, error
        return file.path, None

    total = sum(file.bytes for file in staged)
    if total <= turns.QUICK_BYTES and not any("://" in file.path for file in staged):
        checked = list(map(check, staged))
    elif total < _READ_HERE:
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="check") as pool:
            checked = list(pool.map(check, staged))
    else:
        context = spark(f"{total / 1e6:,.0f} MB of staged files are compared with their manifest").sparkContext
        partitions = min(len(staged), context.defaultParallelism)
        checked = context.parallelize(list(staged), partitions).map(check).collect()
    return {path: error for path, error in checked if error is not None}


def apply_batch(
    spark: SessionFactory,
    config: PipelineConfig,
    batch: int,
    position: str,
    steps: BatchSteps,
    report: Report,
    newest_batch: NewestBatch | None = None,
) -> list[TableOutcome]:
    """Run all tables' steps; a TableError stops its table, anything else is raised once all tables have ended.

    Every staged file is compared with its manifest before anything is merged; raises StagingError for a file of this
    batch, which can be staged again. spark: asked by the steps that need it. newest_batch: see TableProgress.
    """
    working = [table for table in steps.tables if table.steps]
    staged = {file.path: file for table in working for step in table.steps for file in files_of(step)}
    staged |= {file.path: file for table in steps.beside for step in table.steps for file in _files_beside(step)}
    lost = damaged(spark, list(staged.values()))
    for path, damage in lost.items():
        if path.startswith(config.staging_path(str(batch)) + "/"):
            raise damage

    at_work = _AtWork(working, report)

    def one_group(group: _Members) -> list[TableOutcome]:
        with at_work.on(group.tables):
            return _Group(spark, config, batch, position, group, frozenset(lost), report, newest_batch).run()

    shown = shown_progress(config, report, "merged")
    with shown as show, ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="merge") as pool:
        members = _with_beside(groups(working), steps.beside)
        futures = turns.submitted(pool, SIDE_BY_SIDE, one_group, members, lambda group: group.is_quick)
        failed: Future[list[TableOutcome]] | None = None
        try:
            while wait(futures, timeout=_SAID_EVERY).not_done:
                at_work.tell(show)
            failed = next((future for future in futures if future.exception()), None)
            if failed:
                failed.result()
            outcomes = [outcome for future in futures for outcome in future.result()]
        except KeyboardInterrupt:
            _give_up(futures)
            raise
        finally:
            del futures, failed  # an error's traceback holds this frame, which would hold the error, and the rows
        at_work.tell(show)
    return outcomes


def _give_up(futures: Sequence[Future[Any]]) -> None:
    """Cancel Spark's jobs until no table is at work, because the run was interrupted. Commits that were made stay, and
    the batch continues from there."""
    for future in futures:
        future.cancel()
    while wait(futures, timeout=_LOOK_AGAIN).not_done:
        with suppress(Exception):  # it may be about to begin, or its JVM may be gone
            _cancel_jobs()


class _AtWork:
    """The tables that are being merged, and how many are done. Each is reported when it ends; one that takes long is
    reported when it began, too."""

    def __init__(self, tables: Sequence[TableSteps], report: Report) -> None:
        self._total = len(tables)
        self._report = report
        self._done = 0
        self._began: dict[str, tuple[TableSteps, float]] = {}  # by the table's id: two lives may have one name
        self._long: set[str] = set()
        self._lock = Lock()

    @contextmanager
    def on(self, tables: list[TableSteps]) -> Iterator[None]:
        with self._lock:
            self._began |= {table.life.id: (table, time.monotonic()) for table in tables}
        yield
        for table in tables:
            with self._lock:
                self._done += 1
                seconds = time.monotonic() - self._began.pop(table.life.id)[1]
                left = self._total - self._done
            behind = f"{left:,} of {self._total:,} tables left" if left else "no table left"
            self._report.say(
                f"{table.life.name}: {counted(_mutations(table), 'mutation')} merged in {seconds:,.1f} s, {behind}"
            )

    def tell(self, show: ProgressCallback) -> None:
        with self._lock:
            done, now = self._done, dict(self._began)
        for identity, (table, began) in now.items():
            if identity not in self._long and time.monotonic() - began >= _SAID_EVERY:
                self._long.add(identity)
                self._report.say(f"{table.life.name}: merging {counted(_mutations(table), 'mutation')}")
        more = f" and {len(now) - _NAMED} more" if len(now) > _NAMED else ""
        names = ", ".join(f"{table.life.name}" for table, _ in list(now.values())[:_NAMED])
        named = f"; now {names}{more}" if now else ""
        show(done, self._total, f"{done:,} of {self._total:,} tables{named}")


def _mutations(table: TableSteps) -> int:
    """Return how many mutations are staged for a table, without those of XA transactions."""
    staged = (file for step in table.steps for file in files_of(step))
    return sum(file.inserted + file.updated + file.deleted for file in staged)


def groups(tables: list[TableSteps]) -> list[list[TableSteps]]:
    """Put tables together that meet at a path, by a rename or a name used again. The groups can work side by side."""
    components: list[tuple[set[TableName], list[TableSteps]]] = []
    for table in tables:
        names, members = set(table.names), [table]
        disjoint = []
        for other_names, others in components:
            if names & other_names:
                names, members = names | other_names, [*others, *members]
            else:
                disjoint.append((other_names, others))
        components = [*disjoint, (names, members)]
    return [members for _, members in components]


@dataclass(frozen=True)
class _Members:
    """Tables that meet at a path, and what modes keep beside the mirrors of their names."""

    tables: list[TableSteps]
    beside: list[BesideSteps]

    @property
    def staged_bytes(self) -> int:
        mirrored = (file for table in self.tables for step in table.steps for file in files_of(step))
        beside = (file for table in self.beside for step in table.steps for file in _files_beside(step))
        return sum(file.bytes for file in (*mirrored, *beside))

    @property
    def is_quick(self) -> bool:
        """Return whether few rows are merged."""
        return self.staged_bytes <= turns.QUICK_BYTES


def _with_beside(grouped: list[list[TableSteps]], beside: Sequence[BesideSteps]) -> list[_Members]:
    """Put what is beside mirrors to the tables of the name; without one it is a group of its own."""
    by_name = {table.name: table for table in beside}
    members = []
    for tables in grouped:
        names = set().union(*(table.names for table in tables))
        members.append(_Members(tables, [by_name.pop(name) for name in sorted(names) if name in by_name]))
    return [*members, *(_Members([], [table]) for table in by_name.values())]


def _reading(config: PipelineConfig, members: _Members) -> Iterator[MergeStep]:
    """Yield a step for each time that its staged files are to be read: for a mirror, and for each mode beside it."""
    for table in members.tables:
        merges = (step for step in table.steps if isinstance(step, MergeStep))
        yield from (step for step in merges if not (step.parents or step.schema.without_rows))
    for beside in members.beside:
        for _ in beside.written_modes(config):
            yield from (step.merge for step in beside.steps if isinstance(step, RowsBeside))


def _files_beside(step: BesideStep) -> tuple[StagedFile, ...]:
    return step.merge.staged if isinstance(step, RowsBeside) else ()


def files_of(step: Step) -> tuple[StagedFile, ...]:
    """Return the staged files of a step; empty for steps that merge no rows."""
    return step.staged if isinstance(step, MergeStep) else ()


class _Group:
    """Tables that meet at a path. Their steps are done one after the other, in the order of the log."""

    def __init__(
        self,
        spark: SessionFactory,
        config: PipelineConfig,
        batch: int,
        position: str,
        members: _Members,
        lost: frozenset[str],
        report: Report,
        newest_batch: NewestBatch | None,
    ) -> None:
        tables = members.tables
        self._spark = spark
        self._report = report
        self._lost = lost
        self._config = config
        self._batch = batch
        self._position = position
        self._running = [TableProgress(config, table, newest_batch) for table in tables]
        self._lives = frozenset(table.life.id for table in tables)
        self._own: SparkSession | None = None
        self._reads = SharedReads(_reading(config, members))
        self._beside = [
            BesideWork(
                config, batch, position, table, Engines(config, partial(self._session_beside, table.name)), lost,
                self._mirror, self._reads,
            )
            for table in members.beside
        ]  # fmt: skip

    def _session(self, progress: TableProgress, step: Step, why: str) -> SparkSession:
        """Return this thread's session for a step of a table; why Spark does it is said, and kept with the table.

        Raises TableError for a table that Spark can't read.
        """
        if name := taken_by_delta(column.name for column in progress.life.schema.mirrored):
            raise TableError(
                f"{progress.life.name}: its column {name!r} has the name of one of Delta's own, so that Spark can't"
                f" read the table, and {why}",
                remedy=f"rename the column or exclude it, then {snapshot_again(progress.life.name)}",
            )
        self._report.say(f"{_ACTIONS[type(step)]} of {progress.life.name} by Spark: {why}")
        progress.done_by_spark(why)
        return self._own_session(f"{progress.life.name}: {why}")

    def _mirror(self, life: Life, at_stop: bool) -> LakeLog | None:
        """Return the log of a life's mirror as it is behind the steps done so far; None where the batch left them out,
        or the mirror stopped in it. at_stop: all are done, also where there were none."""
        for progress in self._running:
            if progress.life.id == life.id:
                return progress.target if progress.works else None
        return LakeLog.of(self._config, life.name, life.id) if at_stop else None

    def _session_beside(self, name: TableName, why: str) -> SparkSession:
        self._report.say(f"tables beside {name} by Spark: {why}")
        return self._own_session(f"{name}: {why}")

    def _own_session(self, why: str) -> SparkSession:
        turns.leave()
        if self._own is None:
            from binlake.spark.session import of_this_thread

            self._own = of_this_thread(self._spark(why))
        return self._own

    def run(self) -> list[TableOutcome]:
        mirrored = [
            (turn, False, place, number)
            for place, progress in enumerate(self._running)
            for number, turn in enumerate(progress.table.turns, start=1)
        ]
        beside = [
            (turn, True, place, number)
            for place, work in enumerate(self._beside)
            for number, turn in enumerate(work.table.turns)
        ]
        for _, is_beside, place, number in sorted([*mirrored, *beside]):
            if is_beside:
                self._beside[place].do(number)
                continue
            progress = self._running[place]
            began = time.monotonic()
            self._step(progress, number, progress.table.steps[number - 1])
            progress.seconds += time.monotonic() - began
        for progress in self._running:
            progress.look_back(self._lives)
        return [progress.outcome() for progress in self._running]

    def _step(self, progress: TableProgress, number: int, step: Step) -> None:
        version = transaction_version(self._batch, number)
        if progress.works and version > progress.recorded:
            try:
                self._run_alone(progress, step, version, number)
            except TableError as error:
                progress.refuse(error)
            except LogUnreadable as error:
                progress.refuse(progress.unreadable(error))
            except SparkNeeded:
                raise
            except Exception as error:
                if (own := of_table(error, progress.life.name, files_of(step))) is not None:
                    progress.refuse(own)
                    return
                if self._config.policies.of(progress.life.name).on_commit_failure == "stop_run":
                    if isinstance(error, BinlakeError):
                        raise
                    raise _translate(error, progress) from error  # in no variable: its traceback holds this frame
                failed = error if isinstance(error, BinlakeError) else _translate(error, progress)
                progress.stop(TableError(failed.message, remedy="fix it, then: " + resume_command(progress.life.name)))
            else:
                if not isinstance(step, MergeStep):
                    fault("schema evolved")
                fault("epoch committed")
        if progress.works and isinstance(step, CreateStep | MoveStep):
            progress.begin_at(progress.at(step.new) if isinstance(step, MoveStep) else progress.target)
        if number == len(progress.table.steps):
            fault("table merged")

    def _run_alone(self, progress: TableProgress, step: Step, version: int, number: int) -> None:
        """Do a step between those of other writers: one that conflicts, as with OPTIMIZE, begins again under the same
        version."""

        def once() -> None:
            progress.refuse_others(self._lives)
            self._run_step(progress, step, version, number)

        tried(once, lambda: progress.target.recorded() >= version)

    def _run_step(self, progress: TableProgress, step: Step, version: int, number: int) -> None:
        note = self._note(progress.life, number)
        engines = Engines(self._config, partial(self._session, progress, step))
        if isinstance(step, MergeStep):
            self._refuse_lost(progress.life, step)
            merge_epoch(
                engines, progress.target, progress.life, step, self._config,
                version=version, note=note, reads=self._reads,
            )  # fmt: skip
        elif not (isinstance(step, DescribeStep) and reshape_in_process.is_described(progress.target, step.schema)):
            engines.change(self._act(progress, step, version, note))

    def _act(
        self, progress: TableProgress, step: Step, version: int, note: dict[str, Any]
    ) -> Callable[[TableEngine], None]:
        """Return what an engine is to do for a step other than a merge."""
        table, life, commit = progress.target, progress.life, StepCommit(version, note)
        match step:
            case CreateStep(schema):
                created = mirror_columns(schema, self._config.invalid)
                return lambda engine: engine.create(table, created, commit)
            case ReshapeStep():
                columns = lake_columns_after(step, self._config.invalid)
                return lambda engine: engine.reshape(table, columns, commit)
            case DescribeStep(schema):
                return lambda engine: engine.describe(table, schema, commit)
            case TruncateStep(committed_us=None):
                return lambda engine: engine.truncate(table, commit)
            case TruncateStep(int() as committed_us, place):
                truncation = Truncation(life.schema, self._batch, committed_us, mutation_text(*place))
                return lambda engine: engine.mark_all(table, truncation, commit)
            case MoveStep(old, new):
                here, there = progress.at(new), progress.at(old)
                moved = StepCommit(version, self._note_with(note, moved_from=str(old)))
                return lambda engine: engine.move(here, there, life.id, moved)
            case LeaveStep(old, new):
                left, left_for = progress.at(old), StepCommit(version, self._note_with(note, moved_to=str(new)))
                return lambda engine: engine.leave(left, left_for)
        raise AssertionError(f"no engine does {step}")

    def _refuse_lost(self, life: Life, step: MergeStep) -> None:
        for file, commit in step.xa:
            if file.path in self._lost:
                raise StagedRowsLost(
                    f"{file.path}, with rows of the XA transaction {commit.xid}, is missing or damaged",
                    remedy=snapshot_again(life.name),
                )

    def _note(self, life: Life, number: int) -> dict[str, Any]:
        """Return the commit's description of itself in the table's history."""
        origin = {"source": self._config.source.name, "batch": self._batch, "step": number, "position": self._position}
        return {"binlake": {**origin, "life": life.id}}

    def _note_with(self, note: dict[str, Any], **more: str) -> dict[str, Any]:
        return {"binlake": {**note["binlake"], **more}}


def _cancel_jobs() -> None:
    """Cancel Spark's jobs, where Spark is at work."""
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        SparkContext._active_spark_context.cancelAllJobs()  # type: ignore[union-attr]


def _translate(error: Exception, progress: TableProgress) -> LakeError:
    """Return the error for a failure of Spark or Delta. The batch stays open, and the next run repeats it."""
    return storage_errors.failed(f"merging {progress.life.name} into {progress.target.path} failed", error)
