"""The digits of decimals as Java's BigInteger has them: whole numbers in two's complement, big-endian."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_MOST_DIGITS = 18
_EXACT = Context(prec=100)
"""Python's own rounds to 28 digits."""


def are_small(values: pa.Array) -> bool:
    """Decimals whose digits numbers_of tells."""
    small: bool = pa.types.is_decimal128(values.type) and values.type.precision <= _MOST_DIGITS
    return small


def numbers_of(values: pa.Decimal128Array) -> np.ndarray[Any, Any]:
    """The digits of decimals as int64, of which more than 18 lose the upper bits; of null anything."""
    words = np.frombuffer(values.buffers()[1], np.int64)
    return words[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def unscaled(value: Decimal, scale: int) -> bytes:
    """A decimal's digits as the shortest big-endian number in two's complement, as Java's BigInteger has it."""
    number = int(value.scaleb(scale, _EXACT))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
