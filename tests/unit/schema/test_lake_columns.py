"""Which columns a table has in the lake, by the policies on invalid values."""

from __future__ import annotations

import pytest

from binlake.schema.invalid import FAIL, KEEP_ALL, KEEP_DATES, InvalidValues
from binlake.schema.lake_columns import lake_columns, side_columns
from binlake.schema.table import Column, TableSchema

SCHEMA = TableSchema(
    (
        Column("id", "int"),
        Column("day", "date"),
        Column("moment", "timestamp"),
        Column("name", "varchar", charset="utf8mb4"),
        Column("secret", "varchar", charset="utf8mb4"),
        Column("seen", "datetime"),
    ),
    excluded=frozenset({"secret"}),
    kept=(Column("gone", "date"),),
    untold=("seen",),
)


@pytest.mark.parametrize(
    ("invalid", "expected"),
    [
        (FAIL, ["id", "day", "moment", "name"]),
        (KEEP_DATES, ["id", "day", "day__text", "moment", "moment__text", "name"]),
        (InvalidValues(text="keep_bytes"), ["id", "day", "moment", "name", "name__bytes"]),
        (KEEP_ALL, ["id", "day", "day__text", "moment", "moment__text", "name", "name__bytes"]),
    ],
)
def test_a_side_column_stands_behind_its_own(invalid: InvalidValues, expected: list[str]) -> None:
    assert [column.name for column in lake_columns(SCHEMA, invalid)] == expected


def test_each_tells_what_it_holds_and_of_which_column() -> None:
    columns = [(column.source.name, column.holds, column.delta) for column in lake_columns(SCHEMA, KEEP_ALL)]
    assert columns[1:3] == [("day", "value", "DATE"), ("day", "text", "STRING")]
    assert columns[-2:] == [("name", "value", "STRING"), ("name", "bytes", "BINARY")]


@pytest.mark.parametrize(
    ("kind", "charset", "may"),
    [
        ("char", "utf8mb3", True),
        ("longtext", "ucs2", True),
        ("text", "utf32", True),
        ("text", "utf16", False),
        ("varchar", "latin1", False),
        ("varchar", "gbk", False),
        ("enum", "utf8mb4", False),
        ("varbinary", None, False),
    ],
)
def test_text_has_one_where_its_character_set_lets_half_a_character_in(
    kind: str, charset: str | None, may: bool
) -> None:
    assert bool(side_columns([Column("v", kind, charset=charset)], KEEP_ALL)) == may
