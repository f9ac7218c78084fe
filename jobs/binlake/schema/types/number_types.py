"""Whole numbers, of which unsigned ones take the next wider signed type; DECIMAL, FLOAT and DOUBLE, exactly; BIT."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

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


def _boolean(written: int | None, unsigned: bool) -> int | None:
    """Return 1 for TINYINT(1), as MySQL says boolean; other display widths are noise."""
    return 1 if written == 1 and not unsigned else None


def _integer(
    arrow: pa.DataType, delta: str, wide_arrow: pa.DataType, wide_delta: str, length: Length = no_length
) -> DataType:
    """Return the entry of an integer type."""
    return DataType(
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


_DECIMAL = DataType(
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

_FLOAT = DataType(
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
    arrow=lambda column: pa.float64(),
    delta=lambda column: "DOUBLE",
    lake_text=lambda column: f"CONCAT('[', binlake_double_text({in_lake(column)}), ']')",
)


def _bit_digits(column: Column) -> int:
    return 2 * ((column.length or 1) + 7 >> 3)


def _bit_hex(column: Column) -> str:
    return f"LPAD(HEX({on_server(column)} + 0), {_bit_digits(column)}, '0')"


_BIT = DataType(
    arrow=lambda column: pa.bool_() if (column.length or 1) == 1 else pa.binary(),
    delta=lambda column: "BOOLEAN" if (column.length or 1) == 1 else "BINARY",
    select=lambda column: f"{on_server(column)} + 0" if (column.length or 1) == 1 else f"UNHEX({_bit_hex(column)})",
    server_text=lambda column: (
        f"CAST({on_server(column)} + 0 AS CHAR)" if (column.length or 1) == 1 else _bit_hex(column)
    ),
    lake_text=lambda column: (
        f"CAST(CAST({in_lake(column)} AS INT) AS STRING)" if (column.length or 1) == 1 else f"HEX({in_lake(column)})"
    ),
    implicit_default=lambda column: "b'0'",
    bound=NUMBERED,
    length=lambda written, unsigned: written or 1,
)

TYPES = {
    "tinyint": _integer(pa.int8(), "TINYINT", pa.int16(), "SMALLINT", _boolean),
    "smallint": _integer(pa.int16(), "SMALLINT", pa.int32(), "INT"),
    "mediumint": _integer(pa.int32(), "INT", pa.int32(), "INT"),
    "int": _integer(pa.int32(), "INT", pa.int64(), "BIGINT"),
    "bigint": _integer(pa.int64(), "BIGINT", pa.decimal128(20, 0), "DECIMAL(20,0)"),
    "decimal": _DECIMAL,
    "float": _FLOAT,
    "double": _DOUBLE,
    "bit": _BIT,
}
