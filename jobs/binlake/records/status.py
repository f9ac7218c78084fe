"""The status of a source, read from metadata alone: no server, no JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.table_modes import mirror_of
from binlake.delta import opened_tables
from binlake.errors import TAKEN_REMEDY, LakeError, repair_beside, repair_command
from binlake.lease import followers, lease
from binlake.lease.followers import FollowerStatus
from binlake.moment import moment_text
from binlake.planner.steps import LEFT_OUT
from binlake.records import (
    catalog_problems,
    decisions,
    feed_watermarks,
    lost_tables,
    verified,
    waiting_changes,
    watermarks,
)
from binlake.records.catalog_problems import CatalogProblem
from binlake.records.failures import FAILED
from binlake.records.feed_watermarks import FeedStatus
from binlake.records.merged_shapes import MergedStatus, ProblemBeside, merged_shapes, problems_of_merged
from binlake.records.record import newest_looks
from binlake.records.snapshot_ids import OF_KEYS
from binlake.records.verified import VerifiedTables, VerifiedThrough
from binlake.records.waiting_changes import WaitingChange
from binlake.schema.table import TableName
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, ChunkRow, LogRow, WatermarkRow
from binlake.store.run_rows import RunRow

_SUCCEEDED = "kind IN ('sync', 'bootstrap')"
"""Predicate of runs that moved the lake forward."""
_BETWEEN_TASKS_US = 10 * 60 * 1_000_000
"""Microseconds for which an open batch may have no run at work: Airflow starts the next task."""


@dataclass(frozen=True)
class SnapshotStatus:
    """A snapshot that isn't committed: how many of its chunks are copied, their rows, and when it was planned."""

    table: str
    chunks: int
    copied: int
    rows: int
    begun_us: int | None = None


@dataclass(frozen=True)
class FailedRun:
    """An attempt that failed. run: Airflow's ``DAG/RUN``, else a generated id. batch: the one that was open then."""

    run: str
    phase: str
    batch: int | None
    ended_us: int
    message: str


