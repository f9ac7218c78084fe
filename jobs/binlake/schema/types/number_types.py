"""Whole numbers, of which unsigned ones take the next wider signed type; FLOAT and DOUBLE, exactly."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite

import numpy as np
import pyarrow as pa

from binlake.position import Flavour
from binlake.schema.arithmetic import integer_range
from binlake.schema.decimals import numbers_of
from binlake.schema.doubles import double_text
from binlake.schema.table import INTEGERS, TEXTS, Column
from binlake.schema.types.connect_form import ConnectForm, ConnectSettings, ConnectType, always, as_numbers, as_staged
from binlake.schema.types.constants import EXACT, Literal, exact_value, number, rounded
from binlake.schema.types.datatype import (
    DataType,
    Digits,
    KeyBound,
    Length,
    compare_as,
    filled,
    in_lake,
    lake_string,
    no_length,
    on_server,
)
from binlake.schema.types.decimal_type import becomes_decimal, precise_number
from binlake.schema.types.log_form import (
    ColumnBytes,
    EncodeColumn,
    Gathered,
    LogForm,
    Wire,
    finished,
    fixed,
    int64s,
    its_size,
    pieces,
)
from binlake.schema.types.text_sizes import least_characters

_FLOATING = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def _boolean(written: int | None, unsigned: bool) -> int | None:
    """Return 1 for TINYINT(1), as MySQL says boolean; other display widths are noise."""
    return 1 if written == 1 and not unsigned else None


def _integers(size: int, *, unsigned: bool) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        if pa.types.is_decimal(array.type):
            return [None if value is None else int(value).to_bytes(8, "little") for value in array.to_pylist()]
        numbers = int64s(array)
        low, high = (0, 1 << 8 * size) if unsigned else (-(1 << 8 * size - 1), 1 << 8 * size - 1)
        if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) >= high):
            raise OverflowError
        return pieces(numbers.astype("<i8").tobytes(), size, 8, array)

    return encode


def _converts_integer(before: Column, after: Column, strict: bool) -> bool:
    low, high = integer_range(before)
    if after.type in INTEGERS:
        new_low, new_high = integer_range(after)
        return strict or (new_low <= low and high <= new_high)
    if after.type == "decimal":
        return becomes_decimal(after, len(str(high)), 0, negative=low < 0, strict=strict)
    if after.type in ("float", "double"):
        exact = 2 ** (24 if after.type == "float" else 53)
        signs = strict or low == 0 or not after.unsigned
        return signs and after.scale is None and -exact <= low and high <= exact
    if after.type in TEXTS:
        longest = max(len(str(low)), len(str(high)))
        return not before.zerofill and (strict or longest <= least_characters(after))
    return after.type == "bit" and after.length == 1 and strict


def _integer_log(wire: Wire, size: int, signed: str, unsigned: str) -> LogForm:
    return LogForm(
        wire,
        lambda column: size,
        lambda field: Gathered(unsigned if field.column.unsigned else signed, size=size),
        finished(fixed),
        lambda field: _integers(size, unsigned=field.column.unsigned),
        alone=(wire,),
    )


def _same_bits(values: pa.Array) -> pa.Array:
    return pa.array(numbers_of(values), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class _Whole:
    """An integer type's columns in Arrow, in Delta, and in Kafka Connect."""

    arrow: pa.DataType
    delta: str
    connect: str

    def in_connect(self, settings: ConnectSettings) -> ConnectType:
        if not pa.types.is_decimal(self.arrow):
            return ConnectType(self.connect, as_numbers)
        return precise_number(20, 0) if settings.bigint_unsigned == "precise" else ConnectType("int64", _same_bits)


_INT8, _INT16 = _Whole(pa.int8(), "TINYINT", "int16"), _Whole(pa.int16(), "SMALLINT", "int16")
_INT32, _INT64 = _Whole(pa.int32(), "INT", "int32"), _Whole(pa.int64(), "BIGINT", "int64")
_UINT64 = _Whole(pa.decimal128(20, 0), "DECIMAL(20,0)", "int64")


def _integer(log: LogForm, narrow: _Whole, wide: _Whole, width: int, jdbc: int, length: Length = no_length) -> DataType:
    """Return the entry of an integer type. wide: of unsigned columns. width: to how many characters ZEROFILL fills
    without a number."""

    def of(column: Column) -> _Whole:
        return wide if column.unsigned else narrow

    return DataType(
        log=log,
        arrow=lambda column: of(column).arrow,
        delta=lambda column: of(column).delta,
        # + 0 drops ZEROFILL and the boolean that drivers see in TINYINT(1)
        select=lambda column: f"{on_server(column)} + 0",
        server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
        lake_text=lake_string,
        length=length,
        connect=ConnectForm(lambda column, settings: of(column).in_connect(settings), jdbc),
        zerofill=lambda written: written[0] if written else width,
        text_of=lambda column, value: filled(column, str(value)),
        compared_as=compare_as("whole"),
        converts=_converts_integer,
        default_text=lambda column, literal, flavour: str(rounded(literal, 0)),
        constant=lambda column, arrow, text: exact_value(arrow, text),
        implicit_default=lambda column: "0",
        bound=KeyBound(on_server, lambda column, collation, value: str(int(value))),
    )


def _server_double(column: Column) -> str:
    # MySQL cuts the text of a DOUBLE expression to 22 characters, but not inside JSON, where it adds .0 to whole
    # numbers. The cast undoes the rounding of FLOAT and of a declared scale.
    array = f"JSON_ARRAY(CAST({on_server(column)} AS DOUBLE))"
    return f"NULLIF(REPLACE(CAST({array} AS CHAR), '.0]', ']'), '[null]')"


