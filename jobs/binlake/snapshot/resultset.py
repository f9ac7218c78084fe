"""A result set of the server's text protocol as Arrow: packets are walked once, then each column is gathered whole.

Each row is a packet of its own: each value a length-encoded string, NULL the byte FB. A packet of 16 MiB - 1 bytes goes
on in the next one. An EOF packet ends the rows, an ERR packet tells why there are no more.
(MySQL's source code documentation, "Text Resultset" and "MySQL Packets"; MariaDB's "Result Set Packets".)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.binlog.strings import Bytes
from binlake.kernels.native import kernel
from binlake.kernels.row_kernels import Numbers

ROWS = 1 << 16
"""Rows of a batch, at most."""
BUFFER = 8 << 20
"""Bytes from which a batch's rows are taken, at most; more where one row has more."""
_WHOLE = 0xFFFFFF
_MORE, _END, _FAILED, _MALFORMED = 0, 1, 2, 3


class Refused(Exception):
    """The server's ERR packet. code: its error number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Truncated(Exception):
    """The connection ended, or what came isn't the result set that was asked for."""


@kernel
def _length(data: Bytes, at: int) -> int:
    """Of a packet's payload, in bytes."""
    return int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16


@kernel
def _joined(data: Bytes, at: int, size: int) -> tuple[int, int]:
    """Ends of a row's payload and of its packets, once the payload is in one piece; -1 where it isn't there whole."""
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
    """Where the values of whole rows begin, and how long they are, -1 for NULL: from ``at`` on, behind ``rows`` that
    are known. Gives where it ended, the rows that are known then, and why."""
    columns, most = places.shape
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
def _gather(data: Bytes, places: Numbers, lengths: Numbers, offsets: npt.NDArray[np.int32], values: Bytes) -> None:
    """One column's values side by side."""
    end = 0
    for row in range(len(places)):
        length = max(lengths[row], 0)
        values[end : end + length] = data[places[row] : places[row] + length]
        end += length
        offsets[row + 1] = end


def columns(fill: Callable[[memoryview], int], count: int, arrived: bytes = b"") -> Iterator[list[pa.BinaryArray]]:
    """The rows that follow the columns' definitions, ``ROWS`` at most at once: of each column the server's texts.

    fill: reads what there is into a buffer, some bytes at least, and gives their number; 0 where the connection ended.
    count: of columns. arrived: bytes that were read before. Raises Refused and Truncated.
    """
    places, lengths = (np.empty((count, ROWS), np.int64) for _ in range(2))
    data: Bytes = np.empty(BUFFER, np.uint8)
    data[: len(arrived)] = np.frombuffer(arrived, np.uint8)
    have, at, rows = len(arrived), 0, 0
    while True:
        at, rows, ended = _walk(data, have, at, rows, places, lengths)
        if ended == _MORE and rows < ROWS and have < len(data):
            have = _filled(fill, data, have)
        elif rows:
            yield [_column(data, *one) for one in zip(places[:, :rows], lengths[:, :rows], strict=True)]
            data[: have - at] = data[at:have].copy()
            have, at, rows = have - at, 0, 0
        elif ended == _MORE:
            data = np.concatenate([data, np.empty(len(data), np.uint8)])
        elif ended == _END:
            return
        elif ended == _FAILED:
            raise _refusal(bytes(data[at + 4 : at + 4 + _length(data, at)]))
        else:
            raise Truncated("a row isn't as long as its columns")


def _filled(fill: Callable[[memoryview], int], data: Bytes, have: int) -> int:
    """Bytes in the buffer after another read."""
    got = fill(data.data[have:])
    if not got:
        raise Truncated("the connection ended before the rows did")
    return have + got


def _refusal(payload: bytes) -> Refused:
    """An ERR packet: FF, the number, ``#`` and five characters of SQLSTATE, the text."""
    text = payload[3:]
    if text[:1] == b"#":
        text = text[6:]
    return Refused(int.from_bytes(payload[1:3], "little"), text.decode("utf-8", "replace"))


def as_batch(found: list[pa.BinaryArray], schema: pa.Schema) -> pa.RecordBatch:
    """Columns with ``schema``, to whose types the server's texts are cast exactly. Raises Truncated."""
    return pa.record_batch([_cast(*one) for one in zip(found, schema, strict=True)], schema=schema)


def _cast(texts: pa.BinaryArray, field: pa.Field) -> pa.Array:
    try:
        return texts.cast(field.type)
    except pa.ArrowInvalid:  # whose words quote the value
        raise Truncated(f"a value of column {field.name} isn't of the type {field.type}") from None


def _column(data: Bytes, places: Numbers, lengths: Numbers) -> pa.Array:
    """As binary."""
    present = lengths >= 0
    offsets = np.zeros(len(places) + 1, np.int32)
    values = np.empty(int(lengths[present].sum()), np.uint8)
    _gather(data, places, lengths, offsets, values)
    absent = len(places) - int(present.sum())
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if absent else None
    return pa.Array.from_buffers(
        pa.binary(), len(places), [validity, pa.py_buffer(offsets), pa.py_buffer(values)], absent
    )
