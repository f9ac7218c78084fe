"""Compiled code that walks the events of a chunk.

``scan`` verifies sizes and checksums, keeps track of the open transaction and of mapped tables, and lists row events.
It returns for every other event: DDL, a table map that it hasn't seen, XA, a payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from binlake.binlog.events import HEADER_SIZE, EventType
from binlake.kernels.native import act, copy32, crc32, kernel, load8, load16, load32, load64, store8

# Return codes of scan
DONE, ASK, ROWS_FULL, BAD_SIZE, BAD_CHECKSUM, BAD_POSITION, NO_TABLE_MAP, MAPS_FULL, BAD_BODY = range(9)

CACHE_SIZE = 4096
"""How many table ids are cached with their map, by their low bits."""


class Tables(NamedTuple):
    """The table maps.

    mapped[:state.mapped]: the open transaction's tables (layouts.MAPPED). cache: maps by the low bits of their table id
    (MAPPED). known: every map that was seen (KNOWN).
    """

    mapped: Any
    cache: Any
    known: Any


class Committed(NamedTuple):
    """For each transaction: commit time (microseconds), end of its GTID's text (that of the one before if it has none),
    and id of the server that committed it. text: the texts' address."""

    times: npt.NDArray[np.int64]
    text_ends: npt.NDArray[np.int64]
    servers: npt.NDArray[np.int64]
    text: int


_OP = np.zeros(256, np.int64)
"""By event type: 1, 2, 3 for row events that insert, update, delete; 0 for other events."""
for _kind in EventType:
    for _op, _verb in enumerate(("WRITE_ROWS", "UPDATE_ROWS", "DELETE_ROWS"), 1):
        if _kind.name.startswith(_verb):
            _OP[_kind] = _op
_OP[EventType.PARTIAL_UPDATE_ROWS] = 2
_EXTRA = np.zeros(256, np.bool_)
"""By event type: True for row events of the second version, which have extra data before their rows."""
for _kind in EventType:
    _EXTRA[_kind] = bool(_OP[_kind]) and not _kind.name.endswith("_V1")
_STEPPED_OVER = np.zeros(256, np.bool_)
for _kind in (
    EventType.STOP, EventType.ROTATE, EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.HEARTBEAT,
    EventType.HEARTBEAT_V2, EventType.IGNORABLE, EventType.ROWS_QUERY, EventType.PREVIOUS_GTIDS,
    EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE, EventType.ANNOTATE_ROWS, EventType.BINLOG_CHECKPOINT,
    EventType.MARIADB_GTID_LIST, EventType.BEGIN_LOAD_QUERY, EventType.FORMAT_DESCRIPTION,
):  # fmt: skip
    _STEPPED_OVER[_kind] = True
_KNOWN = np.zeros(256, np.bool_)
"""By event type: True for known types, which are read even if they have the ignorable flag."""
for _kind in EventType:
    _KNOWN[_kind] = True
_PARTIAL_UPDATE = int(EventType.PARTIAL_UPDATE_ROWS)
_QUERY, _XID, _TABLE_MAP = int(EventType.QUERY), int(EventType.XID), int(EventType.TABLE_MAP)
_GTID, _ANONYMOUS, _MARIADB_GTID = int(EventType.GTID), int(EventType.ANONYMOUS_GTID), int(EventType.MARIADB_GTID)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).astype(np.int64)
_BEGIN, _COMMI = (int.from_bytes(word, "little") for word in (b"BEGIN", b"COMMI"))
_IGNORABLE_FLAG, _ARTIFICIAL_FLAG = 0x80, 0x20
_NO_TABLE_ID = 0xFFFFFF
_NO_FOREIGN_KEY_CHECKS = 0x02  # of a row event; Rows_event::enum_flag

PREPARED, NOT_ROWS, OTHER_WIDTH, PARTIAL_IMAGE, PARTIAL_JSON = range(5)


def operation(kind: int) -> int:
    """Return what rows of an event's type do: INSERT, UPDATE or DELETE of the border."""
    return int(_OP[kind])


