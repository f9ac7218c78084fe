"""Stage: the slices of a range are read as replicas, and their mutations written as Parquet.

A short range is read by this process, a long one by Spark's executors: the same code, and the same files.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from binlake.binlog.border import Statement
from binlake.binlog.reader import read
from binlake.binlog.transport import Transport
from binlake.config import PipelineConfig, hash_connections
from binlake.config.column_policies import forms_any, hash_keys, masks_any
from binlake.errors import BinlakeError, LakeError, StagingError, unexpected
from binlake.faults import fault
from binlake.kernels.cores import available_cores
from binlake.kernels.memory import pool
from binlake.lease.lease import OpenBatch
from binlake.planner.manifest import GhostSpan, Manifest, StagedSlice
from binlake.position import Slice, file_number
from binlake.records.step_progress import shown_progress
from binlake.report import Report
from binlake.schema.hash_key import HashKey
from binlake.staging.filtered_rows import RowFilters
from binlake.staging.ghost_tables import NO_GHOSTS, GhostsWanted, GhostTables, differs
from binlake.staging.masked_tables import MaskedTables, WithheldColumns
from binlake.staging.staged_files import Items, slice_folder, stage_slice, write_manifest
from binlake.storage import files, java_errors

if TYPE_CHECKING:
    from binlake.spark.starting import SessionFactory

SHORT_RANGE = 256 << 20
"""Bytes of log, up to which this process reads a range itself, and a JVM that merges it optimises no code.

A merge of 190 MB (600,000 mutations) took three fifths of the CPU time that way, less of it about half.
"""
Progress = Callable[[int], None]
"""Called with the bytes of a slice that are read by now."""
ReadSlice = Callable[["SliceTask", Transport], StagedSlice]
Piece = TypeVar("Piece")
Reader = TypeVar("Reader")
Result = TypeVar("Result")


def is_short(plan: OpenBatch) -> bool:
    """Return whether the batch is staged without Spark, and merged by a JVM that lives shortly."""
    return plan.range.size <= SHORT_RANGE


@dataclass(frozen=True)
class SliceTask:
    """The input for reading one slice, besides the reader's connection.

    masked: None where the YAML masks and excludes no column. keys: of its hashes, by connection.
    """

    part: Slice
    number: int
    folder: str
    config: PipelineConfig
    skip: frozenset[int]
    ghosts: tuple[GhostSpan, ...] = ()
    masked: MaskedTables | None = None
    keys: Mapping[str, HashKey] = field(default_factory=dict)

    def statements(self, transport: Transport) -> tuple[Statement, ...]:
        """Return the slice's statements, without reading a row."""
        items = read(transport, self.part, lambda database, table: False, invalid=self.config.invalid, skip=self.skip)
        return tuple(item for item in items if isinstance(item, Statement))

    def run(self, transport: Transport, progress: Progress | None = None) -> StagedSlice:
        """Stage the slice. Rows of ghost tables are staged where these are followed."""
        wanted = GhostsWanted(self.config.tables, self.ghosts)
        masking = None
        if self.masked is not None:
            hash_connections.know(self.keys)
            masking = WithheldColumns(self.config, self.masked)
        items: Items = read(
            transport,
            self.part,
            wanted,
            invalid=self.config.invalid,
            progress=progress,
            skip=self.skip,
            masking=masking,
            forming=self.config.lake_form if forms_any(self.config.columns) else None,
        )
        if masking is not None:
            items = masking.passing(items)
        items = wanted.passing(items, (file_number(self.part.file), self.part.start))
        filters = RowFilters(self.config.row_condition, self.part.file) if self.config.rows else None
        if filters is not None:
            items = filters.passing(items)
        staged = stage_slice(items, self.part, self.number, self.folder, self.config.invalid)
        left_out = tuple(sorted(filters.left_out.items())) if filters else ()
        return replace(staged, withheld=tuple(sorted(wanted.withheld)), left_out=left_out)


