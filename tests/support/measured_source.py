"""What may be known of a source ten minutes behind: one table differs from the server, one is stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from binlake.records.evidence import Evidence, HealthLimits, LogStanding
from binlake.records.runs import MutationCounts, Verified
from binlake.records.status import SourceStatus, TableStatus
from binlake.records.verified import VerifiedThrough
from binlake.store.run_rows import RunRow

NOW = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
COUNTS = {"shop.a": MutationCounts(5, 2, 1, 9), "shop.b": MutationCounts(10, 0, 0, 9)}


def before(**ago: float) -> int:
    return int((NOW - timedelta(**ago)).timestamp() * 1e6)


def row(table: str, status: str = "following", read_us: int | None = None) -> TableStatus:
    through = None if read_us is None else VerifiedThrough(6, "s/b.000001:4@1", read_us)
    return TableStatus(table, status, verified_through=through)


LAST = RunRow(run="r", kind="sync", outcome="", ended_us=before(minutes=9), phases='{"plan": 0.25, "merge": 3}')
TABLES = (row("shop.a", read_us=before(hours=2)), row("shop.b", read_us=before(hours=3)), row("shop.c", "stopped"))
STATUS = SourceStatus("shop", 7, "s/b.000001:4@1", None, None, TABLES, LAST, carried_us=before(minutes=10))
LOG = LogStanding(before(minutes=5), "b.000001:9", 0, "b.000001", 1, 9, 24.0, None, before(hours=-20))
DIFFERS = Verified(before(minutes=1), 7, None, False, 1, 9, 9, differing_rows=3)
KNOWN = Evidence(STATUS, before(), HealthLimits(), {"shop.b": DIFFERS}, LOG)
