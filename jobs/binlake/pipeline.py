"""The whole program, top to bottom.

**bootstrap** each included table through a consistent snapshot with its binlog position → **plan** a binlog range,
**stage** its mutations as Parquet, **merge** them into Delta, **record** the run → **verify** and **maintain**.

Each step takes its state from metadata and leaves it there, so each can be a process, be killed at any moment and run
again. A batch goes planned → staged → merged → recorded; it is finished under its frozen range before another begins.

Arguments that all steps share: config, the source's settings; origin, its server or folder of log files; session, gives
the Spark session to a step that needs Spark; report, shows progress; run, its name in the metadata table ``runs``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.phases import asked_tables, verification
from binlake.phases.follow import Beside, Followed, Following, FollowPace, RestingSession
from binlake.phases.open_batch import merge_open, record_open, stage_open
from binlake.phases.outcomes import PlanOutcome, StepOutcome
from binlake.phases.plan import Limit, plan_batch
from binlake.phases.register import register as register
from binlake.phases.resume import resume as resume, resume_all as resume_all
from binlake.phases.verification import RepairRequest, VerifyRequest, self_test as self_test, verify_lake as verify_lake
from binlake.position import Position
from binlake.records import lost_lease
from binlake.records.failures import noted
from binlake.records.record import RunReport, nothing_new, recorded_before
from binlake.report import Report
from binlake.source.log import Log, Origin
from binlake.spark import settings
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import metadata_of as metadata_of

if TYPE_CHECKING:
    from binlake.maintain.maintain import MaintainReport
    from binlake.phases.bootstrap import KeysAsked, Unnamed
    from binlake.phases.replay import ReplayedTable, ReplayRequest
    from binlake.snapshot.snapshot import LockMode, SnapshotResult
    from binlake.verify.verify import VerifyReport


@noted("snapshot")
def bootstrap(  # noqa: PLR0913 - the options of a command, each given by its name
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    *,
    tables: list[str] | None = None,
    unnamed: Unnamed = "new or all",
    lock: LockMode = "flush",
    run: str | None = None,
    begin: bool = False,
) -> list[SnapshotResult]:
    """Snapshot the tables that patterns name, without patterns those that ``unnamed`` says. Return a result for each
    table.

    A folder of log files holds no table to copy: the log is followed from its beginning, or from the lake's position.
    begin: replace a lake that is gone by a new one; without it LakeGone is raised.
    """
    from binlake.phases import snapshots

    if begin:
        lost_lease.begin_again(metadata_of(config))
    if unnamed == "asked" and not tables:
        asked_tables.let_catch_up(config, origin, session, report)
        if config.source.is_files:
            return []
    return snapshots.snapshot_tables(config, origin, session, report, tables, unnamed=unnamed, lock=lock, run=run)


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
    """Read one table's rows in a range of keys again, and carry the lake to the position at which they were read."""
    from binlake.phases import snapshots

    catch_up = _carry_to(config, origin, session, report, run)
    return snapshots.copy_keys(config, origin, session, report, asked, catch_up, lock=lock, run=run)


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
    """Carry the lake to the server's head, to the last commit before ``until``, or to ``stop_at``.

    Tables whose rows can't be derived from the log are snapshotted again; without a limit the lake is carried to the
    position of these copies. The reports of the run's other batches are in ``earlier``.
    """
    settings.say_missing_jars(config.root, report.say)
    copying, limit = asked_tables.snapshot_asked(config, origin, session, report, run), Limit(until, stop_at)
    with lease.held(metadata_of(config)) as held:
        recorded = _carry(held, config, origin, session, report, limit, run)
    carry_to = _carry_to(config, origin, session, report, run) if limit == Limit() else None
    return asked_tables.snapshot_behind(config, origin, session, report, copying, recorded, carry_to, run)


def follow(
    settings: Callable[[], PipelineConfig],
    origin: Origin,
    session: RestingSession,
    report: Report,
    pace: FollowPace,
    ending: Ending,
    beside: Sequence[Beside] = (),
) -> Followed:
    """Sync as changes come, and work beside that, until the end is asked for. settings: gives the YAML as it is now."""

    def carry(held: Lease, config: PipelineConfig, log: Origin | Log, between: Callable[[], None]) -> RunReport:
        return _carry(held, config, log, session, report.of_warnings(), Limit.of_follower(config), None, between)

    return Following(settings, origin, session, report, pace, ending, carry, beside).run()


