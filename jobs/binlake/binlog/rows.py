"""Row images to values, straightforwardly: one decoder per type of column, registered in ``_DECODERS``.

Manual: MySQL source documentation, "Rows_event" (rows_event.h).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from binlake.binlog import charsets, jsonb, values
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.binlog.events import Cursor, EventType, Malformed
from binlake.binlog.tablemap import Field, TableMap, Undecodable, Wire
from binlake.schema import datatypes

Decode = Callable[[bytes, int], tuple[Any, int]]
"""(bytes of the rows, offset) → value and the offset after it; raises struct.error, IndexError, Malformed."""


@dataclass(frozen=True)
class InvalidDate:
    """A date that Arrow can't hold, as the server's text."""

    text: str


def _fixed(layout: str) -> Callable[[Field], Decode]:
    form = struct.Struct(layout)

    def make(field: Field) -> Decode:
        def decode(data: bytes, at: int) -> tuple[Any, int]:
            return form.unpack_from(data, at)[0], at + form.size

        return decode

    return make


def _integer(size: int) -> Callable[[Field], Decode]:
    def make(field: Field) -> Decode:
        signed = not field.column.unsigned
        wide = size == 8 and not signed  # DECIMAL(20,0) in the lake

        def decode(data: bytes, at: int) -> tuple[Any, int]:
            value = int.from_bytes(_take(data, at, size), "little", signed=signed)
            return Decimal(value) if wide else value, at + size

        return decode

    return make


def _take(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) < size:
        raise Malformed("a value beyond the end of its event")
    return piece


def _decimal(field: Field) -> Decode:
    precision, scale = field.column.precision or 0, field.column.scale or 0
    size = values.decimal_size(precision, scale)
    context = Context(prec=65)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        unscaled = values.decimal_unscaled(data, at, precision, scale)
        if precision > 38:
            return values.decimal_text(unscaled, scale), at + size
        return Decimal(unscaled).scaleb(-scale, context), at + size

    return decode


def _year(field: Field) -> Decode:
    return lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)


def _dated(year: int, month: int, day: int, clock_us: int, text: str) -> int | InvalidDate:
    if not values.valid_date(year, month, day):
        return InvalidDate(text)
    return values.days(year, month, day) * values.DAY_US + clock_us


def _date(field: Field) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw = int.from_bytes(_take(data, at, 3), "little")
        year, month, day = raw >> 9, raw >> 5 & 15, raw & 31
        if values.valid_date(year, month, day):
            return values.days(year, month, day), at + 3
        return InvalidDate(values.date_text(year, month, day)), at + 3

    return decode


def _datetime2(field: Field) -> Decode:
    digits = field.size
    size = 5 + values.fraction_size(digits)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw = int.from_bytes(_take(data, at, 5), "big") - 0x8000000000
        micro = values.fraction_us(_take(data, at, size), 5, digits)
        day, clock = raw >> 17, raw & 0x1FFFF
        year, month, day = (day >> 5) // 13, (day >> 5) % 13, day & 31
        seconds = (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
        text = f"{values.date_text(year, month, day)} {values.clock_text(clock)}{values.fraction_text(micro, digits)}"
        return _dated(year, month, day, seconds * 1_000_000 + micro, text), at + size

    return decode


def _timestamp2(field: Field) -> Decode:
    digits = field.size
    size = 4 + values.fraction_size(digits)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        seconds = int.from_bytes(_take(data, at, 4), "big")
        micro = values.fraction_us(_take(data, at, size), 4, digits)
        if not seconds and not micro:
            return InvalidDate(f"0000-00-00 00:00:00{values.fraction_text(0, digits)}"), at + size
        return seconds * 1_000_000 + micro, at + size

    return decode


def _time2(field: Field) -> Decode:
    size = 3 + values.fraction_size(field.size)
    return lambda data, at: (values.time_us(_take(data, at, size), 0, field.size), at + size)


def _old_temporal(size: int) -> Callable[[Field], Decode]:
    """TIMESTAMP, TIME and DATETIME of before MySQL 5.6 (MariaDB: mysql56_temporal_format=OFF). Those with a fraction
    can't be told apart from those without, and their sizes differ: refused."""

    def make(field: Field) -> Decode:
        raise Undecodable(
            f"column {field.column.name!r} has the temporal format of before MySQL 5.6",
            "ALTER TABLE … FORCE with mysql56_temporal_format=ON, then take a new snapshot of the table",
        )

    return make