@kernel
def prepare(rows: Any, events: Any, columns: int, id_size: int, failed: Any) -> int:
    """Find the rows of row events, for ``row_kernels.decode``; those of compressed events are still compressed.

    Returns PREPARED, or what is wrong with the event failed[0].
    """
    for number in range(rows.shape[0]):
        failed[0] = number
        kind = rows[number].kind
        at, end = rows[number].body + id_size + 2, rows[number].end
        if kind == _PARTIAL_UPDATE:
            return PARTIAL_JSON
        if _EXTRA[kind]:
            if at + 2 > end:
                return NOT_ROWS
            at += max(load16(at), 2)  # extra row data of partitions and NDB, with their own length
        if at + 1 > end:
            return NOT_ROWS
        width = load8(at)
        at += 1
        if width == 252:
            if at + 2 > end:
                return NOT_ROWS
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
        target, event = events[number], rows[number]
        target.address, target.end, target.op = at, end, operation
        target.transaction, target.offset = event.transaction, event.offset
        target.ordinal, target.xa = event.ordinal, event.xa
    return PREPARED


@kernel
def texts_size(places: Any, ends: Any) -> int:
    """Return the total size of the texts of all places (each between ends[place - 1] and ends[place])."""
    size = 0
    for row in range(len(places)):
        place = places[row]
        size += ends[place] - (ends[place - 1] if place else 0)
    return size


@kernel
def gather_texts(places: Any, ends: Any, text: int, target: int, offsets: Any, empty: Any) -> None:
    """Copy the text of each place to ``target``, one after the other, and up to 31 bytes beyond. empty: rows without
    text."""
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
    """Write a number in decimal digits. Returns the address after them."""
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
    """Collect runs of consecutive GTIDs (layouts.GTID_RUN). Returns how many there are."""
    total = 0
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
            previous = runs[total - 1]
            if (
                total
                and previous.last + 1 == number
                and previous.size == size
                and _same(text + previous.start, text + start, size)
            ):
                previous.last = number
            else:
                new = runs[total]
                new.start, new.size, new.first, new.last, new.transaction = start, size, number, number, place
                total += 1
        start = end
    return total


@kernel
def _gtid_text(to: int, body: int, last: int, last_text: int) -> int:
    """Write the GTID of an event's body as text. Returns the address after it.

    last, last_text: the GTID body before (or 0) and its text, from which an equal UUID is copied.
    """
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


@act
def _table_id(body: int, id_size: int) -> Any:
    return load64(body) & 0xFFFFFFFFFFFF if id_size == 6 else load32(body)


@act
def _row_event(body: int, end: int, kind: int, where: int, state: Any, rows: Any, tables: Any) -> int:
    """Add a row event to ``rows`` if its table is wanted. Returns DONE, or what stops ``scan``."""
    mapped, known = tables.mapped, tables.known
    if end - body < state.id_size + 2:
        return BAD_BODY
    identity = _table_id(body, state.id_size)
    if identity == _NO_TABLE_ID:
        return DONE
    table = -1
    for place in range(state.mapped - 1, -1, -1):
        if mapped[place].table_id == identity:
            table = mapped[place].known
            break
    if table < 0:
        return NO_TABLE_MAP
    if not known[table].wanted:
        return DONE
    if load16(body + state.id_size) & _NO_FOREIGN_KEY_CHECKS:
        known[table].unchecked = 1
    count = state.row_events
    if count >= rows.shape[0]:
        return ROWS_FULL
    event = rows[count]
    event.body, event.end, event.kind, event.transaction = body, end, kind, state.transactions - 1
    event.offset, event.known, event.xa, event.ordinal = where, table, state.xa, 0
    state.row_events = count + 1
    return DONE


@act
def _table_map(body: int, end: int, state: Any, tables: Any) -> int:
    """Map a table id for the open transaction. Returns DONE, or what stops ``scan``."""
    mapped, cache, known = tables
    rest = end - body - state.id_size
    if rest < 0:
        return BAD_BODY
    identity = _table_id(body, state.id_size)
    place = identity & (CACHE_SIZE - 1)
    which = cache[place].known if cache[place].table_id == identity else -1
    if which < 0 or known[which].size != rest or not _same(known[which].body, body + state.id_size, rest):
        return ASK
    count = state.mapped
    for taken in range(count):
        if mapped[taken].table_id == identity:
            mapped[taken].known = which
            return DONE
    if count >= mapped.shape[0]:
        return MAPS_FULL
    mapped[count].table_id, mapped[count].known = identity, which
    state.mapped = count + 1
    return DONE


