"""Checks of a file: its format description, the checksums of events, whose GTIDs they have, and how the file ends."""

from __future__ import annotations

import zlib

from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, FormatDescription
from binlake.binlog.transport import LogChunk, Transport
from binlake.errors import CorruptEvent, Malformed, PositionLost
from binlake.position import FIRST_OFFSET, Slice

_OF_MARIADB = frozenset({EventType.MARIADB_GTID})
_OF_MYSQL = frozenset({EventType.GTID, EventType.GTID_TAGGED})
_LONGEST_ROTATE = HEADER_SIZE + 8 + 512 + 4
"""Bytes of a ROTATE event: the offset in the next file, its name (FN_REFLEN in the servers), and a checksum."""


def format_description(transport: Transport, file: str) -> int:
    """Return the timestamp (seconds) of the file's format description event. Raises SourceError and BinlogError."""
    return describe_file(transport, file).created


def describe_file(transport: Transport, file: str) -> FormatDescription:
    """Return the file's format description. Raises SourceError and BinlogError."""
    part = Slice(file, FIRST_OFFSET, FIRST_OFFSET, 0, False)
    for chunk in transport.chunks(part):
        return describe(bytes(chunk), part, chunk.offset)
    raise CorruptEvent("the file is empty", file=file, offset=FIRST_OFFSET, remedy="check the file")


def describe(event: bytes, part: Slice, offset: int) -> FormatDescription:
    """Parse a file's format description, and check it against its checksum and the slice's file.

    Raises CorruptEvent, PositionLost.
    """
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
            "its numbering began again, or it is another server's",
            remedy="run binlake snapshot to begin again",
        )
    return description


def corrupt(file: str, offset: int, message: str) -> CorruptEvent:
    """Return the error of a damaged event. offset: bytes from the file's start."""
    return CorruptEvent(
        message, file=file, offset=offset, remedy="read it again; if it stays, run binlake snapshot to begin again"
    )


def proved(event: bytes, description: FormatDescription, file: str, offset: int) -> bytes:
    """Verify an event's checksum. Returns its body without header and checksum. Raises CorruptEvent."""
    stop = len(event) - description.checksum
    if stop < HEADER_SIZE:
        raise corrupt(file, offset, f"an event of {len(event)} bytes")
    if description.checksum and zlib.crc32(event[:stop]) != int.from_bytes(event[stop:], "little"):
        raise corrupt(file, offset, "the checksum is wrong")
    return event[HEADER_SIZE:stop]


def foreign_gtids(chunk: LogChunk, *, mariadb: bool) -> list[int]:
    """Return the offsets in the file of a chunk's GTID events as the other kind of server writes them.

    mariadb: whether the file is one of MariaDB's.
    """
    kinds = _OF_MYSQL if mariadb else _OF_MARIADB
    places, at = [], 0
    while at < chunk.size:
        _, kind, _, size, _, _ = HEADER.unpack(chunk.data[at : at + HEADER_SIZE].tobytes())
        places += [chunk.offset + at] if kind in kinds else []
        at += size
    return places


def ends_file(chunk: LogChunk) -> bool:
    """Return whether a chunk's last event is one with which a server closes a file: STOP, or ROTATE to the next."""
    tail = chunk.data[max(0, chunk.size - _LONGEST_ROTATE) : chunk.size].tobytes()
    for start in range(len(tail) - HEADER_SIZE + 1):
        _, kind, _, size, _, _ = HEADER.unpack_from(tail, start)
        if kind in (EventType.STOP, EventType.ROTATE) and start + size == len(tail):
            return True
    return False
