"""Concatenation of texts or bytes row by row, and quoting of JSON strings, compiled for whole columns.

Arrow's own function for this (binary_join_element_wise) appends value by value, and took half of a feed's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.kernels.jsontext import SHORT, put_character
from binlake.kernels.native import copy, copy32, kernel, load8, load32, store8
from binlake.kernels.row_kernels import Numbers

Part: TypeAlias = pa.Array | pa.Scalar
"""Values to concatenate: one per row, or one for all rows."""
_SLACK = bytes(32)
"""Padding after values, as short ones are copied in pieces of 32 bytes."""
_MOST_BYTES = (1 << 31) - 1
"""The most bytes of a column's values, whose offsets have 32 bits."""


def joined(*parts: Part | str | bytes) -> Part:
    """Concatenate texts or bytes row by row; null if a part is null. Returns a scalar if no part differs by row.

    Raises pa.ArrowCapacityError beyond 2 GB.
    """
    merged = _merged(parts)
    arrays = [part for part in merged if not isinstance(part, str | bytes)]
    if not arrays:
        return pa.scalar(merged[0])
    rows, kind = len(arrays[0]), arrays[0].type
    if not rows:
        return pa.array([], kind)
    constants = pa.py_buffer(b"".join([part for part in merged if isinstance(part, bytes)]) + _SLACK)
    places = np.array(_places(merged, constants.address), np.int64).reshape(-1, 4)
    offsets = np.zeros(rows + 1, np.int64)
    _measure(places, offsets)
    data = pa.allocate_buffer(_within_bounds(offsets) + len(_SLACK))
    _lay(places, rows, data.address)
    return _made(kind, offsets, data, [part for part in arrays if part.null_count])


def listed(values: pa.Array) -> list[Any]:
    """Return Python's strings or bytes, None for null, without an Arrow object for each."""
    objects: list[Any] = values.to_numpy(zero_copy_only=False).tolist()
    return objects


def _merged(parts: Sequence[Part | str | bytes]) -> list[Any]:
    """Merge neighbouring parts that are the same in all rows; return them as bytes if another part has rows."""
    merged: list[Any] = []
    for part in parts:
        value = part.as_py() if isinstance(part, pa.Scalar) else part
        if isinstance(value, pa.Array) or not merged or isinstance(merged[-1], pa.Array):
            merged.append(value)
        else:
            merged[-1] += value
    if len(merged) == 1:
        return merged
    return [part.encode() if isinstance(part, str) else part for part in merged]


def _places(parts: Sequence[pa.Array | bytes], constants: int) -> list[tuple[int, int, int, int]]:
    """Return for each part the addresses of its values and offsets, the size of a constant, and a limit.

    constants: the address at which those of the parts lie, one after the other, with padding behind. Offsets are 0 for
    a constant. The limit is the highest start in the values from which 32 bytes may be read. Raises TypeError for
    values without 32-bit offsets.
    """
    places = []
    for part in parts:
        if isinstance(part, bytes):
            places.append((constants, 0, len(part), 0))
            constants += len(part)
        else:
            places.append(_place(part))
    return places


def _place(part: pa.Array) -> tuple[int, int, int, int]:
    """Return an array's entry of ``_places``."""
    if part.type not in (pa.string(), pa.binary()):
        raise TypeError(f"{part.type} has no offsets of 32 bits")
    _, offsets, data = part.buffers()
    start = offsets.address + 4 * part.offset
    return (data.address, start, 0, data.size - len(_SLACK)) if data is not None else (0, start, 0, 0)


def _within_bounds(offsets: Numbers) -> int:
    """Return the size of all values. Raises pa.ArrowCapacityError beyond 2 GB."""
    size = int(offsets[-1])
    if size > _MOST_BYTES:
        raise pa.ArrowCapacityError(f"a column of {size:,} bytes, more than 2 GB")
    return size


def _made(kind: pa.DataType, offsets: Numbers, data: pa.Buffer, absent: Sequence[pa.Array]) -> pa.Array:
    """Return the array of concatenated values. absent: the parts that have nulls, which become nulls of the array."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    if absent:
        present = absent[0].is_valid()
        for part in absent[1:]:
            present = pc.and_(present, part.is_valid())
        buffers[0] = present.buffers()[1]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


@kernel
def _measure(places: Numbers, offsets: Numbers) -> None:
    """Compute the offsets of the concatenated values. places: see _places. offsets: zeros."""
    rows = len(offsets) - 1
    always = 0
    for piece in range(len(places)):
        at = places[piece, 1]
        if at == 0:
            always += places[piece, 2]
            continue
        for row in range(rows):
            offsets[row + 1] += load32(at + 4 * row + 4) - load32(at + 4 * row)
    for row in range(rows):
        offsets[row + 1] += offsets[row] + always


@kernel
def _lay(places: Numbers, rows: int, to: int) -> None:
    """Copy the values to ``to``. Short ones are copied as 32 bytes; the next value overwrites what is too much."""
    for row in range(rows):
        for piece in range(len(places)):
            source, at, size = places[piece, 0], places[piece, 1], places[piece, 2]
            start = 0
            if at != 0:
                start = load32(at + 4 * row)
                size = load32(at + 4 * row + 4) - start
            if size <= 32 and start <= places[piece, 3]:
                copy32(to, source + start)
            elif size > 0:
                copy(to, source + start, size)
            to += size


def quoted(texts: pa.StringArray) -> pa.StringArray:
    """Return texts as JSON strings; null stays null."""
    rows = len(texts)
    if not rows:
        return texts
    source, at, *_ = _place(texts)
    offsets = np.zeros(rows + 1, np.int64)
    odd = _measure_quoted(source, at, offsets)
    if not odd:
        made: pa.StringArray = joined('"', texts, '"')
        return made
    data = pa.allocate_buffer(_within_bounds(offsets))
    _quote(source, at, rows, data.address)
    return _made(texts.type, offsets, data, [texts] if texts.null_count else [])


@kernel
def _measure_quoted(source: int, at: int, offsets: Numbers) -> int:
    """Compute the offsets of the quoted texts. Return how many bytes must be escaped; if 0, offsets aren't set."""
    rows = len(offsets) - 1
    plain = True
    for place in range(source + load32(at), source + load32(at + 4 * rows)):
        byte = load8(place)
        plain &= (byte >= 32) & (byte != 34) & (byte != 92)
    if plain:
        return 0
    odd = 0
    for row in range(rows):
        start, end = load32(at + 4 * row), load32(at + 4 * row + 4)
        size = end - start + 2
        for place in range(source + start, source + end):
            escape = SHORT[load8(place)]
            if escape != 0:
                size += 5 if escape == 1 else 1
                odd += 1
        offsets[row + 1] = offsets[row] + size
    return odd


@kernel
def _quote(source: int, at: int, rows: int, to: int) -> None:
    for row in range(rows):
        store8(to, 34)
        to += 1
        for place in range(source + load32(at + 4 * row), source + load32(at + 4 * row + 4)):
            to = put_character(to, load8(place))
        store8(to, 34)
        to += 1
