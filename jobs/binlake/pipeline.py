"""The whole program, top to bottom.

**bootstrap** each included table through a consistent snapshot with its binlog position → **plan** a binlog range,
**stage** its mutations as Parquet, **merge** them into Delta, **record** the run → **verify** and **maintain**.

Each step takes the state from metadata and leaves it there, so each can be a process of its own, can be killed at
any moment and run again. The state of a batch goes planned → staged → merged → recorded; a batch that was begun is
finished under its own frozen range before another is planned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, BinlogError, TableError, UsageError
from binlake.faults import fault
from binlake.merge.merge import merge_batch
from binlake.metadata import decisions, lease, leftovers, life_settings, replayable, watermarks
from binlake.metadata.decisions import Reason
from binlake.metadata.failures import noted
from binlake.metadata.intervals import merged_by
from binlake.metadata.lease import Lease, OpenBatch
from binlake.metadata.metadata import metadata_of as metadata_of
from binlake.metadata.metadata import now_us
from binlake.metadata.record import (
    RunReport,
    TableRun,
    changed_by_yaml,
    last_run,
    names_dropped,
    note_batch,
    note_log,
    note_poison,
    nothing_new,
    record_batch,
    recorded_run,
)
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
    refused_for_untold_columns,
)
from binlake.phases.plan import next_range
from binlake.phases.register import RegisterReport
from binlake.phases.register import is_due as due
from binlake.phases.register import register as register_names
from binlake.phases.watch import refuse_unlogged
from binlake.position import Position
from binlake.report import Report
from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName
from binlake.source.ahead import log_seen
from binlake.source.catalog import database_charsets, included_databases
from binlake.source.folder import Folder
from binlake.source.lineage import check_position
from binlake.source.locks import Busy
from binlake.source.log import Origin, opened, readers, server_of
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.spark import settings
from binlake.spark.starting import SessionFactory
from binlake.storage import files

if TYPE_CHECKING:
    from binlake.maintain.maintain import MaintainReport
    from binlake.phases.replay import ReplayedTable, ReplayRequest
    from binlake.snapshot.snapshot import LockMode, SnapshotResult
    from binlake.verify.verify import VerifyReport


@dataclass(frozen=True)
class PlanOutcome:
    """empty: nothing new up to ``position``. unfinished: an older batch must be carried through first.

    merged_by: of a range that is empty because it was to stop before a time, the batch that merged what was committed
    before that; None where none is known, or a snapshot had it. tables: of which the YAML reads something else now, and
    what becomes of them.
    """

    batch: int | None
    empty: bool
    position: str
    message: str
    unfinished: bool = False
    merged_by: int | None = None
    tables: tuple[TableRun, ...] = ()


@dataclass(frozen=True)
class StepOutcome:
    """How a step of a batch ended."""

    batch: int | None
    mutations: int
    message: str


@noted("snapshot")
def bootstrap(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    *,
    tables: list[str] | None = None,
    asked: bool = False,
    lock: LockMode = "flush",
    run: str | None = None,
    begin: bool = False,
) -> list[SnapshotResult]:
    """Snapshot the tables that patterns name, or those for which a sync asked; without either those that aren't
    followed yet, else all. ``run`` is what the runs in metadata call it.

    The other tables keep their watermarks. A table that fails is raised once the others have their lives. A folder of
    files holds no table to copy: the log is followed from its beginning, or from where the lake stands. begin: where
    the lake is gone, a new one takes its place; else LakeGone is raised.
    """
    from binlake.snapshot.snapshot import SnapshotTask, snapshot

    began_us = now_us()
    if begin:
        metadata_of(config).begin_anew()
    if isinstance(origin, Folder):
        with lease.held(metadata_of(config)) as held, opened(origin) as log:
            report.say(begin_with_files(held, log, tables))
        return []
    settings.refuse_missing_jars(config.root)
    endpoint = origin
    with lease.held(metadata_of(config)) as held, Source.open(endpoint) as source:
        metadata = held.metadata
        names = names_asked(config, source, metadata) if asked else names_to_snapshot(config, source, metadata, tables)
        failures = refused_for_gaps(source, names) | refused_for_engines(source, names)
        failures |= refused_for_cascades(config, source, names)
        failures |= refused_for_untold_columns(config, source, names)
        names = [name for name in names if name not in failures]
        if not names:
            if failures:
                raise next(iter(failures.values()))
            return []
        report.say(f"snapshot of {len(names)} tables: {', '.join(map(str, names))}")
        control = held.control()
        task = SnapshotTask(
            config, endpoint, source, metadata, report, control.batch, standing=control.planned_to, lock=lock
        )
        results, failed = snapshot(session(), task, names)
        refuse_read(control.planned_to, results)
        note_bootstrap(metadata, run, control.batch, began_us, results)
        fault("bootstrap noted")
        held.read_under(config.reading)
        begin_lives(held, metadata, source, results, control.batch, names_awaited(config, source, failures))
        fault("lives begun")
        held.check()  # who slept until here may have had its tables copied anew by others
    for error in (*failures.values(), *failed):
        report.say(str(error))
    for error in (*failures.values(), *failed):
        raise error
    return results


@noted("snapshot")
def snapshot_keys(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: KeysAsked,
    *,
    lock: LockMode = "flush",
    run: str | None = None,
) -> list[SnapshotResult]:
    """Read the rows of one table whose keys lie in a range anew, and put them in the place of the lake's.

    The whole lake comes to the position where they were read; the table's life goes on. ``run``: see ``bootstrap``.
    """
    from binlake.snapshot import key_range
    from binlake.snapshot.snapshot import SnapshotTask

    began_us = now_us()
    endpoint = server_of(origin, "a range of keys")
    settings.refuse_missing_jars(config.root)
    with lease.held(metadata_of(config)) as held, Source.open(endpoint) as source:
        metadata, control = held.metadata, held.control()
        name = name_followed(config, source, metadata, asked)
        task = SnapshotTask(
            config, endpoint, source, metadata, report, control.batch, standing=control.planned_to, lock=lock
        )
        copied = key_range.copy(session, task, name, asked.keys)
        report.say(f"{name}: {copied.table.rows:,} rows read at {copied.table.low.short}, to where the lake comes now")
        _carry(held, config, origin, session, report, _Bounds(stop_at=copied.table.low), run)
        life = decisions.following(metadata, name)
        result = key_range.put(session(), config, copied, life, held.control().batch)
        watermarks.at_version(metadata, life.id, result.delta_version)
        note_bootstrap(metadata, run, held.control().batch, began_us, [result])
    return [result]


def sync(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    *,
    until: datetime | None = None,
    stop_at: Position | None = None,
    run: str | None = None,
) -> RunReport:
    """Carry the lake to the server's head, to the last commit before ``until``, or to ``stop_at``; tables whose rows
    the log alone couldn't tell are snapshotted anew. What an unfinished batch did is told too, in ``earlier``.
    ``run``: see ``bootstrap``."""
    _tell_missing_jars(config, report)
    may_copy = snapshot_asked(config, origin, session, report, run)
    with lease.held(metadata_of(config)) as held:
        recorded = _carry(held, config, origin, session, report, _Bounds(until, stop_at), run)
    if may_copy:
        snapshot_asked(config, origin, session, report, run)
    return recorded


def _tell_missing_jars(config: PipelineConfig, report: Report) -> None:
    """Most syncs need no Spark; one that does would be refused in its middle."""
    try:
        settings.refuse_missing_jars(config.root)
    except UsageError as error:
        report.say(f"{error.message}: a sync that needs Spark ends there\n  → {error.remedy}")


def snapshot_asked(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, run: str | None = None
) -> bool:
    """Snapshot the tables for which a sync asked. One that can't be is said, and asked for again by the next run.

    Gives whether the server let itself be copied: where it doesn't, the log is followed all the same, and this run
    doesn't wait for it again.
    """
    asked = watermarks.asked(metadata_of(config))
    if not asked or isinstance(origin, Folder):
        return True
    report.say(f"to be snapshotted anew: {', '.join(map(str, asked))}")
    try:
        bootstrap(config, origin, session, report, asked=True, run=run)
    except TableError as error:
        report.say(str(error))
    except Busy as error:
        report.say(str(error))
        return False
    return True


class _Bounds(NamedTuple):
    """How far to go: before a time, or to a position; else to the log's head."""

    until: datetime | None = None
    stop_at: Position | None = None


