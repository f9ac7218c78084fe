"""Totals of mutations per table, counted once and updated with each recorded batch.

A year of hourly runs is about 30 MB of metadata, so they are read once, and then only the new ones.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any

from binlake.metadata.metadata import Metadata
from binlake.metadata.runs import MutationCounts
from binlake_airflow.page.remembered import RememberedMetadata

_DAY = 86_400_000_000


class Totals:
    """Totals of one source, for any thread. Counts are kept by day, and dropped with the days' runs."""

    def __init__(self, metadata: RememberedMetadata) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._last: tuple[int, int] | None = None
        self._days: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0, 0, 0])
        )

    def since(self, since_us: int) -> dict[str, MutationCounts]:
        """Return the totals by ``database.table``, of whole days since a time, as far as runs are known."""
        with self._lock:
            self._catch_up()
            for day in [day for day in self._days if day < since_us // _DAY]:
                del self._days[day]
            totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
            for tables in self._days.values():
                for table, numbers in tables.items():
                    _add(totals[table], numbers)
        return {table: MutationCounts(*numbers) for table, numbers in totals.items()}

    def _catch_up(self) -> None:
        columns = ["batch", "ended_us", "tables"]
        if self._last is not None:
            batch, ended_us = self._last
            rows = self._metadata.read("runs", columns, where=f"kind = 'sync' AND batch >= {batch}")
            if (batch, ended_us) in {(row["batch"], row["ended_us"]) for row in rows}:
                self._count([row for row in rows if row["batch"] > batch])
                return
            self._forget()  # the lake was begun anew, or the batch was recorded again
        whole = Metadata(self._metadata.location("").rstrip("/"))  # too much for the cache
        self._count(whole.read("runs", columns, where="kind = 'sync'"))

    def _count(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            day = self._days[row["ended_us"] // _DAY]
            for table in json.loads(row["tables"]):
                numbers = [table["inserted"], table["updated"], table["deleted"]]
                if any(numbers):
                    _add(day[table["table"]], [*numbers, row["ended_us"]])
            self._last = max(self._last or (0, 0), (row["batch"], row["ended_us"]))


def _add(summed: list[int], numbers: list[int]) -> None:
    summed[:] = [*map(sum, zip(summed[:3], numbers[:3], strict=True)), max(summed[3], numbers[3])]
