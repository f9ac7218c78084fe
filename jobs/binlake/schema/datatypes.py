"""The registry of types: an entry per MySQL and MariaDB type, for the binlog, the snapshot and the lake alike.

An entry says how a column of the type

- is represented in Arrow (``arrow``) and in Delta (``delta``, as Spark SQL writes types),
- is selected by the snapshot over JDBC (``select``, MySQL SQL) and turned into the Delta value
  (``restore``, Spark SQL over the selected value),
- is written as canonical text on the server (``server_text``) and in the lake (``lake_text``), so that verify
  can compare hashes; NULL stays NULL. Both texts are equal exactly when the values are, on either kind of server;
  long values are given as SHA-256 (MySQL 9.6 made MD5 a component that may be missing).

The binlog's decoder gives the Arrow type named here. What a table map can't tell (MariaDB's UUID, INET4 and INET6)
arrives as BINARY and is rendered by ``render``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from binlake.errors import UnsupportedColumn
from binlake.names import mysql_quote, spark_quote
from binlake.schema.table import Column

SqlExpression = Callable[[Column], str]


@dataclass(frozen=True)
class DataType:
    """One entry of the registry. SQL expressions are functions of the column; names come quoted."""

    arrow: Callable[[Column], pa.DataType]
    delta: Callable[[Column], str]
    select: SqlExpression
    restore: SqlExpression
    server_text: SqlExpression
    lake_text: SqlExpression
    may_be_invalid_date: bool = False


def _server(column: Column) -> str:
    return mysql_quote(column.name)


def _lake(column: Column) -> str:
    return spark_quote(column.name)


def _server_sha(expression: str) -> str:
    return f"SHA2({expression}, 256)"


def _lake_sha(column: Column) -> str:
    return f"SHA2(CAST({_lake(column)} AS BINARY), 256)"


def _cast_to_delta(column: Column) -> str:
    return f"CAST({_lake(column)} AS {delta_type(column)})"


def _server_char(column: Column) -> str:
    return f"CAST({_server(column)} AS CHAR)"


def _lake_string(column: Column) -> str:
    return f"CAST({_lake(column)} AS STRING)"


def _integer(arrow: pa.DataType, delta: str, wide_arrow: pa.DataType, wide_delta: str) -> DataType:
    """Return the entry of an integer type. Unsigned columns take the next wider signed type."""
    return DataType(
        arrow=lambda column: wide_arrow if column.unsigned else arrow,
        delta=lambda column: wide_delta if column.unsigned else delta,
        # + 0 drops ZEROFILL and the boolean that drivers see in TINYINT(1)
        select=lambda column: f"{_server(column)} + 0",
        restore=_cast_to_delta,
        server_text=lambda column: f"CAST({_server(column)} + 0 AS CHAR)",
        lake_text=_lake_string,
    )


def _decimal_is_text(column: Column) -> bool:
    return (column.precision or 10) > 38


def _decimal_arrow(column: Column) -> pa.DataType:
    return pa.string() if _decimal_is_text(column) else pa.decimal128(column.precision or 10, column.scale or 0)


def _decimal_delta(column: Column) -> str:
    return "STRING" if _decimal_is_text(column) else f"DECIMAL({column.precision or 10},{column.scale or 0})"


_DECIMAL = DataType(
    arrow=_decimal_arrow,
    delta=_decimal_delta,
    # As text, because drivers round above 38 digits; + 0 drops the zeros of ZEROFILL.
    select=lambda column: f"CAST({_server(column)} + 0 AS CHAR)",
    restore=_cast_to_delta,
    server_text=lambda column: f"CAST({_server(column)} + 0 AS CHAR)",
    lake_text=_lake_string,
)


def _server_double(column: Column) -> str:
    # MySQL cuts the text of a DOUBLE expression to 22 characters, but not inside JSON, where it adds .0 to whole
    # numbers. The cast undoes the rounding of FLOAT and of a declared scale.
    array = f"JSON_ARRAY(CAST({_server(column)} AS DOUBLE))"
    return f"NULLIF(REPLACE(CAST({array} AS CHAR), '.0]', ']'), '[null]')"


_FLOAT = DataType(
    arrow=lambda column: pa.float32(),
    delta=lambda column: "FLOAT",
    # The server's text of a FLOAT is rounded to 6 digits; widened to DOUBLE it is exact.
    select=lambda column: f"CAST({_server(column)} AS DOUBLE)",
    restore=_cast_to_delta,
    server_text=_server_double,
    lake_text=lambda column: f"CONCAT('[', binlake_double_text(CAST({_lake(column)} AS DOUBLE)), ']')",
)

_DOUBLE = DataType(
    arrow=lambda column: pa.float64(),
    delta=lambda column: "DOUBLE",
    # A declared DOUBLE(10,2) would be printed rounded: the cast drops the declaration.
    select=lambda column: f"CAST({_server(column)} AS DOUBLE)",
    restore=_cast_to_delta,
    server_text=_server_double,
    lake_text=lambda column: f"CONCAT('[', binlake_double_text({_lake(column)}), ']')",
)


def _bit_digits(column: Column) -> int:
    return 2 * ((column.length or 1) + 7 >> 3)


def _bit_hex(column: Column) -> str:
    return f"LPAD(HEX({_server(column)} + 0), {_bit_digits(column)}, '0')"


_BIT = DataType(
    arrow=lambda column: pa.bool_() if (column.length or 1) == 1 else pa.binary(),
    delta=lambda column: "BOOLEAN" if (column.length or 1) == 1 else "BINARY",
    select=lambda column: f"{_server(column)} + 0" if (column.length or 1) == 1 else f"UNHEX({_bit_hex(column)})",
    restore=_cast_to_delta,
    server_text=lambda column: (
        f"CAST({_server(column)} + 0 AS CHAR)" if (column.length or 1) == 1 else _bit_hex(column)
    ),
    lake_text=lambda column: (
        f"CAST(CAST({_lake(column)} AS INT) AS STRING)" if (column.length or 1) == 1 else f"HEX({_lake(column)})"
    ),
)


def _date_restore(column: Column) -> str:
    # Year 0 is outside what Delta readers agree on: an invalid date like 0000-00-00.
    return f"IF({_lake(column)} < '0001', NULL, TRY_CAST({_lake(column)} AS {delta_type(column)}))"


def fraction_padding(column: Column) -> str:
    """Return what the server's text of a DATETIME or TIMESTAMP lacks to six digits of fraction; empty for DATE."""
    if column.type == "date":
        return ""
    return "0" * (6 - column.fraction) if column.fraction else ".000000"


