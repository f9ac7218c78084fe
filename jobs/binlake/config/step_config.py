"""How the steps work: snapshots, merges, and upkeep."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from binlake.config import units
from binlake.config.orchestration import Schedule
from binlake.config.section import Section


class SnapshotConfig(Section):
    """Settings of snapshots. connections: how many copy in parallel; None for as many as there are cores.

    reader: ``jdbc`` is Spark's; ``direct`` is binlake's own, with the same results for a part of the CPU time, and
    without Spark where that would be on this machine. max_writes_stopped: seconds for which a write on the
    server may wait for a lock of a snapshot or a verification.
    """

    connections: Annotated[int, Field(ge=1, le=1024)] | None = None
    reader: Literal["jdbc", "direct"] = "jdbc"
    max_writes_stopped: Annotated[float, Field(ge=0.5, le=60)] = 2


class MergeConfig(Section):
    """Settings of merges.

    without_spark_mb: a table is merged without Spark if at most so many megabytes (10**6 bytes) of it were staged; 0
    for none.
    """

    without_spark_mb: Annotated[float, Field(ge=0, le=1024)] = 128

    @property
    def without_spark_bytes(self) -> int:
        """Return ``without_spark_mb`` in bytes."""
        return units.bytes_of_mb(self.without_spark_mb)


class MaintainConfig(Section):
    """The upkeep of the lake, and how long its past is kept.

    history_hours: how many hours every table's earlier versions stay readable. every_version_hours: for how many hours
    that holds of each batch, and of older batches of seconds for the newest of each hour; None: of each. log_hours: how
    many hours Delta's logs keep commits. file_mb: target size of a data file in megabytes (10**6 bytes). sort: rows are
    sorted by an integer key if more than ``overlap`` files overlap in one range of keys. metadata_hours: how many hours
    replaced files of the metadata tables are kept. staging_hours: how many hours a recorded batch's staged mutations
    are kept, for a replay; 0 for only as long as they are needed. runs_days: how many days rows of runs, batches,
    snapshots and verifications are kept. quarantine_days: how many days the quarantine is kept. ddl_history_days: how
    many days DDL statements are kept; None for ever.
    """

    schedule: Schedule | None = "@daily"
    history_hours: Annotated[float, Field(ge=0)] = 168
    every_version_hours: Annotated[float, Field(ge=0)] | None = 24
    log_hours: Annotated[float, Field(ge=0)] = 720
    file_mb: Annotated[float, Field(gt=0, le=4096)] = 128
    sort: bool = True
    overlap: Annotated[int, Field(ge=2)] = 4
    metadata_hours: Annotated[float, Field(ge=0)] = 168
    staging_hours: Annotated[float, Field(ge=0)] = 0
    runs_days: Annotated[float, Field(gt=0)] = 90
    quarantine_days: Annotated[float, Field(gt=0)] = 90
    ddl_history_days: Annotated[float, Field(gt=0)] | None = None

    @property
    def file_bytes(self) -> int:
        """Return ``file_mb`` in bytes."""
        return units.bytes_of_mb(self.file_mb)

    @model_validator(mode="after")
    def _keeps_what_history_needs(self) -> Self:
        hours = {"log_hours": self.log_hours, "runs_days": self.runs_days * 24}
        if self.ddl_history_days is not None:
            hours["ddl_history_days"] = self.ddl_history_days * 24
        for name, kept in hours.items():
            if kept < self.history_hours:
                raise ValueError(f"{name} keeps less than history_hours ({self.history_hours:g}) promises; raise it")
        return self
