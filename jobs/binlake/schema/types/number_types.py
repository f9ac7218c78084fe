"""Whole numbers, of which unsigned ones take the next wider signed type; DECIMAL, FLOAT and DOUBLE, exactly; BIT."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.errors import Malformed
from binlake.schema.table import Column
from binlake.schema.types.datatype import (
    NUMBERED,
    DataType,
    KeyBound,
    Length,
    in_lake,
    lake_string,
    no_length,
    on_server,
)
from binlake.schema.types.log_form import (
    ColumnBytes,
    EncodeColumn,
    Field,
    FilledBuffers,
    Finish,
    Gathered,
    LogForm,
    Wire,
    finished,
    fixed,
    int64s,
    its_size,
    pieces,
)
from binlake.schema.types.packed_values import decimal_size, packed_decimal

_MOST_SCALE = 38
"""The greatest scale of MariaDB's DECIMAL (sql/mysqld.h, DECIMAL_MAX_SCALE); MySQL's is 30."""


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


def _integer_log(wire: Wire, size: int, signed: str, unsigned: str) -> LogForm:
    return LogForm(
        wire,
        lambda column: size,
        lambda field: Gathered(unsigned if field.column.unsigned else signed, size=size),
        finished(fixed),
        lambda field: _integers(size, unsigned=field.column.unsigned),
        alone=(wire,),
    )


def _integer(
    arrow: pa.DataType,
    delta: str,
    wide_arrow: pa.DataType,
    wide_delta: str,
    log: LogForm,
    length: Length = no_length,
) -> DataType:
    """Return the entry of an integer type."""
    return DataType(
        log=log,
        arrow=lambda column: wide_arrow if column.unsigned else arrow,
        delta=lambda column: wide_delta if column.unsigned else delta,
        # + 0 drops ZEROFILL and the boolean that drivers see in TINYINT(1)
        select=lambda column: f"{on_server(column)} + 0",
        server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
        lake_text=lake_string,
        length=length,
        implicit_default=lambda column: "0",
        bound=KeyBound(on_server, lambda column, collation, value: str(int(value))),
    )


def _decimal_is_text(column: Column) -> bool:
    return (column.precision or 10) > 38


def _decimal_arrow(column: Column) -> pa.DataType:
    return pa.string() if _decimal_is_text(column) else pa.decimal128(column.precision or 10, column.scale or 0)


def _decimal_delta(column: Column) -> str:
    return "STRING" if _decimal_is_text(column) else f"DECIMAL({column.precision or 10},{column.scale or 0})"


def _decimal_gathered(field: Field) -> Gathered:
    precision, scale = field.column.precision or 0, field.column.scale or 0
    if not 0 < precision <= 65 or scale > min(precision, _MOST_SCALE):
        raise Malformed(f"DECIMAL({precision},{scale})")
    size = decimal_size(precision, scale)
    if _decimal_is_text(field.column):
        return Gathered("BYTES", size=size)
    return Gathered("DECIMAL", size=size, first=precision, second=scale)


def _decimal_finish(field: Field) -> Finish:
    from binlake.schema import strings  # it compiles kernels

    precision, scale = field.column.precision or 0, field.column.scale or 0
    size = decimal_size(precision, scale)

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        bits = column.validity if nulls else None
        offsets, data = strings.decimals(column.data, rows, (precision, scale, size), bits)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    return finish if _decimal_is_text(field.column) else fixed


def _decimal_encode(field: Field) -> EncodeColumn:
    precision, scale = field.column.precision or 10, field.column.scale or 0

    def packed(value: Decimal | str | None) -> bytes | None:
        if value is None:
            return None
        return packed_decimal(value if isinstance(value, str) else f"{value:f}", precision, scale)

    return lambda array: [packed(value) for value in array.to_pylist()]


_DECIMAL = DataType(
    log=LogForm(
        Wire.NEWDECIMAL,
        lambda column: 0,
        _decimal_gathered,
        _decimal_finish,
        _decimal_encode,
        alone=(Wire.NEWDECIMAL,),
        described=lambda column, first, second: (replace(column, precision=first, scale=second), first),
        metadata=lambda field: bytes([field.column.precision or 10, field.column.scale or 0]),
    ),
    arrow=_decimal_arrow,
    delta=_decimal_delta,
    # As text, because drivers round above 38 digits; + 0 drops the zeros of ZEROFILL.
    select=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
    server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)",
    lake_text=lake_string,
    implicit_default=lambda column: f"{Decimal(0):.{column.scale or 0}f}",
    bound=KeyBound(on_server, lambda column, collation, value: format(value, "f")),
)


def _server_double(column: Column) -> str:
    # MySQL cuts the text of a DOUBLE expression to 22 characters, but not inside JSON, where it adds .0 to whole
    # numbers. The cast undoes the rounding of FLOAT and of a declared scale.
    array = f"JSON_ARRAY(CAST({on_server(column)} AS DOUBLE))"
    return f"NULLIF(REPLACE(CAST({array} AS CHAR), '.0]', ']'), '[null]')"


def _float_literal(column: Column, collation: str | None, shown: str) -> str:
    number = shown.strip("[]")
    return number if "e" in number.lower() else f"{number}e0"


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
    server_text=_server_double,
    implicit_default=lambda column: "0",
    bound=_OF_FLOATS,
    lake_text=lambda column: f"CONCAT('[', binlake_double_text(CAST({in_lake(column)} AS DOUBLE)), ']')",
)

# A declared DOUBLE(10,2) would be printed rounded: FLOAT's cast drops the declaration.
_DOUBLE = replace(
    _FLOAT,
    log=_float_log(Wire.DOUBLE, 8, "COPY8"),
    arrow=lambda column: pa.float64(),
    delta=lambda column: "DOUBLE",
    lake_text=lambda column: f"CONCAT('[', binlake_double_text({in_lake(column)}), ']')",
)


def _bit_hex(column: Column) -> str:
    return f"LPAD(HEX({on_server(column)} + 0), {2 * _bit_bytes(column)}, '0')"


def is_one_bit(column: Column) -> bool:
    """Return whether a BIT column is a boolean in the lake; others are bytes."""
    return (column.length or 1) == 1


def _bit_bytes(column: Column) -> int:
    return (column.length or 1) + 7 >> 3


def _bit_described(column: Column, first: int, second: int) -> tuple[Column, int]:
    return replace(column, length=first + 8 * second), second + (first > 0)


def _bit_gathered(field: Field) -> Gathered:
    if field.size not in range(1, 9):
        raise Malformed(f"BIT of {field.size} bytes")
    return Gathered("BIT1" if field.column.length == 1 else "BYTES", size=field.size)


def _booleans(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
    bits = np.packbits(column.data[:rows], bitorder="little")
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(bits)], nulls)


def _bit_finish(field: Field) -> Finish:
    size = field.size

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        offsets = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(column.data)], nulls)

    return _booleans if field.column.length == 1 else finish


def _bit_encode(field: Field) -> EncodeColumn:
    def encoded(value: bool | bytes | None) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else value.to_bytes(field.size, "big")

    return lambda array: [encoded(value) for value in array.to_pylist()]


_BIT = DataType(
    log=LogForm(
        Wire.BIT,
        _bit_bytes,
        _bit_gathered,
        _bit_finish,
        _bit_encode,
        alone=(Wire.BIT,),
        described=_bit_described,
        metadata=lambda field: bytes([(field.column.length or 1) % 8, (field.column.length or 1) // 8]),
    ),
    arrow=lambda column: pa.bool_() if is_one_bit(column) else pa.binary(),
    delta=lambda column: "BOOLEAN" if is_one_bit(column) else "BINARY",
    select=lambda column: f"{on_server(column)} + 0" if is_one_bit(column) else f"UNHEX({_bit_hex(column)})",
    server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)" if is_one_bit(column) else _bit_hex(column),
    lake_text=lambda column: (
        f"CAST(CAST({in_lake(column)} AS INT) AS STRING)" if is_one_bit(column) else f"HEX({in_lake(column)})"
    ),
    implicit_default=lambda column: "b'0'",
    bound=NUMBERED,
    length=lambda written, unsigned: written or 1,
)

TYPES = {
    "tinyint": _integer(
        pa.int8(), "TINYINT", pa.int16(), "SMALLINT", _integer_log(Wire.TINY, 1, "COPY1", "U8"), _boolean
    ),
    "smallint": _integer(pa.int16(), "SMALLINT", pa.int32(), "INT", _integer_log(Wire.SHORT, 2, "COPY2", "U16")),
    "mediumint": _integer(pa.int32(), "INT", pa.int32(), "INT", _integer_log(Wire.INT24, 3, "I24", "U24")),
    "int": _integer(pa.int32(), "INT", pa.int64(), "BIGINT", _integer_log(Wire.LONG, 4, "COPY4", "U32")),
    "bigint": _integer(
        pa.int64(), "BIGINT", pa.decimal128(20, 0), "DECIMAL(20,0)", _integer_log(Wire.LONGLONG, 8, "COPY8", "U64")
    ),
    "decimal": _DECIMAL,
    "float": _FLOAT,
    "double": _DOUBLE,
    "bit": _BIT,
}
