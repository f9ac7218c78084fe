"""What a feed shows of generated columns that the log of MariaDB 11.8 doesn't have in updates."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from binlake.ddl import statements
from binlake.errors import FeedError
from binlake.feeds import shapes
from binlake.planner.manifest import StagedFile
from binlake.schema.table import Column, TableName, TableSchema

STATEMENT = (
    "CREATE TABLE t (id INT PRIMARY KEY, p DECIMAL(6,2), twice DECIMAL(7,1) AS (p * 2) STORED,"
    " hex VARCHAR(9) AS (HEX(id)) STORED)"
)


@pytest.fixture
def schema() -> TableSchema:
    (created,) = statements.parse(STATEMENT, database="d", sql_mode=0, flavour="mariadb").changes
    assert isinstance(created, statements.CreateTable)
    return created.schema


@pytest.fixture
def staged(schema: TableSchema) -> StagedFile:
    place = (1, 4, 0)
    file = StagedFile("f", TableName("d", "t"), schema.columns, ("id",), 0, 0, 0, 1, 0, place, place, 1, "", {})
    return replace(file, absent=("hex", "twice"))


def test_what_is_plain_arithmetic_is_computed_and_the_rest_left_out(schema: TableSchema, staged: StagedFile) -> None:
    table = shapes.table_of(staged, schema)
    assert [column.name for column in table.columns] == ["id", "p", "twice"]
    image = pa.struct(
        [("id", pa.int32()), ("p", pa.decimal128(6, 2)), ("twice", pa.decimal128(7, 1)), ("hex", pa.string())]
    )
    images = [{"id": 1, "p": Decimal(p), "twice": None, "hex": None} for p in ("1.50", "-0.13")]
    rows = pa.record_batch([pa.array([values], image) for values in images], names=["before", "after"])
    shown = shapes.shown(table, rows)
    assert shown.column("before").to_pylist() == [{"id": 1, "p": Decimal("1.50"), "twice": Decimal("3.0")}]
    assert shown.column("after").to_pylist() == [{"id": 1, "p": Decimal("-0.13"), "twice": Decimal("-0.3")}]


def test_a_column_that_only_the_log_could_tell_stops_the_feed(schema: TableSchema, staged: StagedFile) -> None:
    with pytest.raises(FeedError, match="partial row images: p"):
        shapes.table_of(replace(staged, absent=("p", "twice")), schema)
    with pytest.raises(FeedError, match="partial row images: hex, twice"):
        shapes.table_of(staged, None)


def test_a_column_that_is_named_like_a_side_column_stays_itself(schema: TableSchema, staged: StagedFile) -> None:
    columns = (*schema.columns, Column("p__text", "varchar", length=9, charset="utf8mb4"))
    table = shapes.table_of(replace(staged, columns=columns), replace(schema, columns=columns))
    image = pa.struct(
        [("id", pa.int32()), ("p", pa.decimal128(6, 2)), ("twice", pa.decimal128(7, 1)), ("hex", pa.string()),
         ("p__text", pa.string())]
    )  # fmt: skip
    values = [{"id": 1, "p": None, "twice": None, "hex": None, "p__text": "of its own"}]
    rows = pa.record_batch([pa.array(values, image), pa.nulls(1, image)], names=["before", "after"])
    before = shapes.shown(table, rows).column("before")
    assert before.to_pylist() == [{"id": 1, "p": None, "twice": None, "p__text": "of its own"}]
    assert before.field("p__text").to_pylist() == ["of its own"]
