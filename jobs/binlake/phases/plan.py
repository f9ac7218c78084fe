"""Plan: freeze the next range of the log. Nothing is read before its plan stands in metadata."""

from __future__ import annotations

from datetime import datetime

from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.locate import between
from binlake.binlog.transport import Transport
from binlake.position import Position, Range, Slice
from binlake.source.lineage import check_position, range_elsewhere
from binlake.source.log import Log


def next_range(
    log: Log,
    transport: Transport,
    start: Position,
    until: datetime | None = None,
    stop_at: Position | None = None,
) -> Range:
    """The range from ``start`` to the log's head, to the last commit before ``until``, or to ``stop_at``.

    On another server of the same lineage it begins at a position there (see lineage). With ``until`` the stop lies
    before the first transaction, in the order of the log, that committed at or after it; stragglers with earlier
    clocks belong to the next interval.
    """
    stop = (stop_at.file, stop_at.offset, stop_at.gtid_set) if stop_at else log.head()
    full = (
        _here(log, transport, start, stop) if log.is_of(start.server) else range_elsewhere(log, transport, start, stop)
    )
    if until is None or full.empty or until.timestamp() * 1e6 > log.now():
        return full
    return _cut(transport, full, int(until.timestamp() * 1_000_000))


def _here(log: Log, transport: Transport, start: Position, stop: tuple[str, int, str]) -> Range:
    """The log of the server that the lake follows."""
    check_position(log, transport, start)
    file, offset, gtid_set = stop
    slices = between(transport, log.binary_logs(), (start.file, start.offset), (file, offset))
    return Range(start, Position(start.server, file, offset, slices[-1].created, gtid_set), slices)


def _cut(transport: Transport, full: Range, until_us: int) -> Range:
    """The part of a range before the first transaction that committed at or after ``until_us``."""
    for index, part in enumerate(full.slices):
        for boundary in transaction_boundaries(transport, part):
            if boundary.committed_us >= until_us:
                stop = Position(full.start.server, part.file, boundary.start_offset, part.created)
                last = Slice(part.file, part.start, boundary.start_offset, part.created, whole=False)
                return Range(full.start, stop, (*full.slices[:index], last))
    return full
