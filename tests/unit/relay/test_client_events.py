"""Values as the relay's clients get them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT
from binlake.binlog.staged_schema import staged_schema
from binlake.feeds.contract import FeedChanges, FeedTable
from binlake.relay.client_events import events_of, value_text
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import Column, TableName


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("c", "float"), float(np.float32(0.1)), b"0.1"),
        (Column("c", "float", precision=7, scale=3), float(np.float32(0.1)), b"0.100"),
        (Column("c", "double"), -0.0, b"-0"),
        (Column("c", "vector", length=2), [float(np.float32(0.1)), 5.0], b"[0.1,5]"),
        (Column("c", "decimal", precision=9, scale=8), Decimal("1E-8"), b"0.00000001"),
        (Column("c", "datetime", fraction=2), datetime(999, 1, 31, 13), b"0999-01-31 13:00:00.00"),
        (Column("c", "date"), date(999, 1, 31), b"0999-01-31"),
        (Column("c", "time", fraction=1), -3_600_500_000, b"-01:00:00.5"),
        (Column("c", "year"), 0, b"0000"),
        (Column("c", "int", zerofill=5), 42, b"00042"),
        (Column("c", "bigint", unsigned=True, zerofill=20), Decimal(42), b"00000000000000000042"),
        (Column("c", "decimal", unsigned=True, precision=5, scale=2, zerofill=6), Decimal("1.50"), b"001.50"),
        (Column("c", "double", unsigned=True, zerofill=8), 1.5, b"000001.5"),
    ],
)
def test_a_value_has_the_servers_text(column: Column, value: Any, text: bytes) -> None:
    assert value_text(column, value) == text


def values_of(columns: tuple[Column, ...], after: dict[str, Any], invalid: InvalidValues) -> dict[str, bytes | None]:
    row = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "after": after}
    rows = pa.RecordBatch.from_pylist([row], staged_schema(columns, invalid))
    (event,) = events_of(FeedChanges(FeedTable(TableName("d", "t"), columns, ()), rows, "binlog.000001"))
    return {column.name: column.after for column in event.columns}


def test_an_invalid_date_has_the_text_that_is_kept() -> None:
    kept = InvalidValues("keep_text", "fail")
    assert values_of((Column("c", "date"),), {"c__text": "0000-00-00"}, kept) == {"c": b"0000-00-00"}


def test_null_isnt_the_value_of_a_column_whose_name_is_alike() -> None:
    columns = (Column("c", "date"), Column("c__text", "text", charset="utf8mb4"))
    values = values_of(columns, {"c__text": "of its own"}, InvalidValues("fail", "fail"))
    assert values == {"c": None, "c__text": b"of its own"}