def _server_moment(column: Column) -> str:
    padding = fraction_padding(column)
    return f"CONCAT({_server_char(column)}, '{padding}')" if padding else _server_char(column)


def _date_like(arrow: pa.DataType, delta: str, pattern: str) -> DataType:
    """Return the entry of DATE, DATETIME or TIMESTAMP: selected as text, so that invalid dates arrive unchanged.

    Sessions are in UTC on both sides. Canonical text has six digits of fraction whatever is declared, so that a
    fraction that shouldn't be in the lake is noticed.
    """
    return DataType(
        arrow=lambda column: arrow,
        delta=lambda column: delta,
        select=_server_char,
        restore=_date_restore,
        server_text=_server_moment,
        lake_text=lambda column: f"DATE_FORMAT({_lake(column)}, '{pattern}')",
        may_be_invalid_date=True,
    )


def _time_microseconds(column: Column) -> str:
    name = _server(column)
    # From the parts, which have no sign: TIME_TO_SEC loses the sign of what is above -1 s on MySQL, and MariaDB's
    # keeps the fraction.
    sign = f"IF(LEFT(CAST({name} AS CHAR), 1) = '-', -1, 1)"
    seconds = f"(HOUR({name}) * 3600 + MINUTE({name}) * 60 + SECOND({name}))"
    return f"{sign} * ({seconds} * 1000000 + MICROSECOND({name}))"


