"""Compiled code that finds where events begin and end, in a file's bytes and in the packets of a connection."""

from __future__ import annotations

from typing import Any

import numpy as np

from binlake.binlog.events import ARTIFICIAL, HEADER_SIZE, EventType
from binlake.kernels.layouts import BEYOND, MORE, OTHER, ROOM
from binlake.kernels.native import copy, kernel, load8, load16, load32

_LONGEST_PACKET = 0xFFFFFF
_ARTIFICIAL = int(ARTIFICIAL)
_FORMAT, _BEAT, _BEAT_2 = int(EventType.FORMAT_DESCRIPTION), int(EventType.HEARTBEAT), int(EventType.HEARTBEAT_V2)
_ROTATE, _GTID_LIST = int(EventType.ROTATE), int(EventType.MARIADB_GTID_LIST)
_ENCRYPTION = int(EventType.START_ENCRYPTION)


_OPENS = np.zeros(256, np.bool_)
_OPENS[[EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID]] = True
_OUTSIDE = np.zeros(256, np.bool_)
_OUTSIDE[
    [
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
    ]
] = True
"""Event types that occur between transactions."""


@kernel
def whole_events(address: int, size: int, out: Any) -> bool:
    """Measure the whole events in a file's bytes. Returns False if an event is shorter than its header.

    out[0]: bytes of the whole events. out[1]: where the event after them would end, if that is known.
    """
    at = 0
    while at + HEADER_SIZE <= size:
        length = load32(address + at + 9)
        if length < HEADER_SIZE:
            out[0] = at
            return False
        if at + length > size:
            out[0], out[1] = at, at + length
            return True
        at += length
    out[0] = out[1] = at
    return True


@kernel
def unpack(source: int, size: int, target: int, capacity: int, left: int, out: Any) -> int:
    """Copy the events in the packets at ``source`` one after the other to ``target``.

    left: remaining bytes of the slice. out[0], out[1]: bytes read and written. Returns MORE (more bytes are needed),
    ROOM (the next event doesn't fit), OTHER (the next packet isn't an ordinary event) or BEYOND (the next event reaches
    beyond the slice).
    """
    at, to = 0, 0
    while True:
        out[0], out[1] = at, to
        if size - at < 4:
            return MORE
        length = load16(source + at) | load8(source + at + 2) << 16
        packet = source + at + 4
        if length == _LONGEST_PACKET or length <= HEADER_SIZE:
            return OTHER
        if size - at < 4 + length:
            return MORE
        event = packet + 1
        kind = load8(event + 4)
        if load8(packet) or load32(event + 9) != length - 1:
            return OTHER
        if load16(event + 17) & _ARTIFICIAL or kind in (_FORMAT, _BEAT, _BEAT_2, _ROTATE, _GTID_LIST, _ENCRYPTION):
            return OTHER
        if to + length - 1 > left:
            return BEYOND
        if to + length - 1 > capacity:
            return ROOM
        copy(target + to, event, length - 1)
        to += length - 1
        at += 4 + length


@kernel
def opens(address: int, size: int, places: Any, last: Any) -> int:
    """Find where transactions begin in a chunk. Returns their count, or -1 - place for an event of impossible size.

    places: their offsets in the chunk. last[n]: the end of what came before place n; last[0] is given, and last[count]
    is for the next chunk.
    """
    count = 0
    end = last[0]
    at = 0
    while at < size:
        length = load32(address + at + 9) if size - at >= 19 else 0
        if length < 19 or length > size - at:
            return -1 - at
        kind = load8(address + at + 4)
        if _OPENS[kind]:
            places[count] = at
            last[count] = end
            count += 1
        if not _OUTSIDE[kind]:
            end = at + length
        at += length
    last[count] = end
    return count