def _float_literal(column: Column, collation: str | None, shown: str) -> str:
    number = shown.strip("[]")
    return number if "e" in number.lower() else f"{number}e0"


def _digits(written: tuple[int, ...]) -> Digits:
    digits, scale, *_ = (*written, None, None)
    return (digits, scale) if scale is not None and digits else (None, None)  # FLOAT(0,0) is FLOAT


def _converts_float(before: Column, after: Column, strict: bool) -> bool:
    if after.type not in ("float", "double") or (before.type == "double" and after.type == "float"):
        return False
    declared = [(column.type, column.precision, column.scale) for column in (before, after)]
    is_rounded = after.scale is not None and declared[0] != declared[1]
    return not is_rounded and (strict or before.unsigned or not after.unsigned)


def _float_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    """Return the text of a number that is printed as written: few digits, no exponent. None for others."""
    exact, scale = number(literal), column.scale
    if scale is not None and (
        rounded(literal, scale) != exact or abs(exact) >= Decimal(10) ** ((column.precision or 0) - scale)
    ):
        return None  # halves are rounded to even, and MariaDB cuts what is too large
    digits = len(exact.normalize(EXACT).as_tuple().digits)
    if digits > (6 if column.type == "float" else 15) or (exact.is_signed() and (column.unsigned or exact.is_zero())):
        return None
    if exact and not Decimal("0.0001") <= abs(exact) < Decimal("1e14"):
        return None
    if column.type == "float":
        struct.pack("<f", float(exact))  # raises OverflowError, an ArithmeticError, beyond FLOAT
    if scale is not None:
        return f"{exact:.{scale}f}"
    text = f"{exact:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def single_text(value: float) -> str:
    """Return the shortest text of a single-precision number."""
    return double_text(float(str(np.float32(value))))


def _float_text(column: Column, value: float) -> str:
    if column.scale is not None:
        return filled(column, f"{value:.{column.scale}f}")
    return filled(column, single_text(value) if column.type == "float" else double_text(value))


def _float_constant(column: Column, arrow: pa.DataType, text: str) -> float | None:
    # Arrow rounds once to either size; Python would round a FLOAT twice.
    value = pa.scalar(text).cast(arrow).as_py() if _FLOATING.fullmatch(text) else None
    return value if value is not None and isfinite(value) else None


def _float_in_connect(column: Column, settings: ConnectSettings) -> ConnectType:
    if column.scale is not None:
        return ConnectType("double", lambda values: values.cast(pa.float64()))
    return ConnectType("float", as_staged)


_OF_FLOATS = KeyBound(_server_double, _float_literal)


def _float_log(wire: Wire, size: int, kernel: str) -> LogForm:
    def encode(array: pa.Array) -> ColumnBytes:
        # Of the buffer, so that every bit stays: NaN isn't stored by the servers, -0 is.
        raw = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(f"<f{size}").tobytes()
        return pieces(raw, size, size, array)

    return LogForm(
        wire,
        lambda column: size,
        lambda field: Gathered(kernel, size=size),
        finished(fixed),
        lambda field: encode,
        alone=(wire,),
        metadata=its_size,
    )


_FLOAT = DataType(
    log=_float_log(Wire.FLOAT, 4, "COPY4"),
    arrow=lambda column: pa.float32(),
    delta=lambda column: "FLOAT",
    # The server's text of a FLOAT is rounded to 6 digits; widened to DOUBLE it is exact.
    select=lambda column: f"CAST({on_server(column)} AS DOUBLE)",
    has_scale=True,
    digits=_digits,
    connect=ConnectForm(_float_in_connect, jdbc=6),
    zerofill=lambda written: written[0] if written else 12,
    text_of=_float_text,
    compared_as=lambda column: "float" if column.precision is None else "other",
    converts=_converts_float,
    default_text=_float_default,
    constant=_float_constant,
    server_text=_server_double,
    implicit_default=lambda column: "0",
    bound=_OF_FLOATS,
    lake_text=lambda column: f"CONCAT('[', binlake_double_text(CAST({in_lake(column)} AS DOUBLE)), ']')",
)

# A declared DOUBLE(10,2) would be printed rounded: FLOAT's cast drops the declaration.
_DOUBLE = replace(
    _FLOAT,
    log=_float_log(Wire.DOUBLE, 8, "COPY8"),
    connect=always(ConnectType("double", as_staged), jdbc=8),
    zerofill=lambda written: written[0] if written else 22,
    arrow=lambda column: pa.float64(),
    delta=lambda column: "DOUBLE",
    lake_text=lambda column: f"CONCAT('[', binlake_double_text({in_lake(column)}), ']')",
)


TYPES = {
    "tinyint": _integer(_integer_log(Wire.TINY, 1, "COPY1", "U8"), _INT8, _INT16, 3, 5, _boolean),
    "smallint": _integer(_integer_log(Wire.SHORT, 2, "COPY2", "U16"), _INT16, _INT32, 5, 5),
    "mediumint": _integer(_integer_log(Wire.INT24, 3, "I24", "U24"), _INT32, _INT32, 8, 4),
    "int": _integer(_integer_log(Wire.LONG, 4, "COPY4", "U32"), _INT32, _INT64, 10, 4),
    "bigint": _integer(_integer_log(Wire.LONGLONG, 8, "COPY8", "U64"), _INT64, _UINT64, 20, -5),
    "float": _FLOAT,
    "double": _DOUBLE,
}
