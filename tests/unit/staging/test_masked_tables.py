"""What is withheld of a table's rows as statements go by: a column that may be a masked one is never read as it is."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.binlog.border import Statement
from binlake.binlog.tablemap import Undecodable
from binlake.config import PipelineConfig
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging.masked_tables import MaskedTables, WithheldColumns

USERS, OTHER = TableName("shop", "users"), TableName("shop", "other")
ID = Column("id", "int", nullable=False)
EMAIL, NAME = (Column(name, "varchar", length=20, charset="utf8mb4") for name in ("email", "name"))


def config_with(*more: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": "/lake"},
            "columns": [{"columns": "shop.users.email", "null": True}, *more],
        }
    )


def excluding_pins(of: str = "*.*") -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"], "exclude_columns": [f"{of}.pin"]},
            "lake": {"path": "/lake"},
        }
    )


def withheld(
    *more: dict[str, Any], shapes: dict[TableName, TableSchema] | None = None, snapshotted_at: int = 0
) -> WithheldColumns:
    users = TableSchema((ID, EMAIL, NAME), ("id",), "primary")
    tables = MaskedTables({USERS: users} if shapes is None else shapes, begins={USERS: (1, snapshotted_at)})
    return WithheldColumns(config_with(*more), tables)


def written(*statements: str) -> list[Statement]:
    return [
        Statement("binlog.000001", 100 + number, number, 0, None, "shop", 0, text, has_xid=True)
        for number, text in enumerate(statements)
    ]


def after(tracker: WithheldColumns, *statements: str) -> WithheldColumns:
    items = written(*statements)
    passed = zip(items, tracker.passing(items), strict=True)
    assert all(shown == item for item, shown in passed if item.text.count("`") % 2 == 0), "what can be read is the same"
    return tracker


def followed(tracker: WithheldColumns, *statements: str) -> WithheldColumns:
    """Return what is withheld in the next slice."""
    config = config_with()
    return WithheldColumns(config, tracker.tables.after(config, written(*statements)))


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
    ("statement", "staged"),
    [
        ("ALTER TABLE users ADD loud INT AS (email = 'zq') STORED, ADD n INT DEFAULT 5",
         "ALTER TABLE users ADD loud INT AS (email = '***') STORED, ADD n INT DEFAULT 5"),
        ("ALTER TABLE users ADD loud TEXT AS (UPPER(email)), ADD louder INT AS (loud = 'zq'), ADD n INT AS (id + 5)",
         "ALTER TABLE users ADD loud TEXT AS (UPPER(email)), ADD louder INT AS (loud = '***'), ADD n INT AS (id + 5)"),
        ("ALTER TABLE users ADD CONSTRAINT CHECK (id > 5), ADD CHECK (email <> 'zq')",
         "ALTER TABLE users ADD CONSTRAINT CHECK (id > 5), ADD CHECK (email <> '***')"),
        ("CREATE VIEW v AS SELECT 5 FROM users WHERE email = 'zq'",
         "CREATE VIEW v AS SELECT 0 FROM users WHERE email = '***'"),
        ("CREATE PROCEDURE p() INSERT INTO users VALUES (5, 'zq', 'zq')",
         "CREATE PROCEDURE p() INSERT INTO users VALUES (0, '***', '***')"),
        ("CREATE VIEW v AS SELECT 5 FROM other", "CREATE VIEW v AS SELECT 5 FROM other"),
        ("ALTER DATABASE shop CHARACTER SET 'latin1'", "ALTER DATABASE shop CHARACTER SET 'latin1'"),
        ("ALTER TABLE users ALTER email SET DEFAULT 'zq", "ALTER TABLE users ALTER email SET DEFAULT /*"),
    ],
)  # fmt: skip
def test_a_statement_is_staged_without_values_of_withheld_columns(statement: str, staged: str) -> None:
    (shown,) = withheld().passing(written(statement))
    assert isinstance(shown, Statement)
    assert shown.text == staged


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


def test_statements_before_a_tables_snapshot_arent_applied_to_its_shape() -> None:
    before = "ALTER TABLE users ADD name TEXT", "RENAME TABLE users TO x, y TO users", "DROP TABLE users"
    tracker = after(withheld(snapshotted_at=104), *before, "ALTER TABL", "ALTER TABLE users ADD age INT")
    assert tracker(USERS, (ID, EMAIL, NAME, Column("age", "int"))).masks.keys() == {"email"}
    with pytest.raises(Undecodable):
        tracker(TableName("shop", "x"), (ID, EMAIL, NAME))


def test_a_slice_begins_with_what_the_ones_before_made_of_tables() -> None:
    tracker = followed(withheld(), "ALTER TABLE users ADD age INT", "CREATE TABLE people (id INT, email INT)")
    assert tracker(USERS, (ID, EMAIL, NAME, Column("age", "int"))).masks.keys() == {"email"}
    assert not tracker(TableName("shop", "people"), (ID, Column("email", "int"))).masks


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER TABLE users RENAME COLUMN email TO name, RENAME COLUMN name TO email", "users"),
        ("RENAME TABLE users TO people", "people"),
        ("DROP TABLE `users", "people"),
    ],
    ids=["columns swapped", "table renamed", "not understood"],
)
def test_what_stops_a_table_in_one_slice_does_so_in_the_next(statement: str, name: str) -> None:
    with pytest.raises(Undecodable):
        followed(withheld(), statement)(TableName("shop", name), (ID, EMAIL, NAME))


@pytest.mark.parametrize(
    ("columns", "stops"),
    [(("id", "code", "name"), True), (("id", "name"), False), (("id", "pin", "name", "code"), False)],
    ids=["renamed", "dropped", "another column"],
)
def test_a_column_that_may_be_an_excluded_one_under_another_name_stops_its_table(
    columns: tuple[str, ...], stops: bool
) -> None:
    tracker, read = without_pins(), tuple(Column(name, "int") for name in columns)
    if not stops:
        assert tracker(USERS, read).excluded == {"pin"}
        return
    with pytest.raises(Undecodable, match="can't be distinguished from masked or excluded ones"):
        tracker(USERS, read)


EXCLUDING = excluding_pins()


def without_pins(config: PipelineConfig = EXCLUDING) -> WithheldColumns:
    """Two tables, of which one has an excluded column."""
    names = {USERS: ("id", "pin", "name"), OTHER: ("id", "name")}
    shapes = {
        table: TableSchema(tuple(Column(name, "int") for name in columns), ("id",), "primary")
        for table, columns in names.items()
    }
    return WithheldColumns(config, MaskedTables(shapes))


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        (["ALTER TABLE users RENAME COLUMN pin TO name, RENAME COLUMN name TO pin, UNHEARD OF"], "users"),
        (["ALTER TABLE users CHANGE pin code UNHEARD"], "users"),
        (["ALTER TABLE users UNHEARD OF", "RENAME TABLE users TO people"], "people"),
        (["ALTER TABLE users UNHEARD OF", "CREATE TABLE people LIKE users"], "people"),
        (["DROP TABLE `users"], "users"),
    ],
    ids=["columns swapped", "column renamed", "table renamed", "table copied", "any table"],
)
@pytest.mark.parametrize("columns", [("id", "pin", "name"), ("id", "code", "name"), ("id", "name")])
def test_an_excluded_column_may_have_any_name_behind_a_statement_that_isnt_understood(
    statements: list[str], name: str, columns: tuple[str, ...]
) -> None:
    read, table = tuple(Column(column, "int") for column in columns), TableName("shop", name)
    same = after(without_pins(), *statements)
    for tracker in (same, WithheldColumns(EXCLUDING, without_pins().tables.after(EXCLUDING, written(*statements)))):
        with pytest.raises(Undecodable, match="can't be distinguished from masked or excluded ones"):
            tracker(table, read)
        assert tracker(OTHER, (ID, Column("code", "int"))).excluded == {"pin"}, "it never had one"
    made = after(same, f"DROP TABLE {name}", f"CREATE TABLE {name} (id INT, pin INT)")
    assert made(table, (ID, Column("pin", "int"))).excluded == {"pin"}


PINS = (ID, Column("pin", "int"), Column("name", "int"))


@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME TABLE users TO people"],
        ["ALTER TABLE users RENAME TO people"],
        ["RENAME TABLE users TO hidden.away", "RENAME TABLE hidden.away TO people"],
        ["CREATE TABLE copy LIKE users", "RENAME TABLE users TO people, copy TO users"],
    ],
    ids=["renamed", "altered", "by a name that isn't included", "swapped"],
)
def test_an_excluded_column_is_not_read_where_its_table_gets_a_name_that_excludes_nothing(
    statements: list[str],
) -> None:
    config, people = excluding_pins("shop.users"), TableName("shop", "people")
    same = after(without_pins(config), *statements)
    for tracker in (same, WithheldColumns(config, without_pins(config).tables.after(config, written(*statements)))):
        with pytest.raises(Undecodable, match="'pin', which the YAML masks or excludes, is in a table of another name"):
            tracker(people, PINS)
        assert tracker(OTHER, (ID, Column("name", "int"))).excluded == frozenset()


def test_an_excluded_column_is_not_read_in_a_table_that_is_not_known_and_may_be_its_own() -> None:
    tracker, people = without_pins(excluding_pins("shop.users")), TableName("shop", "people")
    with pytest.raises(Undecodable, match="can't be distinguished from masked or excluded ones"):
        tracker(people, PINS)
    assert tracker(people, (ID, Column("name", "int"))).excluded == frozenset()
    assert without_pins()(people, PINS).excluded == {"pin"}, "it is excluded here, too"


def test_a_copy_without_the_name_of_its_table_shows_what_this_one_showed() -> None:
    copy = TableName("shop", "_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_")
    config, shape = excluding_pins("shop.users"), without_pins().tables.shapes[USERS]
    tables = MaskedTables({USERS: shape, OTHER: shape, copy: shape})
    swapped = after(WithheldColumns(config, tables), f"RENAME TABLE other TO _vt_swap, {copy.table} TO other")
    assert swapped(OTHER, PINS).excluded == frozenset()
    renamed = after(WithheldColumns(config, tables), "DROP TABLE other", f"RENAME TABLE {copy.table} TO other")
    with pytest.raises(Undecodable, match="is in a table of another name now"):
        renamed(OTHER, PINS)


def test_a_column_that_a_no_left_out_is_read_under_its_tables_new_name() -> None:
    """The table is snapshotted without it, under the new name: the answer takes that, too."""
    config = excluding_pins("shop.other").leaving_out(["shop.users.pin"])
    tracker = after(without_pins(config), "RENAME TABLE users TO people")
    assert tracker(TableName("shop", "people"), PINS).excluded == frozenset()


def test_a_column_that_the_yaml_excludes_beside_a_no_is_not_read_under_its_tables_new_name() -> None:
    config = excluding_pins("shop.users").leaving_out(["shop.users.pin"])
    assert config.leaving_out(["shop.users.code"]).confidential(USERS) == {"pin"}
    tracker = after(without_pins(config), "RENAME TABLE users TO people")
    with pytest.raises(Undecodable, match="is in a table of another name now"):
        tracker(TableName("shop", "people"), PINS)
