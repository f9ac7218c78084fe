"""All that happened to a source, the newest first: runs, what failed, DDL, stops, and decisions with who and why."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeVar

from binlake.config import PipelineConfig
from binlake.config.units import DAY_US
from binlake.lease import followers
from binlake.records import runs
from binlake.records.failures import FAILED
from binlake.records.runs import RunHead, noting
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.store.conditions import Newest, rows_of
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import DecisionRow, FollowerStopRow, LogRow, QuarantineRow, StatementRow
from binlake.store.run_rows import VerificationRow
from binlake.store.typed_rows import Row
from binlake_airflow.page.answers import metadata_of
from binlake_airflow.page.dag_runs import states_of
from binlake_airflow.page.folded_batches import SYNCS, Batches, are_dense, folded

Kind = Literal["run", "batch", "failed", "verify", "ddl", "stop", "decision"]
"""run: batches, snapshots and the upkeep. batch: each batch. verify: also repairs."""
_QUIET = "kind = 'nothing new'"
"""Predicate of the looks at the log of syncs that found nothing."""
_WEEK_US = 7 * DAY_US
_EVER = 2**63 - 1
_MOST = 500
"""The most comparisons among which those of one table are looked for."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a time.

    title: in a few words. what: the run's message, the statement, or what came of a decision. tables: those that it is
    about, as ``database.table``. place: ``file:offset`` of the log. run: Airflow's ``DAG/RUN``, or a number of its own.
    rows, bytes, phases, why_spark: what a run changed, read and took, see RunHead. who, why: of a decision. ended: the
    state of the run that was asked for, as Airflow knows it. look: bad where a comparison found a difference, warn
    where a repair put it right; None for that of the kind. since_us: of events that are one line, when the first of
    them was.
    """

    at_us: int
    kind: Kind
    title: str
    what: str
    remedy: str | None = None
    batch: int | None = None
    tables: tuple[str, ...] = ()
    place: str | None = None
    run: str | None = None
    seconds: float | None = None
    rows: int | None = None
    bytes: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    why_spark: str = ""
    who: str | None = None
    why: str | None = None
    ended: str | None = None
    look: Literal["bad", "warn"] | None = None
    since_us: int | None = None


@dataclass(frozen=True)
class _Asked:
    """The events that are wanted: the newest ones, before a time, of a table."""

    metadata: Metadata
    count: int
    before_us: int | None = None
    table: TableName | None = None

    def where(self, *predicates: str, time: str | None = None) -> str | None:
        """Return a predicate of all of these, and of ``time``, a column, as wanted; None where all rows are."""
        before = [f"{time} < {self.before_us}"] if time and self.before_us is not None else []
        return " AND ".join([*before, *predicates]) or None

    def runs(self, *predicates: str) -> list[RunHead]:
        """Return the newest runs, of a table those that noted something of it."""
        of_table = [noting(str(self.table))] if self.table else []
        where = self.where(*predicates, *of_table)
        return runs.newest(self.metadata, self.count, before_us=self.before_us, where=where)


def events(
    config: PipelineConfig, kind: Kind | None, before_us: int | None, count: int, table: TableName | None = None
) -> dict[str, Any]:
    """Return the newest events, and before which time earlier ones are, if there are some. kind, table: only of these.
    before_us: only those before that time.

    Where the source is followed, batches between other events are one.
    """
    asked, now = _Asked(metadata_of(config), count, before_us, table), now_us()
    kinds = [kind] if kind else [name for name in _READERS if name != "batch"]
    happened = [event for name in kinds for event in _READERS[name](asked)]
    oldest = 0
    if kind in (None, "run"):
        batches = asked.runs(SYNCS)
        if batches and (config.follow is not None or are_dense(batches, count)):
            oldest = max(_oldest_of_a_page(happened, count), batches[0].ended_us - _WEEK_US)
            cuts = [event.at_us for event in happened]
            groups = folded(asked.metadata, oldest, before_us or _EVER, cuts, str(table) if table else None)
            by_batch = {run.batch: run for run in batches}
            happened += [_batches(group, by_batch) for group in groups]
            happened = [event for event in happened if event.at_us >= oldest]
        else:
            happened += [_run("run", run) for run in batches]
        if table is None:
            happened += _quiet_syncs(asked, [event.at_us for event in happened], oldest)
    ordered = sorted(happened, key=lambda event: event.at_us, reverse=True)
    shown = [event for event in ordered if event.at_us >= _oldest_of_a_page(ordered, count)]
    earlier = min(event.since_us or event.at_us for event in shown) if len(ordered) >= count else None
    if earlier is None and oldest:
        before = replace(asked, count=1, before_us=oldest)
        earlier = oldest if any(_READERS[name](before) for name in (*kinds, "batch")) else None
    return {
        "source": config.source.name, "events": [asdict(event) for event in _with_ends(shown)], "earlier_us": earlier,
        "now_us": now,
    }  # fmt: skip


def _oldest_of_a_page(happened: Sequence[Event], count: int) -> int:
    """Return the time of the oldest event that a page shows, with all that are as old: a server may log the seconds of
    its statements alone. 0 where all are shown."""
    ordered = sorted((event.at_us for event in happened), reverse=True)
    return ordered[count - 1] if len(ordered) >= count else 0


_Reader = Callable[[_Asked], list[Event]]


def _batches(group: Batches, by_batch: Mapping[int | None, RunHead]) -> Event:
    """Return batches as one event; one alone as it is shown elsewhere."""
    if group.first_us == group.last_us and group.batch in by_batch:
        return _run("run", by_batch[group.batch])
    title = "batches" if group.count is None else counted(group.count, "batch")
    return Event(group.last_us, "run", title, "", rows=group.rows, since_us=group.first_us)


def _quiet_syncs(asked: _Asked, others: Sequence[int], since_us: int) -> list[Event]:
    """Return syncs that found nothing, as one event for those between two others. others: times of other events."""
    ordered = sorted(others)
    since_us = max(since_us, ordered[-asked.count] if len(ordered) >= asked.count else 0)
    rows = LogRow.read(asked.metadata, "at_us", where=asked.where(f"at_us >= {since_us}", _QUIET, time="at_us"))
    groups = groupby(sorted(row.at_us for row in rows), lambda at_us: bisect_left(ordered, at_us))
    return [_quiet(list(times)) for _, times in groups]


def _quiet(times: Sequence[int]) -> Event:
    if len(times) == 1:
        return Event(times[0], "run", "sync", "nothing new")
    return Event(times[-1], "run", counted(len(times), "sync"), "nothing new", since_us=times[0])


def _runs_of(kind: Kind, where: str) -> _Reader:
    """Return a reader of runs."""

    def read(asked: _Asked) -> list[Event]:
        return [_run(kind, run) for run in asked.runs(where)]

    return read


def _run(kind: Kind, run: runs.RunHead) -> Event:
    title, remedy, what = run.kind, None, run.message
    if kind == "failed":
        title = f"{', '.join(run.phases)} failed"
        what, _, remedy = run.message.partition("\n  → ")
    return Event(
        run.ended_us, kind, title, what, remedy or None, run.batch, run=run.run,
        seconds=(run.ended_us - run.started_us) / 1e6, rows=run.mutations or None, bytes=run.bytes or None,
        phases=run.phases, why_spark=run.why_spark or "",
    )  # fmt: skip


def _comparisons(asked: _Asked) -> list[Event]:
    """Return comparisons and repairs, each with the tables that it found to differ; of a table those that read it."""
    predicates, times = [_VERIFIES], []
    if asked.table:
        rows = _newest(asked, VerificationRow, "at_us", "at_us")
        if not rows:
            return []
        times = [row.at_us for row in rows]
        predicates.append(f"ended_us >= {min(times)}")
    count = _MOST if asked.table else asked.count
    heads = runs.newest(asked.metadata, count, before_us=asked.before_us, where=asked.where(*predicates))
    compared = [_run("verify", run) for run in heads]
    if asked.table:
        compared = [event for event in compared if any(_began_us(event) <= at <= event.at_us for at in times)]
    if not compared:
        return []
    since, until = min(map(_began_us, compared)), compared[0].at_us
    of_table = [rows_of(asked.table)] if asked.table else []
    where = " AND ".join(["equal = false", f"at_us >= {since}", f"at_us <= {until}", *of_table])
    found = VerificationRow.read(asked.metadata, "database", "table", "at_us", where=where)
    return [_with_differing(event, found) for event in compared]


def _began_us(event: Event) -> int:
    return event.at_us - round((event.seconds or 0) * 1e6)


def _with_differing(event: Event, found: Sequence[VerificationRow]) -> Event:
    """Return a comparison with the tables that it found to differ: noted while it ran, of which one does at a time."""
    tables = tuple(sorted(_table(row) for row in found if _began_us(event) <= row.at_us <= event.at_us))
    if not tables:
        return event
    return replace(event, tables=tables, look="warn" if event.title == "repair" else "bad")


def _ddl(asked: _Asked) -> list[Event]:
    """Return statements; one that concerns several tables is one event."""
    rows = _newest(
        asked, StatementRow, "committed_us",
        "batch", "file", "offset", "committed_us", "database", "table", "statement", "kind", "action", "reason",
    )  # fmt: skip
    statements: dict[tuple[Any, ...], list[StatementRow]] = {}
    for row in rows:
        statements.setdefault((row.batch, row.file, row.offset, row.action), []).append(row)
    return [
        Event(
            first.committed_us,
            "ddl",
            f"{first.kind}, {first.action}",
            first.statement or "",
            first.reason or None,
            first.batch,
            tuple(sorted({_table(row) for row in same if row.table})),
            f"{first.file}:{first.offset}",
        )
        for same in statements.values()
        for first in same[:1]
    ]


def _stops(asked: _Asked) -> list[Event]:
    """Return what stopped tables or runs, without the event's bytes, which hold values."""
    columns = ("batch", "database", "table", "file", "offset", "reason", "remedy", "at_us")
    return [
        Event(
            row.at_us,
            "stop",
            "table stopped" if row.table else "run stopped",
            row.reason or "",
            row.remedy or None,
            row.batch,
            (_table(row),) if row.table else (),
            _place(row),
        )
        for row in _newest(asked, QuarantineRow, "at_us", *columns)
    ]