_TIME = DataType(
    arrow=lambda column: pa.int64(),
    delta=lambda column: "BIGINT",
    select=_time_microseconds,
    restore=_cast_to_delta,
    server_text=lambda column: f"CAST({_time_microseconds(column)} AS CHAR)",
    lake_text=_lake_string,
)


def _server_year(column: Column) -> str:
    if column.length != 2:
        return f"{_server(column)} + 0"
    # MariaDB's YEAR(2) is a number of two digits, over the full year that YEAR() and the log tell; what isn't a year
    # is 0 in the log, and 1900, which no year is, to YEAR().
    year = f"YEAR({_server(column)})"
    return f"IF({year} = 1900, 0, {year})"


_YEAR = DataType(
    arrow=lambda column: pa.int32(),
    delta=lambda column: "INT",
    select=_server_year,
    restore=_cast_to_delta,
    server_text=lambda column: f"CAST({_server_year(column)} AS CHAR)",
    lake_text=_lake_string,
)


_TWO_OR_FOUR_BYTES = frozenset({"ucs2", "utf32"})
_MAY_BE_INVALID = frozenset({"utf8mb4", "utf8mb3", *_TWO_OR_FOUR_BYTES})
"""Character sets whose columns may hold bytes that are no character. In the others the servers give ``?`` for such
bytes (tried in tests/integration/test_invalid_text.py)."""


def _server_bytes(text: str) -> str:
    return f"CONVERT({text} USING binary)"


def _utf8(column: Column) -> str:
    """Return SQL for a text's bytes in UTF-8. Drivers pass bytes on as they are; in text they replace invalid ones.

    They aren't cast: MariaDB's CAST AS BINARY gives NULL for more than max_allowed_packet, which a value of other
    character sets may take in UTF-8.

    Half a surrogate pair is invalid: MariaDB accepts it in most forms of Unicode, and both servers in ucs2. In utf8mb4
    and utf8mb3 its bytes are selected as they are, and aren't valid UTF-8. Text in ucs2 and utf32 is compared with its
    conversion to UTF-16 and back, which can't hold such halves; if they differ, the stored bytes are selected after the
    byte FF, which UTF-8 never contains.
    """
    name = _server(column)
    text = _server_bytes(f"CONVERT({name} USING utf8mb4)")
    if column.charset not in _TWO_OR_FOUR_BYTES:
        return text
    stored = _server_bytes(name)
    valid = f"{stored} <=> {_server_bytes(f'CONVERT(CONVERT({name} USING utf16) USING {column.charset})')}"
    # CONCAT gives NULL beyond max_allowed_packet.
    return f"IF({valid}, {text}, COALESCE(CONCAT(x'FF', {stored}), x'FF'))"


def may_be_invalid_text(column: Column) -> bool:
    """Tell whether the servers let bytes into the column that aren't valid in its character set."""
    return is_text(column) and column.type not in ("enum", "set") and column.charset in _MAY_BE_INVALID


def stored_bytes(column: Column) -> str:
    """Return Spark SQL for the stored bytes of invalid text that the snapshot selected; NULL if they were too long."""
    name = _lake(column)
    return f"NULLIF(SUBSTRING({name}, 2), X'')" if column.charset in _TWO_OR_FOUR_BYTES else name


def stored_of(column: Column, selected: bytes) -> bytes | None:
    """Return the stored bytes of one value of invalid text that the snapshot selected; None if they were too long."""
    return (selected[1:] or None) if column.charset in _TWO_OR_FOUR_BYTES else selected


def lake_bytes_text(column: Column, side: str) -> str:
    """Return Spark SQL for the canonical text of invalid text in the lake. side: the column with its bytes."""
    selected = f"CONCAT(X'FF', {side})" if column.charset in _TWO_OR_FOUR_BYTES else side
    return f"SHA2({selected}, 256)"


_TEXT = DataType(
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=_utf8,
    restore=_cast_to_delta,
    server_text=lambda column: _server_sha(_utf8(column)),
    lake_text=_lake_sha,
)
_RENDERED = DataType(
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=_server_char,
    restore=_cast_to_delta,
    server_text=lambda column: _server_sha(_server_char(column)),
    lake_text=_lake_sha,
)


