"""Carry out a batch's steps: tables side by side in threads of one Spark application, each in its own session."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LakeError, StagingError, TableError, UnfollowedStatement
from binlake.lake.staging import StagedFile, check_file
from binlake.lake.steps import (
    BatchSteps,
    CreateStep,
    FillStep,
    LeaveStep,
    Life,
    MergeStep,
    MoveStep,
    ReshapeStep,
    Step,
    TableSteps,
    TruncateStep,
)
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.lake.table import LakeTable

SIDE_BY_SIDE = 4
"""Tables merged at once: half of a small MERGE is planning on the driver, so more than the cores pays."""

Fault = Callable[[str], None]
"""Called at named points (``table merged``, ``epoch committed`` …); tests kill or raise there."""


@dataclass(frozen=True)
class TableOutcome:
    """What a batch did to one life of a table. Counts are the log's mutations, not Delta's rows."""

    life: Life
    inserted: int
    updated: int
    deleted: int
    delta_version: int | None
    seconds: float


def application_id(config: PipelineConfig, life: Life) -> str:
    return f"binlake:{config.source.name}:{life.id}"


def check_staged(session: SparkSession, staged: Sequence[StagedFile]) -> None:
    """Every staged file equals its manifest, before anything is merged. Raises StagingError."""

    def check(file: StagedFile) -> BinlakeError | None:
        try:
            check_file(file)
        except StagingError as error:
            return error
        return None

    if staged:
        partitions = min(len(staged), session.sparkContext.defaultParallelism)
        for error in session.sparkContext.parallelize(list(staged), partitions).map(check).collect():
            if error is not None:
                raise error


def apply_batch(
    session: SparkSession, config: PipelineConfig, batch: int, position: str, steps: BatchSteps, fault: Fault
) -> list[TableOutcome]:
    """Run all tables' steps; a TableError stops its table, anything else is raised once all tables have ended."""
    working = [table for table in steps.tables if table.steps]
    check_staged(session, [file for table in working for step in table.steps for file in files_of(step)])

    from binlake.lake import functions

    def one_group(tables: list[TableSteps]) -> list[TableOutcome]:
        own = session.newSession()
        functions.register(own)
        return _Group(own, config, batch, position, tables, fault).run()

    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="merge") as pool:
        futures = [pool.submit(one_group, tables) for tables in groups(working)]
        errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]
    return [outcome for future in futures for outcome in future.result()]


def groups(tables: list[TableSteps]) -> list[list[TableSteps]]:
    """Tables that meet at a path, by a rename or a name used again, belong together; the others work side by side."""
    found: list[tuple[set[TableName], list[TableSteps]]] = []
    for table in tables:
        names, members = set(table.names), [table]
        apart = []
        for other_names, others in found:
            if names & other_names:
                names, members = names | other_names, [*others, *members]
            else:
                apart.append((other_names, others))
        found = [*apart, (names, members)]
    return [members for _, members in found]


def files_of(step: Step) -> tuple[StagedFile, ...]:
    return step.files if isinstance(step, MergeStep) else ()


class _Running:
    """One table of a group: where it works, what of its steps is done, what they took."""

    def __init__(self, config: PipelineConfig, table: TableSteps) -> None:
        from binlake.lake.table import LakeTable

        self.table = table
        self.life = table.life
        self.seconds = 0.0
        self._config = config
        self._app = application_id(config, table.life)
        self.target = LakeTable(config.table_path(table.begins), self._app)
        self.recorded = max(self.at(name).recorded() for name in table.names)
        if self.recorded < 0 and not isinstance(table.steps[0], CreateStep):
            self.life = replace(
                table.life,
                status="stopped",
                reason=f"{self.target.path} isn't the table that was written for {table.life.name}",
                remedy=f"snapshot it again: binlake snapshot --config FILE --tables '{table.life.name}'",
            )

    def at(self, name: TableName) -> LakeTable:
        from binlake.lake.table import LakeTable

        return LakeTable(self._config.table_path(name), self._app)

    @property
    def works(self) -> bool:
        """A step that failed ends the table's work in this batch; what the log made of it later stays said."""
        return self.life is self.table.life

    def stop(self, error: TableError) -> None:
        self.life = self.table.life
        if self.life.status == "following":
            self.life = replace(self.life, status="stopped", reason=error.message, remedy=error.remedy)
        else:
            self.life = replace(self.life)

    def outcome(self) -> TableOutcome:
        staged = [file for step in self.table.steps for file in files_of(step)]
        return TableOutcome(
            self.life,
            sum(file.inserted for file in staged),
            sum(file.updated for file in staged),
            sum(file.deleted for file in staged),
            self.target.version() if self.target.exists() else None,
            round(self.seconds, 2),
        )


