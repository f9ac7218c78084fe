"""Health of a source and advice what to do, from its status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from croniter import croniter

from binlake.metadata.feed_watermarks import RELAY
from binlake.metadata.status import SnapshotStatus, SourceStatus
from binlake.source.ahead import LogSeen

Health = Literal["good", "new", "warn", "bad"]
_WORST_FIRST: tuple[Health, ...] = ("bad", "new", "warn", "good")
_GRACE = timedelta(minutes=15)
"""Time that a scheduled run may take before it counts as late."""


@dataclass(frozen=True)
class Remedy:
    """An action that the page offers. do: bootstrap, sync, feeds, unpause, skip-event or show. dag: which to unpause.
    file, offset: the event to skip. state: of the tables to show."""

    do: str
    dag: str | None = None
    file: str | None = None
    offset: int | None = None
    state: str | None = None


@dataclass(frozen=True)
class Advice:
    """What is wrong, and what to do next. button: the page's action, if it can do it."""

    health: Health
    what: str
    remedy: str
    button: Remedy | None = None


@dataclass(frozen=True)
class DagState:
    """A DAG of the source in Airflow. next_run_us: when the scheduler makes its next run."""

    dag_id: str
    is_paused: bool
    next_run_us: int | None


@dataclass(frozen=True)
class LogStanding(LogSeen):
    """The server's log as last seen, compared with what is merged.

    bytes_ahead: bytes of log that aren't merged. kept_until_us: the time before which the log that is needed next isn't
    purged by age; None if it is kept for ever, or the retention is unknown.
    """

    kept_until_us: int | None


def health(advice: list[Advice]) -> Health:
    """Return the worst health in the advice; good without advice."""
    levels = {item.health for item in advice}
    return next((level for level in _WORST_FIRST if level in levels), "good")


def advise(
    status: SourceStatus,
    *,
    schedule: str | None,
    dags: Mapping[str, DagState],
    now: datetime,
    log: LogStanding | None = None,
) -> list[Advice]:
    """Return advice on a source, the worst first. dags: those that Airflow knows, by kind (bootstrap, sync …)."""
    advice = [
        *_beginning(status, dags),
        *_poisoned(status),
        *_failed(status, now),
        *_tables(status),
        *_late(status, schedule, dags, now, log),
        *_unseen(log, schedule, now),
        *_purged(log, now),
        *_unfinished(status),
        *_feeds(status),
    ]
    return sorted(advice, key=lambda item: _WORST_FIRST.index(item.health))


def _poisoned(status: SourceStatus) -> list[Advice]:
    return [
        Advice(
            "bad",
            f"the run is stopped at {event['file']}:{event['offset']} by {event['reason']}",
            event["remedy"] or "",
            Remedy("skip-event", file=event["file"], offset=event["offset"]),
        )
        for event in status.poison
    ]


def _failed(status: SourceStatus, now: datetime) -> list[Advice]:
    failed = status.failed
    if failed is None or status.poison:  # whose own advice is more precise
        return []
    problem, _, remedy = failed.message.partition("\n  → ")
    ago = max(0, round((now.timestamp() - failed.ended_us / 1e6) / 60))
    what = f"the last run failed in {failed.phase}, {ago:,} minutes ago: {problem}"
    return [Advice("warn", what, remedy or "look at its log; the next run tries again")]


def _beginning(status: SourceStatus, dags: Mapping[str, DagState]) -> list[Advice]:
    if status.position is not None:
        return []
    if status.holder and not status.holder_died:
        what = f"the first snapshot is being taken{_copied(status.snapshots)}"
        return [Advice("new", what, "nothing: the tables follow when it is done")]
    bootstrap = f"binlake_{status.source}_bootstrap"
    button: Remedy | None = Remedy("bootstrap")
    if "bootstrap" not in dags:
        button = None
        remedy = f"wait until Airflow has read the DAG {bootstrap}; if it stays away, look at Airflow's import errors"
    elif dags["bootstrap"].is_paused:
        remedy = f"unpause the DAG {bootstrap} and trigger it"
    else:
        remedy = f"trigger the DAG {bootstrap}"
    return [Advice("new", "no table has a snapshot yet", remedy, button)]


def _tables(status: SourceStatus) -> list[Advice]:
    counts = Counter(row["status"] for row in status.tables)
    look = "the list of tables says what to do about each"
    advice: list[Advice] = []
    for table_status, level, what in (
        ("stopped", "bad", "stopped"),
        ("missing", "bad", "missing in the lake"),
        ("resnapshot", "warn", "waiting for a new snapshot, which the next run takes"),
        ("paused", "warn", "paused"),
    ):
        if count := counts[table_status]:
            advice.append(Advice(level, f"{_tables_are(count)} {what}", look, Remedy("show", state=table_status)))  # type: ignore[arg-type]
    return advice