def _read_here(reached: Callable[[int, int], None], task: SliceTask, transport: Transport) -> StagedSlice:
    """Read a slice in this process. An unexpected error is raised without its message, which may hold a row's values.

    reached: called with the number of a slice, and how many of its bytes are read.
    """
    try:
        return task.run(transport, partial(reached, task.number))
    except BinlakeError:
        raise
    except Exception as error:
        raise RuntimeError(f"{unexpected(error)} while {task.part.file} was staged") from None


def _statements_here(task: SliceTask, transport: Transport) -> tuple[Statement, ...]:
    """Return a slice's statements, read in this process. Errors: see ``_read_here``."""
    try:
        return task.statements(transport)
    except BinlakeError:
        raise
    except Exception as error:
        raise RuntimeError(f"{unexpected(error)} while the statements of {task.part.file} were read") from None


def _on_executors(session: SessionFactory, why: str) -> ReadSlice:
    """Return a reader that runs a Spark job for each slice. why: Spark is needed."""
    context = session(why).sparkContext
    run: Callable[[tuple[SliceTask, Transport]], StagedSlice | BinlakeError] = _run

    def read_slice(task: SliceTask, transport: Transport) -> StagedSlice:
        try:
            (result,) = context.parallelize([(task, transport)], 1).map(run).collect()
        except Exception as error:
            if not java_errors.executor_lost(error):
                raise
            raise StagingError(
                f"{task.part.file} wasn't staged: {java_errors.root_cause(java_errors.causes(error))}",
                remedy="see in Spark's and the cluster's logs why executors end (memory, preemption), then run again",
            ) from None
        if isinstance(result, BinlakeError):
            raise result
        return result

    return read_slice


def _run(given: tuple[SliceTask, Transport]) -> StagedSlice | BinlakeError:
    """Read a slice on an executor. Errors are returned as values, because Spark would turn them into text."""
    task, transport = given
    try:
        return task.run(transport)
    except BinlakeError as error:
        return error


_NONE_KNOWN = partial(MaskedTables.of, ())


def stage_batch(
    session: SessionFactory,
    config: PipelineConfig,
    transports: Sequence[Transport],
    plan: OpenBatch,
    report: Report,
    skip: Callable[[Slice], frozenset[int]] = lambda part: frozenset(),
    ghosts: GhostTables = NO_GHOSTS,
    *,
    tables: Callable[[OpenBatch], MaskedTables] = _NONE_KNOWN,
) -> Manifest:
    """Stage all slices of a batch in a new attempt; the manifest is written last. Raises what a slice raised.

    transports: one for each reader that may work side by side; two replicas with one id would throw each other out.
    skip: offsets of a slice's events that somebody decided to step over. ghosts: the ghost tables that are followed.
    tables: returns the shapes that tables have before the batch; asked where columns are masked or excluded. A table
    with masks of which none is known stops.
    """
    attempt = f"{int(time.time())}-{uuid.uuid4().hex[:8]}"
    folder = config.staging_path(str(plan.batch), attempt)
    masked, keys = None, hash_keys(config.columns)
    if masks_any(config.columns) or config.tables.exclude_columns:
        masked = tables(plan)
    tasks = [
        SliceTask(part, number, folder, config, skip(part), ghosts.before, masked, keys)
        for number, part in enumerate(plan.range.slices)
    ]
    try:
        tasks = _with_tables_before(config, tasks, transports)
        slices = _staged(config, session, tasks, transports, plan, report)
        spans = ghosts.spans(slices, plan.range.stop.flavour, lower_case_names=plan.lower_case_names)
        if again := [replace(tasks[part.slice], ghosts=spans) for part in slices if differs(part, spans)]:
            for task in again:
                files.remove_folder(slice_folder(task.folder, task.number))
            staged_again = {part.slice: part for part in _staged(config, session, again, transports, plan, report)}
            slices = [staged_again.get(part.slice, part) for part in slices]
        manifest = Manifest(
            plan.batch,
            attempt,
            tuple(slices),
            config.tables,
            config.invalid,
            spans,
            tuple(config.rows),
            config.columns,
        )
        write_manifest(folder, manifest)
    except BaseException:
        # Attempts that nobody reads would fill the disk further with each retry.
        with suppress(LakeError):
            files.remove_folder(folder)
        raise
    pool.release()
    pa.default_memory_pool().release_unused()
    return manifest


