"""The reasons why a source isn't healthy, each with what to do next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from binlake.moment import duration_text
from binlake.position import Position
from binlake.records.evidence import DagState, Evidence
from binlake.records.feed_watermarks import RELAY
from binlake.records.runs import Verified
from binlake.records.status import SnapshotStatus, SourceStatus
from binlake.report import counted
from binlake.store.table_losses import LOSSES, RESTORE

HealthLevel = Literal["good", "new", "warn", "bad"]
WORST_FIRST: tuple[HealthLevel, ...] = ("bad", "new", "warn", "good")
MOST_NAMED = 100
"""Number of differing rows from which a comparison may have found more than it names, see verify.result."""
_GRACE = timedelta(minutes=15)
"""Time that a scheduled run may take before it counts as late."""
_NAMED = 3
"""The most tables that are named in a line."""
_NOBODY_US = 5 * 60 * 1_000_000
"""Microseconds after which the page says that no task follows: Airflow begins the next one behind each."""
_DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True)
class Remedy:
    """An action that the page offers. do: bootstrap, sync, verify, repair, feeds, follow, unpause, skip-event or show.
    dag: which to unpause. file, offset: the event to skip. state: of the tables to show. tables: to be verified,
    repaired or snapshotted."""

    do: str
    dag: str | None = None
    file: str | None = None
    offset: int | None = None
    state: str | None = None
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """Something that is wrong, and what to do next. button: the page's action, if it can do it. occasion: of the
    notices that tell it, see AirflowConfig."""

    health: HealthLevel
    what: str
    remedy: str
    button: Remedy | None = None
    occasion: Literal["lag", "retention"] | None = None


def reasons(known: Evidence) -> list[Advice]:
    """Return what is wrong with a source, the worst first."""
    status = known.status
    advice = [
        *_beginning(known),
        *_poisoned(status),
        *_lost(status),
        *_differing(known),
        *_tables(known),
        *_failed(known),
        *_another_server(known),
        *_scheduler(known),  # before what comes of it
        *_late(known),
        *_behind(known),
        *_follower(known),
        *_purged(known),
        *_unfinished(known),
        *_feeds(status),
        *(Advice("bad", f"{beside.table}: {beside.problem}", beside.remedy) for beside in status.beside),
        *_catalogs(known),
        *_failed_in_airflow(known),
        *_not_compared(known),
        *_unseen(known),
    ]
    return sorted(advice, key=lambda item: WORST_FIRST.index(item.health))


def _ago(known: Evidence, at_us: int) -> str:
    return f"{duration_text((known.now_us - at_us) / 1e6)} ago"


def _beginning(known: Evidence) -> list[Advice]:
    status, dags = known.status, known.dags
    if status.position is not None:
        return []
    if known.is_copied_first:
        return [_copied_first(known)]
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


def _copied_first(known: Evidence) -> Advice:
    """Return that the first snapshot is being taken, which nobody need ask for again: Spark's start takes a while."""
    status, since_us, dag = known.status, known.at_work.get("bootstrap"), known.dags.get("bootstrap")
    rest = "nothing: the tables follow when it is done"
    if (status.holder and not status.holder_died) or status.snapshots:
        return Advice("new", f"the first snapshot is being taken{_copied(status.snapshots)}", rest)
    if since_us is not None:
        return Advice("new", f"the first snapshot begins: its run started {_ago(known, since_us)}", rest)
    if dag and dag.is_paused:
        button = Remedy("unpause", dag="bootstrap")
        return Advice("new", "the first snapshot waits: its DAG is paused", f"unpause the DAG {dag.dag_id}", button)
    return Advice("new", "the first snapshot begins: its run is queued", rest)


def _poisoned(status: SourceStatus) -> list[Advice]:
    return [
        Advice(
            "bad",
            f"the run is stopped at {event.file}:{event.offset} by {event.reason}",
            event.remedy or "",
            Remedy("skip-event", file=event.file, offset=event.offset),
        )
        for event in status.poison
    ]


