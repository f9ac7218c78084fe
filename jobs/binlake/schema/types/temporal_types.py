"""DATE, DATETIME, TIMESTAMP, TIME and YEAR. Sessions are in UTC on both sides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from binlake.schema.table import Column
from binlake.schema.types.datatype import (
    NUMBERED,
    DataType,
    Keeps,
    KeyBound,
    always,
    changes,
    in_lake,
    lake_string,
    on_server,
    server_char,
    shown_bound,
)


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


def _date_like(arrow: pa.DataType, delta: str, pattern: str, keeps: Keeps = changes) -> DataType:
    """Return the entry of DATE, DATETIME or TIMESTAMP: selected as text, so that invalid dates arrive unchanged.

    Canonical text has six digits of fraction whatever is declared, so that a fraction that shouldn't be in the lake is
    noticed.
    """
    return DataType(
        arrow=lambda column: arrow,
        delta=lambda column: delta,
        select=server_char,
        restore_sql=lambda column: _date_restore(column, delta),
        server_text=_server_moment,
        lake_text=lambda column: f"DATE_FORMAT({in_lake(column)}, '{pattern}')",
        may_be_invalid_date=True,
        bound=_DAYS if delta == "DATE" else _MOMENTS,
        has_fraction=delta != "DATE",
        keeps=keeps,
    )


def _time_microseconds(column: Column) -> str:
    name = on_server(column)
    # From the parts, which have no sign: TIME_TO_SEC loses the sign of what is above -1 s on MySQL, and MariaDB's
    # keeps the fraction.
    sign = f"IF(LEFT(CAST({name} AS CHAR), 1) = '-', -1, 1)"
    seconds = f"(HOUR({name}) * 3600 + MINUTE({name}) * 60 + SECOND({name}))"
    return f"{sign} * ({seconds} * 1000000 + MICROSECOND({name}))"


_TIME = DataType(
    arrow=lambda column: pa.int64(),
    delta=lambda column: "BIGINT",
    select=_time_microseconds,
    server_text=lambda column: f"CAST({_time_microseconds(column)} AS CHAR)",
    lake_text=lake_string,
    has_fraction=True,
    implicit_default=lambda column: "00:00:00" + ("." + "0" * column.fraction if column.fraction else ""),
    bound=shown_bound(lambda text: f"TIME'{text}'"),
    keeps=lambda before, after: after.fraction >= before.fraction,
)


def _server_year(column: Column) -> str:
    if column.length != 2:
        return f"{on_server(column)} + 0"
    # MariaDB's YEAR(2) is a number of two digits, over the full year that YEAR() and the log tell; what isn't a year
    # is 0 in the log, and 1900, which no year is, to YEAR().
    year = f"YEAR({on_server(column)})"
    return f"IF({year} = 1900, 0, {year})"


_YEAR = DataType(
    arrow=lambda column: pa.int32(),
    delta=lambda column: "INT",
    select=_server_year,
    server_text=lambda column: f"CAST({_server_year(column)} AS CHAR)",
    lake_text=lake_string,
    implicit_default=lambda column: "0000",
    bound=NUMBERED,
    length=lambda written, unsigned: 2 if written == 2 else None,
    keeps=always,
)


TYPES = {
    "date": _date_like(pa.date32(), "DATE", "yyyy-MM-dd", always),
    "datetime": _date_like(pa.timestamp("us"), "TIMESTAMP_NTZ", "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    "timestamp": _date_like(pa.timestamp("us", tz="UTC"), "TIMESTAMP", "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    "time": _TIME,
    "year": _YEAR,
}
