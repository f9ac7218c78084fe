"""Questions to metadata about runs: the newest, one batch, one table. Each reads only the columns that it returns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from binlake.metadata import lease
from binlake.metadata.failures import FAILED
from binlake.metadata.metadata import Metadata, Newest, literal, rows_of
from binlake.metadata.record import TableRun
from binlake.position import Range
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads

_HEAD = (
    "run", "kind", "batch", "started_us", "ended_us", "outcome", "position", "bytes", "mutations", "message", "phases",
    "why_spark",
)  # fmt: skip
_FAILURES = 20
"""Most failures that are shown of a batch."""


@dataclass(frozen=True)
class RunHead:
    """A run without what it did to each table.

    kind: sync, bootstrap, verify, repair, maintain, or failed. bytes: of log, or copied. phases: seconds by name; of a
    failed run the phase that failed. why_spark: see RunReport.
    """

    run: str
    kind: str
    batch: int | None
    started_us: int
    ended_us: int
    outcome: str
    position: str | None
    bytes: int
    mutations: int
    message: str
    phases: dict[str, float]
    why_spark: str


@dataclass(frozen=True)
class Stoppage:
    """What stopped a table in a batch, or, where ``table`` is None, the batch itself."""

    table: str | None
    file: str | None
    offset: int | None
    reason: str
    remedy: str | None
    at_us: int


@dataclass(frozen=True)
class BatchSummary:
    """A batch: its range, and once it is recorded, its run.

    state: planned, staged, merged or recorded. range: None where the batch's own row expired. failures: attempts that
    failed while it was open, the newest first.
    """

    batch: int
    state: str
    range: Range | None
    until_us: int | None
    planned_us: int | None
    run: RunHead | None
    tables: tuple[TableRun, ...]
    stops: tuple[Stoppage, ...]
    failures: tuple[RunHead, ...]


@dataclass(frozen=True)
class MutationCounts:
    """Mutations of a table, summed over batches. ended_us: of the last run among them."""

    inserted: int
    updated: int
    deleted: int
    ended_us: int

    @property
    def rows(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class TableChanges:
    """What one batch did to one table. phases: seconds by name, of the whole batch."""

    batch: int
    ended_us: int
    did: TableRun
    phases: dict[str, float]


@dataclass(frozen=True)
class Verified:
    """The result of the newest comparison of a table with the server.

    batch, position: through which it is verified. differing: chunks that differ.
    """

    at_us: int
    batch: int
    position: str | None
    equal: bool
    differing: int
    source_rows: int
    lake_rows: int


def _head(row: dict[str, Any]) -> RunHead:
    numbers = {key: row[key] or 0 for key in ("started_us", "ended_us", "bytes", "mutations")}
    texts = {key: row[key] or "" for key in ("message", "why_spark")} | {"phases": json.loads(row["phases"] or "{}")}
    return RunHead(**{**{key: row[key] for key in _HEAD}, **numbers, **texts})


def newest(metadata: Metadata, count: int, *, before_us: int | None = None, where: str | None = None) -> list[RunHead]:
    """Return runs, the one that ended last first. before_us: only those that ended before. where: a predicate."""
    if before_us is not None:
        where = f"ended_us < {before_us}" + (f" AND {where}" if where else "")
    return [_head(row) for row in metadata.read("runs", _HEAD, where=where, newest=Newest("ended_us", count))]


def of_batch(metadata: Metadata, batch: int) -> BatchSummary | None:
    """Return a batch; None where it isn't known, or was forgotten."""
    planned = metadata.read("batches", where=f"batch = {batch}") or _open_row(metadata, batch)
    runs = metadata.read("runs", where=f"batch = {batch} AND kind = 'sync'")
    if not planned and not runs:
        return None
    failed, newest = f"batch = {batch} AND kind = '{FAILED}'", Newest("ended_us", _FAILURES)
    plan: dict[str, Any] = planned[0] if planned else {}
    run: dict[str, Any] = runs[0] if runs else {}
    return BatchSummary(
        batch=batch,
        state=plan.get("state", "recorded"),
        range=loads(Range, plan["range"]) if plan.get("range") else None,
        until_us=plan.get("until_us"),
        planned_us=plan.get("planned_us"),
        run=_head(run) if run else None,
        tables=_tables(run) if run else (),
        stops=tuple(_stops(metadata, batch)),
        failures=tuple(_head(row) for row in metadata.read("runs", _HEAD, where=failed, newest=newest)),
    )


def _open_row(metadata: Metadata, batch: int) -> list[dict[str, Any]]:
    """Return what the row of an open batch would say that has none: those of seconds get theirs when they are
    recorded."""
    plan = lease.read(metadata).open
    if plan is None or plan.batch != batch:
        return []
    row = {"state": plan.state, "until_us": plan.until_us, "planned_us": plan.planned_us}
    return [{**row, "range": dumps(plan.range)}]


def _tables(row: dict[str, Any]) -> tuple[TableRun, ...]:
    return tuple(TableRun(**table) for table in json.loads(row["tables"]))


