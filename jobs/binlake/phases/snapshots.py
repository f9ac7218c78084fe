"""Snapshots of tables, and of a range of one table's keys: beside the batches, or under the source's lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, SparkNeeded, TableError
from binlake.faults import fault
from binlake.lake import merged_tables
from binlake.lease import copier, lease
from binlake.lease.copier import Copier
from binlake.lease.lease import Lease, OpenBatch
from binlake.merge.published_tables import publish_now
from binlake.phases.bootstrap import (
    BeforeSnapshots,
    KeysAsked,
    Unnamed,
    begin_lives,
    begin_with_files,
    name_followed,
    names_asked,
    names_awaited,
    names_to_snapshot,
    note_bootstrap,
    refuse_read,
)
from binlake.phases.open_batch import merge_open, record_open, stage_open
from binlake.phases.refused_tables import refused_tables
from binlake.phases.withheld_columns import Refusal, refusal_for_withheld, refused_for_withheld, stop_refused
from binlake.position import Position, Range
from binlake.records import decisions, filter_estimates, watermarks
from binlake.records.failures import noted
from binlake.records.record import note_open
from binlake.report import Report, counted
from binlake.schema.row_condition import RefusedCondition
from binlake.schema.table import TableName
from binlake.source.catalog import read_tables
from binlake.source.endpoint import Endpoint
from binlake.source.filtered_rows_estimate import rows_left
from binlake.source.folder import Folder
from binlake.source.listed_tables import included_tables
from binlake.source.log import Origin, server_of
from binlake.source.server import Source
from binlake.spark import settings
from binlake.spark.starting import SessionAsked, SessionFactory, no_session
from binlake.store.metadata import Metadata, metadata_of, now_us

if TYPE_CHECKING:
    from binlake.snapshot.snapshot import LockMode, SnapshotResult

_SECOND = 1_000_000


@noted("snapshot")
def snapshot_tables(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    tables: list[str] | None,
    *,
    unnamed: Unnamed,
    lock: LockMode,
    run: str | None,
) -> list[SnapshotResult]:
    """Copy tables and begin their lives; the other tables keep their watermarks. Return a result for each table.

    Where batches are carried by then, tables that no batch writes are copied beside them (copies_beside.py), and the
    others under the lease. tables: patterns. unnamed: the tables that are meant without any.
    Raises the error of a table that can't be copied, once the others have their lives. Of a folder of log files nothing
    is copied.
    """
    if isinstance(origin, Folder):
        report.say(begin_with_files(config, origin, tables))
        return []
    metadata = metadata_of(config)
    control = lease.read(metadata)
    config = config.leaving_out(control.columns_left_out)
    task = _Asked(config, origin, session, report, tables, unnamed, lock, run)
    if control.position is None:
        return _raised(task, *_under_lease(task, None))
    with copier.held(metadata) as copying:
        results, failed, names = _beside(task, copying)
        if names is None or names:
            more, failed_more = _under_lease(task, names)
            results, failed = [*results, *more], [*failed, *failed_more]
    return _raised(task, results, failed)


@dataclass(frozen=True)
class _Asked:
    """The arguments of a snapshot; see snapshot_tables."""

    config: PipelineConfig
    origin: Endpoint
    session: SessionFactory
    report: Report
    tables: list[str] | None
    unnamed: Unnamed
    lock: LockMode
    run: str | None


def _raised(task: _Asked, results: list[SnapshotResult], failed: list[TableError]) -> list[SnapshotResult]:
    """Publish what was copied, and return the results. Raises the first error of a table; where that isn't all, all are
    said before."""
    publish_now(task.config, [result.name for result in results], task.report)
    for error in failed if results or len(failed) > 1 else ():
        task.report.say(str(error))
    for error in failed:
        raise error
    return results


def _beside(task: _Asked, copying: Copier) -> tuple[list[SnapshotResult], list[TableError], list[TableName] | None]:
    """Copy the tables that can be copied while batches are carried. Return their results, the errors of single tables,
    and the names of the other tables; None where they are to be looked for again."""
    from binlake.phases.copies_beside import CopiesBeside, names_beside
    from binlake.snapshot.snapshot import SnapshotTask, snapshot

    config, report, metadata = task.config, task.report, metadata_of(task.config)
    began_us, asking = now_us(), SessionAsked(task.session)
    with Source.open(task.origin) as source:
        server_us = _clock_of(source)
        if task.unnamed == "asked":
            names = watermarks.asked(metadata)
        else:
            names = names_to_snapshot(config, source, metadata, task.tables, task.unnamed)
        beside = names_beside(config, source, metadata, names)
        if beside:  # most snapshots of a lake that follows copy none beside it, and ask all of this themselves
            refused, there = refused_tables(config, source, beside), set(included_tables(source, config))
            refusal = _refusal(task, metadata, beside)
            refused |= refused_for_withheld(refusal, source, beside)
            beside = [name for name in beside if name in there and name not in refused]
        if not beside:
            return [], [], None
        in_process = _prepared(config, task.session)
        report.say(f"snapshot of {counted(len(beside), 'table')} beside the batches: {', '.join(map(str, beside))}")
        run = task.run or uuid.uuid4().hex
        copies = CopiesBeside(config, task.origin, asking, report, copying, run, began_us, server_us)
        snapshot_task = SnapshotTask(
            config, task.origin, source, copies.metadata, report, 0, lock=task.lock, in_process=in_process,
            beside=copies, refusal=refusal,
        )  # fmt: skip
        results, failed = snapshot(asking, snapshot_task, beside)
        _note_estimates(task, metadata, source, results)
        results = [replace(result, why_spark=asking.why) for result in results]
    return results, failed, [name for name in names if name not in beside]


def _under_lease(task: _Asked, names: list[TableName] | None) -> tuple[list[SnapshotResult], list[TableError]]:
    """Copy tables, and begin their lives, under the lease. Return their results, and the errors of single tables.

    names: None for all that are asked for.
    """
    from binlake.snapshot.snapshot import SnapshotTask, snapshot

    config, report = task.config, task.report
    began_us, asking = now_us(), SessionAsked(task.session)
    in_process = _prepared(config, task.session)
    with lease.held(metadata_of(config)) as held, Source.open(task.origin) as source:
        metadata = held.metadata
        server_us, replicated = _clock_of(source), source.look().replicated if source.is_mariadb else None
        if task.unnamed == "asked":
            names = names_asked(config, source, metadata)
        elif names is None:
            names = names_to_snapshot(config, source, metadata, task.tables, task.unnamed)
        failures = refused_tables(config, source, names)
        refusal = _refusal(task, metadata, names)
        if withheld := refused_for_withheld(refusal, source, names):
            stop_refused(metadata, withheld)
            failures |= withheld
        names = [name for name in names if name not in failures]
        if not names:
            _note_refused(held, failures)
            return [], list(failures.values())
        report.say(f"snapshot of {counted(len(names), 'table')}: {', '.join(map(str, names))}")
        control = held.control()
        snapshot_task = SnapshotTask(
            config, task.origin, source, metadata, report, control.batch, read_from=control.planned_to, lock=task.lock,
            in_process=in_process, refusal=refusal,
        )  # fmt: skip
        results, failed = snapshot(asking, snapshot_task, names)
        results = [replace(result, why_spark=asking.why) for result in results]
        refuse_read(source, control.planned_to, results)
        note_bootstrap(metadata, task.run, control.batch, began_us, results)
        fault("bootstrap noted")
        held.read_under(config.reading)
        awaited = names_awaited(config, source, failures)
        before = BeforeSnapshots(began_us, server_us, replicated)
        lacks_version = begin_lives(held, metadata, source, results, control.batch, awaited, before)
        by_text = {str(name): name for name in names}
        _note_refused(held, failures | {by_text[error.table]: error for error in failed if error.table in by_text})
        fault("lives begun")
        _note_estimates(task, metadata, source, results)
        held.check()  # while this process slept, others may have copied its tables again
        if lacks_version is not None:
            _record_version(task, held, lacks_version, lower_case_names=source.lower_case_names)
        merged_tables.refresh(config, held, report)
    return results, [*failures.values(), *failed]


def _note_estimates(task: _Asked, metadata: Metadata, source: Source, copied: list[SnapshotResult]) -> None:
    """Note about how many rows the conditions of copied tables leave, for the page, which has no connection to ask by.
    Where that isn't known, or can't be noted, the reason is said: the tables were copied all the same."""
    config, estimates = task.config, []
    names = [made.name for made in copied if config.row_condition(made.name) or config.snapshot_condition(made.name)]
    try:
        for name, table in read_tables(source, names, config.excluding).items() if names else ():
            if (left := rows_left(source, table)) is not None:
                estimates.append(filter_estimates.row_of(name, table.schema, rows=table.rows, left=left))
        filter_estimates.write(metadata, estimates)
    except (BinlakeError, RefusedCondition) as error:
        task.report.say(f"how many rows the conditions leave (rows) isn't noted: {error}")


def _refusal(task: _Asked, metadata: Metadata, names: list[TableName]) -> Refusal | None:
    """Return what refuses tables that may show a withheld column, unless somebody named them."""
    return refusal_for_withheld(task.config, metadata, names) if task.tables is None else None


def _record_version(task: _Asked, held: Lease, position: Position, *, lower_case_names: bool) -> None:
    """Record a batch without log at a position where all tables were copied, so that they are a version of the lake.

    Where Spark is needed for it and can't be had here, the batch is left open, and the next sync finishes it.
    """
    batch, quiet = held.control().batch + 1, Report(quiet=True)
    empty = OpenBatch(batch, Range(position, position, ()), planned_us=now_us(), lower_case_names=lower_case_names)
    held.open(empty)
    note_open(held, empty)
    with suppress(SparkNeeded):
        stage_open(held, task.config, task.origin, task.session, quiet)
        merge_open(held, task.config, task.session, quiet)
        record_open(held, task.config, task.run)
        task.report.say(f"the snapshots are batch {batch}, a version of the lake at {position.short}")


def _note_refused(held: Lease, refused: Mapping[TableName, TableError]) -> None:
    """Note why tables weren't snapshotted, which the status then says, once the lake has a position."""
    control = held.control()
    if refused and control.position is not None:
        watermarks.note_refused(held.metadata, refused, batch=control.batch, position=control.position)


