"""Avro's binary encoding of whole columns, as Arrow arrays of bytes.

Source: Avro's specification, "Binary Encoding".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.feeds.formats.joining import joined
from binlake.schema.decimals import OCTETS, are_small, numbers_of, unscaled

_LIMITS = np.array([1 << 7 * length for length in range(1, 10)], np.uint64)
"""The smallest numbers that take two, three … bytes."""


def numbers(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Encode int64 numbers: zigzag, seven bits per byte."""
    signed = values.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    if not len(rest) or rest.max() < 128:  # lengths and counts, as a rule
        return _binaries(np.ones(len(rest), np.int64), rest.astype(np.uint8))
    lengths = np.searchsorted(_LIMITS, rest, side="right") + 1
    width = int(lengths.max(initial=1))
    matrix = ((rest[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))) & np.uint64(127)).astype(np.uint8)
    more = np.arange(width) < lengths[:, None] - 1
    matrix[more] |= 128
    return _binaries(lengths, matrix[np.arange(width) < lengths[:, None]])


def shortest(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Encode int64 numbers as Avro's decimals have them: the shortest big-endian two's complement."""
    lengths = np.searchsorted(OCTETS, values ^ (values >> 63), side="right") + 1
    matrix = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    return _binaries(lengths, matrix[np.arange(8) >= 8 - lengths[:, None]])


def _binaries(lengths: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Return an array of values with these lengths in bytes, cut from ``data``."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _where(values: pa.Array, made: pa.BinaryArray) -> pa.BinaryArray:
    """Return ``made`` with null where ``values`` has null."""
    return made if not values.null_count else pc.if_else(values.is_valid(), made, pa.scalar(None, pa.binary()))


def whole(values: pa.Array) -> pa.BinaryArray:
    """Encode an Arrow column of integers; null stays null."""
    return _where(values, numbers(pc.fill_null(values, 0).to_numpy(zero_copy_only=False)))


def flags(values: pa.Array) -> pa.BinaryArray:
    """Encode booleans; null stays null."""
    return pa.array([b"\x00", b"\x01"], pa.binary()).take(values.cast(pa.int8()))


def floats(values: pa.Array) -> pa.BinaryArray:
    """Encode floating-point numbers of either width; null stays null."""
    plain = np.ascontiguousarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    return _where(values, _binaries(np.full(len(plain), plain.itemsize), plain.view(np.uint8)))


def vectors(values: pa.ListArray) -> pa.BinaryArray:
    """Encode arrays of floating-point numbers, each one block and the end marker; null stays null."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    inside = np.ascontiguousarray(values.flatten().to_numpy(zero_copy_only=False))
    end = pc.if_else(pa.array(lengths > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary()))
    blocks = _binaries(lengths * inside.itemsize, inside.view(np.uint8))
    return _where(values, joined(numbers(lengths), blocks, end))


def strings(values: pa.Array) -> pa.BinaryArray:
    """Encode texts (UTF-8) or bytes, each preceded by its length; null stays null."""
    return joined(*string_parts(values))


def string_parts(values: pa.Array) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the lengths and the bytes of ``strings`` as two arrays, which saves a copy."""
    data = values.cast(pa.binary())
    return whole(pc.binary_length(data)), data


def decimals(values: pa.Array) -> pa.BinaryArray:
    """Encode the logical type ``decimal`` of bytes; null stays null."""
    if are_small(values):
        return strings(_where(values, shortest(numbers_of(values))))
    scale = values.type.scale
    each = (None if value is None else unscaled(value, scale) for value in values.to_pylist())
    return strings(pa.array(each, pa.binary()))
