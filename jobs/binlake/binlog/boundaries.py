"""Where transactions begin and end, by headers: what the planner asks of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from binlake.binlog import events
from binlake.binlog.events import EventType, Malformed
from binlake.binlog.transport import Transport
from binlake.binlog.walk import walk
from binlake.errors import CorruptEvent
from binlake.position import FIRST_OFFSET, Slice

_BODIES = {
    EventType.GTID,
    EventType.ANONYMOUS_GTID,
    EventType.GTID_TAGGED,
    EventType.MARIADB_GTID,
}
_NOT_OF_A_TRANSACTION = {
    EventType.PREVIOUS_GTIDS,
    EventType.MARIADB_GTID_LIST,
    EventType.BINLOG_CHECKPOINT,
    EventType.ROTATE,
    EventType.STOP,
    EventType.FORMAT_DESCRIPTION,
    EventType.START_ENCRYPTION,
    EventType.HEARTBEAT,
    EventType.HEARTBEAT_V2,
    EventType.INCIDENT,
}


@dataclass(frozen=True)
class Boundary:
    """One transaction: [start_offset, end_offset) of its file, from its GTID event to the end of its last one.

    committed_us: microseconds since 1970 UTC (MariaDB: whole seconds). gtid: None for anonymous ones.
    """

    start_offset: int
    end_offset: int
    committed_us: int
    gtid: str | None


def format_description(transport: Transport, file: str) -> int:
    """Timestamp (seconds) of the file's format description event. Raises SourceError and BinlogError."""
    part = Slice(file, FIRST_OFFSET, FIRST_OFFSET, 0, False)
    for event in walk(transport, part):
        return event.description.created
    raise CorruptEvent("the file is empty", file=file, offset=FIRST_OFFSET, remedy="check the file")


def transaction_boundaries(transport: Transport, part: Slice) -> Iterator[Boundary]:
    """The transactions of a slice in the order of the log; rows aren't looked at. Raises as ``read``."""
    opened: events.Transaction | None = None
    end = part.start
    for event in walk(transport, part, headers_only=lambda kind: kind not in _BODIES):
        if event.kind in _BODIES:
            if opened:
                yield Boundary(opened.offset, end, opened.committed_us, opened.gtid)
            try:
                opened = _transaction(event.kind, event.body, event.timestamp, event.server_id, event.offset)
            except Malformed as error:
                raise CorruptEvent(str(error), file=part.file, offset=event.offset) from None
        if event.kind not in _NOT_OF_A_TRANSACTION:
            end = event.offset + event.size
    if opened:
        yield Boundary(opened.offset, end, opened.committed_us, opened.gtid)


def _transaction(kind: int, body: bytes, timestamp: int, server_id: int, offset: int) -> events.Transaction:
    if kind == EventType.GTID_TAGGED:
        return events.tagged_transaction(body, timestamp=timestamp, offset=offset)
    if kind == EventType.MARIADB_GTID:
        return events.mariadb_transaction(body, timestamp=timestamp, server_id=server_id, offset=offset)
    return events.gtid_transaction(body, kind=kind, timestamp=timestamp, offset=offset)
