"""Base64 of columns of integers, as Kafka Connect's JSON has the unscaled values of Decimal.

Each is the shortest big-endian two's complement, as Java's BigInteger returns it, in base64 (RFC 4648).
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pyarrow as pa

_LETTERS = np.frombuffer((string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8)
_LIMITS = np.array([1 << 8 * length - 1 for length in range(1, 8)], np.int64)
"""The smallest numbers that take two, three … bytes."""
_QUOTE, _PADDING = ord('"'), ord("=")


def quoted(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    """Return int64 numbers as JSON strings of base64."""
    bytes_each = np.searchsorted(_LIMITS, numbers ^ (numbers >> 63), side="right") + 1
    widths = (bytes_each + 2) // 3 * 4 + 2
    offsets = np.concatenate(([0], np.cumsum(widths))).astype(np.int32)
    data = np.empty(offsets[-1], np.uint8)
    for length in np.unique(bytes_each).tolist():
        rows = np.flatnonzero(bytes_each == length)
        texts = _texts(numbers[rows], length)
        data[offsets[rows][:, None] + np.arange(texts.shape[1])] = texts
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _texts(numbers: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Return the strings of numbers that take ``length`` bytes, one row of characters each."""
    groups, padding = -(-length // 3), -length % 3
    octets = np.zeros((len(numbers), groups * 3), np.uint32)
    octets[:, :length] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - length :]
    words = octets[:, 0::3] << 16 | octets[:, 1::3] << 8 | octets[:, 2::3]
    made = np.full((len(numbers), groups * 4 + 2), _QUOTE, np.uint8)
    for place, shift in enumerate((18, 12, 6, 0)):
        made[:, 1 + place : -1 : 4] = _LETTERS[words >> shift & 63]
    if padding:
        made[:, -1 - padding : -1] = _PADDING
    return made
