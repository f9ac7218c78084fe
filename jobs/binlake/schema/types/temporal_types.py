"""DATE, DATETIME and TIMESTAMP. Sessions are in UTC on both sides."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.position import Flavour
from binlake.schema.table import Column
from binlake.schema.types import packed_values
from binlake.schema.types.connect_form import (
    ConnectForm,
    ConnectSettings,
    ConnectType,
    ConvertArray,
    always,
    as_numbers,
)
from binlake.schema.types.constants import Literal, number, plain
from binlake.schema.types.datatype import (
    DataType,
    KeyBound,
    cast_constant,
    compare_as,
    in_lake,
    server_char,
    shown_bound,
)
from binlake.schema.types.log_form import (
    ColumnBytes,
    EncodeColumn,
    Field,
    Gathered,
    InvalidDateForm,
    LogForm,
    Wire,
    finished,
    fixed,
    int64s,
    pieces,
)

_DAY_US = 86_400_000_000
SCALE = (1_000_000, 10_000, 100, 1)
"""Microseconds of a fraction's unit, by the fraction's size in bytes."""
_DATETIME_SIGN = 0x8000000000
"""The number that the servers add to a packed DATETIME, so that it sorts as bytes."""


# the log --------------------------------------------------------------------------------------------------------------
def _calendar(days: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return year, month and day for days since 1970."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    count = months.astype(np.int64)
    return count // 12 + 1970, count % 12 + 1, (dates - months).astype(np.int64) + 1


def big_endian(packed: npt.NDArray[np.int64], size: int, array: pa.Array) -> ColumnBytes:
    """Return the last ``size`` bytes of each number; None where the array is NULL."""
    wide = packed.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]
    return pieces(wide.tobytes(), size, size, array)


def _with_fraction(
    whole: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64], bytes_of_whole: int, digits: int, array: pa.Array
) -> ColumnBytes:
    size = (digits + 1) // 2
    return big_endian(whole << 8 * size | fraction // SCALE[size], bytes_of_whole + size, array)


def _date_bytes(array: pa.Array) -> ColumnBytes:
    year, month, day = _calendar(int64s(array))
    return pieces((day | month << 5 | year << 9).astype("<i4").tobytes(), 3, 4, array)


def _datetime_bytes(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = int64s(array)
        year, month, day = _calendar(moment // _DAY_US)
        clock = moment % _DAY_US
        seconds, fraction = clock // 1_000_000, clock % 1_000_000
        hms = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        packed = ((year * 13 + month) << 5 | day) << 17 | hms
        return _with_fraction(packed + _DATETIME_SIGN, fraction, 5, field.column.fraction, array)

    return encode


def _timestamp_bytes(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = int64s(array)
        return _with_fraction(moment // 1_000_000, moment % 1_000_000, 4, field.column.fraction, array)

    return encode


def _invalid_date_text(field: Field, data: bytes) -> str:
    raw = int.from_bytes(data[:3], "little")
    return packed_values.date_text(raw >> 9, raw >> 5 & 15, raw & 31)


def _invalid_timestamp_text(field: Field, data: bytes) -> str:
    return f"0000-00-00 00:00:00{packed_values.fraction_text(0, field.column.fraction)}"


def _invalid_datetime_text(field: Field, data: bytes) -> str:
    digits = field.column.fraction
    raw = int.from_bytes(data[:5], "big") - _DATETIME_SIGN
    day, clock = raw >> 17, raw & 0x1FFFF
    shown = packed_values.date_text((day >> 5) // 13, (day >> 5) % 13, day & 31)
    fraction = packed_values.fraction_text(packed_values.fraction_us(data, 5, digits), digits)
    return f"{shown} {packed_values.clock_text(clock)}{fraction}"


def _split_date(text: str) -> tuple[int, int, int]:
    year, month, day = (int(part) for part in text.split("-"))
    return year, month, day


def _split_clock(text: str, digits: int) -> tuple[str, bytes]:
    """Return hours, minutes and seconds as text, and the bytes of the fraction."""
    whole, _, fraction = text.partition(".")
    size = (digits + 1) // 2
    return whole, (int(fraction.ljust(6, "0")) // SCALE[size]).to_bytes(size, "big") if size else b""


def _invalid_date_bytes(field: Field, text: str) -> bytes:
    year, month, day = _split_date(text.partition(" ")[0])
    return (day | month << 5 | year << 9).to_bytes(3, "little")


def _invalid_timestamp_bytes(field: Field, text: str) -> bytes:
    return bytes(4) + _split_clock(text.partition(" ")[2], field.column.fraction)[1]  # 0000-00-00 00:00:00 alone


def _invalid_datetime_bytes(field: Field, text: str) -> bytes:
    date_part, _, clock = text.partition(" ")
    year, month, day = _split_date(date_part)
    whole, fraction = _split_clock(clock, field.column.fraction)
    hour, minute, second = (int(part) for part in whole.split(":"))
    packed = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    return (packed + _DATETIME_SIGN).to_bytes(5, "big") + fraction


def fraction_log(
    wire: Wire,
    older: Wire,
    kernel: str,
    size: int,
    encode: Callable[[Field], EncodeColumn],
    invalid: InvalidDateForm | None = None,
) -> LogForm:
    """Return the form of a type with digits after the second. older: its code before MySQL 5.6. size: bytes before the
    fraction."""

    def gathered(field: Field) -> Gathered:
        digits = field.column.fraction
        return Gathered(kernel, size=size + packed_values.fraction_size(digits), first=digits)

    return LogForm(
        wire,
        lambda column: 0,
        gathered,
        finished(fixed),
        encode,
        alone=(wire, older),
        described=lambda column, first, second: (replace(column, fraction=first), first),
        metadata=lambda field: bytes([field.column.fraction]),
        invalid=invalid,
    )


def whole_log(
    wire: Wire,
    alone: tuple[Wire, ...],
    kernel: str,
    size: int,
    encode: EncodeColumn,
    invalid: InvalidDateForm | None = None,
) -> LogForm:
    """Return the form of a type without digits after the second. size: bytes of a value."""
    return LogForm(
        wire,
        lambda column: size,
        lambda field: Gathered(kernel, size=size),
        finished(fixed),
        lambda field: encode,
        alone=alone,
        invalid=invalid,
    )


_DATE_LOG = whole_log(
    Wire.DATE,
    (Wire.DATE, Wire.NEWDATE),
    "DATE",
    3,
    _date_bytes,
    InvalidDateForm(_invalid_date_text, _invalid_date_bytes),
)
_DATETIME_LOG = fraction_log(
    Wire.DATETIME2,
    Wire.DATETIME,
    "DATETIME",
    5,
    _datetime_bytes,
    InvalidDateForm(_invalid_datetime_text, _invalid_datetime_bytes),
)
_TIMESTAMP_LOG = fraction_log(
    Wire.TIMESTAMP2,
    Wire.TIMESTAMP,
    "TIMESTAMP",
    4,
    _timestamp_bytes,
    InvalidDateForm(_invalid_timestamp_text, _invalid_timestamp_bytes),
)


# statements -----------------------------------------------------------------------------------------------------------
_DATE_TEXT = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?", re.A)
_DATE_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?()", re.A)
_SHOWN_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?", re.A)


def _date_suffix(before: Column, after: Column) -> str | None:
    if before.type == "date":
        if after.type == "date":
            return ""
        # A TIMESTAMP counts from the session's midnight.
        if after.type != "datetime":
            return None
        return " 00:00:00" + ("." + "0" * after.fraction if after.fraction else "")
    if after.type != before.type or after.fraction < before.fraction:
        return None
    dot = "." if after.fraction and not before.fraction else ""
    return dot + "0" * (after.fraction - before.fraction)


def fraction_text(written: str | None, digits: int) -> str:
    """Return a fraction of a second with its point, as ``.250`` for three digits; empty for none.

    Raises ValueError if digits other than zeros would be cut or rounded away, in which the servers differ.
    """
    written = (written or "").rstrip("0")
    if len(written) > digits:
        raise ValueError
    return "." + written.ljust(digits, "0") if digits else ""


def _date_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    is_zero = literal.kind == "number" and not number(literal)
    return moment_text(column, "0000-00-00" if is_zero else plain(literal))


def moment_text(column: Column, text: str) -> str | None:
    """Return the server's text of a constant in a DATE, DATETIME or TIMESTAMP column, also of one that no calendar has;
    None if it isn't known."""
    match = _DATE_TEXT.fullmatch(text) or _DATE_DIGITS.fullmatch(text)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part or "0") for part in match.groups()[:6])
    rest = fraction_text(match[7], column.fraction)
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        return None
    if column.type != "date":
        return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{rest}"
    return None if hour or minute or second else f"{year:04}-{month:02}-{day:02}"


