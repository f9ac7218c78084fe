"""Unscaled values of decimals, as Java's BigInteger returns them: big-endian two's complement."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

OCTETS = np.array([1 << 8 * length - 1 for length in range(1, 8)], np.int64)
"""The smallest numbers that take two, three … bytes in two's complement."""
_MOST_DIGITS = 18
_EXACT = Context(prec=100)
"""A context without rounding; Python's default rounds to 28 digits."""


def are_small(values: pa.Array) -> bool:
    """Return whether ``numbers_of`` returns the unscaled values of these decimals exactly."""
    small: bool = pa.types.is_decimal128(values.type) and values.type.precision <= _MOST_DIGITS
    return small


def numbers_of(values: pa.Decimal128Array) -> np.ndarray[Any, Any]:
    """Return unscaled values as int64; beyond 18 digits upper bits are lost, and for null the number is arbitrary."""
    words = np.frombuffer(values.buffers()[1], np.int64)
    return words[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def unscaled(value: Decimal, scale: int) -> bytes:
    """Return a decimal's unscaled value as the shortest big-endian two's complement."""
    number = int(value.scaleb(scale, _EXACT))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