@dataclass(frozen=True)
class TableStatus:
    """A table, up to where it is in the lake, and why it doesn't follow the log, with what to do.

    verified_through: up to where it is known equal to the server. problem: what was wrong with its files in the lake
    when they were to be compared last.
    """

    table: str
    status: str
    batch: int | None = None
    position: str | None = None
    delta_version: int | None = None
    reason: str | None = None
    remedy: str | None = None
    table_id: str | None = None
    verified_through: VerifiedThrough | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the table as plain values for JSON."""
        through = self.verified_through
        return {**vars(self), "verified_through": {**vars(through)} if through else None}  # faster than asdict


@dataclass(frozen=True)
class BatchStatus:
    """The open batch. planned_us: when it was planned. abandoned: why no run works on it; None where one does."""

    batch: int
    state: str
    stop: str
    planned_us: int | None
    abandoned: str | None


@dataclass(frozen=True)
class PoisonEvent:
    """An event that stops the open batch."""

    file: str | None
    offset: int | None
    reason: str
    remedy: str | None


@dataclass(frozen=True)
class SourceStatus:
    """The source's position, its open batch, the holder of its lease, and each table's watermark.

    holder_died: the holder was a process of this machine that is gone; unknown for one elsewhere. carried_us: what was
    committed before is in the lake, whether or not a batch is open: see _carried.
    """

    source: str
    batch: int
    position: str | None
    open_batch: BatchStatus | None
    holder: str | None
    tables: tuple[TableStatus, ...]
    last_run: RunRow | None
    poison: tuple[PoisonEvent, ...] = ()
    holder_died: bool = False
    carried_us: int | None = None
    snapshots: tuple[SnapshotStatus, ...] = ()
    feeds: tuple[FeedStatus, ...] = ()
    failed: FailedRun | None = None
    """The newest attempt, if it failed."""
    follower: FollowerStatus | None = None
    """The process that follows the log, if one does."""
    beside: tuple[ProblemBeside, ...] = ()
    """Tables beside mirrors, and merged tables, that are stopped or can't be read; shards that these don't show."""
    lost: tuple[str, ...] = ()
    """Metadata tables that are gone."""
    waiting: tuple[WaitingChange, ...] = ()
    """Schema changes at which tables wait for an answer."""
    nothing_new_us: int | None = None
    """When a sync found nothing new last; None if none did."""
    merged: tuple[MergedStatus, ...] = ()
    """Tables that show several of the server's."""
    catalogs: tuple[CatalogProblem, ...] = ()
    """What catalogs of others lack."""

    @property
    def abandoned(self) -> str:
        """Say which open batch no run works on, and why; empty if there is none."""
        opened = self.open_batch
        if opened is None or not opened.abandoned:
            return ""
        began = f", begun at {moment_text(opened.planned_us)}," if opened.planned_us else ""
        return f"batch {opened.batch}{began} isn't finished: {opened.abandoned}"

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain values for JSON."""
        last = self.last_run
        return {
            "source": self.source,
            "batch": self.batch,
            "position": self.position,
            "open_batch": asdict(self.open_batch) if self.open_batch else None,
            "holder": self.holder,
            "holder_died": self.holder_died,
            "tables": [table.to_json() for table in self.tables],
            "last_run": {**last.values(), "tables": last.noted, "phases": last.seconds} if last else None,
            "poison": [asdict(event) for event in self.poison],
            "carried_us": self.carried_us,
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
            "feeds": [asdict(feed) for feed in self.feeds],
            "failed": asdict(self.failed) if self.failed else None,
            "follower": asdict(self.follower) if self.follower else None,
            "beside": [asdict(problem) for problem in self.beside],
            "lost": list(self.lost),
            "waiting": [change.to_json() for change in self.waiting],
            "nothing_new_us": self.nothing_new_us,
            "merged": [asdict(table) for table in self.merged],
            "catalogs": [asdict(problem) for problem in self.catalogs],
        }


def _table(
    config: PipelineConfig, row: WatermarkRow, through: VerifiedThrough | None, problem: str | None
) -> TableStatus:
    """Return a watermark as the YAML decides now: what it leaves out isn't followed, and what it includes again will
    be. problem: what was wrong with its files in the lake when they were to be compared last."""
    name = row.name
    follows = config.included(name) or config.ghost(name)
    if not follows and row.status in ("following", "stopped", "resnapshot", "missing"):
        row = replace(row, status="excluded", reason=LEFT_OUT.reason, remedy=LEFT_OUT.remedy)
    if follows and row.status == "excluded":
        row = replace(row, reason="the YAML includes it again", remedy="run binlake sync, which brings it up to date")
    if follows and row.status in ("missing", "resnapshot") and (why := config.taken_by(name)):
        row = replace(row, reason=why, remedy=TAKEN_REMEDY)  # a snapshot would be refused
    if row.status == "following" and problem:
        row = replace(row, reason=problem, remedy=repair_command(name))
    return TableStatus(
        table=str(name),
        status=row.status,
        batch=row.batch,
        position=row.position,
        delta_version=row.delta_version,
        reason=row.reason,
        remedy=row.remedy,
        table_id=row.table_id,
        verified_through=through,
        problem=problem,
    )


def read_status(config: PipelineConfig, metadata: Metadata | None = None) -> SourceStatus:
    """Return a source's status. metadata: the source's, where the caller has it open."""
    metadata = metadata or Metadata(config.metadata_path("").rstrip("/"))
    control = lease.read(metadata)
    last = RunRow.first(metadata, where=_SUCCEEDED, newest=Newest("ended_us", 1))
    looks = newest_looks(metadata)
    quiet = next((look for look in looks if look.kind == "nothing new"), None)
    succeeded_us = max(last.ended_us if last else 0, quiet.at_us if quiet and control.open is None else 0)
    failed = _failed(metadata, succeeded_us)
    noted, follower = verified.read(metadata), followers.read_status(metadata)
    rows = watermarks.read(metadata)
    tables = [_table(config, row, noted.through.get(row.table_id), noted.problems.get(row.table_id)) for row in rows]
    return SourceStatus(
        source=config.source.name,
        batch=control.batch,
        position=str(control.position) if control.position else None,
        open_batch=_open_batch(metadata, control, failed),
        holder=control.holder,
        holder_died=control.holder_died,
        tables=tuple(sorted(tables, key=lambda row: row.table)),
        poison=tuple(
            PoisonEvent(row.file, row.offset, row.reason, row.remedy)
            for row in (decisions.poison(metadata, control.open.batch) if control.open else [])
        ),
        carried_us=_carried(metadata, control.recorded_state, looks, follower) if control.recorded_state else None,
        snapshots=tuple(_unfinished(metadata)),
        feeds=tuple(feed_watermarks.statuses(config, metadata)),
        merged=merged_shapes(config, metadata),
        failed=failed,
        follower=follower,
        beside=(*_problems_beside(config, noted), *problems_of_merged(config, metadata)),
        lost=tuple(lost_tables.find(metadata, notes=False)),
        nothing_new_us=quiet.at_us if quiet else None,
        catalogs=tuple(catalog_problems.read(config, metadata)),
        waiting=tuple(waiting_changes.waiting(metadata, rows)),
        last_run=last,
    )


def _problems_beside(config: PipelineConfig, noted: VerifiedTables) -> Iterator[ProblemBeside]:
    """Yield what is wrong with tables beside mirrors."""
    for table_id, own in sorted(noted.names.items(), key=lambda item: item[1]):
        if place := mirror_of(own.table):
            mirror, mode = TableName(own.database, place[0]), place[1]
            if mode in config.beside(mirror) and not _is_past(config.beside_path(mirror, mode), own, table_id):
                yield ProblemBeside(str(own), noted.problems[table_id], repair_beside(mirror))


def _is_past(path: str, own: TableName, table_id: str) -> bool:
    """Return whether a problem was noted of a table beside a mirror that isn't there any more. path: of the one that is
    there by now, if any."""
    try:
        if not opened_tables.is_table(path):
            return table_id != verified.unbegun(own)
        return str(opened_tables.newest(path).metadata().id) != table_id
    except (DeltaError, LakeError, OSError):
        return False  # it can't be read, which may be the problem


def _failed(metadata: Metadata, succeeded_us: int) -> FailedRun | None:
    """Return the newest attempt if it failed. succeeded_us: when a run succeeded last."""
    columns = ("run", "phases", "batch", "ended_us", "message")
    row = RunRow.first(metadata, *columns, where=f"kind = '{FAILED}'", newest=Newest("ended_us", 1))
    if row is None or succeeded_us > row.ended_us:
        return None
    return FailedRun(row.run, next(iter(row.seconds)), row.batch, row.ended_us, row.message)


def _open_batch(metadata: Metadata, control: lease.Control, failed: FailedRun | None) -> BatchStatus | None:
    opened = control.open
    if opened is None:
        return None
    why = _abandoned(metadata, control, opened.batch, failed)
    return BatchStatus(opened.batch, opened.state, str(opened.range.stop), opened.planned_us or None, why)


def _abandoned(metadata: Metadata, control: lease.Control, batch: int, failed: FailedRun | None) -> str | None:
    if control.holder and not control.holder_died:
        return None
    if control.holder_died:
        return f"{control.holder}, which worked on it, died"
    if failed and failed.batch == batch:
        return f"its run failed in {failed.phase}"
    # Between two of Airflow's tasks nobody holds the lease.
    row = BatchRow.first(metadata, "updated_us", where=f"batch = {batch}")
    return "no run works on it" if now_us() - (row.updated_us if row else 0) > _BETWEEN_TASKS_US else None


def _carried(
    metadata: Metadata, recorded: lease.RecordedState, looks: Sequence[LogRow], follower: FollowerStatus | None = None
) -> int | None:
    """Return a time in microseconds: what was committed before is in the lake. None if it isn't known. looks: the
    newest at the log.

    A look at a log that had nothing beyond a recorded batch proves it without a batch. A process that follows looks
    again and again, and so knows a later time than its batches, too.
    """
    look = looks[0] if looks else None
    if look and not (look.bytes_ahead == 0 and look.batch is not None and look.batch <= recorded.batch):
        where = f"bytes_ahead = 0 AND batch <= {recorded.batch}"
        look = LogRow.first(metadata, "at_us", where=where, newest=Newest("at_us", 1))
    known = [_carried_by_batches(metadata, recorded), look.at_us if look else None]
    if follower and follower.behind_seconds is not None:
        known.append(int(follower.at_us - follower.behind_seconds * 1e6))
    return max((us for us in known if us is not None), default=None)


def _carried_by_batches(metadata: Metadata, recorded: lease.RecordedState) -> int | None:
    """Return such a time by the batches that were recorded.

    It is when the batch that was recorded last was planned, or the time at which that batch was to stop; if the log is
    followed from a bootstrap's position, it is when that bootstrap began.
    """
    where = f"batch = {recorded.batch} AND state = 'recorded'"
    batches = BatchRow.read(metadata, "until_us", "planned_us", "stop", where=where)
    times = [row.until_us or row.planned_us for row in batches]
    if any(row.stop == str(recorded.position) for row in batches):
        return max(times)
    bootstraps = RunRow.read(metadata, "started_us", "position", where="kind = 'bootstrap'")
    times += [row.started_us for row in bootstraps if row.position == str(recorded.position)]
    if times or not bootstraps:
        return max(times, default=None)
    return min(row.started_us for row in bootstraps)


def _unfinished(metadata: Metadata) -> list[SnapshotStatus]:
    """Return the newest snapshot of each table, unless it is committed."""
    chunks: dict[tuple[str, str], list[ChunkRow]] = defaultdict(list)
    columns = ("snapshot", "database", "table", "state", "rows", "updated_us")
    if not ChunkRow.read(metadata, "snapshot", where="state <> 'committed'", newest=Newest("updated_us", 1)):
        return []
    for row in ChunkRow.read(metadata, *columns):
        if row.snapshot.endswith(OF_KEYS):
            continue
        chunks[str(row.name), row.snapshot].append(row)
    newest: dict[str, list[ChunkRow]] = {}
    for (table, _), rows in sorted(chunks.items(), key=lambda item: max(row.updated_us for row in item[1])):
        newest[table] = rows
    return [
        SnapshotStatus(
            table,
            len(rows),
            len(copied),
            sum(row.rows for row in copied),
            min(row.updated_us for row in rows),
        )
        for table, rows in sorted(newest.items())
        if any(row.state != "committed" for row in rows)
        for copied in [[row for row in rows if row.state != "planned"]]
    ]