def _clock_of(source: Source) -> int:
    """Return the server's clock, in microseconds since 1970 of whole seconds, as commit times of some servers are."""
    return source.now() // _SECOND * _SECOND


def _prepared(config: PipelineConfig, session: SessionFactory) -> bool:
    """Return whether this process copies what it can; where Spark does, check that its jars are there."""
    in_process = _is_in_process(config, session)
    if not in_process:
        settings.refuse_missing_jars(config.root)
    return in_process


def _is_in_process(config: PipelineConfig, session: SessionFactory) -> bool:
    """Return whether this process copies what it can. A task of Airflow that may start no Spark leaves it to a job,
    which may run on a cluster."""
    return config.snapshot.reader == "direct" and settings.works_here(config.spark) and session is not no_session


def copy_keys(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: KeysAsked,
    catch_up: Callable[[Lease, Position], object],
    *,
    lock: LockMode,
    run: str | None,
) -> list[SnapshotResult]:
    """Read the rows of one table in a range of keys, and replace the lake's rows in that range.

    catch_up: carries the whole lake to the position at which the rows were read. The table's life continues.
    """
    from binlake.snapshot import key_range
    from binlake.snapshot.snapshot import SnapshotTask

    began_us, asking = now_us(), SessionAsked(session)
    endpoint = server_of(origin, "a range of keys")
    settings.refuse_missing_jars(config.root)
    with lease.held(metadata_of(config)) as held, Source.open(endpoint) as source:
        metadata, control = held.metadata, held.control()
        config = config.leaving_out(control.columns_left_out)
        name = name_followed(config, source, metadata, asked)
        task = SnapshotTask(
            config, endpoint, source, metadata, report, control.batch, read_from=control.planned_to, lock=lock
        )
        copied = key_range.copy(asking, task, name, asked.keys)
        report.say(
            f"{name}: {counted(copied.table.rows, 'row')} read at {copied.table.low.short}, to where the lake comes now"
        )
        catch_up(held, copied.table.low)
        life = decisions.following(metadata, name)
        spark = asking("rows of a key range are put in place by Delta's own writer")
        result = key_range.put(spark, config, copied, life, held.control().batch)
        result = replace(result, why_spark=asking.why)
        watermarks.at_version(metadata, life.id, result.delta_version, config.is_listed, began_us=began_us)
        note_bootstrap(metadata, run, held.control().batch, began_us, [result])
    publish_now(config, [name], report)
    return [result]
