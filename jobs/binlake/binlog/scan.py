"""Compiled: the events of a chunk, one after the other.

``scan`` proves sizes and checksums, keeps the transaction that is open and the tables that are mapped, and lists the
row events. It comes back for every event that isn't of the everyday: DDL, a table map it hasn't seen, XA, a payload.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from binlake.binlog.events import HEADER_SIZE, EventType
from binlake.binlog.native import copy32, crc32, kernel, load8, load16, load32, load64, store8

# ``state``
AT, ROW_EVENTS, TRANSACTIONS, TEXT_USED, MAPPED, XA_ID, ID_SIZE, CHECKSUM, FIXED_OFFSET, BEGAN, SCRATCH = range(11)
STATE = 23  # the last twelve are scratch of the checksum

# ``rows[n]``: address of the body, its end, kind, transaction, offset, the table's known map, XA id, ordinal of its
# first row
BODY, BODY_END, KIND, TRANSACTION, OFFSET, KNOWN, XA, ORDINAL = range(8)
ROW_EVENT = 8

# What scan comes back with
DONE, ASK, ROWS_FULL, BAD_SIZE, BAD_CHECKSUM, BAD_POSITION, NO_TABLE_MAP, MAPS_FULL, BAD_BODY = range(9)

CACHE_SIZE = 4096
"""Table ids that are remembered with their map, by their low bits."""

_ROWS_KINDS = np.zeros(256, np.bool_)
for _kind in (23, 24, 25, 30, 31, 32, 39, *range(166, 172)):
    _ROWS_KINDS[_kind] = True
_STEPPED_OVER = np.zeros(256, np.bool_)
for _kind in (
    EventType.STOP, EventType.ROTATE, EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.HEARTBEAT,
    EventType.HEARTBEAT_V2, EventType.IGNORABLE, EventType.ROWS_QUERY, EventType.PREVIOUS_GTIDS,
    EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE, EventType.ANNOTATE_ROWS, EventType.BINLOG_CHECKPOINT,
    EventType.MARIADB_GTID_LIST, EventType.BEGIN_LOAD_QUERY, EventType.FORMAT_DESCRIPTION,
):  # fmt: skip
    _STEPPED_OVER[_kind] = True
_QUERY, _XID, _TABLE_MAP = int(EventType.QUERY), int(EventType.XID), int(EventType.TABLE_MAP)
_GTID, _ANONYMOUS, _MARIADB_GTID = int(EventType.GTID), int(EventType.ANONYMOUS_GTID), int(EventType.MARIADB_GTID)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).astype(np.int64)
_IGNORABLE_FLAG, _ARTIFICIAL_FLAG = 0x80, 0x20
_NO_TABLE_ID = 0xFFFFFF
_NO_FOREIGN_KEY_CHECKS = 0x02  # of a row event; Rows_event::enum_flag

_OP = np.zeros(256, np.int64)
for _first in (23, 30, 166, 169):
    _OP[_first : _first + 3] = (1, 2, 3)
_EXTRA = np.zeros(256, np.bool_)
_EXTRA[[30, 31, 32, 169, 170, 171]] = True
PREPARED, NOT_ROWS, OTHER_WIDTH, PARTIAL_IMAGE, PARTIAL_JSON = range(5)


@kernel
def prepare(rows: Any, events: Any, columns: int, id_size: int, failed: Any) -> int:
    """Row events to what ``kernels.decode`` takes: the addresses of their rows. Those of compressed events still are
    compressed. Returns PREPARED, or what is wrong with the event failed[0]."""
    for number in range(rows.shape[0]):
        failed[0] = number
        kind = rows[number, KIND]
        at, end = rows[number, BODY] + id_size + 2, rows[number, BODY_END]
        if kind == 39:
            return PARTIAL_JSON
        if _EXTRA[kind]:
            if at + 2 > end:
                return NOT_ROWS
            at += max(load16(at), 2)  # extra row data of partitions and NDB, with their own length
        if at + 3 > end:
            return NOT_ROWS
        width = load8(at)
        at += 1
        if width == 252:
            width = load16(at)
            at += 2
        elif width > 250:
            return NOT_ROWS
        if width != columns:
            return OTHER_WIDTH
        size = (width + 7) >> 3
        operation = _OP[kind]
        for _ in range(2 if operation == 2 else 1):
            if at + size > end:
                return NOT_ROWS
            for column in range(width):
                if not load8(at + (column >> 3)) >> (column & 7) & 1:
                    return PARTIAL_IMAGE
            at += size
        events[number, 0], events[number, 1] = at, end
        events[number, 2], events[number, 3] = operation, rows[number, TRANSACTION]
        events[number, 4], events[number, 5] = rows[number, OFFSET], rows[number, ORDINAL]
        events[number, 6] = rows[number, XA]
    return PREPARED


@kernel
def texts_size(places: Any, ends: Any) -> int:
    """Bytes of the texts of all places (between ends[place - 1] and ends[place])."""
    size = 0
    for row in range(len(places)):
        place = places[row]
        size += ends[place] - (ends[place - 1] if place else 0)
    return size


@kernel
def gather_texts(places: Any, ends: Any, text: int, target: int, offsets: Any, empty: Any) -> None:
    """The text of each place one after the other; writes up to 31 bytes behind. empty: rows without text."""
    used = 0
    for row in range(len(places)):
        place = places[row]
        start = ends[place - 1] if place else 0
        size = ends[place] - start
        done = 0
        while done < size:
            copy32(target + used + done, text + start + done)
            done += 32
        used += size
        offsets[row + 1] = used
        empty[row] = size == 0


@kernel
def _digits(to: int, value: int) -> int:
    """Decimal digits; the address after them."""
    size = 1
    rest = value
    while rest >= 10:
        rest //= 10
        size += 1
    for place in range(size):
        store8(to + size - 1 - place, 48 + value % 10)
        value //= 10
    return to + size


@kernel
def _same(first: int, second: int, size: int) -> bool:
    at = 0
    while at + 8 <= size:
        if load64(first + at) != load64(second + at):
            return False
        at += 8
    while at < size:
        if load8(first + at) != load8(second + at):
            return False
        at += 1
    return True


@kernel
def gtid_runs(count: int, ends: Any, text: int, runs: Any) -> int:
    """GTIDs that count on, together: runs[n] is where the text before their number stands, its size, first and last
    number. Returns how many runs there are."""
    found = 0
    start = 0
    for place in range(count):
        end = ends[place]
        digits = end
        number = 0
        scale = 1
        while digits > start and 48 <= load8(text + digits - 1) <= 57:
            digits -= 1
            number += scale * (load8(text + digits) - 48)
            scale *= 10
        size = digits - start
        if end > start:
            previous = runs[found - 1]
            if (
                found
                and previous[3] + 1 == number
                and previous[1] == size
                and _same(text + previous[0], text + start, size)
            ):
                previous[3] = number
            else:
                runs[found, 0], runs[found, 1], runs[found, 2], runs[found, 3] = start, size, number, number
                found += 1
        start = end
    return found


@kernel
def _gtid_text(to: int, body: int, last: int, last_text: int) -> int:
    """Of a GTID event's body; ``last``: the body before it (or 0) and its text, because most have one source."""
    if last and load64(body + 1) == load64(last + 1) and load64(body + 9) == load64(last + 9):
        copy32(to, last_text)
        copy32(to + 5, last_text + 5)
        return _digits(to + 37, load64(body + 17))
    for place in range(16):
        if place == 4 or place == 6 or place == 8 or place == 10:
            store8(to, 45)
            to += 1
        byte = load8(body + 1 + place)
        store8(to, _HEX[byte >> 4])
        store8(to + 1, _HEX[byte & 15])
        to += 2
    store8(to, 58)
    return _digits(to + 1, load64(body + 17))


@kernel
def scan(
    address: int,
    size: int,
    offset: int,
    state: Any,
    rows: Any,
    committed: Any,
    text_ends: Any,
    text: int,
    mapped: Any,
    cache: Any,
    known: Any,
) -> int:
    """Events of the chunk at ``address`` from state[AT] on; ``offset``: of the chunk's first byte in the file.

    committed, text_ends, text: of each transaction the commit time, and the end of its GTID's text (none where it
    doesn't move). mapped[:state[MAPPED]]: table id and known map of the open transaction. cache: table id and known
    map by the id's low bits. known: address and size of a map's bytes behind the id, whether its rows are wanted, and
    (set here) whether some came from a session with foreign_key_checks = 0.
    Returns at DONE, or what stopped it at state[AT].
    """
    id_size = state[ID_SIZE]
    checksum = state[CHECKSUM]
    last, last_text = 0, 0
    while state[AT] < size:
        at = state[AT]
        event = address + at
        if size - at < HEADER_SIZE:
            return BAD_SIZE
        length = load32(event + 9)
        if length < HEADER_SIZE + checksum or length > size - at:
            return BAD_SIZE
        kind = load8(event + 4)
        flags = load16(event + 17)
        end = event + length - checksum
        if checksum:
            scratch = state.ctypes.data + 8 * SCRATCH
            if crc32(event, length - checksum, scratch) != load32(end):
                return BAD_CHECKSUM
        where = state[FIXED_OFFSET]
        if where == 0:
            where = offset + at
            position = load32(event + 13)
            if position and not flags & _ARTIFICIAL_FLAG and position != where + length & 0xFFFFFFFF:
                return BAD_POSITION
        body = event + HEADER_SIZE
        room = end - body
        if _ROWS_KINDS[kind]:
            if room < id_size + 2:
                return BAD_BODY
            identity = load64(body) & 0xFFFFFFFFFFFF if id_size == 6 else load32(body)
            if identity != _NO_TABLE_ID:
                found = -1
                for place in range(state[MAPPED] - 1, -1, -1):
                    if mapped[place, 0] == identity:
                        found = mapped[place, 1]
                        break
                if found < 0:
                    return NO_TABLE_MAP
                if known[found, 2]:
                    if load16(body + id_size) & _NO_FOREIGN_KEY_CHECKS:
                        known[found, 3] = 1
                    count = state[ROW_EVENTS]
                    if count >= rows.shape[0]:
                        return ROWS_FULL
                    rows[count, BODY], rows[count, BODY_END] = body, end
                    rows[count, KIND], rows[count, TRANSACTION] = kind, state[TRANSACTIONS] - 1
                    rows[count, OFFSET], rows[count, KNOWN], rows[count, XA] = where, found, state[XA_ID]
                    rows[count, ORDINAL] = 0
                    state[ROW_EVENTS] = count + 1
        elif kind == _TABLE_MAP:
            if room < id_size:
                return BAD_BODY
            identity = load64(body) & 0xFFFFFFFFFFFF if id_size == 6 else load32(body)
            place = identity & (CACHE_SIZE - 1)
            which = cache[place, 1] if cache[place, 0] == identity else -1
            rest = room - id_size
            if which < 0 or known[which, 1] != rest or not _same(known[which, 0], body + id_size, rest):
                return ASK
            count = state[MAPPED]
            for taken in range(count):
                if mapped[taken, 0] == identity:
                    mapped[taken, 1] = which
                    break
            else:
                if count >= mapped.shape[0]:
                    return MAPS_FULL
                mapped[count, 0], mapped[count, 1] = identity, which
                state[MAPPED] = count + 1
        elif _GTID <= kind <= _ANONYMOUS or kind == _MARIADB_GTID:
            number = state[TRANSACTIONS]
            if number >= committed.shape[0]:
                return ROWS_FULL
            used = state[TEXT_USED]
            moment = load32(event) * 1_000_000
            if kind == _MARIADB_GTID:
                if room < 13 or load64(body) <= 0:
                    return BAD_BODY
                if load8(body + 12) & 0xE0:
                    return ASK  # XA, DDL
                to = _digits(text + used, load32(body + 8))
                store8(to, 45)
                to = _digits(to + 1, load32(event + 5))
                store8(to, 45)
                to = _digits(to + 1, load64(body))
                used = to - text
            else:
                if room < 25 or (kind == _GTID and load64(body + 17) <= 0):
                    return BAD_BODY
                if room >= 49:
                    moment = load64(body + 42) & 0x7FFFFFFFFFFFFF
                if kind == _GTID:
                    to = text + used
                    used = _gtid_text(to, body, last, last_text) - text
                    last, last_text = body, to
            committed[number], text_ends[number] = moment, used
            state[TRANSACTIONS], state[TEXT_USED] = number + 1, used
            state[MAPPED] = 0
            state[XA_ID] = 0
            state[BEGAN] = where
        elif kind == _QUERY:
            if room < 13:
                return BAD_BODY
            query = body + 13 + load16(body + 11) + load8(body + 8) + 1
            word = load64(query) & 0xFFFFFFFFFF if query + 5 <= end else 0
            begin = query + 5 == end and word == 0x4E49474542
            commit = query + 6 == end and word == 0x494D4D4F43 and load8(query + 5) == 84
            if not begin and not commit:
                return ASK
        elif kind == _XID:
            state[XA_ID] = 0
        elif not _STEPPED_OVER[kind] and not flags & _IGNORABLE_FLAG:
            return ASK
        state[AT] = at + length
    return DONE
