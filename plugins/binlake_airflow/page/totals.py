"""Totals of mutations per table and per period of time, counted once and updated with each recorded batch.

A year of hourly runs is about 30 MB of metadata, so they are read once, and then only the new ones.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from binlake.config.units import DAY_US, HOUR_US
from binlake.records.runs import MutationCounts
from binlake.store.metadata import Metadata
from binlake.store.run_rows import RunRow
from binlake_airflow.page.charts import MINUTE_US, Periods
from binlake_airflow.page.remembered import RememberedMetadata

_MINUTES_KEPT, _HOURS_KEPT = 25 * HOUR_US, 32 * DAY_US
"""For how long runs are known by the minute, and by the hour, in microseconds."""
_KINDS = ("inserted", "updated", "deleted")
WAITING = "waiting"
"""The name for a run's time outside its phases: in Airflow mostly the start of tasks."""


@dataclass
class Ran:
    """Sums over the runs that ended in a period: how many, rows by kind, and seconds by phase."""

    runs: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Ran) -> None:
        """Add the counts and seconds of another period's runs."""
        self.runs += other.runs
        self.inserted += other.inserted
        self.updated += other.updated
        self.deleted += other.deleted
        for phase, seconds in other.seconds.items():
            self.seconds[phase] += seconds


class _TableCounts(NamedTuple):
    """The rows of a table that a run inserted, updated and deleted; made for each table of each run."""

    table: str
    inserted: int
    updated: int
    deleted: int


class Totals:
    """Totals of one source, for any thread. Counts of tables are kept by day, and dropped with the days' runs; those of
    all tables by the minute and by the hour."""

    def __init__(self, metadata: RememberedMetadata) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._last: tuple[int, int] | None = None
        self._days: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0, 0, 0])
        )
        self._minutes: defaultdict[int, Ran] = defaultdict(Ran)
        self._hours: defaultdict[int, Ran] = defaultdict(Ran)

    def since(self, since_us: int) -> dict[str, MutationCounts]:
        """Return the totals by ``database.table``, of whole days since a time, as far as runs are known."""
        with self._lock:
            self._catch_up()
            for day in [day for day in self._days if day < since_us // DAY_US]:
                del self._days[day]
            totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
            for tables in self._days.values():
                for table, numbers in tables.items():
                    _add(totals[table], numbers)
        return {table: MutationCounts(*numbers) for table, numbers in totals.items()}

    def by(self, periods: Periods) -> list[Ran]:
        """Return what the runs did that ended in each period. Periods of an hour and more are whole hours of at most
        the last month, shorter ones are whole minutes of the last day."""
        ran = [Ran() for _ in range(periods.count)]
        with self._lock:
            self._catch_up()
            by_hour = periods.width_us % HOUR_US == 0
            known, width = (self._hours, HOUR_US) if by_hour else (self._minutes, MINUTE_US)
            for number, in_period in known.items():
                index = (number * width - periods.since_us) // periods.width_us
                if 0 <= index < periods.count:
                    ran[index].add(in_period)
        return ran

    def _catch_up(self) -> None:
        columns = ("batch", "started_us", "ended_us", "tables", "phases")
        if self._last is not None:
            batch, ended_us = self._last
            rows = RunRow.read(self._metadata, *columns, where=f"kind = 'sync' AND batch >= {batch}")
            if (batch, ended_us) in {(row.batch, row.ended_us) for row in rows}:
                self._count([row for row in rows if (row.batch or 0) > batch])
                return
            self._forget()  # the lake was begun again, or the batch was recorded again
        whole = Metadata(self._metadata.location("").rstrip("/"))  # too much for the cache
        self._count(RunRow.read(whole, *columns, where="kind = 'sync'"))

    def _count(self, rows: Sequence[RunRow]) -> None:
        newest = max((row.ended_us for row in rows), default=0)
        for row in rows:
            tables = [_TableCounts(table["table"], *(table[kind] for kind in _KINDS)) for table in row.noted]
            day = self._days[row.ended_us // DAY_US]
            for table in tables:
                numbers = [table.inserted, table.updated, table.deleted]
                if any(numbers):
                    _add(day[table.table], [*numbers, row.ended_us])
            if row.ended_us > newest - _HOURS_KEPT:
                ran = _ran(row, tables)
                self._hours[row.ended_us // HOUR_US].add(ran)
                if row.ended_us > newest - _MINUTES_KEPT:
                    self._minutes[row.ended_us // MINUTE_US].add(ran)
            self._last = max(self._last or (0, 0), (row.batch or 0, row.ended_us))
        for known, width, kept in ((self._minutes, MINUTE_US, _MINUTES_KEPT), (self._hours, HOUR_US, _HOURS_KEPT)):
            for number in [number for number in known if number * width < newest - kept - width]:
                del known[number]


def _ran(row: RunRow, tables: Sequence[_TableCounts]) -> Ran:
    ran = Ran(
        1,
        inserted=sum(table.inserted for table in tables),
        updated=sum(table.updated for table in tables),
        deleted=sum(table.deleted for table in tables),
    )
    ran.seconds.update(row.seconds)
    took = (row.ended_us - (row.started_us or row.ended_us)) / 1e6
    ran.seconds[WAITING] = max(0.0, took - sum(ran.seconds.values()))
    return ran


def _add(summed: list[int], numbers: list[int]) -> None:
    summed[:] = [*map(sum, zip(summed[:3], numbers[:3], strict=True)), max(summed[3], numbers[3])]
