"""The events of a slice one by one, in Python: for the planner, which looks at headers, and for tests."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from binlake.binlog.events import ARTIFICIAL, HEADER, HEADER_SIZE, EventType, FormatDescription, Malformed
from binlake.binlog.transport import Transport
from binlake.errors import CorruptEvent, PositionLost
from binlake.position import Slice


@dataclass(frozen=True)
class Event:
    """One event of the file; ``body`` is without header and checksum."""

    offset: int
    size: int
    kind: int
    timestamp: int
    server_id: int
    flags: int
    body: bytes = field(repr=False)
    description: FormatDescription
    last_in_chunk: bool = False


def walk(transport: Transport, part: Slice, *, headers_only: Callable[[int], bool] | None = None) -> Iterator[Event]:
    """The events of a slice, checksums proved; the first is the file's format description.

    headers_only: for kinds for which it is true the checksum isn't computed and the body is left out.
    Raises CorruptEvent, and PositionLost if the file isn't the one that the slice was planned on.
    """
    description: FormatDescription | None = None
    for chunk in transport.chunks(part):
        data, at, end = memoryview(bytes(chunk)), 0, chunk.size
        while at < end:
            offset = chunk.offset + at
            if end - at < HEADER_SIZE:
                raise corrupt(part.file, offset, "a cut-off header")
            timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(data, at)
            if size < HEADER_SIZE or at + size > end:
                raise corrupt(part.file, offset, f"an event of {size} bytes")
            whole = data[at : at + size]
            if description is None:
                description = describe(bytes(whole), part, offset)
                yield Event(offset, size, kind, timestamp, server_id, flags, b"", description, True)
            else:
                if log_pos and not flags & ARTIFICIAL and log_pos != (offset + size) & 0xFFFFFFFF:
                    raise corrupt(part.file, offset, f"the event says that it ends at {log_pos}")
                skip = headers_only is not None and headers_only(kind)
                last = at + size == end
                if skip:
                    body = b""
                else:
                    stop = size - description.checksum
                    if description.checksum and (
                        stop < HEADER_SIZE or zlib.crc32(whole[:stop]) != int.from_bytes(whole[stop:], "little")
                    ):
                        raise corrupt(part.file, offset, "the checksum is wrong")
                    body = bytes(whole[HEADER_SIZE:stop])
                if kind != EventType.FORMAT_DESCRIPTION:
                    yield Event(offset, size, kind, timestamp, server_id, flags, body, description, last)
            at += size


def describe(event: bytes, part: Slice, offset: int) -> FormatDescription:
    try:
        description = FormatDescription.parse(event)
    except Malformed as error:
        raise corrupt(part.file, offset, f"format description: {error}") from None
    if description.checksum:
        stored = int.from_bytes(event[-4:], "little")
        # The server clears LOG_EVENT_BINLOG_IN_USE_F before it computes the checksum
        proved = event[:17] + bytes([event[17] & 0xFE]) + event[18:-4]
        if stored not in (zlib.crc32(proved), zlib.crc32(event[:-4])):
            raise corrupt(part.file, offset, "the checksum of the format description is wrong")
    if part.created and description.created != part.created:
        raise PositionLost(
            f"{part.file} was made at {description.created}, the one planned on at {part.created}: "
            "its numbering began anew, or it is another server's",
            remedy="run binlake snapshot to begin anew",
        )
    return description


def corrupt(file: str, offset: int, message: str) -> CorruptEvent:
    return CorruptEvent(
        message, file=file, offset=offset, remedy="read it again; if it stays, run binlake snapshot to begin anew"
    )
