"""The batch that merged the transactions committed before some time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from binlake.position import Position
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow
from binlake.store.run_rows import RunRow


@dataclass(frozen=True)
class MergedBy:
    """The batch that merged a commit. batch: None where a snapshot had it already. stop: the batch's."""

    batch: int | None
    stop: Position | None

    @property
    def text(self) -> str:
        """Return it as the end of a sentence for messages."""
        if self.stop is None:
            return "it is in the snapshot"
        return f"it was merged by batch {self.batch}, whose stop is {self.stop.short}"


def merged_by(metadata: Metadata, until: datetime) -> MergedBy | None:
    """Return the first batch, among those that metadata still has, after which the lake had every commit before
    ``until``.

    A batch up to the log's head had what was committed before it was planned, by this machine's clock.
    """
    until_us = int(until.timestamp() * 1_000_000)
    there = f"state = 'recorded' AND coalesce(until_us, planned_us) >= {until_us}"
    rows = BatchRow.read(metadata, "batch", "stop", "gtid_set", "until_us", where=there)
    first = min(rows, key=lambda row: row.batch, default=None)
    bootstraps = RunRow.read(metadata, "started_us", where="kind = 'bootstrap'")
    before_all = bootstraps and until_us <= min(row.started_us for row in bootstraps)
    if before_all and (first is None or first.until_us != until_us):
        return MergedBy(None, None)
    return MergedBy(first.batch, first.end) if first else None
