"""How far each table of a batch has come, by its own Delta log: needs no Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog, NewestBatch, overtaking, transaction_version
from binlake.errors import (
    CommitsLost,
    LogUnreadable,
    SnapshotUnfinished,
    StagedRowsDiffer,
    TableError,
    catch_up_again,
    resume_command,
    snapshot_again,
    snapshot_command,
)
from binlake.planner.steps import BatchSteps, CreateStep, Life, MergeStep, Standstill, Status, TableOutcome, TableSteps
from binlake.schema.table import TableName

_LOOKS, _BY_A_THREAD = 16, 64
"""Tables looked at at once, as storage behind a URL answers slowly; on a disk so many one after the other, as threads
that do little get into each other's way."""


class TableProgress:
    """One table of a batch: where it is written, which of its steps are done, and how long they took."""

    def __init__(self, config: PipelineConfig, table: TableSteps, newest_batch: NewestBatch | None = None) -> None:
        """newest_batch: the one that is merged; None where it isn't the newest."""
        self.table = table
        self.life = table.life
        self.seconds = 0.0
        self._why_spark: list[str] = []
        self._config, self._newest_batch = config, newest_batch
        self.target = self.at(table.begins)
        self.since = table.life.delta_version
        """Delta version up to which all that happened at the target is known; None before the table is there."""
        self.recorded = -1
        try:
            self.recorded = max(log.recorded() for log in self._logs())
        except LogUnreadable as error:
            self.refuse(self.unreadable(error))
        if self.works and self.recorded < 0 and not isinstance(next(iter(table.steps), None), CreateStep):
            foreign = Standstill(
                f"{self.target.path} isn't the table that was written for {table.life.name}",
                snapshot_again(table.life.name),
            )
            self.life = replace(table.life, status="stopped", standstill=foreign)

    def _logs(self) -> Iterator[LakeLog]:
        """Yield the log of this life's table at each place to which its steps lead."""
        yield self.target
        yield from (self.at(name) for name in self.table.names if name != self.table.begins)

    def at(self, name: TableName) -> LakeLog:
        """Return the log of this life's table at the path of a name."""
        return LakeLog.of(self._config, name, self.life.id)

    @property
    def works(self) -> bool:
        """Return whether no step failed. One that did ends the table's work in this batch."""
        return self.life is self.table.life

    def refuse_others(self, lives: Collection[str]) -> None:
        """Raise LakeTableChanged or SnapshotUnfinished where somebody else changed rows since."""
        if self.since is None:
            return
        try:
            self.target.refuse_others(lives, self.since, self._newest_batch)
        except CommitsLost as error:
            raise CommitsLost(error.message, remedy=catch_up_again(self.life.name)) from error

    def begin_at(self, target: LakeLog) -> None:
        """Continue at ``target``, where the table has its own rows from its newest commit on."""
        self.target = target
        self.since = target.last_own_version(self.life.id)

    def look_back(self, lives: Collection[str]) -> None:
        """Look once more for others' commits: a blind append that came between the look and the commit conflicted with
        nothing."""
        if self.works:
            try:
                self.refuse_others(lives)
            except TableError as error:
                self.refuse(error)
            except LogUnreadable as error:
                self.refuse(self.unreadable(error))

    def refuse(self, error: TableError) -> None:
        """Stop the table, or by its policy the run."""
        stops_run = self._config.policies.of(self.life.name).on_merge_failure == "stop_run"
        if stops_run and not isinstance(error, SnapshotUnfinished):
            raise error
        self.stop(error)

    def stop(self, error: TableError) -> None:
        """Stop the table with an error's reason and remedy, or ask for its snapshot where one is unfinished."""
        self.life = self.table.life
        if self.life.status == "following":
            status: Status = "resnapshot" if isinstance(error, SnapshotUnfinished) else "stopped"
            self.life = replace(self.life, status=status, standstill=Standstill(error.message, error.remedy))
        else:
            self.life = replace(self.life)

    def unreadable(self, error: LogUnreadable) -> TableError:
        """Return the error that stops the table where its Delta log can't be read."""
        name = self.life.name
        remedy = (
            f"restore files of its log from a backup, then {resume_command(name)}; without one move "
            f"{self.target.path} away, then {snapshot_command(name)}"
        )
        return TableError(error.message, remedy=remedy)

    def done_by_spark(self, why: str) -> None:
        """Note why Spark does one of the steps."""
        if why not in self._why_spark:
            self._why_spark.append(why)

    def outcome(self) -> TableOutcome:
        """Return what the batch did to the table, for the record phase."""
        counts = [step.counts for step in self.table.steps if isinstance(step, MergeStep)]
        inserted, updated, deleted = (sum(column) for column in zip((0, 0, 0), *counts, strict=True))
        seconds, why_spark = round(self.seconds, 2), "; ".join(self._why_spark)
        return TableOutcome(self.life, inserted, updated, deleted, self._version(), seconds, why_spark)

    def _version(self) -> int | None:
        """Return the version up to which the next batch needn't look; of a table that stopped, what others did stays in
        sight."""
        if not self.works or not self.target.exists():
            return self.since
        return self.target.last_own_version(self.life.id)


def refuse_begun(config: PipelineConfig, batch: int, steps: BatchSteps) -> None:
    """Refuse a batch that was staged again with other content, of which a table has a part already.

    Raises StagedRowsDiffer.
    """
    first, behind = transaction_version(batch, 1), overtaking(batch)  # a snapshot comes behind the batch's steps
    begun = [str(table.life.name) for table in steps.tables if first <= _recorded(config, table) < behind]
    begun += [
        f"{table.name}__{mode}"
        for table in steps.beside
        for mode in table.written_modes(config)
        if LakeLog.beside(config, table.name, mode).recorded() >= transaction_version(batch, 0)
    ]
    if begun:
        raise StagedRowsDiffer(
            f"batch {batch} was staged again and differs from its first staging,"
            f" of which {', '.join(sorted(begun))} have a part",
            remedy="take back what changed in the YAML since; else begin again: binlake snapshot --config FILE",
        )


def _recorded(config: PipelineConfig, table: TableSteps) -> int:
    """Return the newest transaction version of the table's life, wherever its steps lead; -1 without."""
    return max(LakeLog.of(config, name, table.life.id).recorded() for name in table.names)


def changed_by_others(config: PipelineConfig, steps: BatchSteps, newest_batch: NewestBatch) -> list[TableOutcome]:
    """Stop the tables that the batch doesn't change, but somebody else did; return their outcomes. newest_batch: the
    one that is merged."""

    def look(tables: Sequence[TableSteps]) -> list[TableOutcome]:
        changed = [
            TableProgress(config, table, newest_batch) for table in tables if not _is_unchanged(config, table.life)
        ]
        for progress in changed:
            progress.look_back({progress.table.life.id})
        return [progress.outcome() for progress in changed if not progress.works]

    following = [table for table in steps.tables if not table.steps and table.life.status == "following"]
    count = 1 if "://" in config.lake.path else _BY_A_THREAD
    parts = [following[begin : begin + count] for begin in range(0, len(following), count)]
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
        return [outcome for outcomes in pool.map(look, parts) for outcome in outcomes]


def _is_unchanged(config: PipelineConfig, life: Life) -> bool:
    """Return whether nobody committed to the table since the version that was recorded."""
    return life.delta_version is not None and LakeLog.of(config, life.name, life.id).is_at(life.delta_version)
