"""All that happened to a source, the newest first: runs, what failed, DDL, stops, and decisions with who and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from binlake.config import PipelineConfig
from binlake.metadata import runs
from binlake.metadata.failures import FAILED
from binlake.metadata.metadata import Metadata, Newest, now_us
from binlake_airflow.page.answers import metadata_of

Kind = Literal["run", "failed", "verify", "ddl", "stop", "decision"]
"""run: of batches, snapshots and the upkeep. verify: also repairs."""


@dataclass(frozen=True)
class Event:
    """What happened at a time.

    title: in a few words. what: the run's message, the statement, or the reason. tables: those that it is about, as
    ``database.table``. place: ``file:offset`` of the log. run: Airflow's ``DAG/RUN``, or a number of its own. who, why:
    of a decision.
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
    who: str | None = None
    why: str | None = None


def events(config: PipelineConfig, kind: Kind | None, before_us: int | None, count: int) -> dict[str, Any]:
    """Return the newest events. kind: only these. before_us: only those before that time."""
    metadata = metadata_of(config)
    read = [_READERS[kind]] if kind else list(_READERS.values())
    happened = [event for reader in read for event in reader(metadata, before_us, count)]
    ordered = sorted(happened, key=lambda event: event.at_us, reverse=True)
    oldest = ordered[:count][-1].at_us if ordered else 0  # a server may tell the seconds of its statements alone
    newest = [event for event in ordered if event.at_us >= oldest]
    return {"source": config.source.name, "events": [asdict(event) for event in newest], "now_us": now_us()}


_Reader = Callable[[Metadata, int | None, int], list[Event]]


def _runs_of(kind: Kind, where: str) -> _Reader:
    """Return a reader of runs."""

    def read(metadata: Metadata, before_us: int | None, count: int) -> list[Event]:
        return [_run(kind, run) for run in runs.newest(metadata, count, before_us=before_us, where=where)]

    return read


def _run(kind: Kind, run: runs.RunHead) -> Event:
    title, remedy, what = run.kind, None, run.message
    if kind == "failed":
        title = f"{', '.join(run.phases)} failed"
        what, _, remedy = run.message.partition("\n  → ")
    return Event(
        run.ended_us, kind, title, what, remedy or None, run.batch, run=run.run,
        seconds=(run.ended_us - run.started_us) / 1e6,
    )  # fmt: skip


def _ddl(metadata: Metadata, before_us: int | None, count: int) -> list[Event]:
    """Return statements; one that concerns several tables is one event."""
    columns = [
        "batch", "file", "offset", "committed_us", "database", "table", "statement", "kind", "action", "reason"
    ]  # fmt: skip
    rows = _newest(metadata, "ddl_history", "committed_us", columns, before_us, count)
    statements: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        statements.setdefault((row["batch"], row["file"], row["offset"], row["action"]), []).append(row)
    return [
        Event(
            first["committed_us"],
            "ddl",
            f"{first['kind']}, {first['action']}",
            first["statement"] or "",
            first["reason"] or None,
            first["batch"],
            tuple(sorted({_table(row) for row in same if row["table"]})),
            f"{first['file']}:{first['offset']}",
        )
        for same in statements.values()
        for first in same[:1]
    ]


def _stops(metadata: Metadata, before_us: int | None, count: int) -> list[Event]:
    """Return what stopped tables or runs, without the event's bytes, which hold values."""
    columns = ["batch", "database", "table", "file", "offset", "reason", "remedy", "at_us"]
    return [
        Event(
            row["at_us"],
            "stop",
            "table stopped" if row["table"] else "run stopped",
            row["reason"] or "",
            row["remedy"] or None,
            row["batch"],
            (_table(row),) if row["table"] else (),
            _place(row),
        )
        for row in _newest(metadata, "quarantine", "at_us", columns, before_us, count)
    ]


def _decisions(metadata: Metadata, before_us: int | None, count: int) -> list[Event]:
    columns = ["at_us", "who", "why", "action", "database", "table", "batch", "file", "offset"]
    return [
        Event(
            row["at_us"],
            "decision",
            row["action"],
            "",
            None,
            row["batch"],
            (_table(row),) if row["table"] else (),
            _place(row),
            who=row["who"],
            why=row["why"],
        )
        for row in _newest(metadata, "decisions", "at_us", columns, before_us, count)
    ]


_VERIFIES = "kind IN ('verify', 'repair')"
_READERS: dict[Kind, _Reader] = {
    "run": _runs_of("run", f"kind <> '{FAILED}' AND NOT {_VERIFIES}"),
    "failed": _runs_of("failed", f"kind = '{FAILED}'"),
    "verify": _runs_of("verify", _VERIFIES),
    "ddl": _ddl,
    "stop": _stops,
    "decision": _decisions,
}


def _newest(
    metadata: Metadata, table: str, time: str, columns: Sequence[str], before_us: int | None, count: int
) -> list[dict[str, Any]]:
    """Return the newest rows, with all that are as old as the last of them: the next page begins before its time."""
    where = None if before_us is None else f"{time} < {before_us}"
    newest = metadata.read(table, columns, where=where, newest=Newest(time, count))
    if len(newest) < count or newest[-1][time] is None:
        return newest
    oldest = newest[-1][time]
    as_old = metadata.read(table, columns, where=f"{time} = {oldest}")
    return [*(row for row in newest if row[time] > oldest), *as_old]


def _table(row: dict[str, Any]) -> str:
    return f"{row['database']}.{row['table']}"


def _place(row: dict[str, Any]) -> str | None:
    return f"{row['file']}:{row['offset']}" if row["file"] else None