def _tables_are(count: int) -> str:
    return "1 table is" if count == 1 else f"{count:,} tables are"


def carried_us(status: SourceStatus, looked_us: int, bytes_ahead: int | None) -> int | None:
    """Return the time before which the lake has every commit, by its batches or by the look at the server at
    ``looked_us``, which proves as much where the log had nothing beyond them. None if it isn't known."""
    if status.carried_us is None or bytes_ahead != 0:
        return status.carried_us
    return max(status.carried_us, looked_us)


def _late(
    status: SourceStatus, schedule: str | None, dags: Mapping[str, DagState], now: datetime, log: LogStanding | None
) -> list[Advice]:
    if status.position is None or schedule is None:
        return []
    dag = f"binlake_{status.source}_sync"
    sync = dags.get("sync")
    if sync and sync.is_paused:
        button = Remedy("unpause", dag="sync")
        return [Advice("warn", "nothing carries it forward: its sync is paused", f"unpause the DAG {dag}", button)]
    carried = carried_us(status, log.at_us, log.bytes_ahead) if log else status.carried_us
    if carried is None or not _missed(schedule, carried, now):
        return []
    remedy = f"look at the last runs of the DAG {dag}"
    return [Advice("bad", "it is more than a run behind its schedule", remedy, Remedy("sync"))]


def _missed(schedule: str, since_us: int, now: datetime) -> bool:
    """Tell whether more than one run has been due since a time, plus some grace."""
    due = croniter(schedule, datetime.fromtimestamp(since_us / 1e6, UTC))
    due.get_next(datetime)
    missed: datetime = due.get_next(datetime)
    return missed + _GRACE < now


def _unseen(log: LogStanding | None, schedule: str | None, now: datetime) -> list[Advice]:
    """Return advice if the server was last seen too long ago for the schedule, so that what is known of it is old."""
    if log is None or schedule is None or not _missed(schedule, log.at_us, now):
        return []
    hours = now.timestamp() / 3600 - log.at_us / 3.6e9
    what = f"the server was looked at {hours:,.0f} hours ago: its log may have grown by more than is told here"
    return [
        Advice(
            "warn", what, "sync now: any run that asks the server writes down how far its log goes on", Remedy("sync")
        )
    ]


def _purged(log: LogStanding | None, now: datetime) -> list[Advice]:
    """Return advice if less than a quarter of the log's retention is left."""
    if log is None or log.kept_until_us is None or log.kept_hours is None:
        return []
    left = log.kept_until_us / 3.6e9 - now.timestamp() / 3600
    if left >= log.kept_hours / 4:
        return []
    remedy = "sync now, or raise binlog_expire_logs_seconds on the server"
    if left <= 0:
        what = f"the log that is needed next is older than the {log.kept_hours:g} hours for which the server keeps it"
        return [Advice("bad", what, remedy, Remedy("sync"))]
    return [Advice("warn", f"the log that is needed next may be purged in {left:.1f} hours", remedy, Remedy("sync"))]


def _copied(snapshots: Sequence[SnapshotStatus]) -> str:
    if not snapshots:
        return ""
    chunks, copied = sum(copy.chunks for copy in snapshots), sum(copy.copied for copy in snapshots)
    return f", {copied:,} of {chunks:,} chunks, {sum(copy.rows for copy in snapshots):,} rows"


def _unfinished(status: SourceStatus) -> list[Advice]:
    advice: list[Advice] = []
    at_work = bool(status.holder) and not status.holder_died
    if status.snapshots and (status.position is not None or not at_work):
        first, *others = (copy.table for copy in status.snapshots)
        names = f"{first} and {len(others):,} others aren't" if others else f"{first} isn't"
        what = f"the snapshot of {names} finished{_copied(status.snapshots)}"
        remedy = (
            "nothing while a run is at work" if at_work else "run the bootstrap again: it goes on where this one ended"
        )
        advice.append(Advice("warn", what, remedy, None if at_work else Remedy("bootstrap")))
    if status.holder_died:
        advice.append(
            Advice(
                "warn",
                f"{status.holder}, which held the source, is dead",
                "nothing: the next run takes over at once",
                Remedy("sync") if status.position else None,
            )
        )
    elif status.abandoned:
        advice.append(Advice("warn", status.abandoned, "sync now: the next run finishes it first", Remedy("sync")))
    return advice


def _feeds(status: SourceStatus) -> list[Advice]:
    """Return advice on stopped feeds: they don't hold up the mirror, but their readers wait."""
    return [
        Advice(
            "bad",
            f"{'the relay' if feed.name == RELAY else f'feed {feed.name}'} is stopped: {feed.reason}",
            feed.remedy,
            None if feed.name == RELAY else Remedy("feeds"),
        )
        for feed in status.feeds
        if feed.status == "stopped"
    ]