def _follower_stops(asked: _Asked) -> list[Event]:
    """Return when processes that followed the log ended before their time, with the newest if it is gone now."""
    if asked.table:
        return []
    columns = ("at_us", "holder", "how", "batch", "message")
    stops = _newest(asked, FollowerStopRow, "at_us", *columns)
    now = followers.read_status(asked.metadata)
    if now and now.is_silent and (asked.before_us is None or now.at_us < asked.before_us):
        how = "dead" if now.is_dead else "silent"
        stops.append(FollowerStopRow(at_us=now.at_us, holder=now.holder, since_us=now.at_us, how=how, batch=now.batch))
    return [
        Event(
            row.at_us,
            "stop",
            f"follower {row.how}",
            f"{row.holder}{HOW[row.how]}{': ' if row.message else ''}{row.message}",
            batch=row.batch,
            look=None if row.how in ("dead", "silent", "failed") else "warn",
        )
        for row in stops
    ]


HOW: Mapping[str, str] = {
    "dead": ", which followed the log, is gone without having ended; it gave its last sign of life then",
    "silent": ", which followed the log, gave its last sign of life then",
    "paused": " stopped following, as its DAG was paused",
    "ended": " stopped following, as it was asked to end",
    "failed": " stopped following, as it failed",
}
"""Sentences about a process that followed, by how it ended, see followers.StopKind."""


