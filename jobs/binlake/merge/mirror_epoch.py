"""One epoch of a mirror, as either engine merges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog
from binlake.merge.lake_images import LakeImages
from binlake.merge.shared_reads import SharedReads
from binlake.planner.steps import Life, MergeStep
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema

UNPACKED = 8
"""Bytes in memory for each of ``merge.without_spark_mb``."""


@dataclass(frozen=True)
class MirrorEpoch:
    """The merge of one epoch of a table into its mirror, in one commit.

    columns: the mirror's. version, note: the transaction version and the message of the commit. reads: where others
    read the same staged files.
    """

    table: LakeLog
    life: Life
    step: MergeStep
    columns: tuple[LakeColumn, ...]
    config: PipelineConfig
    version: int
    note: dict[str, Any]
    reads: SharedReads = field(default_factory=SharedReads)

    @property
    def schema(self) -> TableSchema:
        """Return the table's shape in the epoch."""
        return self.step.schema

    @property
    def batch(self) -> int:
        """Return the number of the batch."""
        return self.version // STEPS_PER_BATCH

    @property
    def is_appended_to(self) -> bool:
        """Return whether the table has no key, and only grows (without_key: append)."""
        return not self.schema.key and self.config.policies.of(self.life.name).without_key == "append"

    @property
    def room(self) -> int:
        """Return the bytes of memory that staged rows may take in this process, and those of data files too."""
        return self.config.merge.without_spark_bytes * UNPACKED

    @cached_property
    def images(self) -> LakeImages:
        """Return how the mirror's columns are made of staged images."""
        return LakeImages.of(self.schema, self.columns)