def _bit(field: Field) -> Decode:
    if field.column.length == 1:
        return lambda data, at: (data[at] == 1, at + 1)
    return lambda data, at: (_take(data, at, field.size), at + field.size)


def _enum(field: Field) -> Decode:
    names = ("", *field.column.values)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        place = int.from_bytes(_take(data, at, field.size), "little")
        if place >= len(names):
            raise Malformed("an ENUM index beyond its values")
        return names[place], at + field.size

    return decode


def _set(field: Field) -> Decode:
    names = field.column.values

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(_take(data, at, field.size), "little")
        if bits >> len(names):
            raise Malformed("a SET bit beyond its values")
        return ",".join(name for place, name in enumerate(names) if bits >> place & 1), at + field.size

    return decode


def _counted(data: bytes, at: int, prefix: int) -> tuple[bytes, int]:
    size = int.from_bytes(_take(data, at, prefix), "little")
    return _take(data, at + prefix, size), at + prefix + size


def _string(field: Field) -> Decode:
    column, prefix = field.column, field.size
    compressed = field.wire in (Wire.BLOB_COMPRESSED, Wire.VARCHAR_COMPRESSED)
    pad = (column.length or 0) if column.type == "binary" else 0
    to_text = charsets.decoder(column.charset) if column.charset else None

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = _counted(data, at, prefix)
        if compressed:
            raw = values.uncompressed_column(raw)
        if to_text is None:
            return raw.ljust(pad, b"\0"), at
        try:
            return to_text(raw), at
        except UnicodeDecodeError:
            raise Undecodable(
                f"a value of {column.name!r} isn't valid {column.charset}",
                "mend the value on the server, then take a new snapshot of the table",
            ) from None

    return decode


def _json(field: Field) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = _counted(data, at, field.size)
        return jsonb.text(raw), at

    return decode


def _raw(field: Field) -> Decode:
    return lambda data, at: _counted(data, at, field.size)


def _vector(field: Field) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = _counted(data, at, field.size)
        return list(struct.unpack(f"<{len(raw) // 4}f", raw)), at

    return decode


_DECODERS: dict[Wire, Callable[[Field], Decode]] = {
    Wire.TINY: _integer(1),
    Wire.SHORT: _integer(2),
    Wire.INT24: _integer(3),
    Wire.LONG: _integer(4),
    Wire.LONGLONG: _integer(8),
    Wire.FLOAT: _fixed("<f"),
    Wire.DOUBLE: _fixed("<d"),
    Wire.NEWDECIMAL: _decimal,
    Wire.YEAR: _year,
    Wire.DATE: _date,
    Wire.NEWDATE: _date,
    Wire.DATETIME2: _datetime2,
    Wire.TIMESTAMP2: _timestamp2,
    Wire.TIME2: _time2,
    Wire.TIMESTAMP: _old_temporal(4),
    Wire.TIME: _old_temporal(3),
    Wire.DATETIME: _old_temporal(8),
    Wire.BIT: _bit,
    Wire.ENUM: _enum,
    Wire.SET: _set,
    Wire.VARCHAR: _string,
    Wire.VAR_STRING: _string,
    Wire.STRING: _string,
    Wire.BLOB: _string,
    Wire.VARCHAR_COMPRESSED: _string,
    Wire.BLOB_COMPRESSED: _string,
    Wire.JSON: _json,
    Wire.GEOMETRY: _raw,
    Wire.VECTOR: _vector,
}