def _shown(column: Column, value: date) -> str:
    if not isinstance(value, datetime):
        return value.isoformat()
    return value.isoformat(" ")[:19] + packed_values.fraction_text(value.microsecond, column.fraction)


def _moment(column: Column, arrow: pa.DataType, text: str) -> date | datetime | None:
    is_date = pa.types.is_date(arrow)
    match = _SHOWN_MOMENT.fullmatch(text)
    if match is None or is_date != (match[1] is None):
        return None
    if is_date:
        return date.fromisoformat(text)
    return datetime.fromisoformat(text).replace(tzinfo=UTC if arrow.tz else None)


# Kafka Connect --------------------------------------------------------------------------------------------------------
def digits_of_fraction(column: Column) -> int | None:
    """Return Debezium's length of a column: its digits after the second; None without any."""
    return column.fraction or None


def _milliseconds(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())


def _zoned(fraction: int) -> ConvertArray:
    def texts(values: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        kind = "s" if fraction == 0 else "us"
        made = pc.strftime(values.cast(pa.timestamp(kind, "UTC"), safe=False), "%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(pc.utf8_slice_codeunits(made, 0, 20 + fraction if fraction else 19), "Z", "")

    return texts


def _datetime_in_connect(column: Column, settings: ConnectSettings) -> ConnectType:
    if column.fraction > 3:
        return ConnectType("int64", as_numbers, "io.debezium.time.MicroTimestamp")
    return ConnectType("int64", _milliseconds, "io.debezium.time.Timestamp")


def _timestamp_in_connect(column: Column, settings: ConnectSettings) -> ConnectType:
    return ConnectType("string", _zoned(column.fraction), "io.debezium.time.ZonedTimestamp")


_DATE_IN_CONNECT = always(ConnectType("int32", as_numbers, "io.debezium.time.Date"), 91)
_DATETIME_IN_CONNECT = ConnectForm(_datetime_in_connect, 93, digits_of_fraction)
_TIMESTAMP_IN_CONNECT = ConnectForm(_timestamp_in_connect, 2014, digits_of_fraction)


# expressions ----------------------------------------------------------------------------------------------------------


def _date_restore(column: Column, delta: str) -> str:
    # Year 0 is outside what Delta readers agree on: an invalid date like 0000-00-00.
    return f"IF({in_lake(column)} < '0001', NULL, TRY_CAST({in_lake(column)} AS {delta}))"


def fraction_padding(column: Column) -> str:
    """Return what the server's text of a DATETIME or TIMESTAMP lacks to six digits of fraction; empty for DATE."""
    if column.type == "date":
        return ""
    return "0" * (6 - column.fraction) if column.fraction else ".000000"


def _server_moment(column: Column) -> str:
    padding = fraction_padding(column)
    return f"CONCAT({server_char(column)}, '{padding}')" if padding else server_char(column)


def _dated(word: str, parse: Callable[[str], Any]) -> KeyBound:
    """Return bounds of dates. A date that no literal can hold (February 30) has none."""

    def literal(text: str) -> str | None:
        with suppress(ValueError):
            parse(text)
            return f"{word}'{text}'"
        return None

    return shown_bound(literal)


_DAYS = _dated("DATE", date.fromisoformat)
_MOMENTS = _dated("TIMESTAMP", datetime.fromisoformat)


def _date_like(arrow: pa.DataType, delta: str, pattern: str, log: LogForm, connect: ConnectForm) -> DataType:
    """Return the entry of DATE, DATETIME or TIMESTAMP: selected as text, so that invalid dates arrive unchanged.

    Canonical text has six digits of fraction whatever is declared, so that a fraction that shouldn't be in the lake is
    noticed.
    """
    return DataType(
        log=log,
        connect=connect,
        arrow=lambda column: arrow,
        delta=lambda column: delta,
        select=server_char,
        restore_sql=lambda column: _date_restore(column, delta),
        server_text=_server_moment,
        lake_text=lambda column: f"DATE_FORMAT({in_lake(column)}, '{pattern}')",
        may_be_invalid_date=True,
        bound=_DAYS if delta == "DATE" else _MOMENTS,
        has_fraction=delta != "DATE",
        text_of=_shown,
        compared_as=compare_as("date" if delta == "DATE" else "moment"),
        date_suffix=_date_suffix,
        default_text=_date_default,
        takes_temporal=True,
        constant=_moment,
    )


_MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"
TYPES = {
    "date": _date_like(pa.date32(), "DATE", "yyyy-MM-dd", _DATE_LOG, _DATE_IN_CONNECT),
    "datetime": _date_like(pa.timestamp("us"), "TIMESTAMP_NTZ", _MICROSECONDS, _DATETIME_LOG, _DATETIME_IN_CONNECT),
    "timestamp": replace(
        _date_like(
            pa.timestamp("us", tz="UTC"),
            "TIMESTAMP",
            _MICROSECONDS,
            _TIMESTAMP_LOG,
            _TIMESTAMP_IN_CONNECT,
        ),
        spark_constant=lambda column, text: cast_constant("TIMESTAMP", f"{text}+00:00"),
    ),
}