def _lost(status: SourceStatus) -> Iterator[Advice]:
    """Yield what of the metadata is gone."""
    for table in status.lost:
        loss = LOSSES[table]
        what = f"the metadata table {table} is gone, and with it {loss.meaning}"
        yield Advice("bad", what, f"{RESTORE}; without one: {loss.remedy}")


# tables --------------------------------------------------------------------------------------------------------------
def following(known: Evidence) -> list[str]:
    """Return the names of the tables that follow the log and have a mirror."""
    tables = [row.table for row in known.status.tables if row.status == "following"]
    return [table for table in tables if table not in known.unmirrored]


def differing(known: Evidence) -> dict[str, Verified]:
    """Return the tables that follow the log and differed when they were compared last, by name."""
    compared = ((table, known.compared.get(table)) for table in following(known))
    return {table: found for table, found in compared if found and found.equal is False}


def rows_text(found: Verified) -> str:
    """Return by how many rows a table differs, as far as that is known: `` by 6 rows``."""
    rows = found.differing_rows
    if not rows:
        return ""
    return f" by {'at least ' if rows >= MOST_NAMED else ''}{counted(rows, 'row')}"


def _differing(known: Evidence) -> list[Advice]:
    found = differing(known)
    if not found:
        return []
    when = f"compared {_ago(known, min(table.at_us for table in found.values()))}"
    if len(found) == 1:
        ((name, table),) = found.items()
        what = f"{name} differs from the server{rows_text(table)}, {when}"
    else:
        each = [f"{name}{rows_text(table)}" for name, table in found.items()]
        what = f"{len(found):,} tables differ from the server: {_first(each)}; {when}"
    if known.limits.repair == "never":
        return [Advice("bad", what, "snapshot them again: verify.repair is never", Remedy("show", state="following"))]
    remedy = "repair the rows that differ, and find out who changes the lake's tables, or the server's without its log"
    return [Advice("bad", what, remedy, Remedy("repair", tables=tuple(found)))]


def _first(names: Sequence[str]) -> str:
    """Return the first of some names, and how many others there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _not_compared(known: Evidence) -> Iterator[Advice]:
    """Yield which tables couldn't be compared with the server, and which weren't when they should have been."""
    tables = following(known)
    failed = [table for table in tables if table in known.compared and known.compared[table].equal is None]
    if failed:
        when = _ago(known, max(known.compared[table].at_us for table in failed))
        what = f"{_first(failed)} couldn't be compared with the server, {when}"
        yield Advice("warn", what, "see the log of that verification", Remedy("verify", tables=tuple(failed)))
    schedule = known.limits.verify_schedule
    if schedule is None:
        return
    late = [table for table in tables if table in known.compared and _missed(schedule, known, known.compared[table])]
    if late:
        oldest = min(known.compared[table].at_us for table in late)
        what = f"{_first(late)} weren't" if len(late) > 1 else f"{late[0]} wasn't"
        what += f" compared with the server for {duration_text((known.now_us - oldest) / 1e6)}, though verify.schedule"
        yield Advice("warn", f"{what} is {schedule}", "verify them now", Remedy("verify", tables=tuple(late)))


def _missed(schedule: str, known: Evidence, found: Verified) -> bool:
    return missed(schedule, found.at_us, known.now_us)


def missed(schedule: str, since_us: int, now_us: int) -> bool:
    """Return whether more than one run has been due since a time, plus some grace."""
    from croniter import croniter

    due = croniter(schedule, datetime.fromtimestamp(since_us / 1e6, UTC))
    due.get_next(datetime)
    second: datetime = due.get_next(datetime)
    return second + _GRACE < datetime.fromtimestamp(now_us / 1e6, UTC)


def _tables(known: Evidence) -> Iterator[Advice]:
    """Yield how many tables don't follow, and which can't be read."""
    counts = Counter(row.status for row in known.status.tables)
    look = "the list of tables says what to do about each"
    if asked := known.status.waiting:
        counts["stopped"] -= len(asked)
        what = f"{_tables_wait(len(asked))} for a yes or a no to a change of its columns"
        yield Advice("warn", what, asked[0].answer if len(asked) == 1 else "see each below, and answer")
    for level, state, what in _STATES:
        if (count := counts[state]) > 0:
            yield Advice(level, f"{_tables_are(count)} {what}", look, Remedy("show", state=state))
    if count := sum(bool(row.problem) for row in known.status.tables):
        what = f"{_tables_are(count)} damaged in the lake: files can't be read, or hold other rows than were verified"
        yield Advice("bad", what, look, Remedy("show", state="following"))
    for table, why in known.unreadable.items():
        yield Advice("bad", f"{table} can't be read in the lake: {why}", look, Remedy("repair", tables=(table,)))


_STATES: tuple[tuple[HealthLevel, str, str], ...] = (
    ("bad", "stopped", "stopped"),
    ("bad", "missing", "missing in the lake"),
    ("warn", "resnapshot", "waiting for a new snapshot, which the next run takes"),
    ("warn", "paused", "paused"),
)
"""Levels and words of the states that tables shouldn't stay in."""


