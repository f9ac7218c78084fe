"""Columns of staged rows, as each release of Spark has them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from binlake.merge import mutations


def of_spark_4_0(schema: pa.Schema, prefer_timestamp_ntz: bool = False) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz)


def test_a_datetime_has_no_zone_and_a_timestamp_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta appends no column to one of another type."""
    monkeypatch.setattr(mutations, "from_arrow_schema", of_spark_4_0)
    at, image = pa.timestamp("us"), [("bought", pa.timestamp("us")), ("logged", pa.timestamp("us", "UTC"))]
    columns = mutations.spark_columns(pa.schema([("at", at), ("image ", pa.struct(image))]))
    assert columns.simpleString() == "struct<at:timestamp_ntz,image :struct<bought:timestamp_ntz,logged:timestamp>>"