def _stops(metadata: Metadata, batch: int) -> list[Stoppage]:
    """Return what stopped in a batch, without the event's bytes, which hold values."""
    columns = ["database", "table", "file", "offset", "reason", "remedy", "at_us"]
    return [
        Stoppage(
            f"{row['database']}.{row['table']}" if row["table"] is not None else None,
            *(row[column] for column in columns[2:]),
        )
        for row in metadata.read("quarantine", columns, where=f"batch = {batch}")
    ]


def changes_since(metadata: Metadata, since_us: int) -> dict[str, MutationCounts]:
    """Return the mutations of each table in batches that were recorded since a time, by ``database.table``."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    where = f"kind = 'sync' AND ended_us >= {since_us}"
    for row in metadata.read("runs", ["tables", "ended_us"], where=where):
        for table in json.loads(row["tables"]):
            numbers = [table["inserted"], table["updated"], table["deleted"]]
            if any(numbers):
                summed = counts[table["table"]]
                summed[:] = [*map(sum, zip(summed, numbers, strict=False)), max(summed[3], row["ended_us"])]
    return {table: MutationCounts(*numbers) for table, numbers in counts.items()}


def mutations_by(metadata: Metadata, since_us: int, width_us: int, count: int) -> list[int]:
    """Return the mutations of batches recorded in each of ``count`` periods since a time, each ``width_us`` long."""
    summed = [0] * count
    where = f"kind = 'sync' AND ended_us >= {since_us}"
    for row in metadata.read("runs", ["ended_us", "mutations"], where=where):
        summed[min((row["ended_us"] - since_us) // width_us, count - 1)] += row["mutations"] or 0
    return summed


def of_table(metadata: Metadata, table: str, *, since_us: int) -> list[TableChanges]:
    """Return what batches recorded since a time did to a table, the newest first."""
    named = literal("%" + json.dumps(table, ensure_ascii=False).replace("\\", "\\\\").replace("%", "\\%") + "%")
    where = f"kind = 'sync' AND ended_us >= {since_us} AND tables LIKE {named}"
    rows = metadata.read("runs", ["batch", "ended_us", "tables", "phases"], where=where)
    changes = [
        TableChanges(row["batch"], row["ended_us"], did, json.loads(row["phases"] or "{}"))
        for row in rows
        for did in _tables(row)
        if did.table == table
    ]
    return sorted(changes, key=lambda change: change.batch, reverse=True)


def last_verified(metadata: Metadata, name: TableName) -> Verified | None:
    """Return the newest comparison of a table; None where it was never compared, or too long ago."""
    rows = metadata.read("verifications", _VERIFIED, where=rows_of(name), newest=Newest("at_us", 1))
    return Verified(**rows[0]) if rows else None


@dataclass(frozen=True)
class VerifiedDay:
    """What a day's comparisons of a table with the server gave.

    day: in UTC, ISO 8601. equal: whether all found it equal; None where none could compare it. differing: chunks that
    differed, at most. rows, chunks: that were read. seconds: of the runs, in which other tables were compared, too.
    """

    day: str
    equal: bool | None
    differing: int
    rows: int
    chunks: int
    seconds: float


def verified_days(metadata: Metadata, name: TableName, *, since_us: int) -> list[VerifiedDay]:
    """Return the days on which a table was compared, the oldest first. since_us: none before this time."""
    columns = ("at_us", "equal", "differing", "source_rows", "chunks", "looked_rows", "looked_chunks", "seconds")
    rows = metadata.read("verifications", columns, where=f"{rows_of(name)} AND at_us >= {since_us}")
    by_day: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["at_us"]):
        by_day.setdefault(f"{datetime.fromtimestamp(row['at_us'] / 1e6, UTC):%Y-%m-%d}", []).append(row)
    return [_verified_day(day, of_day) for day, of_day in by_day.items()]


def _verified_day(day: str, rows: Sequence[dict[str, Any]]) -> VerifiedDay:
    results = [row["equal"] for row in rows if row["equal"] is not None]
    return VerifiedDay(
        day,
        all(results) if results else None,
        max(row["differing"] or 0 for row in rows),
        sum((row["source_rows"] if row["looked_rows"] is None else row["looked_rows"]) or 0 for row in rows),
        sum((row["chunks"] if row["looked_chunks"] is None else row["looked_chunks"]) or 0 for row in rows),
        sum(row["seconds"] or 0.0 for row in rows),
    )


def all_last_verified(metadata: Metadata) -> dict[str, Verified]:
    """Return the newest comparison of each table, by ``database.table``."""
    newest = Newest("at_us", 1, per=("database", "table"))
    rows = metadata.read("verifications", ("database", "table", *_VERIFIED), newest=newest)
    return {f"{row['database']}.{row['table']}": Verified(**{key: row[key] for key in _VERIFIED}) for row in rows}


_VERIFIED = ("at_us", "batch", "position", "equal", "differing", "source_rows", "lake_rows")
