"""DECIMAL, exactly: beyond 38 digits it is text in the lake."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from binlake.errors import Malformed
from binlake.position import Flavour
from binlake.schema.arithmetic import integer_range
from binlake.schema.table import INTEGERS, TEXTS, Column
from binlake.schema.types.connect_form import (
    ConnectForm,
    ConnectSettings,
    ConnectType,
    ConvertArray,
    as_texts,
    each,
    precise,
)
from binlake.schema.types.constants import Literal, exact_value, rounded
from binlake.schema.types.datatype import DataType, Digits, KeyBound, filled, lake_string, on_server
from binlake.schema.types.log_form import EncodeColumn, Field, FilledBuffers, Finish, Gathered, LogForm, Wire, fixed
from binlake.schema.types.packed_values import decimal_size, packed_decimal
from binlake.schema.types.text_sizes import least_characters

_MOST_SCALE = 38
"""The greatest scale of MariaDB's DECIMAL (sql/mysqld.h, DECIMAL_MAX_SCALE); MySQL's is 30."""
_PLAIN_SCALE = 6
"""Digits behind the point up to which Spark writes a zero without an exponent."""


def is_text(column: Column) -> bool:
    """Return whether a DECIMAL column has more digits than a decimal of the lake."""
    return (column.precision or 10) > 38


def _arrow(column: Column) -> pa.DataType:
    return pa.string() if is_text(column) else pa.decimal128(column.precision or 10, column.scale or 0)


def _delta(column: Column) -> str:
    return "STRING" if is_text(column) else f"DECIMAL({column.precision or 10},{column.scale or 0})"


def _gathered(field: Field) -> Gathered:
    precision, scale = field.column.precision or 0, field.column.scale or 0
    if not 0 < precision <= 65 or scale > min(precision, _MOST_SCALE):
        raise Malformed(f"DECIMAL({precision},{scale})")
    size = decimal_size(precision, scale)
    if is_text(field.column):
        return Gathered("BYTES", size=size)
    return Gathered("DECIMAL", size=size, first=precision, second=scale)


def _finish(field: Field) -> Finish:
    from binlake.schema import strings  # it compiles kernels

    precision, scale = field.column.precision or 0, field.column.scale or 0
    size = decimal_size(precision, scale)

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        bits = column.validity if nulls else None
        offsets, data = strings.decimals(column.data, rows, (precision, scale, size), bits)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    return finish if is_text(field.column) else fixed


def _encode(field: Field) -> EncodeColumn:
    precision, scale = field.column.precision or 10, field.column.scale or 0

    def packed(value: Decimal | str | None) -> bytes | None:
        if value is None:
            return None
        return packed_decimal(value if isinstance(value, str) else f"{value:f}", precision, scale)

    return lambda array: [packed(value) for value in array.to_pylist()]


def _digits(written: tuple[int, ...]) -> Digits:
    digits, scale, *_ = (*written, None, None)
    return digits or 10, scale or 0


def _zerofill(written: tuple[int, ...]) -> int:
    """Return the digits, and one for the point."""
    precision, scale = _digits(written)
    return (precision or 0) + (1 if scale else 0)


def becomes_decimal(after: Column, digits: int, scale: int, *, negative: bool, strict: bool) -> bool:
    """Return whether numbers with so many digits before the point, and ``scale`` after it, stayed the same in a
    DECIMAL.

    Under strict mode the statement would have failed if one didn't fit.
    """
    new_scale = after.scale or 0
    if is_text(after) and new_scale != scale:
        return False  # its text has more zeros
    fits = (after.precision or 0) - new_scale >= digits and not (negative and after.unsigned)
    return new_scale >= scale and (strict or fits)


def _converts(before: Column, after: Column, strict: bool) -> bool:
    precision, scale = before.precision or 0, before.scale or 0
    if after.type == "decimal":
        becomes_text = is_text(after) and not is_text(before)
        negative = not before.unsigned
        proved = becomes_decimal(after, precision - scale, scale, negative=negative, strict=strict)
        return proved and not (becomes_text and scale > _PLAIN_SCALE)
    if after.type in INTEGERS:
        low, high = integer_range(after)
        fits = 10**precision - 1 <= high and (before.unsigned or low < 0)
        return scale == 0 and (strict or fits)
    if after.type in TEXTS:
        # Spark writes 0E-7 for the zero of more decimals.
        plain = scale <= _PLAIN_SCALE or is_text(before)
        return plain and not before.zerofill and (strict or precision + 3 <= least_characters(after))
    return False


def _default_text(column: Column, literal: Literal, flavour: Flavour) -> str:
    scale = column.scale or 0
    return f"{rounded(literal, scale):.{scale}f}"


def _constant(column: Column, arrow: pa.DataType, text: str) -> Any:
    return text if pa.types.is_string(arrow) else exact_value(arrow, text)


def _decimal_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type) and values.type.scale > _PLAIN_SCALE:
        return each(lambda value: f"{value:f}", pa.string())(values)
    return as_texts(values)


def _decimals(precision: int, scale: int) -> ConvertArray:
    """Return a converter to decimals; beyond 38 digits, staged values are texts."""
    exact = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return lambda values: values if pa.types.is_decimal(values.type) else each(Decimal, exact)(values)


def precise_number(precision: int, scale: int) -> ConnectType:
    """Return Connect's Decimal of staged numbers."""
    return precise(precision, scale, _decimals(precision, scale))


def _connect(column: Column, settings: ConnectSettings) -> ConnectType:
    if settings.decimals == "string":
        return ConnectType("string", _decimal_texts)
    if settings.decimals == "double":
        return ConnectType("double", each(float, pa.float64()))
    return precise_number(column.precision or 10, column.scale or 0)


DECIMAL = DataType(
    log=LogForm(
        Wire.NEWDECIMAL,
        lambda column: 0,
        _gathered,
        _finish,
        _encode,
        alone=(Wire.NEWDECIMAL,),
        described=lambda column, first, second: (replace(column, precision=first, scale=second), first),
        metadata=lambda field: bytes([field.column.precision or 10, field.column.scale or 0]),
    ),
    arrow=_arrow,
    delta=_delta,
    # As text, because drivers round above 38 digits; + 0 drops the zeros of ZEROFILL.
    select=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
    server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
    lake_text=lake_string,
    has_scale=True,
    compared_as=lambda column: "other" if is_text(column) else "decimal",
    connect=ConnectForm(_connect, jdbc=3),
    text_of=lambda column, value: filled(column, f"{value:f}"),
    digits=_digits,
    zerofill=_zerofill,
    converts=_converts,
    default_text=_default_text,
    constant=_constant,
    implicit_default=lambda column: f"{Decimal(0):.{column.scale or 0}f}",
    bound=KeyBound(on_server, lambda column, collation, value: format(value, "f")),
)
