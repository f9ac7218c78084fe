"""Decoder of the server's text protocol into Arrow: packets are walked once, then each column is gathered at once.

Each row is a packet of its own: each value a length-encoded string, NULL the byte FB. A packet of 16 MiB - 1 bytes
continues in the next one. An EOF packet ends the rows, an ERR packet says why there are no more.
(MySQL's source code documentation, "Text Resultset" and "MySQL Packets"; MariaDB's "Result Set Packets".)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pymysql.constants import COMMAND

from binlake.kernels.native import copy, kernel
from binlake.kernels.row_kernels import Numbers
from binlake.schema.strings import Bytes

ROWS = 1 << 16
"""The most rows of a batch."""
BUFFER = 8 << 20
"""Size of the buffer that a batch's rows are read into; it grows if one row is larger."""
_LARGEST = 1 << 31
"""Size of the buffer beyond which it doesn't grow: a row has at most 1 GiB (max_allowed_packet)."""
_PADDING = 8
"""Numbers between two columns' offsets. Otherwise a row's offsets would lie at distances of a power of two, in the same
lines of a cache."""
_WHOLE = 0xFFFFFF
_MORE, _END, _FAILED, _MALFORMED = 0, 1, 2, 3


class Refused(Exception):
    """The server's ERR packet. code: its error number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Truncated(Exception):
    """The connection ended early, or the bytes aren't the expected result set."""


@kernel
def _length(data: Bytes, at: int) -> int:
    """Return the length of a packet's payload, in bytes."""
    return int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16


@kernel
def _joined(data: Bytes, at: int, size: int) -> tuple[int, int]:
    """Join a row's packets in place; return the ends of its payload and of its packets, -1 if it isn't complete."""
    total, behind, length = 0, at, _WHOLE
    while length == _WHOLE:
        if behind + 4 > size:
            return -1, -1
        length = _length(data, behind)
        total += length
        behind += 4 + length
        if behind > size:
            return -1, -1
    length = _length(data, at)
    place, packet = at + 4 + length, at + 4 + length
    while length == _WHOLE:
        length = _length(data, packet)
        for number in range(length):
            data[place + number] = data[packet + 4 + number]
        place += length
        packet += 4 + length
    return at + 4 + total, behind


@kernel
def _walk(data: Bytes, size: int, at: int, rows: int, places: Numbers, lengths: Numbers) -> tuple[int, int, int]:
    """Find the offsets and lengths (-1 for NULL) of the values of complete rows, from ``at``, after ``rows`` known
    ones.

    Returns the offset where it stopped, the number of known rows, and why it stopped.
    """
    columns, most = len(places), places.shape[1] - _PADDING
    while rows < most:
        end, behind = _joined(data, at, size)
        if end < 0:
            return at, rows, _MORE
        place = at + 4
        if place < end and data[place] == 0xFE and end - place < 9:
            return at, rows, _END
        if place < end and data[place] == 0xFF:
            return at, rows, _FAILED
        for column in range(columns):
            if place >= end:
                return at, rows, _MALFORMED
            first = data[place]
            place += 1
            if first == 0xFB:
                places[column, rows] = place
                lengths[column, rows] = -1
                continue
            length = int(first)
            if first > 0xFB:
                width = 2 if first == 0xFC else 3 if first == 0xFD else 8
                if place + width > end:
                    return at, rows, _MALFORMED
                length = 0
                for byte in range(width):
                    length |= int(data[place + byte]) << 8 * byte
                place += width
            if length < 0 or length > end - place:
                return at, rows, _MALFORMED
            places[column, rows] = place
            lengths[column, rows] = length
            place += length
        if place != end:
            return at, rows, _MALFORMED
        at = behind
        rows += 1
    return at, rows, _MORE


@kernel
def _weigh(lengths: Numbers) -> tuple[int, int]:
    """Return the sum of the lengths, and how many values are NULL."""
    total, absent = 0, 0
    for length in lengths:
        if length < 0:
            absent += 1
        else:
            total += length
    return total, absent


@kernel
def _gather(data: Bytes, places: Numbers, lengths: Numbers, offsets: npt.NDArray[np.int32], values: Bytes) -> None:
    """Copy one column's values side by side, and set the end offset of each."""
    source, target, end = data.ctypes.data, values.ctypes.data, 0
    for row in range(len(places)):
        if lengths[row] > 0:
            copy(target + end, source + places[row], lengths[row])
            end += lengths[row]
        offsets[row + 1] = end