def _tables_wait(count: int) -> str:
    return "1 table waits" if count == 1 else f"{count:,} tables wait"


def _tables_are(count: int) -> str:
    return "1 table is" if count == 1 else f"{count:,} tables are"


# the log -------------------------------------------------------------------------------------------------------------
def _failed(known: Evidence) -> list[Advice]:
    failed = known.status.failed
    if failed is None or known.status.poison or failed.run in known.cancelled:  # whose own advice is more precise
        return []
    problem, _, remedy = failed.message.partition("\n  → ")
    what = f"the last run failed in {failed.phase}, {_ago(known, failed.ended_us)}: {problem}"
    return [Advice("warn", what, remedy or "look at its log; the next run tries again")]


def _another_server(known: Evidence) -> list[Advice]:
    """Return advice if the log that was seen last isn't that of the lake's server, or doesn't reach back to it."""
    log, position = known.log, known.status.position
    if log is None or position is None or log.bytes_ahead is not None or log.server is None:
        return []
    at = Position.parse(position)
    if at.server == log.server:
        what = f"the server's log, from {log.oldest_file} on, doesn't hold {at.short}, where the lake is"
        return [Advice("bad", what, "binlake doctor says what is lost; snapshot the tables again")]
    what = f"the lake belongs to another server: it follows {at.server}, and the connection leads to {log.server}"
    remedy = "point the connection at the lake's server; a sync continues here if this server has all that the lake has"
    return [Advice("bad", what, remedy, Remedy("sync"))]


def _late(known: Evidence) -> list[Advice]:
    status, schedule = known.status, known.limits.schedule
    if status.position is None or schedule is None:
        return []
    dag = f"binlake_{status.source}_sync"
    sync = known.dags.get("sync")
    if sync and sync.is_paused:
        button = Remedy("unpause", dag="sync")
        return [Advice("warn", "nothing carries it forward: its sync is paused", f"unpause the DAG {dag}", button)]
    carried = known.carried_us
    if carried is None or not missed(schedule, carried, known.now_us):
        return []
    remedy = f"look at the last runs of the DAG {dag}"
    return [Advice("bad", "it is more than a run behind its schedule", remedy, Remedy("sync"))]


def _behind(known: Evidence) -> list[Advice]:
    """Return advice if the lake is further behind than the YAML allows."""
    limit, lag = known.limits.lag_minutes, known.lag_seconds
    if limit is None or lag is None or known.status.position is None or lag <= limit * 60:
        return []
    ahead = known.log.bytes_ahead if known.log else None
    log = "" if ahead is None else f" and {ahead / 1e6:,.1f} MB of log"
    what = f"it is {duration_text(lag)}{log} behind; lag_minutes allows {limit:g}"
    return [Advice("bad", what, "see why syncs fail or take so long", Remedy("sync"), "lag")]