def _carry(
    held: Lease,
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    bounds: _Bounds,
    run: str | None,
) -> RunReport:
    earlier: list[RunReport] = []
    while True:
        planned = _plan(held, config, origin, *bounds)
        for table in planned.tables:
            report.say(f"{table.table} is {table.status}{': ' if table.reason else ''}{table.reason}")
        report.say(planned.message)
        if planned.empty:
            found = nothing_new(planned.batch, planned.position, planned.message)
            return replace(found, tables=planned.tables, earlier=tuple(earlier))
        _stage(held, config, origin, session, report)
        _merge(held, config, session, report)
        recorded = _record(held, config, run).preceded_by(planned.tables)
        if not planned.unfinished:
            return replace(recorded, earlier=tuple(earlier))
        earlier.append(recorded)


def unfinished(config: PipelineConfig) -> PlanOutcome:
    """The batch that an earlier run left open; ``empty`` where there is none. Needs neither server nor Spark."""
    with lease.held(metadata_of(config)) as held:
        control = held.control()
        if control.open is not None:
            return _begun_before(control.open)
        return PlanOutcome(control.batch, True, str(control.position or ""), "no batch is unfinished")


def plan(
    config: PipelineConfig, origin: Origin, until: datetime | None = None, stop_at: Position | None = None
) -> PlanOutcome:
    """Freeze the next range, or find the open batch. Needs no Spark."""
    with lease.held(metadata_of(config)) as held:
        return _plan(held, config, origin, until, stop_at)


