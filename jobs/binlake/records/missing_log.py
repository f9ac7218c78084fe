"""Times at which a server was seen to write no log, or one that lacks changes.

The transactions that it executed around then are in no log, and once it writes all again, no GTID, offset or file name
shows the gap. So a process that sees such a server notes it in metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from binlake.delta import opened_tables
from binlake.errors import BinlakeError, NoBinlog
from binlake.schema.log_gaps import LogGap
from binlake.serialization import dumps, loads
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import UnloggedRow

_NOTED_EACH_US = 60 * 1_000_000
"""Microseconds for which a gap that persists isn't noted again."""


@dataclass(frozen=True)
class NotedGap:
    """A gap of a server's log. at_us: when it was seen last. has_ended: a batch was planned without it since."""

    gap: LogGap
    at_us: int
    has_ended: bool


def note(metadata: Metadata, seen: NoBinlog) -> None:
    """Note that a server writes no log. It raises nothing, and writes nothing where no lake was begun."""
    with suppress(BinlakeError):
        if opened_tables.is_table(metadata.location("lease")):
            UnloggedRow.append(metadata, [UnloggedRow(server=seen.server, at_us=seen.at_us)])


def noted(metadata: Metadata, server: str) -> list[UnloggedRow]:
    """Return the rows about what a server didn't log."""
    return UnloggedRow.read(metadata, where=f"server = {literal(server)}")


def newest_without_log(rows: Sequence[UnloggedRow], since_us: int) -> int | None:
    """Return when a server was last seen without a log, in microseconds by its clock; None if never since a time, or
    where all tables were snapshotted after that."""
    seen = (row.at_us for row in rows if row.gap is None and row.ended_us is None)
    return max((at_us for at_us in seen if at_us >= since_us), default=None)


def last_seen(metadata: Metadata, server: str, since_us: int) -> int | None:
    """Return ``newest_without_log`` of a server, by what is noted."""
    return newest_without_log(noted(metadata, server), since_us)


def end_without_log(metadata: Metadata, server: str, until_us: int) -> None:
    """Note that the log is followed from behind the times at which a server was seen without one. Raises LakeError.

    A file of the log is known by the second in which it began, and the server may have been seen in the same one.
    until_us: the last of these times, by the server's clock.
    """
    rows = [row for row in noted(metadata, server) if row.gap is None and row.at_us <= until_us]
    if any(row.ended_us is None for row in rows):
        ended = [replace(row, ended_us=row.ended_us or now_us()) for row in rows]
        where = f"server = {literal(server)} AND gap IS NULL AND at_us <= {until_us}"  # the new rows meet it, too
        UnloggedRow.replace(metadata, where, ended)


def note_gap(metadata: Metadata, server: str, gap: LogGap) -> None:
    """Note that a server's log lacks changes now. It writes nothing where no lake was begun. Raises LakeError."""
    if not opened_tables.is_table(metadata.location("lease")):
        return
    rows = [row for row in noted(metadata, server) if row.gap == dumps(gap)]
    if any(row.ended_us is None and row.at_us > now_us() - _NOTED_EACH_US for row in rows):
        return
    row = UnloggedRow(server=server, at_us=now_us(), gap=dumps(gap))
    if rows:
        UnloggedRow.replace(metadata, f"server = {literal(server)} AND gap = {literal(dumps(gap))}", [row])
    else:
        UnloggedRow.append(metadata, [row])  # an older binlake's table gets its columns


def gaps_noted(metadata: Metadata, server: str) -> list[NotedGap]:
    """Return the gaps that were noted of a server's log."""
    rows = noted(metadata, server)
    return [NotedGap(loads(LogGap, row.gap), row.at_us, row.ended_us is not None) for row in rows if row.gap]


def end_gap(metadata: Metadata, server: str, ended: NotedGap) -> None:
    """Note that a server's log was seen without a gap. Raises LakeError."""
    row = UnloggedRow(server=server, at_us=ended.at_us, gap=dumps(ended.gap), ended_us=now_us())
    UnloggedRow.replace(metadata, f"server = {literal(server)} AND gap = {literal(dumps(ended.gap))}", [row])
