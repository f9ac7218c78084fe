"""Encoding of rows to row events, column by column: the inverse of the kernels and of ``binlog.finishers``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import Mutations
from binlake.binlog.strings import keeps_ascii
from binlake.binlog.tablemap import Field, Wire
from binlake.binlog_writer.jsonbinary import binary_json
from binlake.binlog_writer.packed_numbers import packed_decimal
from binlake.errors import StagingError
from binlake.schema import charsets
from binlake.schema.datatypes import REGISTRY
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of

ColumnBytes = Sequence[bytes | None]
EncodeColumn = Callable[[pa.Array], ColumnBytes]
"""A function that encodes a column. It raises ValueError, LookupError and UnicodeError for values outside its type."""

_INTEGERS = {Wire.TINY: 1, Wire.SHORT: 2, Wire.INT24: 3, Wire.LONG: 4, Wire.LONGLONG: 8}
_DAY_US = 86_400_000_000
_SCALE = (1_000_000, 10_000, 100, 1)
"""Microseconds of a fraction's unit, by the fraction's size in bytes."""


class RowImages:
    """The rows of a staged batch as in row events: null bitmap and values, before and after.

    fields: those of ``table_map_bytes.fields_of``, in the order of ``mutations.columns``. Raises StagingError, which
    names the column but not the value.
    """

    def __init__(self, mutations: Mutations, fields: Sequence[Field], invalid: InvalidValues) -> None:
        batch = mutations.batch
        self.op: list[int] = batch.column("op").to_pylist()
        self.before = _images(mutations, batch.column("before"), fields, invalid)
        self.after = _images(mutations, batch.column("after"), fields, invalid)


def _images(
    mutations: Mutations, image: pa.StructArray, fields: Sequence[Field], invalid: InvalidValues
) -> ColumnBytes:
    rows = len(image)
    if image.null_count == rows:
        return [None] * rows
    arrays = image.flatten()
    by_column: list[ColumnBytes] = []
    absent = np.zeros((rows, len(fields)), np.uint8)
    place = -1
    for column, array in zip(columns_of(mutations.columns, invalid), arrays, strict=True):
        try:
            if column.is_side:
                encoded = _beside(fields[place], array, column.holds)
                by_column[place] = [a if b is None else b for a, b in zip(by_column[place], encoded, strict=True)]
            else:
                place += 1
                by_column.append(encoder(fields[place])(array))
        except (ValueError, LookupError, OverflowError) as error:
            why = type(error).__name__  # a UnicodeError's text holds the value
            raise StagingError(
                f"{mutations.name}: a value of {column.name!r} can't be written into a binlog ({why})",
                remedy="exclude the table from the feed, or fix the value on the server",
            ) from None
    for at, values in enumerate(by_column):
        absent[:, at] = [value is None for value in values]
    nulls = np.packbits(absent, axis=1, bitorder="little").tobytes()
    size = (len(fields) + 7) // 8
    present = image.is_valid().to_pylist()
    filled = [[value or b"" for value in values] for values in by_column]
    joined = map(b"".join, zip(*filled, strict=True)) if filled else repeat(b"")
    return [
        nulls[row * size : row * size + size] + data if has else None
        for row, (has, data) in enumerate(zip(present, joined, strict=False))
    ]


def encoder(field: Field) -> EncodeColumn:
    """Return the encoder of a column, from values in the registry's Arrow type."""
    wire, column = field.wire, field.column
    if wire in _INTEGERS:
        return _integers(_INTEGERS[wire], unsigned=column.unsigned)
    if wire in _FIXED:
        return _FIXED[wire](field)
    if wire is Wire.NEWDECIMAL:
        return lambda array: [
            None if value is None else packed_decimal(f"{value:f}" if not isinstance(value, str) else value,
                                                      column.precision or 10, column.scale or 0)
            for value in array.to_pylist()
        ]  # fmt: skip
    if wire is Wire.BIT:
        return lambda array: [_bit(value, field.size) for value in array.to_pylist()]
    if wire is Wire.ENUM:
        codes = {name: place for place, name in enumerate(("", *column.values))}
        return lambda array: _mapped(array, lambda text: codes[text].to_bytes(field.size, "little"))
    if wire is Wire.SET:
        bits = {name: 1 << place for place, name in enumerate(column.values)}
        return lambda array: _mapped(
            array, lambda text: sum(bits[item] for item in text.split(",") if text).to_bytes(field.size, "little")
        )
    if wire is Wire.JSON:
        return lambda array: _prefixed(_mapped(array, binary_json), field.size)
    if (stored := REGISTRY[column.type].stored) is not None:
        return lambda array: _prefixed(stored.bytes_of(array), field.size)
    if column.charset is not None:
        return lambda array: _prefixed(_encoded_text(array, str(column.charset)), field.size)
    return lambda array: _prefixed(array.to_pylist(), field.size)


def _mapped(array: pa.Array, encode: Callable[[str], bytes]) -> ColumnBytes:
    """Encode texts, each distinct one once."""
    coded = array.dictionary_encode()
    known = [encode(text) for text in coded.dictionary.to_pylist()]
    return [None if at is None else known[at] for at in coded.indices.to_pylist()]


