"""BIT: a boolean in the lake if it has one bit, else bytes, the highest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.errors import Malformed
from binlake.position import Flavour
from binlake.schema.table import INTEGERS, Column
from binlake.schema.types.connect_form import ConnectForm, ConnectSettings, ConnectType, as_staged, each
from binlake.schema.types.constants import Literal, rounded
from binlake.schema.types.datatype import NUMBERED, DataType, in_lake, on_server
from binlake.schema.types.log_form import EncodeColumn, Field, FilledBuffers, Finish, Gathered, LogForm, Wire


def _hex(column: Column) -> str:
    return f"LPAD(HEX({on_server(column)} + 0), {2 * _bytes(column)}, '0')"


def is_one_bit(column: Column) -> bool:
    """Return whether a BIT column is a boolean in the lake; others are bytes."""
    return (column.length or 1) == 1


def _bytes(column: Column) -> int:
    return (column.length or 1) + 7 >> 3


def _described(column: Column, first: int, second: int) -> tuple[Column, int]:
    return replace(column, length=first + 8 * second), second + (first > 0)


def _gathered(field: Field) -> Gathered:
    if field.size not in range(1, 9):
        raise Malformed(f"BIT of {field.size} bytes")
    return Gathered("BIT1" if field.column.length == 1 else "BYTES", size=field.size)


def _booleans(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
    bits = np.packbits(column.data[:rows], bitorder="little")
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(bits)], nulls)


def _finish(field: Field) -> Finish:
    size = field.size

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        offsets = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(column.data)], nulls)

    return _booleans if field.column.length == 1 else finish


def _encode(field: Field) -> EncodeColumn:
    def encoded(value: bool | bytes | None) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else value.to_bytes(field.size, "big")

    return lambda array: [encoded(value) for value in array.to_pylist()]


def _converts(before: Column, after: Column, strict: bool) -> bool:
    length, new_length = before.length or 1, after.length or 1
    if after.type in INTEGERS:
        return length == 1
    if after.type != "bit" or is_one_bit(before) != is_one_bit(after):
        return False
    return _bytes(before) == _bytes(after) and (strict or length <= new_length)


def _default_text(column: Column, literal: Literal, flavour: Flavour) -> str:
    is_text = literal.kind == "string"
    bits = int.from_bytes(literal.text.encode("ascii"), "big") if is_text else int(rounded(literal, 0))
    return f"b'{bits:b}'"


def _number(text: str) -> int:
    return int(text.strip("b'") or "0", 2) if text.startswith("b'") else int(text)


def _constant(column: Column, arrow: pa.DataType, text: str) -> bool | bytes:
    number = _number(text)
    return bool(number) if pa.types.is_boolean(arrow) else number.to_bytes(_bytes(column))


def _spark_constant(column: Column, text: str) -> str:
    number = _number(text)
    if is_one_bit(column):
        return "true" if number else "false"
    return f"X'{number:0{2 * _bytes(column)}X}'"


def _connect(column: Column, settings: ConnectSettings) -> ConnectType:
    if is_one_bit(column):
        return ConnectType("boolean", as_staged)
    return ConnectType("bytes", _LITTLE_ENDIAN, "io.debezium.data.Bits", {"length": str(column.length)})


_LITTLE_ENDIAN = each(lambda value: value[::-1], pa.binary())
BIT = DataType(
    log=LogForm(
        Wire.BIT,
        _bytes,
        _gathered,
        _finish,
        _encode,
        alone=(Wire.BIT,),
        described=_described,
        metadata=lambda field: bytes([(field.column.length or 1) % 8, (field.column.length or 1) // 8]),
    ),
    arrow=lambda column: pa.bool_() if is_one_bit(column) else pa.binary(),
    delta=lambda column: "BOOLEAN" if is_one_bit(column) else "BINARY",
    select=lambda column: f"{on_server(column)} + 0" if is_one_bit(column) else f"UNHEX({_hex(column)})",
    server_text=lambda column: f"CAST({on_server(column)} + 0 AS CHAR)" if is_one_bit(column) else _hex(column),
    lake_text=lambda column: (
        f"CAST(CAST({in_lake(column)} AS INT) AS STRING)" if is_one_bit(column) else f"HEX({in_lake(column)})"
    ),
    converts=_converts,
    default_text=_default_text,
    constant=_constant,
    spark_constant=_spark_constant,
    default_is_literal=True,
    text_of=lambda column, value: "1" if value else "0",
    compared_as=lambda column: "whole" if is_one_bit(column) else "other",
    connect=ConnectForm(_connect, jdbc=-7),
    implicit_default=lambda column: "b'0'",
    bound=NUMBERED,
    length=lambda written, unsigned: written or 1,
)
