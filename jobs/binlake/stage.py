"""Stage: executors read the slices of a range as replicas and write their mutations as Parquet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake.batch.manifest import Manifest, StagedSlice
from binlake.binlog.reader import read
from binlake.binlog.transport import Transport
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LakeError
from binlake.faults import fault
from binlake.position import Slice
from binlake.report import Report
from binlake.state import files
from binlake.state.lease import OpenBatch
from binlake.state.staging import stage_slice, write_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SliceTask:
    """All an executor needs for one slice."""

    transport: Transport
    part: Slice
    number: int
    folder: str
    config: PipelineConfig
    skip: frozenset[int]

    def run(self) -> StagedSlice:
        items = read(
            self.transport,
            self.part,
            self.config.tables.wanted,
            invalid=self.config.invalid,
            skip=self.skip,
        )
        return stage_slice(items, self.part, self.number, self.folder, self.config.invalid)


def _run(task: SliceTask) -> StagedSlice | BinlakeError:
    """Errors come back as values: Spark would turn them into text."""
    try:
        return task.run()
    except BinlakeError as error:
        return error


def stage_batch(
    session: SparkSession,
    config: PipelineConfig,
    transports: Sequence[Transport],
    plan: OpenBatch,
    report: Report,
    skip: Callable[[Slice], frozenset[int]] = lambda part: frozenset(),
) -> Manifest:
    """Stage all slices of a batch in a new attempt; the manifest is written last. Raises what a slice raised.

    transports: one for each reader that may work side by side; two replicas with one id would throw each other out.
    skip: offsets of a slice's events that somebody decided to step over.
    """
    attempt = f"{int(time.time())}-{uuid.uuid4().hex[:8]}"
    folder = config.staging_path(str(plan.batch), attempt)
    tasks = [
        SliceTask(transports[number % len(transports)], part, number, folder, config, skip(part))
        for number, part in enumerate(plan.range.slices)
    ]
    try:
        manifest = Manifest(plan.batch, attempt, tuple(_staged(session, tasks, len(transports), plan, report)))
        write_manifest(folder, manifest)
    except BaseException:
        # Attempts that nobody reads would fill the disk further with each retry.
        with suppress(LakeError):
            files.remove_folder(folder)
        raise
    return manifest


def remove_attempts(config: PipelineConfig, batch: int, before_us: int) -> None:
    """What earlier runs staged of a batch and nobody will read; a run that took over since has younger attempts."""
    folder = config.staging_path(str(batch))
    for attempt in files.subfolders(folder):
        if int(attempt.partition("-")[0]) * 1_000_000 < before_us:
            files.remove_folder(f"{folder}/{attempt}")


def _staged(
    session: SparkSession,
    tasks: Sequence[SliceTask],
    readers: int,
    plan: OpenBatch,
    report: Report,
) -> Iterator[StagedSlice]:
    """Slices in the order of the log, as many side by side as there are readers."""
    done = 0
    for first in range(0, len(tasks), readers):
        wave = tasks[first : first + readers]
        run: Callable[[SliceTask], StagedSlice | BinlakeError] = _run
        for result in session.sparkContext.parallelize(wave, len(wave)).map(run).collect():
            if isinstance(result, BinlakeError):
                raise result
            yield result
            done += tasks[result.slice].part.size
            fault("slice staged")
        report.progress("staged", done, plan.range.size, f"{done / 1e6:,.1f} MB of log")