def _encoded_text(array: pa.Array, charset: str) -> ColumnBytes:
    if charset in ("utf8mb4", "utf8mb3"):
        return array.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if keeps_ascii(charset) and pc.all(pc.string_is_ascii(array)).as_py() is not False:
        return array.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    return _mapped(array, charsets.encoder(charset))


def _prefixed(values: ColumnBytes, size: int) -> ColumnBytes:
    return [None if value is None else len(value).to_bytes(size, "little") + value for value in values]


def _bit(value: bool | bytes | None, size: int) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.to_bytes(size, "big")


def _pieces(raw: bytes, width: int, step: int, array: pa.Array) -> ColumnBytes:
    """Return ``width`` bytes of every ``step``; None where the array is NULL."""
    pieces = [raw[at : at + width] for at in range(0, len(raw), step)]
    if not array.null_count:
        return pieces
    return [piece if valid else None for piece, valid in zip(pieces, array.is_valid().to_pylist(), strict=True)]


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return dates, times or integers as int64; 0 for NULL."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    numbers: npt.NDArray[np.int64] = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _integers(size: int, *, unsigned: bool) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        if pa.types.is_decimal(array.type):
            return [None if value is None else int(value).to_bytes(8, "little") for value in array.to_pylist()]
        numbers = _numbers(array)
        low, high = (0, 1 << 8 * size) if unsigned else (-(1 << 8 * size - 1), 1 << 8 * size - 1)
        if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) >= high):
            raise OverflowError
        return _pieces(numbers.astype("<i8").tobytes(), size, 8, array)

    return encode


def _float(field: Field) -> EncodeColumn:
    kind = "<f4" if field.wire is Wire.FLOAT else "<f8"

    def encode(array: pa.Array) -> ColumnBytes:
        # Of the buffer, so that every bit stays: NaN isn't stored by the servers, -0 is.
        raw = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(kind).tobytes()
        return _pieces(raw, field.size, field.size, array)

    return encode


def _year(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        years = _numbers(array)
        return _pieces(np.where(years == 0, 0, years - 1900).astype(np.uint8).tobytes(), 1, 1, array)

    return encode


def _calendar(days: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return year, month and day for days since 1970."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    count = months.astype(np.int64)
    return count // 12 + 1970, count % 12 + 1, (dates - months).astype(np.int64) + 1


def _date(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        year, month, day = _calendar(_numbers(array))
        return _pieces((day | month << 5 | year << 9).astype("<i4").tobytes(), 3, 4, array)

    return encode


def _datetime(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = _numbers(array)
        year, month, day = _calendar(moment // _DAY_US)
        clock = moment % _DAY_US
        seconds, fraction = clock // 1_000_000, clock % 1_000_000
        hms = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        packed = ((year * 13 + month) << 5 | day) << 17 | hms
        return _with_fraction(packed + 0x8000000000, fraction, 5, field.column.fraction, array)

    return encode


def _timestamp(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = _numbers(array)
        return _with_fraction(moment // 1_000_000, moment % 1_000_000, 4, field.column.fraction, array)

    return encode


def _time(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = _numbers(array)
        size = (field.column.fraction + 1) // 2
        seconds, fraction = np.abs(moment) // 1_000_000, np.abs(moment) % 1_000_000
        hms = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        packed = np.sign(moment) * (hms << 8 * size | fraction // _SCALE[size]) + (0x800000 << 8 * size)
        return _big_endian(packed, 3 + size, array)

    return encode


def _with_fraction(
    whole: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64], bytes_of_whole: int, digits: int, array: pa.Array
) -> ColumnBytes:
    size = (digits + 1) // 2
    return _big_endian(whole << 8 * size | fraction // _SCALE[size], bytes_of_whole + size, array)


def _big_endian(packed: npt.NDArray[np.int64], size: int, array: pa.Array) -> ColumnBytes:
    wide = packed.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]
    return _pieces(wide.tobytes(), size, size, array)


_FIXED: dict[Wire, Callable[[Field], EncodeColumn]] = {
    Wire.FLOAT: _float,
    Wire.DOUBLE: _float,
    Wire.YEAR: _year,
    Wire.DATE: _date,
    Wire.DATETIME2: _datetime,
    Wire.TIMESTAMP2: _timestamp,
    Wire.TIME2: _time,
}


def _beside(field: Field, array: pa.Array, holds: str) -> ColumnBytes:
    """Encode the values that no Delta type holds, from their side column (see schema.lake_columns)."""
    if holds == "bytes":
        return _prefixed(array.to_pylist(), field.size)
    return [None if text is None else _invalid_date(field, text) for text in array.to_pylist()]


def _invalid_date(field: Field, text: str) -> bytes:
    """Encode an invalid date from the server's text, such as ``2020-02-30 01:02:03.45``."""
    date, _, clock = text.partition(" ")
    year, month, day = (int(part) for part in date.split("-"))
    if field.wire is Wire.DATE:
        return (day | month << 5 | year << 9).to_bytes(3, "little")
    whole, _, fraction = clock.partition(".")
    size = (field.column.fraction + 1) // 2
    behind = (int(fraction.ljust(6, "0")) // _SCALE[size]).to_bytes(size, "big") if size else b""
    if field.wire is Wire.TIMESTAMP2:  # 0000-00-00 00:00:00 alone
        return bytes(4) + behind
    hour, minute, second = (int(part) for part in whole.split(":"))
    packed = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    return (packed + 0x8000000000).to_bytes(5, "big") + behind