def _bytes_type(expression: str = "{}") -> DataType:
    return DataType(
        arrow=lambda column: pa.binary(),
        delta=lambda column: "BINARY",
        select=lambda column: expression.format(_server(column)),
        restore=_cast_to_delta,
        server_text=lambda column: _server_sha(expression.format(_server(column))),
        lake_text=_lake_sha,
    )


_VECTOR = DataType(
    arrow=lambda column: pa.list_(pa.float32()),
    delta=lambda column: "ARRAY<FLOAT>",
    select=lambda column: f"UNHEX(HEX({_server(column)}))",
    restore=lambda column: f"binlake_vector({_lake(column)})",
    server_text=lambda column: f"HEX({_server(column)})",
    lake_text=lambda column: f"binlake_vector_hex({_lake(column)})",
)

# A part, which is all of it: drivers interpret geometry columns, the bytes are wanted as stored. By HEX and back, or by
# a cast, they would be NULL on MariaDB where they, or their digits, are more than max_allowed_packet.
_GEOMETRY = _bytes_type("SUBSTRING({}, 1)")

REGISTRY: dict[str, DataType] = {
    "tinyint": _integer(pa.int8(), "TINYINT", pa.int16(), "SMALLINT"),
    "smallint": _integer(pa.int16(), "SMALLINT", pa.int32(), "INT"),
    "mediumint": _integer(pa.int32(), "INT", pa.int32(), "INT"),
    "int": _integer(pa.int32(), "INT", pa.int64(), "BIGINT"),
    "bigint": _integer(pa.int64(), "BIGINT", pa.decimal128(20, 0), "DECIMAL(20,0)"),
    "decimal": _DECIMAL,
    "float": _FLOAT,
    "double": _DOUBLE,
    "bit": _BIT,
    "date": _date_like(pa.date32(), "DATE", "yyyy-MM-dd"),
    "datetime": _date_like(pa.timestamp("us"), "TIMESTAMP_NTZ", "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    "timestamp": _date_like(pa.timestamp("us", tz="UTC"), "TIMESTAMP", "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    "time": _TIME,
    "year": _YEAR,
    "char": _TEXT,
    "varchar": _TEXT,
    "tinytext": _TEXT,
    "text": _TEXT,
    "mediumtext": _TEXT,
    "longtext": _TEXT,
    "enum": _TEXT,
    "set": _TEXT,
    "binary": _bytes_type(),
    "varbinary": _bytes_type(),
    "tinyblob": _bytes_type(),
    "blob": _bytes_type(),
    "mediumblob": _bytes_type(),
    "longblob": _bytes_type(),
    "json": _RENDERED,
    "geometry": _GEOMETRY,
    "point": _GEOMETRY,
    "linestring": _GEOMETRY,
    "polygon": _GEOMETRY,
    "multipoint": _GEOMETRY,
    "multilinestring": _GEOMETRY,
    "multipolygon": _GEOMETRY,
    "geomcollection": _GEOMETRY,
    "geometrycollection": _GEOMETRY,
    "vector": _VECTOR,
    "uuid": _RENDERED,
    "inet4": _RENDERED,
    "inet6": _RENDERED,
}


def entry(column: Column) -> DataType:
    """Return the registry's entry of a column. Raises UnsupportedColumn, which names the column."""
    try:
        return REGISTRY[column.type]
    except KeyError:
        raise UnsupportedColumn(
            f"column {column.name!r} has the type {column.type.upper()}, which isn't mirrored",
            remedy="exclude the table in the YAML, or change the column's type",
        ) from None


def arrow_type(column: Column) -> pa.DataType:
    return entry(column).arrow(column)


def delta_type(column: Column) -> str:
    return entry(column).delta(column)


def is_text(column: Column) -> bool:
    return entry(column) is _TEXT


def is_never_empty(column: Column) -> bool:
    """Tell whether no value's text is empty. MySQL gives an empty one, with a warning, for a JSON value whose text is
    longer than max_allowed_packet."""
    return column.type == "json"
