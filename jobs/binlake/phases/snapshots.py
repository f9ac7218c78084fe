"""Snapshots of tables, and of a range of one table's keys: beside the batches, or under the source's lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.faults import fault
from binlake.metadata import copier, decisions, lease, watermarks
from binlake.metadata.copier import Copier
from binlake.metadata.failures import noted
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import metadata_of, now_us
from binlake.phases.bootstrap import (
    KeysAsked,
    begin_lives,
    begin_with_files,
    name_followed,
    names_asked,
    names_awaited,
    names_to_snapshot,
    note_bootstrap,
    refuse_read,
    refused_for_cascades,
    refused_for_engines,
    refused_for_gaps,
    refused_for_modes,
    refused_for_names,
    refused_for_untold_columns,
)
from binlake.position import Position
from binlake.report import Report, counted
from binlake.schema.table import TableName
from binlake.source.connection import Endpoint
from binlake.source.folder import Folder
from binlake.source.listed_tables import included_tables
from binlake.source.log import Origin, server_of
from binlake.source.server import Source
from binlake.spark import settings
from binlake.spark.starting import SessionAsked, SessionFactory, no_session

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
    asked: bool,
    lock: LockMode,
    run: str | None,
) -> list[SnapshotResult]:
    """Copy tables and begin their lives; the other tables keep their watermarks. Return a result for each table.

    Where batches are carried by then, tables that no batch writes are copied beside them (copies_beside.py), and the
    others under the lease. tables: patterns. asked: the tables for which a sync asked, in the place of the patterns.
    Raises the error of a table that can't be copied, once the others have their lives. Of a folder of log files nothing
    is copied.
    """
    if isinstance(origin, Folder):
        report.say(begin_with_files(config, origin, tables))
        return []
    task = _Asked(config, origin, session, report, tables, asked, lock, run)
    metadata = metadata_of(config)
    if lease.read(metadata).position is None:
        return _raised(report, *_under_lease(task, None))
    with copier.held(metadata) as copying:
        results, failed, names = _beside(task, copying)
        if names is None or names:
            more, failed_more = _under_lease(task, names)
            results, failed = [*results, *more], [*failed, *failed_more]
    return _raised(report, results, failed)


@dataclass(frozen=True)
class _Asked:
    """What a snapshot is asked for; see snapshot_tables."""

    config: PipelineConfig
    origin: Endpoint
    session: SessionFactory
    report: Report
    tables: list[str] | None
    asked: bool
    lock: LockMode
    run: str | None


def _raised(report: Report, results: list[SnapshotResult], failed: list[TableError]) -> list[SnapshotResult]:
    """Return the results. Raises the first error of a table; where that isn't all, all are said before."""
    for error in failed if results or len(failed) > 1 else ():
        report.say(str(error))
    for error in failed:
        raise error
    return results


def _beside(task: _Asked, copying: Copier) -> tuple[list[SnapshotResult], list[TableError], list[TableName] | None]:
    """Copy the tables that can be copied while batches are carried. Return their results, the errors of single tables,
    and the names of the other tables; None for those that are to be looked for anew."""
    from binlake.phases.copies_beside import CopiesBeside, names_beside
    from binlake.snapshot.snapshot import SnapshotTask, snapshot

    config, report, metadata = task.config, task.report, metadata_of(task.config)
    began_us, asking = now_us(), SessionAsked(task.session)
    with Source.open(task.origin) as source:
        server_us = _clock_of(source)
        names = watermarks.asked(metadata) if task.asked else names_to_snapshot(config, source, metadata, task.tables)
        beside = names_beside(config, source, metadata, names)
        if beside:  # most snapshots of a lake that follows copy none beside it, and ask all of this themselves
            refused, there = _refused(config, source, beside), set(included_tables(source, config))
            beside = [name for name in beside if name in there and name not in refused]
        if not beside:
            return [], [], None
        in_process = _prepared(config, task.session)
        report.say(f"snapshot of {counted(len(beside), 'table')} beside the batches: {', '.join(map(str, beside))}")
        run = task.run or uuid.uuid4().hex
        copies = CopiesBeside(config, task.origin, asking, report, copying, run, began_us, server_us)
        snapshot_task = SnapshotTask(
            config, task.origin, source, copies.metadata, report, 0, lock=task.lock, in_process=in_process,
            beside=copies,
        )  # fmt: skip
        results, failed = snapshot(asking, snapshot_task, beside)
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
        server_us = _clock_of(source)
        if task.asked:
            names = names_asked(config, source, metadata)
        elif names is None:
            names = names_to_snapshot(config, source, metadata, task.tables)
        failures = _refused(config, source, names)
        names = [name for name in names if name not in failures]
        if not names:
            return [], list(failures.values())
        report.say(f"snapshot of {counted(len(names), 'table')}: {', '.join(map(str, names))}")
        control = held.control()
        snapshot_task = SnapshotTask(
            config, task.origin, source, metadata, report, control.batch, read_from=control.planned_to, lock=task.lock,
            in_process=in_process,
        )  # fmt: skip
        results, failed = snapshot(asking, snapshot_task, names)
        results = [replace(result, why_spark=asking.why) for result in results]
        refuse_read(source, control.planned_to, results)
        note_bootstrap(metadata, task.run, control.batch, began_us, results)
        fault("bootstrap noted")
        held.read_under(config.reading)
        awaited = names_awaited(config, source, failures)
        begin_lives(held, metadata, source, results, control.batch, awaited, began_us, server_us)
        fault("lives begun")
        held.check()  # who slept until here may have had its tables copied anew by others
    return results, [*failures.values(), *failed]


def _clock_of(source: Source) -> int:
    """Return the server's clock, in microseconds since 1970 of whole seconds, as commit times of some servers are."""
    return source.now() // _SECOND * _SECOND


def _prepared(config: PipelineConfig, session: SessionFactory) -> bool:
    """Tell whether this process copies what it can; where Spark does, check that its jars are there."""
    in_process = _is_in_process(config, session)
    if not in_process:
        settings.refuse_missing_jars(config.root)
    return in_process


def _is_in_process(config: PipelineConfig, session: SessionFactory) -> bool:
    """Tell whether this process copies what it can. A task of Airflow that may start no Spark leaves it to a job, which
    may run on a cluster."""
    return config.snapshot.reader == "direct" and settings.works_here(config.spark) and session is not no_session


def _refused(config: PipelineConfig, source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return the error of each table that can't be mirrored exactly."""
    return (
        refused_for_names(config, names)
        | refused_for_modes(config, source, names)
        | refused_for_gaps(source, names)
        | refused_for_engines(source, names)
        | refused_for_cascades(config, source, names)
        | refused_for_untold_columns(config, source, names)
    )


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

    catch_up: carries the whole lake to the position at which the rows were read. The table's life goes on.
    """
    from binlake.snapshot import key_range
    from binlake.snapshot.snapshot import SnapshotTask

    began_us, asking = now_us(), SessionAsked(session)
    endpoint = server_of(origin, "a range of keys")
    settings.refuse_missing_jars(config.root)
    with lease.held(metadata_of(config)) as held, Source.open(endpoint) as source:
        metadata, control = held.metadata, held.control()
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
        watermarks.at_version(metadata, life.id, result.delta_version, config.is_read, began_us=began_us)
        note_bootstrap(metadata, run, held.control().batch, began_us, [result])
    return [result]
