"""Compiled conversion of MySQL's binary JSON to the server's own text, as ``CAST(j AS CHAR)`` gives it.

Manual: MySQL source documentation, "JSON binary format" (sql-common/json_binary.h).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from binlake.kernels.native import act, kernel, load8, load16, load32, load64, store8, store16, store32, store64
from binlake.kernels.numbertext import (
    decimal_bytes,
    put_decimal,
    put_double,
    put_signed,
    put_temporal,
    put_uint64,
    put_unsigned,
)

MOST_DEEP = 100
"""The greatest depth of a document; the server refuses deeper ones (JSON_DOCUMENT_MAX_DEPTH)."""
_FRAME = 48
# A frame: start of the container, its end, members, the member that is next, whether an object, whether large
_START, _END, _COUNT, _NEXT, _OBJECT, _LARGE = 0, 8, 16, 24, 32, 40
_AFTER = _FRAME * (MOST_DEEP + 2)
_DIGITS = _AFTER + 8
STACK_BYTES = _DIGITS + 64
"""Bytes of working memory for a document: a frame for each open container, an address, a double's digits."""

_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).astype(np.int64)
_BASE64_COLON, _TYPE = (int.from_bytes(word, "little") for word in (b'"base64:', b"type"))
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).astype(np.int64)

SHORT = np.zeros(256, np.int64)
"""By byte: the letter after the backslash of an escaped one; 1 if it is escaped as \\u00xx; 0 if it isn't escaped."""
SHORT[:32] = 1
for _byte, _letter in ((0x22, '"'), (0x5C, "\\"), (8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    SHORT[_byte] = ord(_letter)


_ROOM = 96
"""Bytes that suffice for any value that isn't a string."""


def most_bytes(size: int) -> int:
    """Return the greatest size of a document's text. size: bytes of the document."""
    return 12 * size + 2 * _ROOM


_HIGH = -0x7F7F7F7F7F7F7F80  # 0x80 in every byte
_ONES = 0x0101010101010101
_LETTERS = 0x6161616161616161


@kernel
def _plain(word: int) -> bool:
    """Return whether eight bytes are ASCII, and none needs to be escaped."""
    quote, slash = word ^ 0x22 * _ONES, word ^ 0x5C * _ONES
    low = word - 0x20 * _ONES
    return (word | low | (quote - _ONES) | (slash - _ONES)) & _HIGH == 0


@kernel
def put_character(to: int, byte: int) -> int:
    """Write a byte of a string, escaped if JSON needs it. Returns the address after it."""
    escape = SHORT[byte]
    if escape == 0:
        store8(to, byte)
        return to + 1
    if escape == 1:
        store16(to, 0x755C)
        store16(to + 2, 0x3030)
        store8(to + 4, _HEX[byte >> 4])
        store8(to + 5, _HEX[byte & 15])
        return to + 6
    store8(to, 92)
    store8(to + 1, escape)
    return to + 2


@kernel
def put_string(to: int, source: int, size: int) -> int:
    """Write a quoted string with the server's escapes. Returns the address after it; 0 if it isn't UTF-8."""
    store8(to, 34)
    to += 1
    at, end = source, source + size
    tried = at  # up to where no eight bytes need be tried
    while at < end:
        if at >= tried:
            left = min(end - at, 8)
            word = load64(at)
            if left < 8:
                word = word & (1 << 8 * left) - 1 | _LETTERS << 8 * left
            if _plain(word):
                store64(to, word)
                to += left
                at += left
                continue
            tried = at + left
        byte = load8(at)
        if byte >= 0x80:
            if byte < 0xC2 or byte > 0xF4:
                return 0
            more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            if at + more >= end:
                return 0
            second = load8(at + 1)
            low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
            high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
            if second < low or second > high:
                return 0
            store8(to, byte)
            store8(to + 1, second)
            for place in range(2, more + 1):
                third = load8(at + place)
                if third & 0xC0 != 0x80:
                    return 0
                store8(to + place, third)
            to += more + 1
            at += more + 1
            continue
        to = put_character(to, byte)
        at += 1
    store8(to, 34)
    return to + 1


@kernel
def _size_at(address: int, end: int, after: int) -> int:
    """Return a length of seven bits per byte; -1 if there is none. The address after it is stored at ``after``."""
    size = 0
    for place in range(5):
        if address + place >= end:
            return -1
        byte = load8(address + place)
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            store64(after, address + place + 1)
            return int(size)
    return -1


@act
def _open(kind: int, at: int, end: int, stack: int, depth: int) -> bool:
    """Push a frame for the object or array at ``at``. Tells whether it lies inside its parent."""
    large = kind & 1
    width = 4 if large else 2
    if depth > MOST_DEEP or at + 2 * width > end:
        return False
    count = load32(at) if large else load16(at)
    total = load32(at + width) if large else load16(at + width)
    is_object = 1 if kind < 2 else 0
    if total > end - at or 2 * width + count * ((width + 2) * is_object + 1 + width) > total:
        return False
    frame = stack + depth * _FRAME
    store64(frame + _START, at)
    store64(frame + _END, at + total)
    store64(frame + _COUNT, count)
    store64(frame + _NEXT, 0)
    store64(frame + _OBJECT, is_object)
    store64(frame + _LARGE, large)
    return True


@act
def _close(to: int, depth: int, stack: int) -> tuple[int, int]:
    """End the containers whose members are all written. Returns the address after them, and how many are still open."""
    while depth:
        frame = stack + (depth - 1) * _FRAME
        if load64(frame + _NEXT) < load64(frame + _COUNT):
            break
        store8(to, 125 if load64(frame + _OBJECT) else 93)
        to += 1
        depth -= 1
    return to, depth


@act
def _member(to: int, limit: int, stack: int, depth: int) -> tuple[int, int, int]:
    """Write what precedes the next member of the innermost container, including its key.

    Returns the address after them (0 if the document is damaged), the member's type, and its value's address."""
    frame = stack + (depth - 1) * _FRAME
    start, end, count = load64(frame + _START), load64(frame + _END), load64(frame + _COUNT)
    member, large = load64(frame + _NEXT), load64(frame + _LARGE)
    store64(frame + _NEXT, member + 1)
    if member:
        store16(to, 0x202C)
        to += 2
    width = 4 if large else 2
    entries = start + 2 * width
    if load64(frame + _OBJECT):
        entry = entries + member * (width + 2)
        offset = load32(entry) if large else load16(entry)
        length = load16(entry + width)
        if start + offset + length > end or to + 6 * length > limit:
            return 0, 0, 0
        to = put_string(to, start + offset, length)
        if to == 0:
            return 0, 0, 0
        store16(to, 0x203A)
        to += 2
        entries += count * (width + 2)
    entry = entries + member * (1 + width)
    kind = load8(entry)
    if kind == 4 or kind == 5 or kind == 6 or (large and (kind == 7 or kind == 8)):
        return to, kind, entry + 1
    offset = load32(entry + 1) if large else load16(entry + 1)
    return (to if start + offset <= end else 0), kind, start + offset


@act
def _literal(to: int, literal: int) -> int:
    if literal == 0:
        store64(to, 0x6C6C756E)
        return to + 4
    if literal == 1:
        store64(to, 0x65757274)
        return to + 4
    if literal == 2:
        store64(to, 0x65736C6166)
        return to + 5
    return 0


@act
def _number(to: int, kind: int, at: int, end: int, scratch: int) -> int:
    """Write an integer of 16, 32 or 64 bits, signed (odd types) or unsigned, or a double."""
    if kind <= 6:
        if at + 2 > end:
            return 0
        number = load16(at)
        return put_signed(to, number - 65536 if kind == 5 and number > 32767 else number)
    if kind <= 8:
        if at + 4 > end:
            return 0
        number = load32(at)
        return put_signed(to, number - (1 << 32) if kind == 7 and number >= 1 << 31 else number)
    if at + 8 > end:
        return 0
    if kind == 9:
        return put_signed(to, load64(at))
    if kind == 10:
        return put_uint64(to, load64(at))
    return put_double(to, load64(at), scratch)


@act
def _decimal(to: int, limit: int, inside: int, length: int) -> int:
    """Write the opaque value of ``length`` bytes that is a DECIMAL. A literal may have more digits than a column."""
    if length < 3:
        return 0
    precision, scale = load8(inside), load8(inside + 1)
    whole = precision - scale
    if precision == 0 or whole < 0:
        return 0
    size = decimal_bytes(whole) + decimal_bytes(scale)
    if size + 2 > length or to + precision > limit:
        return 0
    return put_decimal(to, inside + 2, precision, scale)


@kernel
def put_blob(to: int, opaque: int, source: int, size: int) -> int:
    """Write an opaque value without a text of its own: type and base64, in lines of 76 characters, as the server does.

    The line ends are escaped like any others."""
    store64(to, _BASE64_COLON)
    store32(to + 8, _TYPE)
    to = put_unsigned(to + 12, opaque)
    store8(to, 58)
    to += 1
    for place in range(0, size, 3):
        if place and place % 57 == 0:
            store16(to, 0x6E5C)
            to += 2
        left, at = size - place, source + place
        group = load8(at) << 16 | (load8(at + 1) << 8 if left > 1 else 0) | (load8(at + 2) if left > 2 else 0)
        store8(to, _BASE64[group >> 18])
        store8(to + 1, _BASE64[group >> 12 & 63])
        store8(to + 2, _BASE64[group >> 6 & 63] if left > 1 else 61)
        store8(to + 3, _BASE64[group & 63] if left > 2 else 61)
        to += 4
    store8(to, 34)
    return to + 1


@act
def _scalar(to: int, limit: int, kind: int, at: int, end: int, stack: int) -> int:
    """Write the value at ``at``, before ``end``, that is no container."""
    if kind == 4:
        return _literal(to, load8(at)) if at < end else 0
    if kind <= 11:
        return _number(to, kind, at, end, stack + _DIGITS)
    if kind != 12 and kind != 15:
        return 0
    length = _size_at(at if kind == 12 else at + 1, end, stack + _AFTER)
    inside = load64(stack + _AFTER)
    if length < 0 or inside + length > end:
        return 0
    if kind == 12:
        return put_string(to, inside, length) if to + 6 * length <= limit else 0
    opaque = load8(at)
    if opaque == 246:
        return _decimal(to, limit, inside, length)
    if opaque == 7 or 10 <= opaque <= 12:
        return put_temporal(to, load64(inside), opaque) if length == 8 else 0
    return put_blob(to, opaque, inside, length) if to + 2 * length <= limit else 0


@kernel
def document(address: int, size: int, to: int, stack: int) -> int:
    """Write a document's text at ``to``. Returns the address after it, or 0 if it is damaged.

    stack: the address of STACK_BYTES of working memory."""
    if size == 0:  # left by INSERT IGNORE; the server reads it so
        return _literal(to, 0)
    # Offsets of a damaged document may point to one value many times
    limit = to + 12 * size + _ROOM
    depth = 0
    kind, at, end = load8(address), address + 1, address + size
    while True:
        if to > limit:
            return 0
        if kind <= 3:
            if not _open(kind, at, end, stack, depth):
                return 0
            depth += 1
            store8(to, 123 if kind < 2 else 91)
            to += 1
        else:
            to = _scalar(to, limit, kind, at, end, stack)
            if to == 0:
                return 0
        to, depth = _close(to, depth, stack)
        if depth == 0:
            return to
        to, kind, at = _member(to, limit, stack, depth)
        if to == 0:
            return 0
        end = load64(stack + (depth - 1) * _FRAME + _END)


class Documents(NamedTuple):
    """A column of binary JSON: Arrow's offsets, the address of its bytes, and its validity bitmap if it has NULLs."""

    offsets: npt.NDArray[np.int32]
    data: int
    validity: npt.NDArray[np.uint8]
    nullable: bool


class Texts(NamedTuple):
    """The column of the documents' texts: address, capacity in bytes, Arrow's offsets."""

    data: int
    capacity: int
    offsets: npt.NDArray[np.int32]


@kernel
def column(documents: Any, texts: Any, row: int, stack: int) -> int:
    """Convert documents from ``row`` on. Returns the row that is damaged or needs more room, or the number of rows."""
    offsets, data, validity, nullable = documents
    target, capacity, converted = texts
    rows = len(offsets) - 1
    used = int(converted[row])
    while row < rows:
        size = offsets[row + 1] - offsets[row]
        if not nullable or validity[row >> 3] >> (row & 7) & 1:
            if used + 12 * size + 2 * _ROOM > capacity:
                return row
            end = document(data + offsets[row], size, target + used, stack)
            if end == 0:
                return row
            used = end - target
        converted[row + 1] = used
        row += 1
    return row
