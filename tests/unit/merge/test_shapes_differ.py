"""Staged rows that don't fit the recorded shape say why."""

from __future__ import annotations

import pytest

from binlake.errors import SchemaMismatch
from binlake.merge.lake_images import check_shape
from binlake.planner.manifest import StagedFile
from binlake.schema.table import Column, TableName, TableSchema

T = TableName("shop", "t")
ID, A, B = (Column(name, "int") for name in ("id", "a", "b"))


@pytest.mark.parametrize(
    ("logged", "why"),
    [
        ((ID, A, B), "the log has b, which the recorded shape lacks"),
        ((ID,), "the log lacks a, which the recorded shape has"),
        ((ID, B), "the log has b, which the recorded shape lacks; the log lacks a, which the recorded shape has"),
        ((A, ID), "they are in another order"),
    ],
)
def test_which_columns_are_others(logged: tuple[Column, ...], why: str) -> None:
    file = StagedFile("f", T, logged, ("id",), 0, 0, 1, 0, 0, (1, 4, 0), (1, 4, 0), 1, "", {})
    with pytest.raises(SchemaMismatch, match=rf"its columns are others: {why}\n"):
        check_shape(T, TableSchema((ID, A), ("id",), "primary"), file)