@act
def _mariadb_gtid(event: int, body: int, end: int, to: int) -> int:
    """Write a MariaDB GTID as text. Returns the address after it, or minus what stops ``scan``."""
    if end - body < 13 or load64(body) <= 0:
        return -BAD_BODY
    if load8(body + 12) & 0xE0:
        return -ASK  # XA, DDL
    to = _digits(to, load32(body + 8))
    store8(to, 45)
    to = _digits(to + 1, load32(event + 5))
    store8(to, 45)
    return _digits(to + 1, load64(body))


@act
def _gtid(
    event: int, kind: int, end: int, where: int, state: Any, committed: Any, last: tuple[int, int]
) -> tuple[int, tuple[int, int]]:
    """Begin a transaction. Returns DONE or what stops ``scan``, and the next ``last``: the GTID's body and text."""
    times, text_ends, servers, text = committed
    number = state.transactions
    if number >= times.shape[0]:
        return ROWS_FULL, last
    body, used = event + HEADER_SIZE, state.text_used
    moment = load32(event) * 1_000_000
    if kind == _MARIADB_GTID:
        to = _mariadb_gtid(event, body, end, text + used)
        if to < 0:
            return -to, last
        used = to - text
    else:
        if end - body < 25 or (kind == _GTID and load64(body + 17) <= 0):
            return BAD_BODY, last
        if end - body >= 49:
            moment = load64(body + 42) & 0x7FFFFFFFFFFFFF
        if kind == _GTID:
            to = text + used
            used = _gtid_text(to, body, last[0], last[1]) - text
            last = body, to
    times[number], text_ends[number], servers[number] = moment, used, load32(event + 5)
    state.transactions, state.text_used = number + 1, used
    state.mapped = 0
    state.xa = 0
    state.began = where
    return DONE, last


@act
def _is_begin_or_commit(body: int, end: int) -> Any:
    query = body + 13 + load16(body + 11) + load8(body + 8) + 1
    word = load64(query) & 0xFFFFFFFFFF if query + 5 <= end else 0
    if word == _BEGIN:
        return query + 5 == end
    return word == _COMMI and query + 6 == end and load8(query + 5) == 84  # T


@kernel
def scan(  # noqa: C901 - a kernel: each call inside the loop would cost every event
    address: int, size: int, offset: int, state: Any, rows: Any, committed: Any, tables: Any
) -> int:
    """Walk the events of the chunk at ``address`` from state.at on. Returns DONE, or what stopped it at state.at.

    offset: the place of the chunk's first byte in the file. state, rows: see layouts.
    """
    checksum = state.checksum
    last = 0, 0
    while state.at < size:
        at = state.at
        event = address + at
        if size - at < HEADER_SIZE:
            return BAD_SIZE
        length = load32(event + 9)
        if length < HEADER_SIZE + checksum or length > size - at:
            return BAD_SIZE
        kind = load8(event + 4)
        flags = load16(event + 17)
        end = event + length - checksum
        if checksum and crc32(event, length - checksum, state.scratch) != load32(end):
            return BAD_CHECKSUM
        where = state.fixed_offset
        if where == 0:
            where = offset + at
            position = load32(event + 13)
            if position and not flags & _ARTIFICIAL_FLAG and position != where + length & 0xFFFFFFFF:
                return BAD_POSITION
        body = event + HEADER_SIZE
        if _OP[kind]:
            stopped = _row_event(body, end, kind, where, state, rows, tables)
            if stopped != DONE:
                return stopped
        elif kind == _TABLE_MAP:
            stopped = _table_map(body, end, state, tables)
            if stopped != DONE:
                return stopped
        elif _GTID <= kind <= _ANONYMOUS or kind == _MARIADB_GTID:
            stopped, last = _gtid(event, kind, end, where, state, committed, last)
            if stopped != DONE:
                return stopped
        elif kind == _QUERY:
            if end - body < 13:
                return BAD_BODY
            if not _is_begin_or_commit(body, end):
                return ASK
        elif kind == _XID:
            state.xa = 0
        elif not _STEPPED_OVER[kind] and (_KNOWN[kind] or not flags & _IGNORABLE_FLAG):
            return ASK
        state.at = at + length
    return DONE
