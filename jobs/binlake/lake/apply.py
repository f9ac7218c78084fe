"""Carry out a batch's steps: tables side by side in threads of one Spark application, each in its own session."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.errors import (
    BinlakeError,
    LakeError,
    LakeTableChanged,
    StagingError,
    TableError,
    UnfollowedStatement,
)
from binlake.lake.epochs import (
    AddColumnsStep,
    BatchSteps,
    CreateStep,
    FillStep,
    Life,
    MergeStep,
    Step,
    TableSteps,
    TruncateStep,
)
from binlake.lake.staging import StagedFile, check_file

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
    by_path: dict[str, list[TableSteps]] = {}
    for table in working:
        by_path.setdefault(config.table_path(table.life.name), []).append(table)

    from binlake.lake import functions

    def one_path(tables: list[TableSteps]) -> list[TableOutcome]:
        own = session.newSession()
        functions.register(own)
        return [_apply_table(own, config, batch, position, table, fault) for table in tables]

    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="merge") as pool:
        futures = [pool.submit(one_path, tables) for tables in by_path.values()]
        errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]
    return [outcome for future in futures for outcome in future.result()]


def files_of(step: Step) -> tuple[StagedFile, ...]:
    return step.files if isinstance(step, MergeStep) else ()


def _apply_table(
    session: SparkSession, config: PipelineConfig, batch: int, position: str, table: TableSteps, fault: Fault
) -> TableOutcome:
    from binlake.lake.table import LakeTable

    began = time.monotonic()
    life = table.life
    target = LakeTable(config.table_path(life.name), application_id(config, life))
    try:
        _run_steps(session, config, batch, position, table, target, fault)
    except TableError as error:
        if life.status == "following":
            life = replace(life, status="stopped", reason=error.message, remedy=error.remedy)
    except BinlakeError:
        raise
    except Exception as error:
        raise _translate(error, life) from error
    staged = [file for step in table.steps for file in files_of(step)]
    return TableOutcome(
        life,
        sum(file.inserted for file in staged),
        sum(file.updated for file in staged),
        sum(file.deleted for file in staged),
        target.version() if target.exists() else None,
        round(time.monotonic() - began, 2),
    )


def _run_steps(
    session: SparkSession,
    config: PipelineConfig,
    batch: int,
    position: str,
    table: TableSteps,
    target: LakeTable,
    fault: Fault,
) -> None:
    from binlake.lake.table import transaction_version

    recorded = target.recorded()
    if recorded < 0 and not isinstance(table.steps[0], CreateStep):
        raise LakeTableChanged(
            f"{target.path} isn't the table that was written for {table.life.name}",
            remedy=f"snapshot it again: binlake snapshot --config FILE --tables '{table.life.name}'",
        )
    for number, step in enumerate(table.steps, start=1):
        version = transaction_version(batch, number)
        if version <= recorded:
            continue
        note = {"binlake": {"source": config.source.name, "batch": batch, "step": number, "position": position}}
        _run_step(session, config, table.life, target, step, version, note)
        fault("epoch committed")
    fault("table merged")


def _run_step(
    session: SparkSession,
    config: PipelineConfig,
    life: Life,
    target: LakeTable,
    step: Step,
    version: int,
    note: dict[str, Any],
) -> None:
    from binlake.lake.merge import merge_epoch
    from binlake.lake.table import default_expression, lake_columns

    match step:
        case CreateStep(schema):
            target.create(session, lake_columns(schema, config.invalid_dates), version, note)
        case AddColumnsStep(before, after):
            columns = lake_columns(after, config.invalid_dates)
            old = {name for name, _ in lake_columns(before, config.invalid_dates)}
            added = [(name, kind) for name, kind in columns if name not in old]
            target.add_columns(session, added, [name for name, _ in columns], version, note)
        case FillStep(_, defaults):
            values = {column.name: default_expression(column, text) for column, text in defaults}
            target.fill(session, values, version, note)
        case TruncateStep():
            target.truncate(session, version, note)
        case MergeStep(files=files):
            _refuse_prepared(life, files)
            merge_epoch(session, target, life, step, version=version, note=note, invalid_dates=config.invalid_dates)


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
