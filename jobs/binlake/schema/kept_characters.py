"""Characters that are kept of texts, and a sign in the place of each other one, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlake.kernels.native import act, kernel, load8, store8


@act
def _is_begin(byte: Any) -> Any:
    """Return whether a byte begins a character of UTF-8."""
    return (byte & 0xC0) != 0x80


@kernel
def _measure(
    address: int,
    offsets: NDArray[np.int32],
    first: int,
    last: int,
    sign: int,
    parts: NDArray[np.int32],
    ends: NDArray[np.int64],
) -> None:
    """Write of each text the bytes that are kept at its beginning and at its end, the characters between them, and
    where what becomes of it ends. sign: bytes of the sign."""
    end = 0
    for row in range(len(offsets) - 1):
        start, stop = address + offsets[row], address + offsets[row + 1]
        count = 0
        for place in range(start, stop):
            count += 1 if _is_begin(load8(place)) else 0
        head, tail, hidden = start, stop, count
        if count > first + last:  # one that is no longer would be shown whole
            hidden = count - first - last
            for _ in range(first):
                head += 1
                while head < stop and not _is_begin(load8(head)):
                    head += 1
            for _ in range(last):
                tail -= 1
                while not _is_begin(load8(tail)):
                    tail -= 1
        parts[row, 0] = head - start
        parts[row, 1] = stop - tail
        parts[row, 2] = hidden
        end += (head - start) + (stop - tail) + hidden * sign
        ends[row] = end


@kernel
def _write(
    address: int,
    offsets: NDArray[np.int32],
    parts: NDArray[np.int32],
    sign: NDArray[np.uint8],
    to: int,
) -> None:
    """Write what becomes of each text, one behind the other. parts: see ``_measure``."""
    for row in range(len(offsets) - 1):
        start, stop = address + offsets[row], address + offsets[row + 1]
        for place in range(start, start + parts[row, 0]):
            store8(to, load8(place))
            to += 1
        for _ in range(parts[row, 2]):
            for byte in sign:
                store8(to, byte)
                to += 1
        for place in range(stop - parts[row, 1], stop):
            store8(to, load8(place))
            to += 1


def kept(values: pa.StringArray, first: int, last: int, fill: str) -> pa.StringArray:
    """Return texts with their first and last characters, and ``fill`` for each other one; NULL stays NULL. Of a text
    that isn't longer than what is kept no character stays. Raises OverflowError for more than 2 GiB."""
    buffers, count = values.buffers(), len(values)
    offsets = np.frombuffer(buffers[1], np.int32)[values.offset : values.offset + count + 1]
    address = buffers[2].address if buffers[2] is not None else 0
    sign = np.frombuffer(fill.encode(), np.uint8)
    parts, ends = np.empty((count, 3), np.int32), np.empty(count, np.int64)
    _measure(address, offsets, first, last, len(sign), parts, ends)
    size = int(ends[-1]) if count else 0
    if size > np.iinfo(np.int32).max:
        raise OverflowError(f"masked texts of {size:,} bytes are too many for one array")
    written = pa.allocate_buffer(size)
    _write(address, offsets, parts, sign, written.address)
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    validity = None
    if values.null_count:
        validity = pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [validity, pa.py_buffer(bounds), written], values.null_count)
