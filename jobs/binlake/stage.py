"""Stage: executors read the slices of a range as replicas and write their mutations as Parquet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake.binlog.reader import read
from binlake.binlog.transport import ServerTransport
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.lake.lease import OpenBatch
from binlake.lake.staging import Manifest, StagedSlice, stage_slice, write_manifest
from binlake.position import Slice
from binlake.report import Report
from binlake.schema.ddl import Flavour
from binlake.source.connection import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SliceTask:
    """All an executor needs for one slice."""

    endpoint: Endpoint
    flavour: Flavour
    server_id: int
    part: Slice
    number: int
    folder: str
    config: PipelineConfig

    def run(self) -> StagedSlice:
        transport = ServerTransport(self.endpoint, self.server_id, self.flavour)
        items = read(transport, self.part, self.config.tables.included, invalid_dates=self.config.invalid_dates)
        keep_text = self.config.invalid_dates == "keep_text"
        return stage_slice(items, self.part, self.number, self.folder, keep_text=keep_text)


def _run(task: SliceTask) -> StagedSlice | BinlakeError:
    """Errors come back as values: Spark would turn them into text."""
    try:
        return task.run()
    except BinlakeError as error:
        return error


def stage_batch(
    session: SparkSession,
    config: PipelineConfig,
    endpoint: Endpoint,
    flavour: Flavour,
    plan: OpenBatch,
    report: Report,
) -> Manifest:
    """Stage all slices of a batch in a new attempt; the manifest is written last. Raises what a slice raised."""
    attempt = f"{int(time.time())}-{uuid.uuid4().hex[:8]}"
    folder = config.staging_path(str(plan.batch), attempt)
    tasks = [
        SliceTask(
            endpoint,
            flavour,
            config.source.server_id + number % config.source.server_ids,
            part,
            number,
            folder,
            config,
        )
        for number, part in enumerate(plan.range.slices)
    ]
    staged: list[StagedSlice] = []
    done = 0
    # At most server_ids replicas at once: two with one id throw each other out.
    for first in range(0, len(tasks), config.source.server_ids):
        wave = tasks[first : first + config.source.server_ids]
        run: Callable[[SliceTask], StagedSlice | BinlakeError] = _run
        for result in session.sparkContext.parallelize(wave, len(wave)).map(run).collect():
            if isinstance(result, BinlakeError):
                raise result
            staged.append(result)
            done += tasks[result.slice].part.size
        report.progress("staged", done, plan.range.size, f"{done / 1e6:,.1f} MB of log")
    manifest = Manifest(plan.batch, attempt, tuple(staged))
    write_manifest(folder, manifest)
    return manifest
