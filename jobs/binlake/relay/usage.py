"""The relay's knowledge at a moment, without values of rows: above all how many mutations the recorded batches had in
each table, in total and in the last day and hour. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from binlake.config.units import DAY_US, HOUR_US
from binlake.schema.table import TableName, TableSchema

_STRETCH_US = HOUR_US // 12
"""Length of the stretches of time in which mutations are counted together."""


class UsageCounts(NamedTuple):
    """Numbers of rows inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def plus(self, other: UsageCounts) -> UsageCounts:
        """Return the sums of both."""
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


@dataclass(frozen=True)
class TableOutline:
    """A table's newest shape. columns: each as name and type."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class RelayStatus:
    """began_us, at_us: when the relay began, and now, in µs since 1970 UTC.

    newest_batch, position, gtid_set: the newest recorded batch, and where it ends. oldest_batch: the first that can be
    read. needed_batch: the first whose staging a client still needs. clients: see core.summary. tables: mutations since
    the relay began.
    """

    source: str
    began_us: int
    at_us: int
    newest_batch: int
    position: str
    gtid_set: str
    oldest_batch: int
    needed_batch: int
    clients: tuple[dict[str, Any], ...]
    tables: tuple[TableUsage, ...]
    schemas: tuple[TableOutline, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the status as a dict that JSON can hold, with each table's counts by span of time."""
        tables = [
            {"table": usage.table, **{when: getattr(usage, when)._asdict() for when in ("total", "day", "hour")}}
            for usage in self.tables
        ]
        return {**asdict(self), "tables": tables}


def outlines(schemas: Mapping[TableName, TableSchema]) -> tuple[TableOutline, ...]:
    """Return the outline of each table, by name."""
    return tuple(
        TableOutline(str(name), tuple(f"{column.name} {column.declared}" for column in schema.mirrored), schema.key)
        for name, schema in sorted(schemas.items())
    )