def warm() -> None:
    """Load the kernels, or compile them where nobody has: until then no other thread of the process runs."""
    row, end = b"\1\0\0\0\0", b"\5\0\0\1\xfe\0\0\2\0"
    list(columns(lambda buffer: 0, 1, row + end))


def answer(connection: Any, text: str, count: int) -> Iterator[list[pa.BinaryArray]]:
    """Run a query on pymysql's connection and yield its rows as ``columns`` does; the connection is free after the
    last.

    count: number of the query's columns. Raises Refused, Truncated, OSError, and pymysql's errors before the first row.
    """
    connection._execute_command(COMMAND.COM_QUERY, text)
    announced = connection._read_packet().read_length_encoded_integer()
    if announced != count:
        raise Truncated(f"a result of {announced} columns, where {count} were asked for")
    for _ in range(count):
        connection._read_packet()
    connection._read_packet()  # the end of the columns' definitions
    # Its reader holds the first bytes of the rows, or waits for them; what follows needs no second copy.
    arrived = connection._rfile.read1(1 << 20)
    yield from columns(connection._sock.recv_into, count, arrived)


def columns(fill: Callable[[memoryview], int], count: int, arrived: bytes = b"") -> Iterator[list[pa.BinaryArray]]:
    """Yield the rows that follow the column definitions: the texts of each column, of at most ``ROWS`` rows at once.

    fill: reads available bytes into a buffer and returns their number; 0 if the connection ended. count: number of
    columns. arrived: bytes that were read before. Raises Refused and Truncated.
    """
    places, lengths = (np.empty((count, ROWS + _PADDING), np.int64) for _ in range(2))
    data: Bytes = np.empty(BUFFER, np.uint8)
    data[: len(arrived)] = np.frombuffer(arrived, np.uint8)
    have, at, rows = len(arrived), 0, 0
    while True:
        at, rows, ended = _walk(data, have, at, rows, places, lengths)
        if ended == _MORE and rows < ROWS and have < len(data):
            have = _filled(fill, data, have)
        elif rows:
            yield [_column(data, *value) for value in zip(places[:, :rows], lengths[:, :rows], strict=True)]
            data[: have - at] = data[at:have].copy()
            have, at, rows = have - at, 0, 0
        elif ended == _MORE and len(data) >= _LARGEST:
            raise Truncated("a row of more than a gigabyte, which the servers' packets can't have")
        elif ended == _MORE:
            data = np.concatenate([data, np.empty(len(data), np.uint8)])
        elif ended == _END:
            return
        elif ended == _FAILED:
            raise _refusal(bytes(data[at + 4 : at + 4 + _length(data, at)]))
        else:
            raise Truncated("a row isn't as long as its columns")


def _filled(fill: Callable[[memoryview], int], data: Bytes, have: int) -> int:
    """Read once more; return the number of bytes in the buffer. Raises Truncated if the connection ended."""
    got = fill(data.data[have:])
    if not got:
        raise Truncated("the connection ended before the rows did")
    return have + got


def _refusal(payload: bytes) -> Refused:
    """Parse an ERR packet: FF, the error number, ``#`` and five characters of SQLSTATE, the text."""
    text = payload[3:]
    if text[:1] == b"#":
        text = text[6:]
    return Refused(int.from_bytes(payload[1:3], "little"), text.decode("utf-8", "replace"))


def as_batch(texts: list[pa.BinaryArray], schema: pa.Schema) -> pa.RecordBatch:
    """Return the server's texts cast exactly to the types of ``schema``. Raises Truncated."""
    return pa.record_batch([_cast(text, field) for text, field in zip(texts, schema, strict=True)], schema=schema)


def _cast(texts: pa.BinaryArray, field: pa.Field) -> pa.Array:
    try:
        return texts.cast(field.type)
    except pa.ArrowInvalid:  # its message quotes the value
        raise Truncated(f"a value of column {field.name} isn't of the type {field.type}") from None


def _column(data: Bytes, places: Numbers, lengths: Numbers) -> pa.Array:
    """Return one column's values as a binary array."""
    total, absent = _weigh(lengths)
    ends, values = pa.allocate_buffer(4 * len(places) + 4), pa.allocate_buffer(total)
    offsets = np.frombuffer(ends, np.int32)
    offsets[0] = 0
    _gather(data, places, lengths, offsets, np.frombuffer(values, np.uint8))
    validity = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little")) if absent else None
    return pa.Array.from_buffers(pa.binary(), len(places), [validity, ends, values], absent)
