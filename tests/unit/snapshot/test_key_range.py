"""Ranges of keys as somebody writes them."""

from __future__ import annotations

import pytest

from binlake.errors import UsageError
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import key_range


def in_sql(text: str, column: Column) -> str:
    keys = key_range.parse(text, TableName("shop", "t"), TableSchema((column,), (column.name,), "primary"))
    return keys.in_lake("DECIMAL(5,2)" if column.type == "decimal" else "BIGINT")


@pytest.mark.parametrize("text", ["0..1000", "-1000..0", "1000..", "0.001..1", "NaN..", "0..Infinity"])
def test_a_decimal_ends_at_the_last_that_its_column_can_hold(text: str) -> None:
    column = Column("id", "decimal", precision=5, scale=2, nullable=False)
    assert in_sql("-999.99..999.99", column) == (
        "`id` >= CAST('-999.99' AS DECIMAL(5,2)) AND `id` <= CAST('999.99' AS DECIMAL(5,2))"
    )
    with pytest.raises(UsageError, match="is no value of id"):
        in_sql(text, column)


def test_a_whole_number_may_lie_behind_its_columns_end() -> None:
    assert in_sql("0..1000", Column("id", "tinyint", nullable=False)) == (
        "`id` >= CAST('0' AS BIGINT) AND `id` <= CAST('1000' AS BIGINT)"
    )
