"""Rows that only come, written to data files by the tasks of Spark that read them, and committed by this process.

Rows that Spark writes go through its JVM row by row, which takes three times the processor time of the whole merge (a
million rows of ten columns).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from binlake.delta import plain_files, plain_tables
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge.engine.in_process import check_table, stored_fields
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.mutations import ChangedImages, frame

_ACTIONS = pa.schema([("rows", pa.int64()), ("action", pa.string())])


@dataclass(frozen=True)
class _DataFiles:
    """Where a task writes the new images of mutations. stored: the columns as data files have them."""

    table_path: str
    stored: pa.Schema
    changed: ChangedImages

    def written(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Write the rows to a data file, and yield its add action. Raises OSError."""
        plain = pa.schema(self.changed.columns)
        images = (self.changed.image(rows, 1).cast(plain) for rows in parts)
        stored = (pa.Table.from_arrays(image.columns, schema=self.stored) for image in images)
        batches = (batch for rows in stored for batch in rows.to_batches())
        added = plain_files.write_batches(self.table_path, "", self.stored, batches, rows_per_file=sys.maxsize)
        for file in added:
            yield pa.table([[file.rows], [file.action]], schema=_ACTIONS)


def append(session: SparkSession, epoch: MirrorEpoch) -> None:
    """Append the new image of each mutation of an epoch in one commit; repeating it changes nothing.

    Raises LeftToSpark, before anything is written; CommitFailedError where somebody else committed meanwhile; what
    Spark raises for a task.
    """
    _, updated, deleted = epoch.step.counts
    if updated or deleted:
        raise LeftToSpark("rows change or go")
    plain_tables.check_is_wanted(epoch.config.root, epoch.config)
    log, columns = epoch.table.opened(), epoch.columns
    if (epoch.table.transaction_version(log) or -1) >= epoch.version:
        return
    check_table(log, columns)
    fields = stored_fields(log, columns)
    changed = ChangedImages.of(epoch)
    target = _DataFiles(epoch.table.path, pa.schema([fields[column.name] for column in changed.columns]), changed)
    written = frame(session, epoch.life, epoch.step, epoch.config.invalid, target.written, _ACTIONS, changed.more)
    rows, actions = 0, []
    for row in written.collect():
        rows += row["rows"]
        actions.append(json.loads(row["action"]))
    fault("data file written")
    own = plain_tables.StepCommit(epoch.version, epoch.note).own(
        "WRITE", {"mode": "Append"}, numFiles=len(actions), numOutputRows=rows
    )
    plain_tables.commit(epoch.table, log, own, actions)
