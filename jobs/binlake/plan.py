"""Plan: freeze the next range of the log. Nothing is read before its plan stands in metadata."""

from __future__ import annotations

from datetime import datetime

from binlake.binlog.boundaries import format_description, transaction_boundaries
from binlake.binlog.locate import RESNAPSHOT, between
from binlake.binlog.transport import Transport
from binlake.errors import PositionLost
from binlake.position import Position, Range, Slice
from binlake.source.log import Log


def check_position(log: Log, transport: Transport, position: Position) -> None:
    """The source must still hold the log from ``position`` on; raises PositionLost."""
    if not log.is_of(position.server):
        raise PositionLost(
            f"the server is {log.server_identity}, the lake follows {position.server}",
            remedy=f"point the connection at the server the lake follows, or {RESNAPSHOT}",
        )
    sizes = dict(log.binary_logs())
    if position.file not in sizes:
        raise PositionLost(
            f"{position.file} is purged or missing; the lake stands at {position.short}",
            remedy=f"{RESNAPSHOT}; and keep logs longer (binlog_expire_logs_seconds)",
        )
    if position.offset > sizes[position.file]:
        raise PositionLost(
            f"{position.short} lies past the end of the file ({sizes[position.file]} bytes): the log was reset or lost",
            remedy=RESNAPSHOT,
        )
    created = format_description(transport, position.file)
    if created != position.created:
        raise PositionLost(
            f"{position.file} isn't the file the lake has read: its numbering was restarted",
            remedy=RESNAPSHOT,
        )


def next_range(
    log: Log,
    transport: Transport,
    start: Position,
    until: datetime | None = None,
    stop_at: Position | None = None,
) -> Range:
    """The range from ``start`` to the log's head, to the last commit before ``until``, or to ``stop_at``.

    With ``until`` the stop lies before the first transaction, in the order of the log, that committed at or after it;
    stragglers with earlier clocks belong to the next interval.
    """
    check_position(log, transport, start)
    if stop_at is not None:
        file, offset, gtid_set = stop_at.file, stop_at.offset, stop_at.gtid_set
    else:
        file, offset, gtid_set = log.head()
    slices = between(transport, log.binary_logs(), (start.file, start.offset), (file, offset))
    stop = Position(start.server, file, offset, slices[-1].created, gtid_set)
    full = Range(start, stop, slices)
    if until is None or full.empty or until.timestamp() * 1e6 > log.now():
        return full
    return _cut(transport, full, int(until.timestamp() * 1_000_000))


def _cut(transport: Transport, full: Range, until_us: int) -> Range:
    """The part of a range before the first transaction that committed at or after ``until_us``."""
    for index, part in enumerate(full.slices):
        for boundary in transaction_boundaries(transport, part):
            if boundary.committed_us >= until_us:
                stop = Position(full.start.server, part.file, boundary.start_offset, part.created)
                last = Slice(part.file, part.start, boundary.start_offset, part.created, whole=False)
                return Range(full.start, stop, (*full.slices[:index], last))
    return full
