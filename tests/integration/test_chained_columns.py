"""Columns that are computed from each other: Spark computes what the process does."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import arithmetic_in_sql
from binlake.ddl import statements
from binlake.schema import arithmetic

TABLE = (
    "CREATE TABLE t (n INT, d DECIMAL(8,3), pk INT PRIMARY KEY AUTO_INCREMENT, a TINYINT AS (pk + n),"
    " b DECIMAL(6,1) AS (a * d - 3), c INT AS (b + b), e BIGINT AS (c), f DECIMAL(4,2) UNSIGNED AS (e - -b))"
)
ROWS = [
    (5, Decimal("1.005"), 1), (None, Decimal("2.5"), 2), (300, Decimal("-7.125"), 3), (-4, None, 4),
    (-120, Decimal("9999.999"), 5), (0, Decimal("0.050"), 6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "arrow"),
    [
        ("a", "TINYINT", pa.int8()),
        ("b", "DECIMAL(6,1)", pa.decimal128(6, 1)),
        ("c", "INT", pa.int32()),
        ("e", "BIGINT", pa.int64()),
        ("f", "DECIMAL(4,2)", pa.decimal128(4, 2)),
    ],
)
def test_a_chain_of_columns(name: str, kind: str, arrow: pa.DataType, spark: SparkSession) -> None:
    (change,) = statements.parse(TABLE, database="d", sql_mode=0, flavour="mariadb").changes
    assert isinstance(change, statements.CreateTable)
    term = arithmetic.Formulas(change.schema).of(change.schema.column(name))
    types = [pa.int32(), pa.decimal128(8, 3), pa.int32()]
    values = [pa.array(column, kind) for column, kind in zip(zip(*ROWS, strict=True), types, strict=True)]
    image = pa.StructArray.from_arrays(values, ["n", "d", "pk"])
    rows = spark.createDataFrame(ROWS, "n int, d decimal(8,3), pk int").selectExpr("struct(n, d, pk) AS after")
    by_spark = rows.selectExpr(f"CAST({arithmetic_in_sql.sql(term, 'after')} AS {kind})").collect()
    assert [row[0] for row in by_spark] == arithmetic.computed(term, image, arrow).to_pylist()
