"""The changes to Delta tables of mirrors and of what is beside them, and the choice of the engine that makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import StepCommit
from binlake.errors import LeftToSpark
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.reshape import BesideColumn, ReshapedColumn
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from binlake.merge.mutations import TaskRows

_Done = TypeVar("_Done")


def here_or_by_spark(here: Callable[[], _Done], by_spark: Callable[[str], _Done]) -> _Done:
    """Return what this process does, or what Spark does where the process leaves it to Spark. by_spark: is called with
    the reason."""
    try:
        return here()
    except LeftToSpark as left:
        return by_spark(str(left))


@dataclass(frozen=True)
class Truncation:
    """The values that mark the rows of a table that a statement truncated.

    schema: the mirror's. batch: its number. committed_us: of the statement, in microseconds since 1970. mutation: its
    place in the log, as a text.
    """

    schema: TableSchema
    batch: int
    committed_us: int
    mutation: str


@dataclass(frozen=True)
class AppendedRows:
    """Rows to be appended.

    repeating: columns with few values; the others are written without a dictionary, and all without statistics beside
    Delta's, which costs less, until the upkeep puts files together.
    in_process: returns them as Arrow, texts that repeat as dictionary arrays or as texts, or raises LeftToSpark.
    by_spark: returns them by a session. Both with columns that the table has, by their names. by_tasks: returns what
        Spark's tasks make of staged rows, where they can write the rows themselves.
    ascending: columns of ascending values without NULLs.
    """

    columns: Sequence[BesideColumn]
    repeating: Sequence[str]
    in_process: Callable[[], pa.Table]
    by_spark: Callable[[SparkSession], DataFrame]
    by_tasks: Callable[[], TaskRows] | None = None
    ascending: Sequence[str] = ()


class TableEngine(Protocol):
    """The changes that steps make to a table. Each call is one commit, and changes nothing when it is repeated.

    Raises LeftToSpark, before anything is changed, for changes that the engine can't make; LakeTableChanged,
    SnapshotUnfinished, LakeError, OSError, and deltalake's or Delta's error of a conflict.
    """

    def merge(self, epoch: MirrorEpoch) -> None:
        """Give a mirror the rows that it has behind an epoch."""

    def append(self, log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
        """Append rows, and make the table where there is none."""

    def create(self, log: LakeLog, columns: Sequence[LakeColumn], commit: StepCommit) -> None:
        """Put an empty table in the place of whatever is there."""

    def reshape(self, log: LakeLog, columns: Sequence[ReshapedColumn], commit: StepCommit) -> None:
        """Give the rows other columns."""

    def describe(self, log: LakeLog, schema: TableSchema, commit: StepCommit) -> None:
        """Give the table and its columns the shape's comments, and no others."""

    def truncate(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows, in a commit without data files."""

    def mark_all(self, log: LakeLog, truncation: Truncation, commit: StepCommit) -> None:
        """Mark all rows as deleted that aren't yet."""

    def move(self, log: LakeLog, old: LakeLog, life: str, commit: StepCommit) -> None:
        """Replace whatever lies here by the rows of a life, as they were at its old path."""

    def leave(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows of a table that has another path now."""


class EngineChoice(Protocol):
    """The choice of an engine, for the changes of one step or table."""

    def change(self, act: Callable[[TableEngine], None]) -> None:
        """Let this process act, or Spark where the process leaves it to Spark."""

    def session(self, why: str) -> SparkSession:
        """Return Spark's session. why: is said, as the reason why Spark works."""
