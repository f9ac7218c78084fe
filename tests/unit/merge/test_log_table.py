"""The columns of a log once others come, get another type or another name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.delta.delta_schema import delta_field
from binlake.merge.reshape import BesideColumn, reshaped

Columns = list[tuple[str, str]]
"""Names and types of a log's columns."""


def after(have: Columns, wanted: Columns, renamed: list[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """The columns afterwards, each with the one whose values it has."""
    come = [BesideColumn(name, kind, pa.null()) for name, kind in wanted]
    columns = reshaped([delta_field(*column) for column in have], come, renamed)
    assert not any(column.is_written for column in columns)
    return [(column.name, column.origin) for column in columns]


@pytest.mark.parametrize(
    ("have", "wanted", "renamed", "columns"),
    [
        ([("a", "INT")], [("a", "INT")], [], [("a", "a")]),
        ([("a", "INT")], [("b", "INT")], [], [("a", "a"), ("b", None)]),
        ([("a", "INT")], [("a", "BIGINT")], [], [("a__1", "a"), ("a", None)]),
        ([("a", "INT"), ("a__1", "STRING")], [("a", "BIGINT")], [], [("a__2", "a"), ("a__1", "a__1"), ("a", None)]),
        ([("a", "INT")], [("A", "INT")], [], [("A", "a")]),
        ([("a", "INT")], [], [("a", "b")], [("b", "a")]),
        ([("a", "INT"), ("b", "STRING")], [], [("a", "b")], [("b", "a"), ("b__1", "b")]),
        ([("a", "INT"), ("b", "STRING")], [], [("a", "b"), ("b", "a")], [("b", "a"), ("a", "b")]),
    ],
    ids=["none", "new", "type", "type again", "case", "renamed", "renamed to a kept one", "swapped"],
)
def test_no_column_is_lost(
    have: Columns, wanted: Columns, renamed: list[tuple[str, str]], columns: list[tuple[str, str | None]]
) -> None:
    assert after(have, wanted, renamed) == columns