def stage(config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report) -> StepOutcome:
    """Stage the open batch; nothing happens when it is staged already."""
    with lease.held(metadata_of(config)) as held:
        return _stage(held, config, origin, session, report)


def merge(config: PipelineConfig, session: SessionFactory, report: Report) -> StepOutcome:
    """Merge the open batch; nothing happens when it is merged already."""
    with lease.held(metadata_of(config)) as held:
        return _merge(held, config, session, report)


def is_short_run(config: PipelineConfig) -> bool:
    """Whether Spark, which the sync at work asks for, has little to do: its range is short, and it planned it itself.

    Behind a batch that was begun before may come any length of log.
    """
    from binlake.staging.stage import is_short

    control = lease.read(metadata_of(config))
    return control.open is not None and is_short(control.open) and control.open.planned_us >= control.since_us


def record(config: PipelineConfig, batch: int | None = None, run: str | None = None) -> RunReport:
    """Record the merged batch, if it is this one; without an open one, say what was proved last.

    run: what the runs in metadata call it. Who recorded a batch under this name, and died before it could announce it,
    is told again what it recorded.
    """
    with lease.held(metadata_of(config)) as held:
        control = held.control()
        if control.open is not None and batch in (None, control.open.batch):
            return _record(held, config, run)
        again = None if run is None else recorded_run(held.metadata, run, batch)
        return again or last_run(config, control.position, control.batch)


@noted("verify")
def verify(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    *,
    tables: list[str] | None = None,
    run: str | None = None,
) -> VerifyReport:
    """Compare every value: a consistent read of the server, the lake brought to its position, chunk by chunk.
    ``run``: see ``bootstrap``."""
    from binlake.verify.verify import verify as compare

    def catch_up(position: Position) -> None:
        sync(config, origin, session, report, stop_at=position, run=run)

    endpoint = server_of(origin, "verify")
    return compare(config, endpoint, session(), metadata_of(config), catch_up, tables=tables, report=report)


