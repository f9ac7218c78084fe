"""A column's type as people write it."""

from __future__ import annotations

import pytest

from binlake.schema.table import Column


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (Column("c", "varchar", length=40, charset="utf8mb4"), "varchar(40)"),
        (Column("c", "decimal", precision=9, scale=0, unsigned=True), "decimal(9,0) unsigned"),
        (Column("c", "float", precision=7, scale=3), "float(7,3)"),
        (Column("c", "datetime", fraction=6), "datetime(6)"),
        (Column("c", "timestamp"), "timestamp"),
        (Column("c", "bigint", unsigned=True), "bigint unsigned"),
        (Column("c", "enum", values=("a", "b")), "enum"),
    ],
)
def test_a_type_as_it_is_declared(column: Column, declared: str) -> None:
    assert column.declared == declared