def _carry(
    held: Lease,
    config: PipelineConfig,
    origin: Origin | Log,
    session: SessionFactory,
    report: Report,
    limit: Limit,
    run: str | None,
    between: Callable[[], None] = lambda: None,
) -> RunReport:
    """Carry an unfinished batch to its end, then plan and carry the next. between: called between two steps."""
    earlier: list[RunReport] = []
    while True:
        planned = plan_batch(held, config, origin, limit)
        for table in planned.tables:
            report.say(f"{table.table} is {table.status}{': ' if table.reason else ''}{table.reason}")
        report.say(planned.message)
        if planned.empty:
            nothing = nothing_new(planned.batch, planned.position, planned.message)
            return replace(nothing, tables=(*planned.tables, *planned.standing_still), earlier=tuple(earlier))
        between()
        stage_open(held, config, origin, session, report)
        between()
        merge_open(held, config, session, report)
        between()
        recorded = record_open(held, config, run).preceded_by(planned.tables)
        if not planned.unfinished:
            return replace(recorded, earlier=tuple(earlier))
        earlier.append(recorded)


def _carry_to(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, run: str | None
) -> Callable[[Lease, Position], RunReport]:
    """Return a function that carries the lake to exactly a position."""
    return lambda held, position: _carry(held, config, origin, session, report, Limit(stop_at=position), run)


def plan(
    config: PipelineConfig, origin: Origin, until: datetime | None = None, stop_at: Position | None = None
) -> PlanOutcome:
    """Freeze the next range, or return the open batch. Needs no Spark."""
    with lease.held(metadata_of(config)) as held:
        return plan_batch(held, config, origin, Limit(until, stop_at))


def stage(config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report) -> StepOutcome:
    """Stage the open batch, unless it is staged already."""
    with lease.held(metadata_of(config)) as held:
        return stage_open(held, config, origin, session, report)


def merge(config: PipelineConfig, session: SessionFactory, report: Report) -> StepOutcome:
    """Merge the open batch, unless it is merged already."""
    with lease.held(metadata_of(config)) as held:
        return merge_open(held, config, session, report)


def record(config: PipelineConfig, batch: int | None = None, run: str | None = None) -> RunReport:
    """Record the merged batch, if it is this one; without an open batch, return the report of the last run."""
    with lease.held(metadata_of(config)) as held:
        control = held.control()
        if control.open is not None and batch in (None, control.open.batch):
            return record_open(held, config, run)
        return recorded_before(held.metadata, config, control, batch, run)


@noted("verify")
def verify(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: VerifyRequest | None = None,
    run: str | None = None,
) -> VerifyReport:
    """Compare every value of the lake with a consistent read of the server, at the position of that read."""
    catch_up = _carry_to(config, origin, session, report, run)
    return verification.verify(config, origin, session, report, asked or VerifyRequest(), catch_up, run)


@noted("repair")
def repair(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: RepairRequest | None = None,
    run: str | None = None,
) -> VerifyReport:
    """Compare the lake with the server, and put right the rows that differ, in one commit for each table."""
    catch_up = _carry_to(config, origin, session, report, run)
    return verification.repair(config, origin, session, report, asked or RepairRequest(), catch_up, run)


@noted("replay")
def replay(
    config: PipelineConfig, session: SessionFactory, report: Report, asked: ReplayRequest
) -> list[ReplayedTable]:
    """Build tables as they were after a batch, beside the lake's. Needs no server."""
    from binlake.phases.replay import replay as build

    return build(config, session, metadata_of(config), report, asked)


@noted("maintain")
def maintain(
    config: PipelineConfig,
    session: SessionFactory,
    report: Report,
    tables: list[str] | None = None,
    run: str | None = None,
) -> MaintainReport:
    """Compact and vacuum the tables that patterns name, else all, and binlake's own metadata."""
    from binlake.maintain.maintain import maintain as keep

    return keep(config, session, metadata_of(config), report, tables=tables, run=run)
