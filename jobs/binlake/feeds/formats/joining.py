"""Texts and bytes laid behind each other, row by row, and the strings of JSON: compiled, a pass for whole columns.

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
"""What is written for each row, or one thing for all."""
_SLACK = bytes(32)
"""Behind what is copied in such pieces."""
_MOST_BYTES = (1 << 31) - 1
"""Of a column's values, whose offsets have 32 bits."""


def joined(*parts: Part | str | bytes) -> Part:
    """Texts, or bytes, behind each other, row by row; null where one of them is. One for all where all are.

    Raises pa.ArrowCapacityError beyond 2 GB.
    """
    merged = _merged(parts)
    arrays = [one for one in merged if not isinstance(one, str | bytes)]
    if not arrays:
        return pa.scalar(merged[0])
    rows, kind = len(arrays[0]), arrays[0].type
    if not rows:
        return pa.array([], kind)
    padded = [one + _SLACK if isinstance(one, bytes) else one for one in merged]
    places = np.array([_place(one) for one in padded], np.int64).reshape(-1, 4)
    offsets = np.zeros(rows + 1, np.int64)
    _measure(places, offsets)
    data = pa.allocate_buffer(_within_bounds(offsets) + len(_SLACK))
    _lay(places, rows, data.address)
    return _made(kind, offsets, data, [one for one in arrays if one.null_count])


def listed(values: pa.Array) -> list[Any]:
    """Python's own texts, or bytes, None for null, without Arrow's object for each."""
    found: list[Any] = values.to_numpy(zero_copy_only=False).tolist()
    return found


def _merged(parts: Sequence[Part | str | bytes]) -> list[Any]:
    """Neighbours that are the same in all rows are one; as bytes where there are rows."""
    merged: list[Any] = []
    for part in parts:
        one = part.as_py() if isinstance(part, pa.Scalar) else part
        if isinstance(one, pa.Array) or not merged or isinstance(merged[-1], pa.Array):
            merged.append(one)
        else:
            merged[-1] += one
    if len(merged) == 1:
        return merged
    return [one.encode() if isinstance(one, str) else one for one in merged]


def _place(part: pa.Array | bytes) -> tuple[int, int, int, int]:
    """Address of the values, of their offsets (0 where one value is for all), the size of that one without its slack,
    and up to where in the values as many bytes as the slack has may be read. Raises TypeError."""
    if isinstance(part, bytes):
        return np.frombuffer(part, np.uint8).ctypes.data, 0, len(part) - len(_SLACK), 0
    if part.type not in (pa.string(), pa.binary()):
        raise TypeError(f"{part.type} has no offsets of 32 bits")
    _, offsets, data = part.buffers()
    start = offsets.address + 4 * part.offset
    return (data.address, start, 0, data.size - len(_SLACK)) if data is not None else (0, start, 0, 0)


def _within_bounds(offsets: Numbers) -> int:
    """The size of all values."""
    size = int(offsets[-1])
    if size > _MOST_BYTES:
        raise pa.ArrowCapacityError(f"a column of {size:,} bytes, more than 2 GB")
    return size


def _made(kind: pa.DataType, offsets: Numbers, data: pa.Buffer, absent: Sequence[pa.Array]) -> pa.Array:
    """absent: of columns with nulls, each of which is one here."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    if absent:
        present = absent[0].is_valid()
        for one in absent[1:]:
            present = pc.and_(present, one.is_valid())
        buffers[0] = present.buffers()[1]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


@kernel
def _measure(places: Numbers, offsets: Numbers) -> None:
    """places: see _place. offsets: zeros that become those of the whole."""
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
    """Short values are copied without a call, with bytes behind them that the next value overwrites."""
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
    """JSON's strings; null stays null."""
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
    """Fills offsets, which are zeros. Gives how many bytes are to be escaped."""
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
