"""How much happens in each table: mutations of recorded batches, in total and in the last day and hour. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from binlake.config.units import DAY_US, HOUR_US

_STRETCH_US = HOUR_US // 12
"""Length of the stretches of time in which mutations are counted together."""


class UsageCounts(NamedTuple):
    """Numbers of rows inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def plus(self, other: UsageCounts) -> UsageCounts:
        return UsageCounts(*(here + there for here, there in zip(self, other, strict=True)))


_NONE = UsageCounts()


@dataclass(frozen=True)
class TableUsage:
    """Mutations of one table. total: since the relay began. day, hour: in the last 24 hours and the last hour of it."""

    table: str
    total: UsageCounts
    day: UsageCounts
    hour: UsageCounts


@dataclass
class _Counted:
    """total: of all. stretches: the newest of them, each with its number."""

    total: UsageCounts = _NONE
    stretches: deque[tuple[int, UsageCounts]] = field(default_factory=deque)

    def since(self, us: int) -> UsageCounts:
        counts = _NONE
        for number, part in self.stretches:
            if (number + 1) * _STRETCH_US > us:
                counts = counts.plus(part)
        return counts


class UsageCounter:
    """UsageCounts mutations by table and time."""

    def __init__(self) -> None:
        self._tables: dict[str, _Counted] = {}

    def add(self, at_us: int, tables: Mapping[str, UsageCounts]) -> None:
        """Count the mutations of a batch that was recorded at a time. Batches come in order."""
        number = at_us // _STRETCH_US
        for table, counts in tables.items():
            if not any(counts):
                continue
            counted = self._tables.setdefault(table, _Counted())
            counted.total = counted.total.plus(counts)
            if counted.stretches and counted.stretches[-1][0] == number:
                counts = counted.stretches.pop()[1].plus(counts)
            counted.stretches.append((number, counts))
            while (counted.stretches[0][0] + 1) * _STRETCH_US <= at_us - DAY_US:
                counted.stretches.popleft()

    def tables(self, now_us: int) -> tuple[TableUsage, ...]:
        """Return the usage of each table of which anything was counted, by name."""
        return tuple(
            TableUsage(name, counted.total, counted.since(now_us - DAY_US), counted.since(now_us - HOUR_US))
            for name, counted in sorted(self._tables.items())
        )
