"""Questions to metadata about runs: the newest, one batch, one table. Each reads only the columns that it returns."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.position import Range
from binlake.records.failures import FAILED
from binlake.schema.table import TableName
from binlake.store.conditions import Newest, literal, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow, QuarantineRow
from binlake.store.run_rows import RunRow, TableRun, VerificationRow

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
    """The reason that stopped a table in a batch, or, where ``table`` is None, the batch itself."""

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
        """Return the number of all mutations."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class TableChanges:
    """The mutations of one batch in one table. phases: seconds by name, of the whole batch."""

    batch: int
    ended_us: int
    did: TableRun
    phases: dict[str, float]


@dataclass(frozen=True)
class Verified:
    """The result of the newest comparison of a table with the server.

    batch, position: through which it is verified. equal: None where it couldn't be compared. differing: chunks that
    differ. differing_rows: how many rows of them are known, see TableResult. lake_rows: None where they weren't read.
    """

    at_us: int
    batch: int
    position: str | None
    equal: bool | None
    differing: int | None
    source_rows: int | None
    lake_rows: int | None
    differing_rows: int | None = None


def _head(row: RunRow) -> RunHead:
    return RunHead(**{**{key: getattr(row, key) for key in _HEAD}, "phases": row.seconds})


def newest(metadata: Metadata, count: int, *, before_us: int | None = None, where: str | None = None) -> list[RunHead]:
    """Return runs, the one that ended last first. before_us: only those that ended before. where: a predicate."""
    if before_us is not None:
        where = f"ended_us < {before_us}" + (f" AND {where}" if where else "")
    return [_head(row) for row in RunRow.read(metadata, *_HEAD, where=where, newest=Newest("ended_us", count))]


def of_batch(metadata: Metadata, batch: int) -> BatchSummary | None:
    """Return a batch; None where it isn't known, or was forgotten."""
    planned = BatchRow.first(metadata, where=f"batch = {batch}")
    plan = planned or _open(metadata, batch)
    run = RunRow.first(metadata, where=f"batch = {batch} AND kind = 'sync'")
    if plan is None and run is None:
        return None
    failed, newest = f"batch = {batch} AND kind = '{FAILED}'", Newest("ended_us", _FAILURES)
    return BatchSummary(
        batch=batch,
        state=plan.state if plan else "recorded",
        range=planned.carried if planned else plan.range if isinstance(plan, OpenBatch) else None,
        until_us=plan.until_us if plan else None,
        planned_us=plan.planned_us if plan else None,
        run=_head(run) if run else None,
        tables=run.did if run else (),
        stops=tuple(_stops(metadata, batch)),
        failures=tuple(_head(row) for row in RunRow.read(metadata, *_HEAD, where=failed, newest=newest)),
    )


def _open(metadata: Metadata, batch: int) -> OpenBatch | None:
    """Return an open batch that has no row: one of seconds gets its row when it is recorded."""
    plan = lease.read(metadata).open
    return plan if plan and plan.batch == batch else None


def _stops(metadata: Metadata, batch: int) -> list[Stoppage]:
    """Return what stopped in a batch, without the event's bytes, which hold values."""
    columns = ("file", "offset", "reason", "remedy", "at_us")
    return [
        Stoppage(
            f"{row.database}.{row.table}" if row.table is not None else None,
            *(getattr(row, column) for column in columns),
        )
        for row in QuarantineRow.read(metadata, "database", "table", *columns, where=f"batch = {batch}")
    ]