def remove_attempts(config: PipelineConfig, batch: int, before_us: int) -> None:
    """Remove what earlier runs staged of a batch; a run that took over since has younger attempts."""
    folder = config.staging_path(str(batch))
    for attempt in files.subfolders(folder):
        if int(attempt.partition("-")[0]) * 1_000_000 < before_us:
            files.remove_folder(f"{folder}/{attempt}")


def _with_tables_before(
    config: PipelineConfig, tasks: Sequence[SliceTask], transports: Sequence[Transport]
) -> list[SliceTask]:
    """Return the tasks, each with the tables as the statements of earlier slices leave them.

    These decide which columns are masked or excluded in a slice, so that they are read before any row is.
    """
    if len(tasks) < 2 or tasks[0].masked is None:
        return list(tasks)
    placed, masked = [tasks[0]], tasks[0].masked
    for task, statements in zip(tasks[1:], share_out(tasks[:-1], transports, _statements_here), strict=True):
        masked = masked.after(config, statements)
        placed.append(replace(task, masked=masked))
    return placed


def _staged(
    config: PipelineConfig,
    session: SessionFactory,
    tasks: Sequence[SliceTask],
    transports: Sequence[Transport],
    plan: OpenBatch,
    report: Report,
) -> list[StagedSlice]:
    """Return the staged slices in the order of the log. A reader takes the next slice when it gets free."""
    short = is_short(plan)
    readers = transports[: available_cores()] if short else transports
    with shown_progress(config, report, "staged") as show:
        sizes = {task.number: task.part.size for task in tasks}
        read, total, began = dict.fromkeys(sizes, 0), sum(sizes.values()), time.monotonic()

        def reached(number: int, size: int) -> None:
            read[number] = size
            done = sum(read.values())
            show(done, total, pace(done / 1e6, total / 1e6, time.monotonic() - began))

        def ended(result: StagedSlice) -> None:
            reached(result.slice, sizes[result.slice])
            fault("slice staged")

        read_slice: ReadSlice = partial(_read_here, reached) if short else _on_executors(session, _too_long(plan))
        return share_out(tasks, readers, read_slice, ended)


def _too_long(plan: OpenBatch) -> str:
    """Return why a batch isn't staged by this process."""
    return f"batch {plan.batch} has {plan.range.size / 1e6:,.0f} MB of log, above {SHORT_RANGE / 1e6:,.0f} MB"


def pace(done: float, total: float, seconds: float) -> str:
    """Return how far a reading is, and how fast, in MB."""
    rate = done / seconds if seconds else 0.0
    left = f", about {(total - done) / rate:,.0f} s left" if rate and done < total else ""
    return f"{done:,.1f} of {total:,.1f} MB of log, {rate:,.1f} MB/s{left}"


def share_out(
    pieces: Iterable[Piece],
    readers: Sequence[Reader],
    work: Callable[[Piece, Reader], Result],
    ended: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run ``work`` for each piece, in the pieces' order. Returns the results in that order, too.

    A reader has one piece at a time. ended: called in this thread with each result when its piece ends. Raises what
    ``work`` or ``ended`` raises, after all running pieces have ended; no further piece is begun.
    """
    waiting = deque(enumerate(pieces))
    free = deque(readers)
    running: dict[Future[Result], tuple[int, Reader]] = {}
    results: dict[int, Result] = {}
    with ThreadPoolExecutor(len(readers), thread_name_prefix="reader") as pool:
        while waiting or running:
            while waiting and free:
                (number, piece), reader = waiting.popleft(), free.popleft()
                running[pool.submit(work, piece, reader)] = number, reader
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: running[future][0]):
                number, reader = running.pop(future)
                results[number] = future.result()
                free.append(reader)
                ended(results[number])
    return [results[number] for number in sorted(results)]
