"""Snapshots of tables, and of a range of one table's keys, under the source's lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.faults import fault
from binlake.metadata import decisions, lease, watermarks
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
from binlake.source.folder import Folder
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

    tables: patterns. asked: the tables for which a sync asked, in the place of the patterns. Raises the error of a
    table that can't be copied, once the others have their lives. Of a folder of log files nothing is copied.
    """
    from binlake.snapshot.snapshot import SnapshotTask, snapshot

    if isinstance(origin, Folder):
        report.say(begin_with_files(config, origin, tables))
        return []
    began_us, asking = now_us(), SessionAsked(session)
    in_process = _is_in_process(config, session)
    if not in_process:
        settings.refuse_missing_jars(config.root)
    with lease.held(metadata_of(config)) as held, Source.open(origin) as source:
        metadata = held.metadata
        server_us = source.now() // _SECOND * _SECOND  # commit times of some servers have whole seconds
        names = names_asked(config, source, metadata) if asked else names_to_snapshot(config, source, metadata, tables)
        failures = _refused(config, source, names)
        names = [name for name in names if name not in failures]
        if not names:
            if failures:
                raise next(iter(failures.values()))
            return []
        report.say(f"snapshot of {counted(len(names), 'table')}: {', '.join(map(str, names))}")
        control = held.control()
        task = SnapshotTask(
            config, origin, source, metadata, report, control.batch, read_from=control.planned_to, lock=lock,
            in_process=in_process,
        )  # fmt: skip
        results, failed = snapshot(asking, task, names)
        results = [replace(result, why_spark=asking.why) for result in results]
        refuse_read(source, control.planned_to, results)
        note_bootstrap(metadata, run, control.batch, began_us, results)
        fault("bootstrap noted")
        held.read_under(config.reading)
        awaited = names_awaited(config, source, failures)
        begin_lives(held, metadata, source, results, control.batch, awaited, began_us, server_us)
        fault("lives begun")
        held.check()  # who slept until here may have had its tables copied anew by others
    for error in (*failures.values(), *failed):
        report.say(str(error))
    for error in (*failures.values(), *failed):
        raise error
    return results


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
