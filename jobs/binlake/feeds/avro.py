"""Avro's binary encoding of whole columns at once, as Arrow arrays of bytes.

Source: Avro's specification, "Binary Encoding".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LIMITS = np.array([1 << 7 * length for length in range(1, 10)], np.uint64)
"""The least number that takes two bytes, three, and so on."""


def numbers(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Whole numbers (int64): zigzag, seven bits a byte."""
    signed = values.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.searchsorted(_LIMITS, rest, side="right") + 1
    width = int(lengths.max(initial=1))
    matrix = ((rest[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))) & np.uint64(127)).astype(np.uint8)
    more = np.arange(width) < lengths[:, None] - 1
    matrix[more] |= 128
    data = matrix[np.arange(width) < lengths[:, None]]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def whole(values: pa.Array) -> pa.BinaryArray:
    """An Arrow column of whole numbers; null stays null."""
    made = numbers(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    return made if not values.null_count else pc.if_else(values.is_valid(), made, pa.scalar(None, pa.binary()))


def strings(values: pa.Array) -> pa.BinaryArray:
    """Texts in UTF-8, or bytes: each with its length before it; null stays null."""
    data = values.cast(pa.binary())
    return joined(whole(pc.binary_length(data)), data)


def joined(*parts: Any) -> pa.BinaryArray:
    """Bytes behind each other, row by row; null where one of them is. A part may be one for all rows."""
    scalars = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))
