"""The order of a key column's values, both staged ones and those of data files' statistics, for numpy to sort.

| in the lake                     | here                                  | its statistics |
|---------------------------------|---------------------------------------|----------------|
| whole numbers                   | int64                                 | exact |
| DECIMAL(20,0) of BIGINT UNSIGNED | uint64                               | see ``_not_rounded`` |
| DECIMAL                          | units of its last digit: int64, or int beyond 18 digits | see ``_not_rounded`` |
| DATE                            | days since 1970, int64                | exact |
| TIMESTAMP, TIMESTAMP_NTZ        | microseconds since 1970, int64        | cut to milliseconds |
| STRING                          | str, whose order is that of its bytes in UTF-8 | cut, see ``_not_misread`` |

Delta has no statistics of BINARY and BOOLEAN; floats are equal beyond their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import total_ordering
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.names import spark_string
from binlake.schema.datatypes import arrow_type, made_late
from binlake.schema.table import Column
from binlake.schema.types.datatype import StoredBytes

_ROUNDED, _SATURATED = 10**15, 2**63 - 1
"""deltalake, with which somebody may have compacted the table, writes statistics of decimals as doubles, which have
fifteen digits, between the limits of 64 signed bits."""
_CUT = 999
"""Microseconds that are cut off a moment, at most."""

_IN_A_WORD = 18
"""Digits that 64 bits hold."""

_DIGITS = Context(prec=38)
_LOST = 1 << 16

Values = NDArray[Any]


@total_ordering
class _Highest:
    """Sorts above every text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Highest)

    def __hash__(self) -> int:
        return 0

    def __lt__(self, other: object) -> bool:
        return False


@dataclass(frozen=True)
class KeyOrder:
    """How values of a key's column compare.

    arrow: the lake's type. lowest, highest: at or beyond each value. plain: turns Arrow's values, without NULL, into
    values that numpy sorts. bound: turns a value of the statistics into one that no value of the file lies beyond,
    downwards (-1) or upwards (1); None where there is no such bound. stored: how values are made of the log's bytes.
    """

    arrow: pa.DataType
    dtype: Any
    lowest: Any
    highest: Any
    plain: Callable[[pa.Array], Values]
    bound: Callable[[Any, int], Any]
    stored: StoredBytes | None = None

    def distinct(self, staged: pa.Array) -> Values:
        """Return staged values without NULL, each once, ascending."""
        once = staged.unique()
        if self.stored is not None:
            once = self.stored.values(once)
        return self.plain(once.take(pc.array_sort_indices(once)))

    def bounds(self, statistics: pa.Array, towards: int) -> Values | None:
        """Return the least (-1) or greatest (1) value of each data file by its statistics; None where they are of
        another type."""
        if statistics.type != self.arrow and not (
            pa.types.is_integer(statistics.type) and pa.types.is_integer(self.arrow)
        ):
            return None
        bounds = np.full(len(statistics), self.lowest if towards < 0 else self.highest, self.dtype)
        places = np.flatnonzero(pc.is_valid(statistics).to_numpy(zero_copy_only=False))
        for place, value in zip(places, self.plain(statistics.drop_null()).tolist(), strict=True):
            bound = self.bound(value, towards)
            if bound is not None:
                bounds[place] = min(max(bound, self.lowest), self.highest)
        return bounds


def order_of(column: Column) -> KeyOrder | None:
    """Return the order of a column; None for a type whose statistics say nothing."""
    arrow = arrow_type(column)
    if pa.types.is_integer(arrow):
        return _of_numbers(arrow, np.int64, _cast(pa.int64()), _exact)
    if pa.types.is_date(arrow):
        return _of_numbers(arrow, np.int64, _days, _exact)
    if pa.types.is_timestamp(arrow):
        return _of_numbers(arrow, np.int64, _cast(pa.int64()), _not_cut)
    if pa.types.is_string(arrow):
        return KeyOrder(arrow, object, "", _Highest(), _objects, _not_misread, made_late(column))
    if not pa.types.is_decimal(arrow):
        return None
    bound = _not_rounded(arrow.scale)
    if column.type == "bigint":
        return _of_numbers(arrow, np.uint64, _cast(pa.uint64()), bound)
    if arrow.precision <= _IN_A_WORD:
        return _of_numbers(arrow, np.int64, lambda values: _words(values)[:, 0], bound)
    limit = 10**arrow.precision
    return KeyOrder(arrow, object, -limit, limit, _wide, bound)


def spark_literal(column: Column, value: Any) -> str:
    """Return a value of this module as a literal of Spark SQL."""
    arrow = arrow_type(column)
    if pa.types.is_string(arrow):
        return spark_string(value)
    if pa.types.is_date(arrow):
        return f"DATE'{_python_value(arrow, value)}'"
    if pa.types.is_timestamp(arrow):
        return (
            f"TIMESTAMP_LTZ'{_python_value(arrow, value)}'"
            if arrow.tz
            else f"TIMESTAMP_NTZ'{_python_value(arrow, value)}'"
        )
    return f"{Decimal(int(value)).scaleb(-arrow.scale, _DIGITS):f}BD" if pa.types.is_decimal(arrow) else str(int(value))


def _python_value(arrow: pa.DataType, value: Any) -> Any:
    stored = pa.int32() if pa.types.is_date(arrow) else pa.int64()
    return pa.scalar(int(value), stored).cast(arrow).as_py()


def _of_numbers(
    arrow: pa.DataType, dtype: Any, plain: Callable[[pa.Array], Values], bound: Callable[[Any, int], Any]
) -> KeyOrder:
    limits = np.iinfo(dtype)
    return KeyOrder(arrow, dtype, int(limits.min), int(limits.max), plain, bound)


def _cast(kind: pa.DataType) -> Callable[[pa.Array], Values]:
    return lambda values: values.cast(kind).to_numpy(zero_copy_only=False)


def _days(values: pa.Array) -> Values:
    return _cast(pa.int64())(values.cast(pa.int32()))


def _objects(values: pa.Array) -> Values:
    objects: Values = values.to_numpy(zero_copy_only=False).astype(object)
    return objects


def _words(values: pa.Array) -> Values:
    """Return the lower and the upper 64 bits of decimals."""
    pairs = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2) if len(values) else np.empty((0, 2), np.int64)
    return pairs[values.offset : values.offset + len(values)]


def _wide(values: pa.Array) -> Values:
    words = _words(values)
    numbers: Values = words[:, 1].astype(object) * 2**64 + words[:, 0].astype(np.uint64).astype(object)
    return numbers


def _exact(value: Any, _towards: int) -> Any:
    return value


def _not_misread(text: str, towards: int) -> str:
    """Return a bound that holds whatever deltalake read: characters from U+20000 on that are escaped in JSON lose 2**16
    there, or keep its bit (surrogate pairs in arrow-json)."""
    if towards < 0 or text.isascii():
        return text
    return "".join(chr(ord(character) + _LOST) if ord(character) & _LOST else character for character in text)


def _not_cut(value: int, towards: int) -> int:
    return value + towards * _CUT


def _not_rounded(scale: int) -> Callable[[int, int], int | None]:
    limit, bits = _SATURATED * 10**scale, 47 if scale else 51  # powers of ten above 22 are rounded, too

    def bound(value: int, towards: int) -> int | None:
        if value * towards >= limit:
            return None
        return value + towards * ((abs(value) >> bits) + 1 if abs(value) >= _ROUNDED else 0)

    return bound
