"""Conversion of whole columns of strings, in any character set or binary JSON, to UTF-8 by kernels.

A column is Arrow's pair of offsets (int32, rows + 1) and bytes. Results own their buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from binlake.caches import remembered
from binlake.errors import Malformed
from binlake.kernels import jsontext, numbertext
from binlake.kernels.layouts import SLACK
from binlake.kernels.native import kernel, load8, store8
from binlake.kernels.row_kernels import all_ascii
from binlake.schema import charsets

Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Convert = Callable[[Offsets, Bytes], tuple[Offsets, Bytes]]

_NO_TABLE = np.zeros(1, np.uint16)


class BadValue(Exception):
    """The value of ``row`` isn't valid text."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


@kernel
def _utf8_error(address: int, size: int) -> bool:
    """Return whether bytes aren't valid UTF-8 (which has no surrogates, nothing above U+10FFFF, no overlong form)."""
    at, end = address, address + size
    while at < end:
        lead = load8(at)
        if lead < 0x80:
            at += 1
            continue
        if lead < 0xC2 or lead > 0xF4:
            return True
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if at + more >= end:
            return True
        second = load8(at + 1)
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return True
        for place in range(2, more + 1):
            if load8(at + place) & 0xC0 != 0x80:
                return True
        at += more + 1
    return False


@kernel
def utf8_error_row(offsets: Any, data: int) -> int:
    """Return the first row that isn't UTF-8, or -1."""
    if all_ascii(data, offsets[-1]):
        return -1
    for row in range(len(offsets) - 1):
        if _utf8_error(data + offsets[row], offsets[row + 1] - offsets[row]):
            return row
    return -1


@kernel
def put_utf8(target: int, code: int) -> int:
    """Write a code point. Returns the address after it."""
    if code < 0x80:
        store8(target, code)
        return target + 1
    if code < 0x800:
        store8(target, 0xC0 | code >> 6)
        store8(target + 1, 0x80 | code & 63)
        return target + 2
    store8(target, 0xE0 | code >> 12)
    store8(target + 1, 0x80 | code >> 6 & 63)
    store8(target + 2, 0x80 | code & 63)
    return target + 3


@kernel
def convert_by_tables(
    offsets: Any, data: int, single: Any, double: Any, triple: Any, target: int, new_offsets: Any
) -> int:
    """Convert a column to UTF-8 by tables (see charsets.tables). Returns the first wrong row, or -1."""
    to = target
    for row in range(len(offsets) - 1):
        at, end = data + offsets[row], data + offsets[row + 1]
        while at < end:
            lead = load8(at)
            code, size = single[lead], 1
            if code == 0 and lead:
                if len(double) > 1 and lead >= 0x80 and at + 1 < end:
                    code, size = double[(lead - 0x80) << 8 | load8(at + 1)], 2
                if code == 0 and len(triple) > 1 and lead == 0x8F and at + 2 < end:
                    second, third = load8(at + 1), load8(at + 2)
                    if second >= 0x80 and third >= 0x80:
                        code, size = triple[(second - 0x80) << 7 | third - 0x80], 3
                if code == 0:
                    return row
            to = put_utf8(to, code)
            at += size
        new_offsets[row + 1] = to - target
    return -1


@remembered("charsets that keep ASCII")
def keeps_ascii(charset: str) -> bool:
    """Return whether bytes below 0x80 are the same in UTF-8."""
    if charset in ("utf8mb4", "utf8mb3"):
        return True
    single = charsets.tables().get(f"{charset}1")
    return single is not None and charset != "gb18030" and bool((single[:128] == np.arange(128)).all())


