"""Tables without a terminal look as rich draws them."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

import pytest

from binlake.cli import drawn_tables, printing

TABLES: dict[str, tuple[str, list[str], list[list[Any]]]] = {
    "plain": ("Batch 7", ["table", "rows"], [["shop.orders", "1,000"], ["a.b", None]]),
    "without a title": ("", ["table", "a longer name"], [["x", 5]]),
    "without rows": ("Snapshot", ["table", "rows", "seconds"], []),
    "one column": ("T", ["c"], [["[red]x[/red]"], [":smile:"], [""]]),
    "a long title": ("a title that is longer than its table", ["c"], [["x"]]),
    "wide characters": ("T", ["c"], [["日本"], ["é"]]),
    "wrapped": ("T", ["c", "d"], [["x" * 100, "y y y " * 20]]),
    "lines": ("T", ["c"], [["a\nb"], ["tab\there"]]),
    "spaces": ("T", ["c", "d"], [["  x  ", "y "]]),
    "all of the width": ("T", ["c"], [["x" * 76]]),
    "one more": ("T", ["c"], [["x" * 77]]),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_table_is_what_rich_draws(name: str, encoding: str) -> None:
    title, columns, rows = TABLES[name]
    made = []
    for by in (drawn_tables.drawn, lambda *_: None):
        stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="replace")
        with mock.patch.object(drawn_tables, "drawn", by):
            printing._draw(stream, title, columns, rows, 80)
        stream.seek(0)
        made.append(stream.read())
    assert made[0] == made[1]


def test_most_tables_are_drawn_without_rich() -> None:
    title, columns, rows = TABLES["plain"]
    with mock.patch.dict("sys.modules", {"rich.console": None, "rich.table": None}):
        printing._draw(io.StringIO(), title, columns, rows, 80)
