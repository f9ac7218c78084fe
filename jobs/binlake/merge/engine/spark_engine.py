"""Changes of tables by Spark: see TableEngine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import StepCommit
from binlake.merge import own_values
from binlake.merge.engine import task_appends
from binlake.merge.engine.by_spark import merge_by_spark
from binlake.merge.lake_table import LakeTable
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.own_values import WrittenInSql, own_in_sql
from binlake.merge.reshape import ReshapedColumn
from binlake.merge.table_engine import AppendedRows, Truncation, here_or_by_spark
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema


@dataclass(frozen=True)
class SparkEngine:
    """Changes tables by Spark, in a session for this table alone."""

    config: PipelineConfig
    session: SparkSession

    def merge(self, epoch: MirrorEpoch) -> None:
        """Give a mirror the rows that it has behind an epoch."""
        merge_by_spark(self.session, _of(epoch.table), epoch)

    def append(self, log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
        """Append rows, and make the table where there is none."""
        there = _of(log)
        if not there.exists():
            data = rows.by_spark(self.session)
            there.overwrite(self.session, data, commit.version, commit.note, mode="error")
            return
        here_or_by_spark(
            lambda: task_appends.append(self.session, self.config, log, rows, commit),
            lambda why: there.append(self.session, rows.by_spark(self.session), commit.version, commit.note),
        )

    def create(self, log: LakeLog, columns: Sequence[LakeColumn], commit: StepCommit) -> None:
        """Put an empty table in the place of whatever is there."""
        _of(log).create(self.session, columns, commit.version, commit.note)

    def reshape(self, log: LakeLog, columns: Sequence[ReshapedColumn], commit: StepCommit) -> None:
        """Give the rows other columns."""
        widen = self.config.type_widening
        _of(log).reshape(self.session, columns, commit.version, commit.note, widen=widen)

    def describe(self, log: LakeLog, schema: TableSchema, commit: StepCommit) -> None:
        """Give the table and its columns the comments of a shape."""
        _of(log).describe(self.session, schema, commit.version, commit.note)

    def truncate(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows."""
        _of(log).truncate(self.session, commit.version, commit.note)

    def mark_all(self, log: LakeLog, truncation: Truncation, commit: StepCommit) -> None:
        """Mark all rows as deleted by a statement."""
        written = WrittenInSql.at_once(truncation.batch, truncation.committed_us, truncation.mutation)
        marks = own_in_sql(truncation.schema, written, "true")
        _of(log).update(self.session, own_values.LIVE, marks, commit.version, commit.note)

    def move(self, log: LakeLog, old: LakeLog, life: str, commit: StepCommit) -> None:
        """Replace the table by the rows of a life at its old path."""
        _of(log).move_from(self.session, old, life, commit.version, commit.note)

    def leave(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows, because the table moved."""
        _of(log).leave(self.session, commit.version, commit.note)


def _of(log: LakeLog) -> LakeTable:
    """Return the table for commits by Spark."""
    return LakeTable(log.path, log.app, log.has_vectors)
