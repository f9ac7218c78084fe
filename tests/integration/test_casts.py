"""Constants and casts without Spark are what Spark makes of them, for every type of the registry."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from binlake.ddl import statements
from binlake.ddl.changes import CreateTable
from binlake.ddl.defaults import NotConstant, old_row_default
from binlake.errors import LeftToSpark
from binlake.merge import casts
from binlake.merge.reshape import constant
from binlake.schema import datatypes
from binlake.schema.invalid import FAIL
from binlake.schema.lake_columns import LakeColumn, columns_of
from binlake.schema.table import Column
from odd_values import SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_CONSTANT = {
    "vector", "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geomcollection", "geometrycollection",
}  # fmt: skip
"""Types whose columns have no constant default."""
SHOWN = {
    "float": ("0.1", "16777217", "1e-45", "3.40282e38", "-0", "0.30000001192092896", "1.00000017881393432617187499"),
    "double": ("0.1", "5e-324", "1.7976931348623157e308", "-0", "123456789012345680"),
    "varbinary": ("", "ab", "0x00FF"), "binary": ("0x", "0x61", "ab"), "blob": ("", "it's", "0x27"),
    "json": ("null", '{"a": [1.50, "ü\\\\n"]}'), "bit": ("0", "1", "b'1'", ""), "int": ("007", "-0"),
}  # fmt: skip
"""More texts that a server may show, whoever wrote them."""


def defaults() -> list[tuple[LakeColumn, str]]:
    """Every column of the samples with each constant that it can have by default, and that of NOT NULL."""
    columns: dict[tuple[str, str], tuple[LakeColumn, str]] = {}

    def keep(column: Column) -> None:
        try:
            text = old_row_default(column)
        except NotConstant:
            return
        if text is not None:
            columns[str(column), text] = (columns_of([column], FAIL)[0], text)

    for sample in SAMPLES:
        flavour = sample.only or "mariadb"
        for clause in ("", *(f"DEFAULT {literal}" for literal in sample.literals if "REPEAT" not in literal)):
            text = f"CREATE TABLE d.t (v {sample.declared} {clause}) CHARACTER SET utf8mb4"
            (change,) = statements.parse(text, database="", sql_mode=0, flavour=flavour).changes
            assert isinstance(change, CreateTable)
            column = change.schema.column("v")
            keep(column if clause else replace(column, nullable=False, default=None))
            for shown in SHOWN.get(column.type, ()):
                keep(replace(column, default=shown, default_is_expression=False))
    return list(columns.values())


def test_constants_of_every_type_are_those_of_spark(spark: SparkSession) -> None:
    made = [(column, text, constant(column, text)) for column, text in defaults()]
    assert {column.source.type for column, _, value in made if value is not None} == {
        *datatypes.REGISTRY
    } - NOT_CONSTANT
    here = [(column, text, value) for column, text, value in made if value is not None]
    left = [(str(column.source), text) for column, text, value in made if value is None]
    expressions = [
        f"CAST({datatypes.entry(column.source).lake_constant(column.source, text)} AS {column.delta}) AS c{number}"
        for number, (column, text, _) in enumerate(here)
    ]
    row = spark.range(1).selectExpr(*expressions).toArrow()
    wrong = [
        (str(column.source), text, value.as_py(), row.column(number)[0].as_py())
        for number, (column, text, value) in enumerate(here)
        if repr(row.column(number)[0].as_py()) != repr(value.as_py()) or row.column(number).type != value.type
    ]
    assert not wrong
    assert len(here) > 300
    assert len(left) < 20, left


INTEGERS = [-(2**63), -(2**31) - 1, -(2**31), -32769, -129, -128, -1, 0, 1, 9, 99, 127, 128, 32768, 2**31, 2**63 - 1]
DECIMALS = ["0", "-0.1", "9.9", "-99.99", "1.005", "123456789012345678", "-9999999999999999999999999999.9", "0.000001"]
FLOATS = [0.0, -0.0, 1.1, 16777217.0, 3.4028234663852886e38, 1e-45]
TEXTS = ["", "a", "ü😀", "\0", "7"]
DAYS = [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31)]
KINDS: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"), "TIMESTAMP": pa.timestamp("us", "UTC"), "BOOLEAN": pa.bool_(),
    **{f"DECIMAL({p},{s})": pa.decimal128(p, s) for p, s in
       ((1, 0), (5, 2), (7, 2), (10, 0), (12, 6), (19, 0), (20, 0), (24, 3), (38, 0), (38, 6), (38, 10), (38, 38))},
}  # fmt: skip


def values(kind: pa.DataType) -> list[Any]:
    """Those of the type at its ends, and NULL."""
    others: dict[pa.DataType, list[Any]] = {pa.string(): TEXTS, pa.bool_(): [True, False], pa.date32(): DAYS}
    given: list[Any] = others.get(kind, [])
    if pa.types.is_integer(kind):
        given = [*INTEGERS, *(sign * 2 ** (kind.bit_width - 1) - (sign > 0) for sign in (1, -1))]
    elif pa.types.is_floating(kind):
        given = FLOATS
    elif pa.types.is_decimal(kind):
        given = [*map(Decimal, DECIMALS), Decimal("9" * kind.precision).scaleb(-kind.scale)]
    return [None, *filter(lambda value: fits(value, kind), given)]


def fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def cast_here(value: Any, before: pa.DataType, after: pa.DataType) -> list[Any]:
    """The value afterwards; nothing where it is left to Spark."""
    try:
        return [casts.cast(pa.chunked_array([pa.array([value], before)]), after)[0].as_py()]
    except LeftToSpark:
        return []


def test_casts_are_those_of_spark(spark: SparkSession) -> None:
    """A value that is cast here is what Spark makes of it; one that isn't may be refused by Spark, too."""
    pairs = [pair for pair in itertools.product(KINDS, KINDS) if pair[0] != pair[1]]
    known = [(before, after) for before, after in pairs if casts.is_known(KINDS[before], KINDS[after])]
    assert len(known) > 150
    given = {kind: values(arrow) for kind, arrow in KINDS.items()}
    most = max(map(len, given.values()))
    rows = pa.table(
        {kind: pa.array([*all_, *[None] * (most - len(all_))], KINDS[kind]) for kind, all_ in given.items()}
    )
    expressions = [f"try_cast(`{before}` AS {after}) AS `{before} {after}`" for before, after in known]
    by_spark = spark.createDataFrame(rows).selectExpr(*expressions).toArrow()
    wrong = []
    for before, after in known:
        theirs_by_row = by_spark[f"{before} {after}"].to_pylist()
        for value, theirs in zip(given[before], theirs_by_row, strict=False):
            ours = cast_here(value, KINDS[before], KINDS[after])
            if ours and repr(ours[0]) != repr(theirs):
                wrong.append((before, after, value, ours[0], theirs))
        assert cast_here(None, KINDS[before], KINDS[after]) == [None]
    assert not wrong, "\n".join(map(str, wrong))
