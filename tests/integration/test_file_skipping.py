"""Readers leave out data files by the statistics that binlake wrote: none leaves out a file that has the value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from binlake.delta import delta_commits
from binlake.delta.plain_files import added_file
from binlake.lake.duckdb_views import load_extension

MOMENTS = [
    datetime(1, 1, 1), datetime(1582, 10, 4, 23, 59, 59, 999999), datetime(1677, 9, 21, 0, 12, 43),
    datetime(1969, 12, 31, 23, 59, 59, 1), datetime(1970, 1, 1), datetime(2026, 1, 2, 3, 4, 5, 678999),
    datetime(2262, 4, 11, 23, 47, 16, 854776), datetime(9999, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
TEXTS = [
    "", "\0", "a\0", " ", "x" * 32, "x" * 33, "x" * 32 + "\x7f", "x" * 32 + "\U0010ffff", "x" * 31 + "\U0001f600y",
    "\U00020000", "\U00020000" * 40, "\U0001ffff", "\U0010fffe" * 33, "\U0010ffff" * 33, "\ud7ff" * 34, "\uffff" * 33,
    "\u2028", "'", '"', "\\", "\\u0041", "\n\t", "é" * 33, "e\u0301",
]  # fmt: skip
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "TINYINT": (pa.int8(), [-128, 0, 127]),
    "BIGINT": (pa.int64(), [-(2**63), -(2**53) - 1, 2**53 + 1, 2**63 - 513, 2**63 - 1]),
    "DECIMAL(20,0)": (pa.decimal128(20, 0), [Decimal(value) for value in (0, 10**15 + 1, 2**53 + 1, 2**63, 2**64 - 1)]),
    "DECIMAL(38,10)": (
        pa.decimal128(38, 10),
        [Decimal(text) for text in ("-1234567890123456789012345678.0123456789", "0.0000000001", "12345678.9012345678")],
    ),
    "DATE": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31)]),
    "TIMESTAMP": (pa.timestamp("us"), MOMENTS),
    "TIMESTAMPTZ": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "VARCHAR": (pa.string(), TEXTS),
    "DOUBLE": (pa.float64(), [-1e308, 0.0, 5e-324, float("inf")]),
}


def table_of(path: Path, kind: pa.DataType, values: Sequence[Any]) -> str:
    """Make a table with a data file for each value, whose column ``n`` numbers them."""
    schema = pa.schema({"v": kind, "n": pa.int64()})
    write_deltalake(str(path), schema.empty_table())
    rows = [pa.Table.from_pylist([{"v": value, "n": number}], schema) for number, value in enumerate(values)]
    delta_commits.commit(DeltaTable(str(path)), str(path), [{"add": added_file(str(path), row)} for row in rows])
    return str(path)


def by_query_builder(path: str, type_name: str, kind: pa.DataType, values: Sequence[Any]) -> list[list[int]]:
    zone = 'Some("UTC")' if pa.types.is_timestamp(kind) and kind.tz else "None"
    arrow = {
        "TINYINT": "Int8", "BIGINT": "Int64", "DATE": "Date32", "DOUBLE": "Float64", "VARCHAR": "Utf8",
        "TIMESTAMP": f"Timestamp(Microsecond, {zone})", "TIMESTAMPTZ": f"Timestamp(Microsecond, {zone})",
    }.get(type_name, type_name.replace("DECIMAL", "Decimal128"))  # fmt: skip
    lake = QueryBuilder().register("t", DeltaTable(path))

    def found(value: Any) -> list[int]:
        text = value.replace(tzinfo=None).isoformat(" ") if isinstance(value, datetime) else str(value)
        text = f"{value:f}" if isinstance(value, Decimal) else text.replace("'", "''")
        rows = lake.execute(f"SELECT n FROM t WHERE v = arrow_cast('{text}', '{arrow}')").read_all()
        return list(rows["n"].to_pylist())

    return [found(value) for value in values]


def by_duckdb(path: str, type_name: str, _kind: pa.DataType, values: Sequence[Any]) -> list[list[int]]:
    with duckdb.connect() as connection:
        load_extension(connection, "delta")
        connection.execute("SET timezone = 'UTC'")
        query = f"SELECT n FROM delta_scan('{path}') WHERE v = ?::{type_name}"
        return [[number for (number,) in connection.execute(query, [value]).fetchall()] for value in values]


def by_polars(path: str, _type_name: str, kind: pa.DataType, values: Sequence[Any]) -> list[list[int]]:
    exact = polars.Decimal(kind.precision, kind.scale) if pa.types.is_decimal(kind) else None
    lake = polars.scan_delta(path)
    wanted = [polars.col("v") == polars.lit(value, exact) for value in values]
    return [list(lake.filter(condition).select("n").collect()["n"].to_list()) for condition in wanted]


@pytest.mark.parametrize("type_name", VALUES)
def test_each_value_is_in_the_files_that_are_read(tmp_path: Path, type_name: str) -> None:
    kind, values = VALUES[type_name]
    path = table_of(tmp_path / "t", kind, values)
    for find in (by_query_builder, by_duckdb, by_polars):
        assert find(path, type_name, kind, values) == [[number] for number in range(len(values))]
