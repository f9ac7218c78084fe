"""What is withheld of a table's rows as statements go by: a column that may be a masked one is never read as it is."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.binlog.border import Statement
from binlake.binlog.tablemap import Undecodable
from binlake.config import PipelineConfig
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging.masked_tables import MaskedTables, WithheldColumns

USERS = TableName("shop", "users")
ID = Column("id", "int", nullable=False)
EMAIL, NAME = (Column(name, "varchar", length=20, charset="utf8mb4") for name in ("email", "name"))


def withheld(*more: dict[str, Any], shapes: dict[TableName, TableSchema] | None = None) -> WithheldColumns:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": "/lake"},
            "columns": [{"columns": "shop.users.email", "null": True}, *more],
        }
    )
    users = TableSchema((ID, EMAIL, NAME), ("id",), "primary")
    return WithheldColumns(config, MaskedTables({USERS: users} if shapes is None else shapes))


def after(tracker: WithheldColumns, *statements: str) -> WithheldColumns:
    items = [
        Statement("binlog.000001", 100 + number, number, 0, None, "shop", 0, text, has_xid=True)
        for number, text in enumerate(statements)
    ]
    assert list(tracker.passing(items)) == items
    return tracker


def test_columns_are_masked_by_name() -> None:
    read = withheld()(USERS, (ID, EMAIL, NAME))
    assert {name: mask.kind for name, mask in read.masks.items()} == {"email": "nothing"}
    assert not withheld()(TableName("shop", "other"), (ID, NAME)).masks


def test_a_column_that_comes_in_the_same_slice_is_read() -> None:
    tracker = after(withheld(), "ALTER TABLE users ADD age INT, MODIFY email TEXT FIRST")
    assert tracker(USERS, (Column("email", "text"), ID, NAME, Column("age", "int"))).masks.keys() == {"email"}


def test_a_generated_column_over_a_masked_one_is_left_out() -> None:
    tracker = after(withheld(), "ALTER TABLE users ADD loud VARCHAR(9) AS (UPPER(email)) STORED")
    assert tracker(USERS, (ID, EMAIL, NAME, Column("loud", "varchar"))).excluded == {"loud"}


@pytest.mark.parametrize(
    ("statements", "name", "columns"),
    [
        (["ALTER TABLE users CHANGE email mail TEXT"], "users", (ID, Column("mail", "text"), NAME)),
        (
            ["ALTER TABLE users RENAME COLUMN email TO mail", "ALTER TABLE users ADD email TEXT"],
            "users", (ID, Column("mail", "varchar"), NAME, Column("email", "text")),
        ),
        (["RENAME TABLE users TO people"], "people", (ID, EMAIL, NAME)),
        (["CREATE TABLE copy LIKE users", "RENAME TABLE users TO x, copy TO users"], "x", (ID, EMAIL, NAME)),
        ([], "users", (ID, EMAIL, NAME, Column("unknown", "int"))),
        ([], "users", (ID, Column("email", "int"), NAME)),
        ([], "people", (ID, EMAIL, NAME)),
        (["ALTER TABLE users CHANGE email"], "users", (ID, EMAIL, NAME)),
    ],
    ids=["renamed", "again", "table", "swapped", "unknown column", "unknown type", "unknown table", "not understood"],
)  # fmt: skip
def test_rows_that_may_show_what_a_mask_hides_stop_their_table(
    statements: list[str], name: str, columns: tuple[Column, ...]
) -> None:
    tracker = after(withheld(), *statements)
    with pytest.raises(Undecodable):
        tracker(TableName("shop", name), columns)


def test_a_swap_by_a_tool_goes_on() -> None:
    tracker = after(
        withheld(),
        "CREATE TABLE _users_gho LIKE users",
        "ALTER TABLE _users_gho ADD age INT",
        "RENAME TABLE users TO _users_del, _users_gho TO users",
    )
    assert tracker(USERS, (ID, EMAIL, NAME, Column("age", "int"))).masks.keys() == {"email"}
    assert tracker(TableName("shop", "_users_del"), (ID, EMAIL, NAME)).masks.keys() == {"email"}
