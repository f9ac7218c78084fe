"""The process that follows a source's log: one at a time, with signs of life that show how far behind it is.

Its row decides only which process works and which waits on standby: a batch is carried under the source's lease, which
is released after each. So a follower that wakes up late and finds its row taken does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from binlake.errors import LakeError, LeaseHeld
from binlake.lease.held_row import HeldRow, SharedRow
from binlake.lease.holder import BY_TURNS, SILENCE, Watch, died
from binlake.store import folder_errors
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import FollowerRow, FollowerStopRow

StopKind = Literal["dead", "silent", "paused", "ended", "failed"]
"""How a process that followed ended before its time. dead: it is gone, and didn't end by itself. silent: it gave no
sign of life. paused: its DAG was. ended: it was asked to. failed: by an error."""


@dataclass(frozen=True)
class FollowerStatus:
    """The newest sign of life of the process that follows.

    since_us: when it began. at_us: when it gave the sign. behind_seconds: how far the lake was behind then; None where
    it has carried nothing yet. waits_for: why it carries nothing; empty while it does. is_silent: no sign came for so
    long that another process would take over. cannot_write: why a process that may be alive can give no sign; empty
    where nothing keeps it from that. is_dead: it was a process of this machine that is gone, and didn't end by itself.
    """

    holder: str
    since_us: int
    at_us: int
    every_seconds: float
    batch: int | None
    behind_seconds: float | None
    waits_for: str
    is_silent: bool
    cannot_write: str = ""
    is_dead: bool = False


class Follower(HeldRow[FollowerRow]):
    """The row of this source's follower, held by this process; the thread that renews it gives the signs of life."""

    def __init__(self, metadata: Metadata, every: float) -> None:
        row = SharedRow(metadata, FollowerRow, None, "the follower of this source")
        super().__init__(row, self.new_token(prefix=BY_TURNS))
        self._every_ms = round(every * 1000)
        self._seen: dict[str, str | int | None] = {}

    def begin(self, watch: Watch) -> None:
        """Take the row. Raises LeaseHeld, naming the process that follows."""
        now, before = now_us(), self._row.read()
        signs = {"since_us": now, "at_us": now, "every_ms": self._every_ms}
        self.take(watch, {**signs, "carried_us": None, "batch": None, "waits_for": None})
        if before and before.token and before.holder:
            self._note(before, "dead" if died(before.holder, before.token) else "silent", before.at_us)

    def note_stop(self, how: StopKind, message: str = "") -> None:
        """Note that this process ends before its time. message: of the error that ends it."""
        row = self._row.read()
        if row is not None and row.token == self._token:
            self._note(row, how, now_us(), message)

    def _note(self, row: FollowerRow, how: StopKind, at_us: int, message: str = "") -> None:
        """Note how a process ended; nothing where it can't be written, which must not end this one."""
        stop = FollowerStopRow(
            at_us=at_us, holder=row.holder or "", since_us=row.since_us, how=how, batch=row.batch, message=message
        )
        with suppress(LakeError):
            FollowerStopRow.append(self._row.metadata, [stop])

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
        """Write columns of the row together with the newest sign of life."""
        super().update(**changes, **self._seen, every_ms=self._every_ms, at_us=now_us())

    def check(self) -> None:
        """Raise LeaseHeld when another process took the row over."""
        row = self._row.read()
        if row is None or row.token != self._token:
            raise LeaseHeld(
                f"{(row and row.holder) or 'another process'} follows this source by now",
                remedy="nothing to do: this process waits to take over",
            )

    def _refused(self, row: FollowerRow) -> LeaseHeld:
        return LeaseHeld(f"{row.holder} follows this source", remedy="nothing to do: this process waits to take over")


def prepare(metadata: Metadata) -> None:
    """Make the row that a follower takes, where there is none yet."""
    if not FollowerRow.read(metadata, "token"):
        FollowerRow.create(metadata, [FollowerRow()])


def read_status(metadata: Metadata) -> FollowerStatus | None:
    """Return the newest sign of life of the process that follows; None where none does, or it ended by itself."""
    row = FollowerRow.first(metadata)
    if row is None or not row.token or not row.holder:
        return None
    is_dead = died(row.holder, row.token)
    carried_us = row.carried_us
    is_silent = is_dead or now_us() - row.at_us > SILENCE * 1_000_000
    return FollowerStatus(
        holder=row.holder,
        since_us=row.since_us,
        at_us=row.at_us,
        every_seconds=row.every_ms / 1000,
        batch=row.batch,
        behind_seconds=None if carried_us is None else max(0.0, (row.at_us - carried_us) / 1e6),
        waits_for=row.waits_for,
        is_silent=is_silent,
        cannot_write=_why_unwritable(metadata) if is_silent and not is_dead else "",
        is_dead=is_dead,
    )


def _why_unwritable(metadata: Metadata) -> str:
    """Return why nobody can write the table of followers now, as on a full disk; empty where that isn't so."""
    try:
        folder_errors.refuse_unwritable(metadata.location(FollowerRow.TABLE))
    except LakeError as error:
        return error.message
    return ""