def _follower(known: Evidence) -> list[Advice]:
    """Return advice if the process that followed the log gives no sign of life, or waits, or none does."""
    follower, dag = known.status.follower, known.dags.get("follow")
    start: Remedy | None = Remedy("sync")
    begin = f"start binlake follow, or unpause the DAG binlake_{known.status.source}_follow"
    if dag and (dag.is_paused or "follow" not in known.at_work):
        start, begin = Remedy("follow"), f"start to follow again, by a run of the DAG {dag.dag_id}"
    elif dag:
        start, begin = None, f"nothing: the DAG {dag.dag_id} begins to follow again"
        if known.airflow and not known.airflow.is_alive:
            begin = f"start Airflow's scheduler: the DAG {dag.dag_id} then begins to follow again"
    if follower is None:
        return _nobody_follows(known, dag, start, begin)
    since = f"since {_ago(known, follower.at_us).removesuffix(' ago')}"
    if follower.is_dead:
        last = known.status.last_run
        went_on = last is not None and last.ended_us > follower.at_us
        if went_on and known.now_us - follower.at_us > _DAY_US:
            return []  # it was given up, and syncs carry the lake
        return [
            Advice(
                "warn" if went_on else "bad",
                f"{follower.holder}, which followed the log, is dead {since}",
                begin,
                start,
            )
        ]
    if follower.cannot_write:
        what = f"{follower.holder} follows the log, and can give no sign of life {since}: {follower.cannot_write}"
        return [Advice("bad", what, "nothing once that is mended: it tries again")]
    if follower.is_silent:
        what = f"{follower.holder} followed the log, and gives no sign of life {since}"
        return [Advice("bad", what, f"end that process where it still runs; {begin}", start)]
    if follower.waits_for:
        return [Advice("warn", f"the process that follows the log waits: {follower.waits_for}", "it tries again")]
    return []


def _nobody_follows(known: Evidence, dag: DagState | None, start: Remedy | None, begin: str) -> list[Advice]:
    if dag is None or known.status.position is None:
        return []
    if dag.is_paused:
        return [Advice("warn", f"nobody follows the log: {dag.dag_id} is paused", begin, start)]
    if known.carried_us is None or known.now_us - known.carried_us < _NOBODY_US:
        return []
    what = f"nobody follows the log, though {dag.dag_id} should"
    if "follow" in known.at_work:
        return [Advice("warn", what, "see why its task doesn't run", Remedy("sync"))]
    return [Advice("warn", what, begin, start)]


def _unseen(known: Evidence) -> list[Advice]:
    """Return advice if the server was last seen too long ago, so that what is known of it is old."""
    seen_us = known.lag_known_us
    if known.log is None or seen_us is None or not _is_overdue(known, seen_us):
        return []
    what = f"the server was looked at {_ago(known, seen_us)}: its log may have grown by more than is shown here"
    remedy = "sync now: any run that asks the server writes down how far its log reaches"
    return [Advice("warn", what, remedy, Remedy("sync"))]


def _is_overdue(known: Evidence, seen_us: int) -> bool:
    """Return whether the server should have been looked at since a time: by the DAG of the limits, by a sync, or, where
    neither is scheduled, within ``lag_minutes``."""
    limits, watch = known.limits, known.dags.get("watch")
    schedule = limits.watched_at if watch and not watch.is_paused else None
    if schedule or limits.schedule:
        return any(missed(each, seen_us, known.now_us) for each in (schedule, limits.schedule) if each)
    return limits.lag_minutes is not None and known.now_us - seen_us > limits.lag_minutes * 60e6


def _purged(known: Evidence) -> list[Advice]:
    """Return advice if less of the log's retention is left than the YAML demands, or less than a quarter of it."""
    log, headroom, limit = known.log, known.headroom_seconds, known.limits.retention_hours
    if log is None or headroom is None:
        return []
    left, rest = headroom / 3600, duration_text(headroom)
    remedy = "sync now, or raise binlog_expire_logs_seconds on the server"
    if left <= 0:
        kept = "time" if log.kept_hours is None else f"{log.kept_hours:g} hours"
        what = f"the log that is needed next is older than the {kept} for which the server keeps it"
    elif limit is not None and left < limit:
        what = f"the log that is needed next may be purged in {rest}; retention_hours demands {limit:g} h"
    elif left < (log.kept_hours or 0) / 4:
        return [Advice("warn", f"the log that is needed next may be purged in {rest}", remedy, Remedy("sync"))]
    else:
        return []
    return [Advice("bad", what, remedy, Remedy("sync"), "retention")]


