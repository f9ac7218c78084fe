"""Rows that only come, written to data files by the tasks of Spark that read them, and committed by this process.

Rows that Spark writes go through its JVM row by row, which takes three times the processor time of the whole merge (a
million rows of ten columns).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from binlake.config import PipelineConfig
from binlake.delta import plain_files, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import StepCommit
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge.engine.in_process import check_table, stored_fields
from binlake.merge.engine.process_engine import checked_fields, stored_schema
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.mutations import ChangedImages, TaskRows
from binlake.merge.table_engine import AppendedRows

_ACTIONS = pa.schema([("rows", pa.int64()), ("action", pa.string())])


@dataclass(frozen=True)
class _DataFiles:
    """The place to which a task writes rows. stored: the columns as data files have them."""

    table_path: str
    stored: pa.Schema

    def written(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Write rows to a data file, and yield its add action; none where there is no row. Raises OSError."""
        stored = (pa.Table.from_arrays(rows.columns, schema=self.stored) for rows in parts)
        batches = (batch for rows in stored for batch in rows.to_batches())
        added = plain_files.write_batches(self.table_path, "", self.stored, batches, rows_per_file=sys.maxsize)
        for file in added:
            yield pa.table([[file.rows], [file.action]], schema=_ACTIONS)


def append_images(session: SparkSession, epoch: MirrorEpoch) -> None:
    """Append the new image of each mutation of an epoch to the mirror in one commit; repeating it changes nothing.

    Raises LeftToSpark, before anything is written; CommitFailedError where somebody else committed meanwhile; what
    Spark raises for a task.
    """
    _, updated, deleted = epoch.step.counts
    if updated or deleted:
        raise LeftToSpark("rows change or go")
    plain_tables.check_is_wanted(epoch.config.root, epoch.config)
    log, table = epoch.table, epoch.table.opened()
    if (log.transaction_version(table) or -1) >= epoch.version:
        return
    check_table(table, epoch.columns)
    fields, changed = stored_fields(table, epoch.columns), ChangedImages.of(epoch)
    stored = pa.schema([fields[name] for name in changed.columns.names])
    made = partial(changed.image, part=1)
    rows = TaskRows(epoch.life, epoch.step, epoch.config.invalid, made, changed.columns, changed.more)
    _append(session, log, table, rows, stored, StepCommit(epoch.version, epoch.note))


def append(session: SparkSession, config: PipelineConfig, log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
    """Append rows that tasks can write to a table beside a mirror, as ``append_images`` does; raises the same."""
    if rows.by_tasks is None:
        raise LeftToSpark("the rows aren't staged")
    plain_tables.check_is_wanted(config.root, config)
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    fields, made = checked_fields(table, rows.columns), rows.by_tasks()
    _append(session, log, table, made, stored_schema(fields, made.schema), commit)


def _append(
    session: SparkSession, log: LakeLog, table: DeltaTable, rows: TaskRows, stored: pa.Schema, commit: StepCommit
) -> None:
    count, actions = 0, []
    for row in rows.passed(session, _DataFiles(log.path, stored).written, _ACTIONS).collect():
        count += row["rows"]
        actions.append(json.loads(row["action"]))
    fault("data file written")
    own = commit.own("WRITE", {"mode": "Append"}, numFiles=len(actions), numOutputRows=count)
    plain_tables.commit(log, table, own, actions)