def changes_since(metadata: Metadata, since_us: int) -> dict[str, MutationCounts]:
    """Return the mutations of each table in batches that were recorded since a time, by ``database.table``."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    where = f"kind = 'sync' AND ended_us >= {since_us}"
    for row in RunRow.read(metadata, "tables", "ended_us", where=where):
        for table in row.noted:  # a dictionary each: thousands of batches are summed
            numbers = [table["inserted"], table["updated"], table["deleted"]]
            if any(numbers):
                summed = counts[table["table"]]
                summed[:] = [*map(sum, zip(summed, numbers, strict=False)), max(summed[3], row.ended_us)]
    return {table: MutationCounts(*numbers) for table, numbers in counts.items()}


def mutations_by(metadata: Metadata, since_us: int, width_us: int, count: int) -> list[int]:
    """Return the mutations of batches recorded in each of ``count`` periods since a time, each ``width_us`` long."""
    summed = [0] * count
    where = f"kind = 'sync' AND ended_us >= {since_us}"
    for row in RunRow.read(metadata, "ended_us", "mutations", where=where):
        summed[min((row.ended_us - since_us) // width_us, count - 1)] += row.mutations
    return summed


def noting(table: str) -> str:
    """Return the predicate of runs that noted something of a table. table: as ``database.table``."""
    quoted = re.sub(r"([\\%_])", r"\\\1", json.dumps(table, ensure_ascii=False))
    return f"tables LIKE {literal(f'%{quoted}%')}"


def of_table(metadata: Metadata, table: str, *, since_us: int) -> list[TableChanges]:
    """Return what batches recorded since a time did to a table, the newest first."""
    where = f"kind = 'sync' AND ended_us >= {since_us} AND {noting(table)}"
    changes = [
        TableChanges(row.batch or 0, row.ended_us, did, row.seconds)
        for row in RunRow.read(metadata, "batch", "ended_us", "tables", "phases", where=where)
        for did in row.did
        if did.table == table
    ]
    return sorted(changes, key=lambda change: change.batch, reverse=True)


def _verified(row: VerificationRow) -> Verified:
    return Verified(**{key: getattr(row, key) for key in _VERIFIED})


@dataclass(frozen=True)
class VerifiedDay:
    """The results of a day's comparisons of a table with the server.

    day: ISO 8601. equal: whether all found it equal; None where none could compare it. differing: chunks that
    differed, at most. rows, chunks: that were read. seconds: of the runs, in which other tables were compared, too.
    """

    day: str
    equal: bool | None
    differing: int
    rows: int
    chunks: int
    seconds: float


def verified_days(metadata: Metadata, name: TableName, *, since_us: int, zone: tzinfo = UTC) -> list[VerifiedDay]:
    """Return the days on which a table was compared, the oldest first. since_us: none before this time. zone: whose
    days they are."""
    columns = ("at_us", "equal", "differing", "source_rows", "chunks", "looked_rows", "looked_chunks", "seconds")
    rows = VerificationRow.read(metadata, *columns, where=f"{rows_of(name)} AND at_us >= {since_us}")
    by_day: dict[str, list[VerificationRow]] = {}
    for row in sorted(rows, key=lambda row: row.at_us):
        by_day.setdefault(f"{datetime.fromtimestamp(row.at_us / 1e6, zone):%Y-%m-%d}", []).append(row)
    return [_verified_day(day, of_day) for day, of_day in by_day.items()]


def _verified_day(day: str, rows: Sequence[VerificationRow]) -> VerifiedDay:
    results = [row.equal for row in rows if row.equal is not None]
    return VerifiedDay(
        day,
        all(results) if results else None,
        max(row.differing or 0 for row in rows),
        sum((row.source_rows if row.looked_rows is None else row.looked_rows) or 0 for row in rows),
        sum((row.chunks if row.looked_chunks is None else row.looked_chunks) or 0 for row in rows),
        sum(row.seconds for row in rows),
    )


def all_last_verified(metadata: Metadata) -> dict[str, Verified]:
    """Return the newest comparison of each table, by ``database.table``."""
    newest = Newest("at_us", 1, per=("database", "table"))
    rows = VerificationRow.read(metadata, "database", "table", *_VERIFIED, newest=newest)
    return {str(row.name): _verified(row) for row in rows}


_VERIFIED = ("at_us", "batch", "position", "equal", "differing", "source_rows", "lake_rows", "differing_rows")