def _decisions(asked: _Asked) -> list[Event]:
    """Return decisions; what was asked for several tables at once is one event."""
    columns = ("at_us", "who", "why", "action", "database", "table", "batch", "file", "offset", "run", "result")
    made: dict[tuple[Any, ...], list[DecisionRow]] = {}
    for row in _newest(asked, DecisionRow, "at_us", *columns):
        made.setdefault((row.at_us, row.who, row.action, row.run, _place(row)), []).append(row)
    return [
        Event(
            first.at_us,
            "decision",
            first.action,
            first.result or "",
            None,
            first.batch,
            tuple(sorted(_table(row) for row in same if row.table)),
            _place(first),
            first.run,
            who=first.who,
            why=first.why,
        )
        for same in made.values()
        for first in same[:1]
    ]


def _with_ends(events: Sequence[Event]) -> list[Event]:
    """Return events with what became of the runs that were asked for."""
    states = states_of(event.run for event in events if event.kind == "decision" and event.run)
    return [
        replace(event, ended=states.get(event.run)) if event.kind == "decision" and event.run else event
        for event in events
    ]


_VERIFIES = "kind IN ('verify', 'repair')"
_READERS: dict[Kind, _Reader] = {
    "run": _runs_of("run", f"kind <> '{FAILED}' AND NOT {_VERIFIES} AND NOT {SYNCS}"),
    "batch": _runs_of("run", SYNCS),
    "failed": _runs_of("failed", f"kind = '{FAILED}'"),
    "verify": _comparisons,
    "ddl": _ddl,
    "stop": lambda asked: [*_stops(asked), *_follower_stops(asked)],
    "decision": _decisions,
}


_Of = TypeVar("_Of", bound=Row)


def _newest(asked: _Asked, rows: type[_Of], time: str, *columns: str) -> list[_Of]:
    """Return the newest rows, with all that are as old as the last of them: the next page begins before its time.
    time: the column by which they are ordered."""
    of_table = [rows_of(asked.table)] if asked.table else []
    where = asked.where(*of_table, time=time)
    newest = rows.read(asked.metadata, *columns, where=where, newest=Newest(time, asked.count))
    if len(newest) < asked.count or (oldest := getattr(newest[-1], time)) is None:
        return newest
    as_old = rows.read(asked.metadata, *columns, where=" AND ".join([f"{time} = {oldest}", *of_table]))
    return [*(row for row in newest if getattr(row, time) > oldest), *as_old]


def _table(row: StatementRow | QuarantineRow | DecisionRow | VerificationRow) -> str:
    return f"{row.database}.{row.table}"


def _place(row: QuarantineRow | DecisionRow) -> str | None:
    return f"{row.file}:{row.offset}" if row.file else None
