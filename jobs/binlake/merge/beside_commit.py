"""The commits of a step to a table beside a mirror, which may change its columns and append rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import StepCommit
from binlake.faults import fault
from binlake.merge.reshape import ReshapedColumn
from binlake.merge.shared_reads import SharedReads
from binlake.merge.table_engine import AppendedRows, EngineChoice
from binlake.planner.steps import Life
from binlake.schema.table import TableName


@dataclass(frozen=True)
class BesideCommit:
    """The commits of one step. version: of the first, of two. start: the place in the log at which the batch begins.
    engines, lost, mirror, reads: see BesideWork."""

    table: LakeLog
    name: TableName
    config: PipelineConfig
    batch: int
    version: int
    note: dict[str, Any]
    engines: EngineChoice
    lost: frozenset[str]
    start: tuple[int, int]
    mirror: Callable[[Life, bool], LakeLog | None]
    reads: SharedReads

    def reshape(self, columns: Sequence[ReshapedColumn]) -> None:
        """Give the table these columns; no row is written."""
        commit = StepCommit(self.version, self.note)
        self.engines.change(lambda engine: engine.reshape(self.table, columns, commit))
        fault("schema evolved")

    def append(self, rows: AppendedRows) -> None:
        """Append rows, and make the table where there is none."""
        commit = StepCommit(self.version + 1, self.note)
        self.engines.change(lambda engine: engine.append(self.table, rows, commit))