@noted("replay")
def replay(
    config: PipelineConfig, session: SessionFactory, report: Report, request: ReplayRequest
) -> list[ReplayedTable]:
    """Build tables once more as they stood after a batch, beside those that are there. Needs no server."""
    from binlake.phases.replay import replay as build_again

    return build_again(config, session, metadata_of(config), report, request)


@noted("maintain")
def maintain(
    config: PipelineConfig,
    session: SessionFactory,
    report: Report,
    *,
    tables: list[str] | None = None,
    run: str | None = None,
) -> MaintainReport:
    """Look after the data files of the tables that patterns name, else of all, and after our own metadata."""
    from binlake.maintain.maintain import maintain as look_after

    return look_after(config, session, metadata_of(config), report, tables=tables, run=run)


def registration_due(config: PipelineConfig) -> bool:
    """Whether the YAML's catalog lacks a table's name, or has one too many. Needs neither server nor Spark."""
    return due(config, metadata_of(config))


@noted("register")
def register(config: PipelineConfig, session: SessionFactory, report: Report) -> RegisterReport:
    """Give the YAML's catalog the names of the tables. session: of its own, with the catalog's settings."""
    return register_names(config, session, metadata_of(config), report)


@noted("resume")
def resume(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, name: TableName, reason: Reason
) -> str:
    """A paused or stopped table goes through the batches it missed, and follows again. Gives what to tell."""
    from binlake.phases.catchup import catch_up

    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        control = held.control()
        if control.open is not None:
            raise UsageError(f"batch {control.open.batch} is open", remedy="run binlake sync to finish it, then resume")
        metadata = held.metadata
        row = decisions.row_to_resume(metadata, name)
        if not config.included(name):
            raise UsageError(f"{name} isn't included", remedy="take it into tables.include in the YAML, then resume")
        decisions.note(metadata, "resume", reason, database=name.database, table=name.table, batch=control.batch)
        life = catch_up(config, origin, session, metadata, row, report)
        assert control.position is not None
        held.read_under("")
        watermarks.follow_again(metadata, life.id)
    return f"{name} follows again, at {control.position.short}"


def resume_all(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    tables: Sequence[TableName],
    reason: Reason,
) -> list[str]:
    """Resume one after the other, but for those that follow: so it can be repeated. Gives what to tell.

    Raises what failed first once all were tried.
    """
    told: list[str] = []
    failed: list[BinlakeError] = []
    for name in tables:
        try:
            follows = decisions.follows(metadata_of(config), name)
            told.append(f"{name} follows" if follows else resume(config, origin, session, report, name, reason))
            report.say(told[-1])
        except (UsageError, TableError) as error:
            report.say(str(error))
            failed.append(error)
    if failed:
        raise failed[0]
    return told


@noted("plan")
def _plan(
    held: Lease, config: PipelineConfig, origin: Origin, until: datetime | None, stop_at: Position | None
) -> PlanOutcome:
    control = held.control()
    if control.open is not None:
        return _begun_before(control.open)
    standing = control.standing
    if standing is None:
        raise UsageError("no table has a snapshot yet", remedy="run binlake snapshot (or the bootstrap DAG) first")
    leftovers.remove_recorded(config, standing)
    standing, changed = life_settings.compare(held, config, standing)
    tables = tuple(map(changed_by_yaml, changed))
    began = time.monotonic()
    with opened(origin) as log:
        refuse_unlogged(held.metadata, log, standing.position)
        found = next_range(log, log.transport(), standing.position, until, stop_at)
        cascades = _cascades(config, log) if isinstance(log, Source) and not found.empty else None
        if isinstance(log, Source) and not found.empty and standing.charsets is None:
            held.know(standing, database_charsets(log))
        lower_case_names = log.lower_case_names
        note_log(held.metadata, log_seen(log, found.stop))
    if found.empty:
        message = f"nothing new: proved up to {found.stop.short}, the stop of batch {control.batch}"
        by = merged_by(held.metadata, until) if until else None
        if by and until:
            message += f"; what was committed before {until:%Y-%m-%d %H:%M:%S %Z}: {by.told}"
        merged = by.batch if by else None
        return PlanOutcome(control.batch, True, str(found.stop), message, merged_by=merged, tables=tables)
    planned = OpenBatch(
        control.batch + 1,
        found,
        until_us=int(until.timestamp() * 1e6) if until else None,
        planned_us=now_us(),
        cascades=cascades,
        lower_case_names=lower_case_names,
    ).with_phase("plan", time.monotonic() - began)
    held.open(planned)
    note_batch(held.metadata, planned)
    fault("planned")
    message = (
        f"batch {planned.batch}: {found.start.short} → {found.stop.short}, {len(found.slices)} slices, "
        f"{found.size / 1e6:,.1f} MB of log"
    )
    if found.start.server != standing.position.server:
        message = f"going on from {standing.position.server} on {found.start.server}, of the same lineage; {message}"
    return PlanOutcome(planned.batch, False, str(found.stop), message, tables=tables)


