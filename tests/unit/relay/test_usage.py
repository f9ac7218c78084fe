"""Use of tables: what is counted in total, in the last day and in the last hour."""

from __future__ import annotations

from binlake.config.units import HOUR_US
from binlake.relay.usage import TableUsage, UsageCounter, UsageCounts

MINUTE_US = HOUR_US // 60


def test_counts_by_time() -> None:
    counter, begun = UsageCounter(), 1_800_000_000_000_000
    for minute in range(0, 26 * 60, 10):
        counter.add(begun + minute * MINUTE_US, {"a.b": UsageCounts(1, 2, 0), "a.c": UsageCounts()})
    counter.add(begun + 26 * HOUR_US, {"a.d": UsageCounts(0, 0, 5)})
    known, late = counter.tables(begun + 26 * HOUR_US)
    assert known == TableUsage("a.b", UsageCounts(156, 312, 0), UsageCounts(144, 288, 0), UsageCounts(6, 12, 0))
    assert late == TableUsage("a.d", *(UsageCounts(0, 0, 5),) * 3)
    assert counter.tables(begun + 60 * HOUR_US)[0] == TableUsage(
        "a.b", UsageCounts(156, 312, 0), UsageCounts(), UsageCounts()
    )
    assert max(len(counted.stretches) for counted in counter._tables.values()) <= 145
