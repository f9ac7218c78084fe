"""Plan: freeze the next range of the log. Nothing is read before its plan stands in metadata."""

from __future__ import annotations

from datetime import datetime

from binlake.binlog.boundaries import format_description, transaction_boundaries
from binlake.binlog.transport import ServerTransport
from binlake.errors import PositionLost
from binlake.position import FIRST_OFFSET, Position, Range, Slice, file_number
from binlake.source.server import Source

_RESNAPSHOT = "snapshot all tables again: binlake snapshot --config FILE"


def check_position(source: Source, transport: ServerTransport, position: Position) -> None:
    """This server must still hold the log from ``position`` on; raises PositionLost."""
    if source.server_identity != position.server:
        raise PositionLost(
            f"the server is {source.server_identity}, the lake follows {position.server}",
            remedy=f"point the connection at the server the lake follows, or {_RESNAPSHOT}",
        )
    sizes = dict(source.binary_logs())
    if position.file not in sizes:
        raise PositionLost(
            f"the server purged {position.file}; the lake stands at {position.short}",
            remedy=f"{_RESNAPSHOT}; and keep logs longer (binlog_expire_logs_seconds)",
        )
    if position.offset > sizes[position.file]:
        raise PositionLost(
            f"{position.short} lies past the end of the file ({sizes[position.file]} bytes): the log was reset or lost",
            remedy=_RESNAPSHOT,
        )
    created = format_description(transport, position.file)
    if created != position.created:
        raise PositionLost(
            f"{position.file} isn't the file the lake has read: its numbering was restarted",
            remedy=_RESNAPSHOT,
        )


def _slices(source: Source, transport: ServerTransport, start: Position, stop: tuple[str, int]) -> tuple[Slice, ...]:
    first, last = file_number(start.file), file_number(stop[0])
    parts: list[Slice] = []
    for file, size in source.binary_logs():
        number = file_number(file)
        if not first <= number <= last:
            continue
        begin = start.offset if number == first else FIRST_OFFSET
        end = stop[1] if number == last else size
        created = start.created if number == first else format_description(transport, file)
        parts.append(Slice(file, begin, end, created, whole=number != last))
    if [file_number(part.file) for part in parts] != list(range(first, last + 1)):
        raise PositionLost(f"files between {start.file} and {stop[0]} are gone", remedy=_RESNAPSHOT)
    return tuple(parts)


def next_range(
    source: Source,
    transport: ServerTransport,
    start: Position,
    until: datetime | None = None,
    stop_at: Position | None = None,
) -> Range:
    """The range from ``start`` to the server's head, to the last commit before ``until``, or to ``stop_at``.

    With ``until`` the stop lies before the first transaction, in the order of the log, that committed at or after it;
    stragglers with earlier clocks belong to the next interval.
    """
    check_position(source, transport, start)
    if stop_at is not None:
        file, offset, gtid_set = stop_at.file, stop_at.offset, stop_at.gtid_set
    else:
        file, offset, gtid_set = source.head()
    slices = _slices(source, transport, start, (file, offset))
    stop = Position(start.server, file, offset, slices[-1].created, gtid_set)
    full = Range(start, stop, slices)
    if until is None or full.empty or until.timestamp() * 1e6 > source.now():
        return full
    return _cut(transport, full, int(until.timestamp() * 1_000_000))


def _cut(transport: ServerTransport, full: Range, until_us: int) -> Range:
    """The part of a range before the first transaction that committed at or after ``until_us``."""
    for index, part in enumerate(full.slices):
        for boundary in transaction_boundaries(transport, part):
            if boundary.committed_us >= until_us:
                stop = Position(full.start.server, part.file, boundary.start_offset, part.created)
                last = Slice(part.file, part.start, boundary.start_offset, part.created, whole=False)
                return Range(full.start, stop, (*full.slices[:index], last))
    return full
