"""TIME, as microseconds, and YEAR."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa

from binlake.position import Flavour
from binlake.schema.arithmetic import INTEGER_BITS
from binlake.schema.table import INTEGERS, Column
from binlake.schema.types import packed_values
from binlake.schema.types.connect_form import ConnectType, always, as_numbers
from binlake.schema.types.constants import Literal, exact_value, plain
from binlake.schema.types.datatype import NUMBERED, DataType, compare_as, lake_string, on_server, shown_bound
from binlake.schema.types.log_form import ColumnBytes, EncodeColumn, Field, Wire, int64s, pieces
from binlake.schema.types.temporal_types import (
    SCALE,
    big_endian,
    digits_of_fraction,
    fraction_log,
    fraction_text,
    whole_log,
)

_TIME_TEXT = re.compile(r"(-?)(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?", re.A)
_TIME_DIGITS = re.compile(r"(-?)(\d{0,3}?)(\d{0,2}?)(\d{1,2})", re.A)


def _year_bytes(array: pa.Array) -> ColumnBytes:
    years = int64s(array)
    return pieces(np.where(years == 0, 0, years - 1900).astype(np.uint8).tobytes(), 1, 1, array)


def _time_bytes(field: Field) -> EncodeColumn:
    def encode(array: pa.Array) -> ColumnBytes:
        moment = int64s(array)
        size = (field.column.fraction + 1) // 2
        seconds, fraction = np.abs(moment) // 1_000_000, np.abs(moment) % 1_000_000
        hms = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        packed = np.sign(moment) * (hms << 8 * size | fraction // SCALE[size]) + (0x800000 << 8 * size)
        return big_endian(packed, 3 + size, array)

    return encode


# statements -----------------------------------------------------------------------------------------------------------
def year_text(literal: Literal) -> str | None:
    """Return a constant's four digits in a YEAR column; None if it isn't known."""
    year = int(plain(literal))
    if literal.kind == "number" and year == 0:
        return "0000"
    if 0 <= year <= 99 and len(literal.text) <= 2:
        return str(year + (2000 if year < 70 else 1900))
    if literal.text == "0000":
        return "0000"
    return str(year) if 1901 <= year <= 2155 else None


def _year_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    year = year_text(literal)
    return year[2:] if year and column.length == 2 else year


def _time_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    text = plain(literal)
    match = _TIME_TEXT.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
    if not match:
        return None
    sign, *parts = match.groups(default="0")
    hours, minutes, seconds = (int(part or "0") for part in parts[:3])
    if hours > 838 or minutes > 59 or seconds > 59 or (sign and not hours + minutes + seconds):
        return None
    rest = fraction_text(parts[3] if len(parts) > 3 else "", column.fraction)
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{rest}"


def _microseconds(text: str) -> int:
    """Return ``[-]H:MM:SS[.ffffff]`` as signed microseconds."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = digits.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000
    return sign * (total + int(fraction.ljust(6, "0")[:6] or 0))


def _time_text(column: Column, microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    seconds, us = divmod(abs(microseconds), 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{sign}{clock}{packed_values.fraction_text(us, column.fraction)}"


def _converts_year(before: Column, after: Column, strict: bool) -> bool:
    if after.type in INTEGERS:
        return INTEGER_BITS[after.type] >= 16 and before.length != 2  # a YEAR(2) becomes a number of two digits
    return after.type == "year"


# entries --------------------------------------------------------------------------------------------------------------
def _time_microseconds(column: Column) -> str:
    name = on_server(column)
    # From the parts, which have no sign: TIME_TO_SEC loses the sign of what is above -1 s on MySQL, and MariaDB's
    # keeps the fraction.
    sign = f"IF(LEFT(CAST({name} AS CHAR), 1) = '-', -1, 1)"
    seconds = f"(HOUR({name}) * 3600 + MINUTE({name}) * 60 + SECOND({name}))"
    return f"{sign} * ({seconds} * 1000000 + MICROSECOND({name}))"


_TIME = DataType(
    connect=always(ConnectType("int64", as_numbers, "io.debezium.time.MicroTime"), 92, digits_of_fraction),
    log=fraction_log(Wire.TIME2, Wire.TIME, "TIME", 3, _time_bytes),
    arrow=lambda column: pa.int64(),
    delta=lambda column: "BIGINT",
    select=_time_microseconds,
    server_text=lambda column: f"CAST({_time_microseconds(column)} AS CHAR)",
    lake_text=lake_string,
    has_fraction=True,
    implicit_default=lambda column: "00:00:00" + ("." + "0" * column.fraction if column.fraction else ""),
    bound=shown_bound(lambda text: f"TIME'{text}'"),
    converts=lambda before, after, strict: after.type == "time" and after.fraction >= before.fraction,
    default_text=_time_default,
    text_of=_time_text,
    takes_temporal=True,
    constant=lambda column, arrow, text: _microseconds(text),
    spark_constant=lambda column, text: f"{_microseconds(text)}L",
)


def _server_year(column: Column) -> str:
    if column.length != 2:
        return f"{on_server(column)} + 0"
    # MariaDB's YEAR(2) is a number of two digits, over the full year that YEAR() and the log tell; what isn't a year
    # is 0 in the log, and 1900, which no year is, to YEAR().
    year = f"YEAR({on_server(column)})"
    return f"IF({year} = 1900, 0, {year})"


# YEAR(2) compares by four-digit years that it doesn't show.
_YEAR_BOUND = replace(NUMBERED, is_usable=lambda column: column.length != 2)
_YEAR = DataType(
    connect=always(ConnectType("int32", as_numbers, "io.debezium.time.Year"), 4),
    log=whole_log(Wire.YEAR, (Wire.YEAR,), "YEAR", 1, _year_bytes),
    arrow=lambda column: pa.int32(),
    delta=lambda column: "INT",
    select=_server_year,
    server_text=lambda column: f"CAST({_server_year(column)} AS CHAR)",
    lake_text=lake_string,
    implicit_default=lambda column: "0000",
    bound=_YEAR_BOUND,
    length=lambda written, unsigned: 2 if written == 2 else None,
    compared_as=compare_as("year"),
    converts=_converts_year,
    default_text=_year_default,
    text_of=lambda column, value: f"{value:04d}",
    constant=lambda column, arrow, text: exact_value(arrow, text),
)


TYPES = {"time": _TIME, "year": _YEAR}