# work that isn't done ------------------------------------------------------------------------------------------------
def _copied(snapshots: Sequence[SnapshotStatus]) -> str:
    if not snapshots:
        return ""
    chunks, copied = sum(copy.chunks for copy in snapshots), sum(copy.copied for copy in snapshots)
    return f", {copied:,} of {chunks:,} chunks, {sum(copy.rows for copy in snapshots):,} rows"


def _followed(status: SourceStatus) -> tuple[str, ...]:
    """Return the tables of unfinished snapshots where all of them are followed already: a bootstrap that names none
    copies the others alone."""
    followed = {row.table for row in status.tables if row.status in ("following", "paused", "catching up")}
    tables = tuple(copy.table for copy in status.snapshots)
    return tables if followed.issuperset(tables) else ()


def _unfinished(known: Evidence) -> list[Advice]:
    status = known.status
    advice: list[Advice] = []
    at_work = (bool(status.holder) and not status.holder_died) or "bootstrap" in known.at_work
    if status.snapshots and (status.position is not None or not at_work):
        first, *others = (copy.table for copy in status.snapshots)
        names = f"{first} and {len(others):,} others aren't" if others else f"{first} isn't"
        what = f"the snapshot of {names} finished{_copied(status.snapshots)}"
        if at_work:
            advice.append(Advice("warn", what, "nothing while a run is at work"))
        else:
            remedy = "snapshot again: it continues where this one ended"
            advice.append(Advice("warn", what, remedy, Remedy("bootstrap", tables=_followed(status))))
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
        remedy = "sync now: the next run finishes it first"
        advice.append(Advice("warn", status.abandoned, remedy, Remedy("sync"), "lag"))
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


def _catalogs(known: Evidence) -> Iterator[Advice]:
    """Yield which catalogs of others lack something: readers by name see an older state."""
    for each in known.status.catalogs:
        what = f"the catalog {each.catalog} began to lack something {_ago(known, each.since_us)}: {each.problem}"
        yield Advice("warn", what, each.remedy)


# Airflow -------------------------------------------------------------------------------------------------------------
def _scheduler(known: Evidence) -> list[Advice]:
    airflow = known.airflow
    if airflow is None or airflow.is_alive:
        return []
    what = "no scheduler of Airflow has given a sign of life yet"
    if airflow.heartbeat_us is not None:
        since = f"{datetime.fromtimestamp(airflow.heartbeat_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
        what = f"Airflow's scheduler gives no sign of life since {since} ({_ago(known, airflow.heartbeat_us)})"
    return [Advice("bad", what, "start it (airflow scheduler), or see its log: until then nothing runs")]


def _failed_in_airflow(known: Evidence) -> Iterator[Advice]:
    """Yield which DAGs' newest runs failed in Airflow, but for failures that another reason says more precisely."""
    noted = known.status.failed.run if known.status.failed else None
    told = bool(differing(known) or known.status.poison)
    for what, failed in (known.airflow.failed if known.airflow else {}).items():
        dag = f"binlake_{known.status.source}_{what}"
        run, ago = f"{dag}/{failed.run_id}", _ago(known, failed.ended_us)
        again = what in ("sync", "verify", "bootstrap", "feeds") and what not in known.at_work
        button = Remedy(what) if again else None
        if reason := known.cancelled.get(run):
            what_ended = f"the last run of {dag} was cancelled {ago} {reason}"
            yield Advice("warn", what_ended, "run it again, if what it was for is still wanted", button)
        elif noted != run and not (what == "verify" and told):
            place = f" in task {failed.task}" if failed.task else ""
            said = f": {failed.reason}" if failed.reason else ""
            remedy = "see the task's log" if failed.task else "see the run in Airflow"
            yield Advice("warn", f"the last run of {dag} failed{place}, {ago}{said}", remedy, button)