Image = list[Any]
_OPS = {
    EventType.WRITE_ROWS: INSERT,
    EventType.WRITE_ROWS_V1: INSERT,
    EventType.WRITE_ROWS_COMPRESSED: INSERT,
    EventType.WRITE_ROWS_COMPRESSED_V1: INSERT,
    EventType.UPDATE_ROWS: UPDATE,
    EventType.UPDATE_ROWS_V1: UPDATE,
    EventType.UPDATE_ROWS_COMPRESSED: UPDATE,
    EventType.UPDATE_ROWS_COMPRESSED_V1: UPDATE,
    EventType.DELETE_ROWS: DELETE,
    EventType.DELETE_ROWS_V1: DELETE,
    EventType.DELETE_ROWS_COMPRESSED: DELETE,
    EventType.DELETE_ROWS_COMPRESSED_V1: DELETE,
}
_VERSION_2 = {EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS}
_VERSION_2 |= {
    EventType.WRITE_ROWS_COMPRESSED,
    EventType.UPDATE_ROWS_COMPRESSED,
    EventType.DELETE_ROWS_COMPRESSED,
}
COMPRESSED = {EventType(code) for code in range(166, 172)}
ROWS = {*_OPS, EventType.PARTIAL_UPDATE_ROWS}


class RowDecoder:
    """Decodes the rows of one table in one shape. Raises Undecodable for a type that can't be."""

    def __init__(self, table: TableMap) -> None:
        self.table = table
        self._decoders = [_DECODERS[field.wire](field) for field in table.fields]

    def rows(self, kind: int, body: bytes, id_size: int) -> Iterator[tuple[int, Image | None, Image | None]]:
        """(op, before, after) for each row. Raises Malformed; Undecodable for partial images."""
        if kind == EventType.PARTIAL_UPDATE_ROWS:
            raise Undecodable(
                "the log holds a partial JSON update",
                "SET GLOBAL binlog_row_value_options='' (and reconnect the writers), then snapshot the table anew",
            )
        event = EventType(kind)
        operation = _OPS[event]
        cursor = Cursor(body, id_size + 2)
        if event in _VERSION_2:
            cursor.skip(max(cursor.uint(2) - 2, 0))  # extra row data: partitions, NDB
        width = cursor.packed()
        if width != len(self._decoders):
            raise Malformed(f"rows of {width} columns, {len(self._decoders)} in the table map")
        for _ in range(2 if operation == UPDATE else 1):
            present = int.from_bytes(cursor.take((width + 7) // 8), "little")
            if ~present & (1 << width) - 1:  # bits beyond the width are set or not
                raise Undecodable(
                    "the log holds partial row images",
                    "SET GLOBAL binlog_row_image=FULL (and reconnect the writers), then snapshot the table anew",
                )
        data = cursor.rest()
        if event in COMPRESSED:
            data = values.uncompressed_event(data)
        at = 0
        try:
            while at < len(data):
                before, after = None, None
                if operation != INSERT:
                    before, at = self._image(data, at)
                if operation != DELETE:
                    after, at = self._image(data, at)
                yield operation, before, after
        except (struct.error, IndexError):
            raise Malformed("a row beyond the end of its event") from None

    def _image(self, data: bytes, at: int) -> tuple[Image, int]:
        width = len(self._decoders)
        nulls = int.from_bytes(_take(data, at, (width + 7) // 8), "little")
        at += (width + 7) // 8
        image: Image = []
        for place, decode in enumerate(self._decoders):
            if nulls >> place & 1:
                image.append(None)
            else:
                value, at = decode(data, at)
                image.append(value)
        return image, at


def image_array(table: TableMap, images: list[Image | None], struct_type: pa.StructType) -> pa.StructArray:
    """Row images as an Arrow struct of ``border.image_type``; None is a null struct."""
    arrays: list[pa.Array] = []
    for place, field in enumerate(table.fields):
        column = [None if image is None else image[place] for image in images]
        wanted = struct_type.field(len(arrays)).type
        if datatypes.entry(field.column).may_be_invalid_date:
            stored = pa.int32() if pa.types.is_date(wanted) else pa.int64()
            plain = [None if isinstance(value, InvalidDate) else value for value in column]
            arrays.append(pa.array(plain, stored).cast(wanted))
            if len(arrays) < struct_type.num_fields and struct_type.field(len(arrays)).name == datatypes.text_column(
                field.column
            ):
                texts = [value.text if isinstance(value, InvalidDate) else None for value in column]
                arrays.append(pa.array(texts, pa.string()))
        else:
            arrays.append(pa.array(column, wanted))
    absent = pa.array([image is None for image in images], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(struct_type), mask=absent)
