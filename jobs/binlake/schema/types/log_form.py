"""How the log has values of a type: its code, what a table map has of a column, and the way from bytes to Arrow and
back.

Manuals: MySQL source documentation, "Table_map_event" (rows_event.h) and "Binary log row values"; MariaDB knowledge
base, TABLE_MAP_EVENT (the same numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.errors import Malformed
from binlake.position import Flavour
from binlake.schema.table import Column


class Wire(IntEnum):
    """Type codes of columns (enum_field_types of MySQL; 140 and 141 are MariaDB's)."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


ONE_BYTE = {Wire.FLOAT, Wire.DOUBLE, Wire.TIMESTAMP2, Wire.DATETIME2, Wire.TIME2, Wire.BLOB, Wire.GEOMETRY}
ONE_BYTE |= {Wire.JSON, Wire.VECTOR, Wire.BLOB_COMPRESSED}
"""Codes of which a table map has one byte for each column. That of a string of bytes is its length prefix's size."""
TWO_BYTES = {Wire.VARCHAR, Wire.BIT, Wire.NEWDECIMAL, Wire.VAR_STRING, Wire.STRING, Wire.VARCHAR_COMPRESSED}
NUMERIC = {Wire.TINY, Wire.SHORT, Wire.INT24, Wire.LONG, Wire.LONGLONG, Wire.FLOAT, Wire.DOUBLE, Wire.NEWDECIMAL}
SIGNED_OR_NOT = NUMERIC | {Wire.YEAR}
"""Codes with a bit in the signedness field; both servers write one for YEAR."""
CHARACTER = {Wire.VARCHAR, Wire.VAR_STRING, Wire.STRING, Wire.BLOB, Wire.VARCHAR_COMPRESSED, Wire.BLOB_COMPRESSED}
"""Codes of texts and bytes alike, which the collation distinguishes."""
COLLATED: Mapping[Flavour, set[Wire]] = {
    "mysql": CHARACTER | {Wire.VECTOR},
    "mariadb": CHARACTER | {Wire.GEOMETRY},
}
"""Codes to which the servers give a collation; the two don't agree."""


@dataclass(frozen=True)
class Field:
    """A column as the log encodes it.

    wire: the real type; ENUM and SET, which the log calls STRING, have their own.
    size: bytes of the length prefix of strings and blobs; bytes of BIT, ENUM and SET;
        digits after the second of TIME2, DATETIME2, TIMESTAMP2.
    collation: the number of a text's; 0 for everything else.
    """

    wire: Wire
    size: int
    column: Column
    collation: int = 0


@dataclass(frozen=True)
class Gathered:
    """How a column's values are gathered into buffers: a row of layouts.PROGRAM, with the kernel by its name in
    ``row_kernels``."""

    kernel: str
    prefix: int = 0
    size: int = 0
    first: int = 0
    second: int = 0


class FilledBuffers(Protocol):
    """The buffers of one column that kernels filled. ascii: all of it, as far as that is known."""

    ascii: bool
    offsets: npt.NDArray[np.int32] | None
    validity: npt.NDArray[np.uint8]
    data: npt.NDArray[np.uint8]


Finish: TypeAlias = Callable[[pa.DataType, int, pa.Buffer | None, int, FilledBuffers, int], pa.Array]
"""A function (Arrow type, rows, validity, nulls, buffers, bytes of strings) → array. It raises strings.BadValue for a
text that isn't valid in its character set, and Malformed."""
ColumnBytes: TypeAlias = Sequence[bytes | None]
EncodeColumn: TypeAlias = Callable[[pa.Array], ColumnBytes]
"""A function that encodes a column. It raises ValueError, LookupError and UnicodeError for values outside its type."""


def as_it_is(column: Column, first: int, second: int) -> tuple[Column, int]:
    """Return the column, and the first byte that a table map has of it."""
    return column, first


def nothing_more(field: Field) -> bytes:
    """Return no bytes: a table map has none of the column."""
    return b""


def its_size(field: Field) -> bytes:
    """Return the field's size as a table map's one byte of it."""
    return bytes([field.size])


@dataclass(frozen=True)
class InvalidDateForm:
    """The forms of dates that no calendar has.

    text: the server's text, of the field and the value's bytes, at least eight with what follows. bytes_of: the
    inverse, of the field and the text.
    """

    text: Callable[[Field, bytes], str]
    bytes_of: Callable[[Field, str], bytes]


@dataclass(frozen=True)
class LogForm:
    """How the log has columns of a type.

    wire: the code with which they are written. size: Field.size of a written column.
    alone: the codes that mean this type whatever else a table map has.
    described: the column and Field.size, from a column with its type's name and the bytes that a table map has of it.
    metadata: the inverse, the bytes that a table map has of a field.
    gathered: of a field. Raises Malformed for what a column of the type can't be.
    finish: makes Arrow of the gathered values. encode: the bytes of values in the registry's Arrow type.
    invalid: of dates; None for other types.
    """

    wire: Wire
    size: Callable[[Column], int]
    gathered: Callable[[Field], Gathered]
    finish: Callable[[Field], Finish]
    encode: Callable[[Field], EncodeColumn]
    alone: tuple[Wire, ...] = ()
    described: Callable[[Column, int, int], tuple[Column, int]] = as_it_is
    metadata: Callable[[Field], bytes] = nothing_more
    invalid: InvalidDateForm | None = None


# what several families share ------------------------------------------------------------------------------------------
def fixed(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
    """Finish values that have their size in Arrow."""
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(column.data)], nulls)


def binary(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
    """Finish values of any length, whose bytes stay as they are."""
    return pa.Array.from_buffers(
        wanted, rows, [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)], nulls
    )


def finished(finish: Finish) -> Callable[[Field], Finish]:
    """Return a hook that finishes all columns of a type by the same function."""
    return lambda field: finish


def behind_length(field: Field) -> Gathered:
    """Gather bytes behind their length. Raises Malformed."""
    return Gathered("STRING", length_size(field))


def length_size(field: Field) -> int:
    """Return how many bytes a value's length has. Raises Malformed."""
    if not 1 <= field.size <= 4:
        raise Malformed(f"a length of {field.size} bytes")
    return field.size


def string_metadata(wire: Wire, size: int) -> bytes:
    """Return what a table map has of a column of STRING or VARCHAR. size: the most bytes of a value."""
    if wire is Wire.STRING:  # above 255 bytes, two bits of the length are kept, inverted, in the type's byte
        return bytes([Wire.STRING ^ (size & 0x300) >> 4, size & 0xFF])
    return size.to_bytes(2, "little")


def prefixed(values: ColumnBytes, size: int) -> ColumnBytes:
    """Return values with their length in ``size`` bytes before each."""
    return [None if value is None else len(value).to_bytes(size, "little") + value for value in values]


def mapped(array: pa.Array, encode: Callable[[str], bytes]) -> ColumnBytes:
    """Encode texts, each distinct one once."""
    coded = array.dictionary_encode()
    known = [encode(text) for text in coded.dictionary.to_pylist()]
    return [None if at is None else known[at] for at in coded.indices.to_pylist()]


def pieces(raw: bytes, width: int, step: int, array: pa.Array) -> ColumnBytes:
    """Return ``width`` bytes of every ``step``; None where the array is NULL."""
    cut = [raw[at : at + width] for at in range(0, len(raw), step)]
    if not array.null_count:
        return cut
    return [piece if valid else None for piece, valid in zip(cut, array.is_valid().to_pylist(), strict=True)]


def int64s(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return dates, times or integers as int64; 0 for NULL."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    numbers: npt.NDArray[np.int64] = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers
