"""The process that follows a source's log: one at a time, with signs of life that tell how far behind it is.

Its row decides only who works and who stands by: a batch is carried under the source's lease, which is given back after
each. So a follower that wakes up late and finds its row taken does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from binlake.errors import LeaseHeld
from binlake.metadata.held_row import HeldRow, SharedRow
from binlake.metadata.holder import BY_TURNS, SILENCE, Watch, died
from binlake.metadata.metadata import Metadata, now_us

TABLE = "followers"


@dataclass(frozen=True)
class FollowerStatus:
    """The newest sign of life of the process that follows.

    since_us: when it began. at_us: when it gave the sign. behind_seconds: how far the lake was behind then; None where
    it has carried nothing yet. waits_for: why it carries nothing; empty while it does. is_silent: no sign came for so
    long that another process would take over.
    """

    holder: str
    since_us: int
    at_us: int
    every_seconds: float
    batch: int | None
    behind_seconds: float | None
    waits_for: str
    is_silent: bool


class Follower(HeldRow):
    """The row of this source's follower, held by this process; the thread that renews it gives the signs of life."""

    def __init__(self, metadata: Metadata, every: float) -> None:
        row = SharedRow(metadata, TABLE, None, "the follower of this source")
        super().__init__(row, self.new_token(prefix=BY_TURNS))
        self._every_ms = round(every * 1000)
        self._seen: dict[str, str | int | None] = {}

    def begin(self, watch: Watch) -> None:
        """Take the row. Raises LeaseHeld, naming the process that follows."""
        now = now_us()
        signs = {"since_us": now, "at_us": now, "every_ms": self._every_ms}
        self.take(watch, {**signs, "carried_us": None, "batch": None, "waits_for": None})

    def carried(self, us: int, batch: int | None) -> None:
        """Remember, for the next sign of life, that what was committed before a time is in the lake."""
        self._seen = {"carried_us": us, "batch": batch, "waits_for": None}

    def looks_every(self, seconds: float) -> None:
        """Remember, for the next sign of life, how often the log is looked at."""
        self._every_ms = round(seconds * 1000)

    def waits(self, reason: str) -> None:
        """Remember, for the next sign of life, why nothing is carried."""
        self._seen = {**self._seen, "waits_for": reason}

    def update(self, **changes: str | int | None) -> None:
        super().update(**changes, **self._seen, every_ms=self._every_ms, at_us=now_us())

    def check(self) -> None:
        """Raise LeaseHeld when another process took the row over."""
        row = self._row.read()
        if row.get("token") != self._token:
            raise LeaseHeld(
                f"{row.get('holder') or 'another process'} follows this source by now",
                remedy="nothing: this one stands by",
            )

    def _refused(self, row: Mapping[str, Any]) -> LeaseHeld:
        return LeaseHeld(f"{row['holder']} follows this source", remedy="nothing: this one stands by")


def prepare(metadata: Metadata) -> None:
    """Make the row that a follower takes, where there is none yet."""
    if not metadata.read(TABLE, ["token"]):
        metadata.create_with(TABLE, [{"expires_us": 0}])


def read_status(metadata: Metadata) -> FollowerStatus | None:
    """Return the newest sign of life of the process that follows; None where none does."""
    row = next(iter(metadata.read(TABLE)), None)
    if row is None or not row["token"] or died(row["holder"], row["token"]):
        return None
    carried_us = row["carried_us"]
    return FollowerStatus(
        holder=row["holder"],
        since_us=row["since_us"],
        at_us=row["at_us"],
        every_seconds=row["every_ms"] / 1000,
        batch=row["batch"],
        behind_seconds=None if carried_us is None else max(0.0, (row["at_us"] - carried_us) / 1e6),
        waits_for=row["waits_for"] or "",
        is_silent=now_us() - row["at_us"] > SILENCE * 1_000_000,
    )
