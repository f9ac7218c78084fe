"""Values of one type as those of another, without Spark: the pairs for which Arrow gives what Spark's CAST does.

tests/integration/test_casts.py holds each pair against Spark at its edges; what the server made of the same values is
held against Spark in tests/integration/test_ddl_conversions.py. A value that doesn't fit is left to Spark, which
refuses it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from binlake.errors import LeftToSpark

_PLAIN_SCALE = 6
"""Digits behind the point up to which both write a DECIMAL without an exponent."""
_PAIRS = frozenset({(pa.float32(), pa.float64()), (pa.date32(), pa.timestamp("us")), (pa.string(), pa.binary())})
_LONGEST = 76
"""Digits of a decimal256."""


def is_known(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether values of a type in data files are cast to another here."""
    types = pa.types
    if before == after:
        return True
    if types.is_integer(before):
        kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_string)
        return any(is_kind(after) for is_kind in kinds)
    if types.is_decimal(before):
        scale: int = before.scale
        into_text = types.is_string(after) and scale <= _PLAIN_SCALE
        into_integer = types.is_integer(after) and scale == 0
        return into_text or into_integer or (types.is_decimal(after) and bool(after.scale >= scale))
    if types.is_boolean(before):
        return bool(types.is_integer(after))
    return (before, after) in _PAIRS


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether a table's type may replace that of its older data files by Delta's type widening."""
    types = pa.types
    if types.is_integer(before) and types.is_integer(after):
        return bool(before.bit_width < after.bit_width)
    if types.is_decimal(before) and types.is_decimal(after):
        digits = (kind.precision - kind.scale for kind in (before, after))
        return bool(before.scale <= after.scale and next(digits) <= next(digits))
    if types.is_integer(before):
        return bool(types.is_decimal(after))
    return (before, after) in ((pa.float32(), pa.float64()), (pa.date32(), pa.timestamp("us")))


def cast(values: pa.ChunkedArray, after: pa.DataType) -> pa.ChunkedArray:
    """Return values of a known pair. Raises LeftToSpark where one doesn't fit."""
    try:
        if pa.types.is_decimal(after):
            # Arrow asks for room for all integers of a type, and doesn't see what is beyond the digits of a decimal128.
            return pc.cast(pc.cast(values, pa.decimal256(_LONGEST, after.scale)), after)
        return pc.cast(values, after)
    except pa.ArrowInvalid:
        raise LeftToSpark(f"a value of {values.type} doesn't fit into {after}") from None