@remembered("converters of charsets")
def converter(charset: str) -> Convert:
    """Return a converter of columns in a character set to UTF-8. It raises BadValue for an invalid value."""
    if charset in ("utf8mb4", "utf8mb3"):

        def check(offsets: Offsets, data: Bytes) -> tuple[Offsets, Bytes]:
            row = utf8_error_row(offsets, data.ctypes.data)
            if row >= 0:
                raise BadValue(row, f"isn't valid {charset}")
            return offsets, data

        return check
    tables = charsets.tables()
    if f"{charset}1" not in tables or charset == "gb18030":
        return _by_codec(charset)
    single = tables[f"{charset}1"]
    double, triple = tables.get(f"{charset}2", _NO_TABLE), tables.get(f"{charset}3", _NO_TABLE)
    has_ascii = keeps_ascii(charset)
    growth = 3 if len(double) == 1 else 2  # bytes of UTF-8 for each byte of input, at most

    def convert(offsets: Offsets, data: Bytes) -> tuple[Offsets, Bytes]:
        size = int(offsets[-1])
        if has_ascii and all_ascii(data.ctypes.data, size):
            return offsets, data
        target = np.empty(size * growth + size + SLACK, np.uint8)
        converted = np.zeros(len(offsets), np.int32)
        row = convert_by_tables(offsets, data.ctypes.data, single, double, triple, target.ctypes.data, converted)
        if row >= 0:
            raise BadValue(row, f"isn't valid {charset}")
        return converted, target

    return convert


def _by_codec(charset: str) -> Convert:
    """Return a converter that uses Python's codecs value by value, for the rare UTF-16, UTF-32, UCS-2 and GB18030."""
    decode = charsets.decoder(charset)

    def convert(offsets: Offsets, data: Bytes) -> tuple[Offsets, Bytes]:
        pieces: list[bytes] = []
        whole = data[: int(offsets[-1])].tobytes()
        for row in range(len(offsets) - 1):
            try:
                pieces.append(decode(whole[offsets[row] : offsets[row + 1]]).encode())
            except UnicodeError:
                raise BadValue(row, f"isn't valid {charset}") from None
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        converted = np.zeros(len(offsets), np.int32)
        converted[1:] = np.cumsum(sizes)
        return converted, np.frombuffer(b"".join(pieces) + bytes(SLACK), np.uint8)

    return convert


def decimals(raw: Bytes, rows: int, shape: tuple[int, int, int], validity: Bytes | None) -> tuple[Offsets, Bytes]:
    """Convert packed DECIMALs to text. shape: (precision, scale, bytes). Raises Malformed."""
    target = np.empty(rows * (shape[0] + 3) + SLACK, np.uint8)
    converted = np.zeros(rows + 1, np.int32)
    bits = np.zeros(1, np.uint8) if validity is None else validity
    wrong = numbertext.decimals(raw.ctypes.data, bits, validity is not None, shape, target.ctypes.data, converted)
    if wrong >= 0:
        raise Malformed("a decimal with a digit above 9", 0)
    return converted, target


def json(offsets: Offsets, data: Bytes, validity: Bytes | None) -> tuple[Offsets, Bytes]:
    """Convert binary JSON to the server's text. Raises Malformed for damaged documents."""
    rows = len(offsets) - 1
    capacity = 4 * int(offsets[-1]) + 8 * rows + 1024
    target = np.empty(capacity + SLACK, np.uint8)
    converted = np.zeros(rows + 1, np.int32)
    stack = np.empty(jsontext.STACK_BYTES, np.uint8)
    everything = np.zeros(1, np.uint8) if validity is None else validity
    documents = jsontext.Documents(offsets, data.ctypes.data, everything, validity is not None)
    row = 0
    while True:
        texts = jsontext.Texts(target.ctypes.data, capacity, converted)
        row = jsontext.column(documents, texts, row, stack.ctypes.data)
        if row == rows:
            return converted, target
        used, most = int(converted[row]), jsontext.most_bytes(int(offsets[row + 1] - offsets[row]))
        if used + most <= capacity:
            raise Malformed("a JSON document that can't be read", 0)
        capacity = 2 * capacity + most
        larger = np.empty(capacity + SLACK, np.uint8)
        larger[:used] = target[:used]
        target = larger