def _begun_before(begun: OpenBatch) -> PlanOutcome:
    stop = begun.range.stop
    message = f"batch {begun.batch} was begun before ({begun.state}): it is finished first, up to {stop.short}"
    return PlanOutcome(begun.batch, False, str(stop), message, unfinished=True)


@noted("stage")
def _stage(held: Lease, config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report) -> StepOutcome:
    from binlake.staging.stage import remove_attempts, stage_batch

    control = held.control()
    planned = control.open
    if planned is None or planned.state != "planned":
        return StepOutcome(planned.batch if planned else None, 0, "nothing to stage: the batch is staged already")
    began = time.monotonic()
    with opened(origin) as log:
        check_position(log, log.transport(), planned.range.start)
        transports = readers(log, config.source)
    metadata = held.metadata
    remove_attempts(config, planned.batch, control.since_us)
    try:
        manifest = stage_batch(session, config, transports, planned, report, decisions.skips(metadata))
    except BinlogError as error:
        note_poison(metadata, planned, error)
        raise
    fault("manifest written")
    staged = replace(planned, state="staged", attempt=manifest.attempt).with_phase("stage", time.monotonic() - began)
    staged = replace(staged, content=planned.content or manifest.content)
    staged = staged.executing([part.gtid_set for part in manifest.slices], planned.range.stop.flavour)
    held.advance(staged)
    note_batch(held.metadata, staged)
    message = f"batch {staged.batch}: {manifest.mutations:,} mutations staged in {len(manifest.files)} files"
    report.say(message)
    return StepOutcome(staged.batch, manifest.mutations, message)


@noted("merge")
def _merge(held: Lease, config: PipelineConfig, session: SessionFactory, report: Report) -> StepOutcome:
    staged = held.control().open
    if staged is None or staged.state != "staged":
        return StepOutcome(staged.batch if staged else None, 0, "nothing to merge: the batch is merged already")
    merged, outcomes, manifest = merge_batch(held, config, session, staged, report)
    note_batch(held.metadata, merged)
    fault("merged")
    message = f"batch {merged.batch}: {len(outcomes)} tables merged"
    report.say(message)
    return StepOutcome(merged.batch, manifest.mutations, message)


def _cascades(config: PipelineConfig, source: Source) -> tuple[Cascade, ...] | None:
    found = unlogged_cascades(source, included_databases(source, config))
    return None if found is None else tuple(one for one in found if config.included(one.child))


@noted("record")
def _record(held: Lease, config: PipelineConfig, run: str | None = None) -> RunReport:
    merged = held.control().open
    if merged is None or merged.state != "merged":
        raise UsageError("the open batch isn't merged yet", remedy="run merge first")
    metadata = held.metadata
    metadata.check()
    if config.maintain.staging_hours > 0:
        replayable.keep(config, merged)
    for name in names_dropped(metadata, merged):
        if config.goes_when_dropped(name):
            files.remove_folder(config.table_path(name))
    report = record_batch(held, metadata, merged, run)
    fault("recorded")
    if standing := held.control().standing:
        leftovers.remove_recorded(config, standing)
    return report