class _Group:
    """Tables that meet at a path: their steps one after the other, in the order of the log."""

    def __init__(
        self,
        session: SparkSession,
        config: PipelineConfig,
        batch: int,
        position: str,
        tables: list[TableSteps],
        fault: Fault,
    ) -> None:
        self._session = session
        self._config = config
        self._batch = batch
        self._position = position
        self._fault = fault
        self._running = [_Running(config, table) for table in tables]

    def run(self) -> list[TableOutcome]:
        for _, place, number in sorted(
            (turn, place, number)
            for place, one in enumerate(self._running)
            for number, turn in enumerate(one.table.turns, start=1)
        ):
            one = self._running[place]
            began = time.monotonic()
            self._step(one, number, one.table.steps[number - 1])
            one.seconds += time.monotonic() - began
        return [one.outcome() for one in self._running]

    def _step(self, one: _Running, number: int, step: Step) -> None:
        from binlake.lake.table import transaction_version

        version = transaction_version(self._batch, number)
        if one.works and version > one.recorded:
            try:
                self._run_step(one, step, version, number)
            except TableError as error:
                one.stop(error)
            except BinlakeError:
                raise
            except Exception as error:
                raise _translate(error, one.life) from error
            else:
                self._fault("epoch committed")
        if isinstance(step, MoveStep):
            one.target = one.at(step.new)
        if number == len(one.table.steps):
            self._fault("table merged")

    def _run_step(self, one: _Running, step: Step, version: int, number: int) -> None:
        from binlake.lake.merge import merge_epoch
        from binlake.lake.reshape import lake_columns_after
        from binlake.lake.table import default_expression, lake_columns

        session, target, invalid_dates = self._session, one.target, self._config.invalid_dates
        note = self._note(one.life, number)
        match step:
            case CreateStep(schema):
                target.create(session, lake_columns(schema, invalid_dates), version, note)
            case ReshapeStep():
                columns = lake_columns_after(step, invalid_dates)
                target.reshape(session, columns, version, note, widen=self._config.type_widening)
            case FillStep(_, defaults):
                values = {column.name: default_expression(column, text) for column, text in defaults}
                target.fill(session, values, version, note)
            case TruncateStep():
                target.truncate(session, version, note)
            case MoveStep(old, new):
                one.at(new).move_from(session, one.at(old), one.life.id, version, self._told(note, moved_from=str(old)))
            case LeaveStep(old, new):
                one.at(old).leave(session, version, self._told(note, moved_to=str(new)))
            case MergeStep(files=files):
                _refuse_prepared(one.life, files)
                merge_epoch(session, target, one.life, step, version=version, note=note, invalid_dates=invalid_dates)

    def _note(self, life: Life, number: int) -> dict[str, Any]:
        """What the commit says of itself in the table's history."""
        told = {"source": self._config.source.name, "batch": self._batch, "step": number, "position": self._position}
        return {"binlake": {**told, "life": life.id}}

    def _told(self, note: dict[str, Any], **more: str) -> dict[str, Any]:
        return {"binlake": {**note["binlake"], **more}}


def _refuse_prepared(life: Life, files: tuple[StagedFile, ...]) -> None:
    if any(file.xids for file in files):
        raise UnfollowedStatement(
            f"{life.name} was changed in an XA transaction, which isn't followed yet",
            remedy=f"snapshot this table again: binlake snapshot --config FILE --tables '{life.name}'",
        )


def _translate(error: Exception, life: Life) -> LakeError:
    """Spark's and Delta's failures: the batch stays open, and the next run repeats it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return LakeError(
        f"merging {life.name} failed: {type(error).__name__}: {lines[0]}",
        remedy="mend what the message names (space, rights, memory) and run again: nothing is lost",
    )
