"""Shapes after a change, and what old rows hold in added columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from binlake.ddl import statements
from binlake.errors import SchemaMismatch
from binlake.position import Flavour
from binlake.schema.lexer import NO_AUTO_VALUE_ON_ZERO, STRICT_TRANS_TABLES
from binlake.schema.statement_session import Session
from binlake.schema.table import Column, Index, TableSchema
from binlake.serialization import dumps, loads

KEYED = TableSchema(
    (Column("Id", "int", nullable=False), Column("n", "int", nullable=False), Column("x", "int")), ("Id",), "primary"
)
UNKEYED = TableSchema(KEYED.columns)
ON = Session(explicit_timestamps=True)
TOLD = Session(False, began=1577836800, microsecond=123456, time_zone="+05:30")
UNIQUE = TableSchema(KEYED.columns, ("n",), "unique", indexes=(Index("u", ("n",), (None,), True),))


def evolution(
    text: str,
    schema: TableSchema = KEYED,
    *,
    flavour: Flavour = "mysql",
    sql_mode: int = STRICT_TRANS_TABLES,
    session: Session = ON,
) -> statements.Evolution:
    """What a statement that is one AlterTable makes of a shape."""
    [change] = statements.parse(text, database="shop", sql_mode=sql_mode, flavour=flavour, session=session).changes
    assert isinstance(change, statements.AlterTable)
    return statements.evolve(schema, change, flavour=flavour)


def after(text: str, schema: TableSchema = KEYED, *, flavour: Flavour = "mysql") -> TableSchema:
    return evolution(text, schema, flavour=flavour).after


def created(text: str, flavour: Flavour = "mysql", sql_mode: int = STRICT_TRANS_TABLES) -> TableSchema:
    [change] = statements.parse(text, database="shop", sql_mode=sql_mode, flavour=flavour).changes
    assert isinstance(change, statements.CreateTable)
    return change.schema


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ADD a INT", "Id n x a"),
        ("ADD a INT FIRST", "a Id n x"),
        ("ADD a INT AFTER ID", "Id a n x"),
        ("ADD a INT, ADD b INT AFTER a, ADD c INT FIRST, ADD d INT FIRST", "d c Id n x a b"),
        ("ADD a INT AFTER n, ADD b INT AFTER n", "Id n b a x"),
        ("ADD (a INT, b INT)", "Id n x a b"),
        ("ADD INDEX (a), ADD a INT", "Id n x a"),
        ("ADD period INT, ADD COLUMN system INT, ADD `primary` INT", "Id n x period system primary"),
    ],
)
def test_added_columns_stand_where_the_server_puts_them(clauses: str, expected: str) -> None:
    assert names(after(f"ALTER TABLE t {clauses}")) == expected.split()


def test_columns_take_the_tables_character_set() -> None:
    def column(clauses: str, charset: str = "latin1") -> Column:
        return after(f"ALTER TABLE t {clauses}", replace(KEYED, charset=charset)).column("a")

    assert column("ADD a TEXT").charset == "latin1"
    assert column("ADD a TEXT CHARSET cp1251").charset == "cp1251"
    assert column("ADD a TEXT, DEFAULT CHARSET utf8mb4").charset == "utf8mb4"
    assert column("ADD a TEXT(300)", "binary").type == "blob"
    assert column("ADD a TEXT(60)", "utf8mb4").type == "tinytext"
    assert column("ADD a TEXT(300)").type == "text"
    assert after("ALTER TABLE t CHARSET cp1251").charset == "cp1251"
    assert after("ALTER TABLE t CONVERT TO CHARSET cp1251").charset == "cp1251"
    assert created("CREATE TABLE t (a INT) CHARSET cp1251").charset == "cp1251"


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD N INT", "ALTER TABLE t ADD a INT AFTER nowhere"])
def test_changes_that_do_not_fit_the_shape_are_told(text: str) -> None:
    with pytest.raises(SchemaMismatch):
        after(text)


def test_if_not_exists_leaves_what_is_there() -> None:
    text = "ALTER TABLE t ADD COLUMN IF NOT EXISTS N DATETIME DEFAULT NOW(), ADD COLUMN IF NOT EXISTS a INT DEFAULT 3"
    assert names(after(text, flavour="mariadb")) == ["Id", "n", "x", "a"]
    change = evolution(text, flavour="mariadb")
    assert [(column.name, value) for column, value in change.fills] == [("a", "3")]
    assert not change.unprovable
    assert evolution("ALTER TABLE t ADD COLUMN IF NOT EXISTS d DATETIME DEFAULT NOW()", flavour="mariadb").unprovable


NAMED_AS_COLUMN = created("CREATE TABLE t (b INT, a INT NOT NULL, KEY a (b))")
TOGETHER = created("CREATE TABLE t (n INT NOT NULL, x INT NOT NULL, UNIQUE u (n, x))")


@pytest.mark.parametrize(
    ("text", "schema", "key"),
    [
        ("ALTER TABLE t ADD UNIQUE (n)", KEYED, ("Id",)),
        ("ALTER TABLE t ADD UNIQUE (n)", UNKEYED, ("n",)),
        ("ALTER TABLE t ADD UNIQUE (x)", UNKEYED, ()),
        ("ALTER TABLE t ADD UNIQUE (n, x)", UNIQUE, ("n",)),
        ("CREATE UNIQUE INDEX i ON t (ID)", UNIQUE, ("n",)),
        ("CREATE UNIQUE INDEX i USING HASH ON t (n)", UNKEYED, ()),
        ("CREATE UNIQUE INDEX i ON t (n) USING HASH", UNKEYED, ()),
        ("ALTER TABLE t MODIFY n TEXT NOT NULL", UNIQUE, ()),
        ("ALTER TABLE t MODIFY n VARCHAR(769) NOT NULL", UNIQUE, ()),
        ("CREATE UNIQUE INDEX i ON t ((n + 1))", UNKEYED, ()),
        ("DROP INDEX i ON t", KEYED, ("Id",)),
        ("DROP INDEX U ON t", UNIQUE, ()),
        ("DROP INDEX `PRIMARY` ON t", KEYED, ()),
        ("ALTER TABLE t DROP CONSTRAINT `primary`", KEYED, ()),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (x, n)", KEYED, ("x", "n")),
        ("ALTER TABLE t ADD a INT PRIMARY KEY", UNIQUE, ("a",)),
        ("ALTER TABLE t ADD a INT NOT NULL UNIQUE", KEYED, ("Id",)),
        ("ALTER TABLE t ADD a INT NOT NULL UNIQUE", UNKEYED, ("a",)),
        ("ALTER TABLE t MODIFY n INT", UNIQUE, ()),
        ("ALTER TABLE t RENAME COLUMN n TO m", UNIQUE, ("m",)),
        ("ALTER TABLE t DROP INDEX u, ADD UNIQUE (Id), ADD UNIQUE (n)", UNIQUE, ("Id",)),
        ("ALTER TABLE t DROP x, ADD x INT NOT NULL DEFAULT 5", TOGETHER, ("n", "x")),
        ("ALTER TABLE t RENAME INDEX u TO v, ADD UNIQUE u (Id)", UNIQUE, ("n",)),
        ("ALTER TABLE t ADD UNIQUE IF NOT EXISTS u (Id), DROP n", UNIQUE, ()),
        ("ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (a)", NAMED_AS_COLUMN, ("a",)),
        ("ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (n)", KEYED, ("Id",)),
        ("ALTER TABLE t ADD IF NOT EXISTS a INT NOT NULL UNIQUE", NAMED_AS_COLUMN, ()),
        ("ALTER TABLE t ADD IF NOT EXISTS (a INT NOT NULL UNIQUE)", NAMED_AS_COLUMN, ()),
        ("ALTER TABLE t MODIFY IF EXISTS a INT NOT NULL UNIQUE", NAMED_AS_COLUMN, ()),
        ("ALTER TABLE t ADD IF NOT EXISTS a INT PRIMARY KEY", NAMED_AS_COLUMN, ("a",)),
        ("ALTER TABLE t DROP KEY a, ADD UNIQUE IF NOT EXISTS a (a)", NAMED_AS_COLUMN, ()),
        ("ALTER TABLE t ADD UNIQUE IF NOT EXISTS x (b), ADD UNIQUE IF NOT EXISTS X (a)", NAMED_AS_COLUMN, ()),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD IF NOT EXISTS Id INT PRIMARY KEY", KEYED, ()),
    ],
)
def test_the_key_is_the_one_the_server_prefers(text: str, schema: TableSchema, key: tuple[str, ...]) -> None:
    assert after(text, schema, flavour="mariadb").key == key


@pytest.mark.parametrize(
    ("definition", "default"),
    [
        ("INT", None),
        ("INT NOT NULL", "0"),
        ("DECIMAL(9,3) NOT NULL", "0.000"),
        (
            "DECIMAL(65,30) DEFAULT 12345678901234567890123456789012345.5",
            f"12345678901234567890123456789012345.5{'0' * 29}",
        ),
        ("BIT(9) NOT NULL", "b'0'"),
        ("ENUM('x','y') NOT NULL", "x"),
        ("SET('x','y') NOT NULL", ""),
        ("TIME(2) NOT NULL", "00:00:00.00"),
        ("YEAR NOT NULL", "0000"),
        ("JSON NOT NULL", "null"),
        ("BINARY(3) NOT NULL", "0x"),
        ("BINARY(3) DEFAULT 'a'", "0x61"),
        ("VARBINARY(3) NOT NULL", ""),
        ("VARCHAR(9) DEFAULT '🙂'", "🙂"),
        ("DATETIME(6) DEFAULT '2020-01-01 01:02:03.5'", "2020-01-01 01:02:03.500000"),
    ],
)
def test_old_rows_get_a_constant(definition: str, default: str | None) -> None:
    change = evolution(f"ALTER TABLE t ADD a {definition}")
    assert [value for _, value in change.fills] == ([] if default is None else [default])
    assert not change.unprovable


@pytest.mark.parametrize(
    "definition",
    [
        "INT AUTO_INCREMENT UNIQUE",
        "SERIAL",
        "TIMESTAMP DEFAULT '2020-01-01 00:00:00'",
        "DATETIME DEFAULT CURRENT_TIMESTAMP(0)",
        "DATETIME DEFAULT '2020-01-01 00:00:00.6'",
        "DATETIME DEFAULT '2020-01-01 00:00:00+01:00'",
        "DATE DEFAULT '20-1-1'",
        "TIME DEFAULT '1 10:00:00'",
        "INT DEFAULT (1 + 1)",
        "INT AS (n) STORED",
        "POINT NOT NULL",
        "VECTOR(2) NOT NULL",
        "FLOAT DEFAULT 0.123456789",
        "FLOAT DEFAULT 1e38",
        "DOUBLE DEFAULT 1e300",
        "DOUBLE DEFAULT -0e0",
        "INT DEFAULT 'x'",
        "VARCHAR(9) DEFAULT 1e5",
        "VARCHAR(9) DEFAULT x'C3'",
        "VARBINARY(9) DEFAULT 'é'",
        "VARBINARY(9) DEFAULT x'6100'",
        "VARBINARY(9) DEFAULT x'0061'",
        "BINARY(9) DEFAULT x'610062'",
        "VARCHAR(9) CHARSET ucs2 DEFAULT x'41'",
        "VARCHAR(9) DEFAULT -0.0",
        "TIME DEFAULT '-0'",
        "DOUBLE(5,0) DEFAULT 0.5",
        "DOUBLE(1,0) DEFAULT 152",
        "DOUBLE UNSIGNED DEFAULT -1",
        "SET('x','1') DEFAULT TRUE",
        "ENUM('a','b') DEFAULT 'c'",
        "INT ZEROFILL DEFAULT 'x'",
    ],
)
def test_what_is_no_constant_is_said(definition: str) -> None:
    [reason] = evolution(f"ALTER TABLE t ADD a {definition}").unprovable
    assert "'a'" in reason


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("DATE NOT NULL", "0000-00-00"),
        ("DATE DEFAULT 0", "0000-00-00"),
        ("DATE DEFAULT '2021-02-29'", "2021-02-29"),
        ("DATETIME DEFAULT '2020-00-01'", "2020-00-01 00:00:00"),
        ("DATETIME(3) NOT NULL", "0000-00-00 00:00:00.000"),
        ("TIMESTAMP NOT NULL", "0000-00-00 00:00:00"),
        ("TIMESTAMP(2) NOT NULL", "0000-00-00 00:00:00.00"),
    ],
)
def test_a_date_that_no_calendar_has_is_told_apart(definition: str, text: str) -> None:
    change = evolution(f"ALTER TABLE t ADD a {definition}")
    assert not change.unprovable
    assert [fill for _, fill in change.fills] == [text]
    assert "'a'" in change.impossible[0]


def test_no_date_of_a_key_is_null_with_its_text_beside_it() -> None:
    [reason] = evolution("ALTER TABLE t ADD a DATE NOT NULL PRIMARY KEY", UNKEYED).unprovable
    assert "'a'" in reason


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("TIMESTAMP", "2020-01-01 00:00:00"),
        ("TIMESTAMP(4)", "2020-01-01 00:00:00.1234"),
        ("TIMESTAMP(6) NULL DEFAULT NOW(6)", "2020-01-01 00:00:00.123456"),
        ("DATETIME DEFAULT LOCALTIME", "2020-01-01 05:30:00"),
        ("DATETIME(1) DEFAULT LOCALTIMESTAMP(1) ON UPDATE NOW(1)", "2020-01-01 05:30:00.1"),
        ("TIMESTAMP DEFAULT '2020-01-01 01:00:00'", "2019-12-31 19:30:00"),
        ("TIMESTAMP(1) DEFAULT '2020-01-01 01:00:00.5'", "2019-12-31 19:30:00.5"),
    ],
)
def test_old_rows_get_the_time_of_the_statement(definition: str, text: str) -> None:
    change = evolution(f"ALTER TABLE t ADD a {definition}", session=TOLD)
    assert (change.unprovable, change.impossible) == ((), ())
    assert [fill for _, fill in change.fills] == [text]


@pytest.mark.parametrize(
    ("definition", "unknown"),
    [
        ("TIMESTAMP DEFAULT NOW()", {"began": None}),
        ("TIMESTAMP DEFAULT NOW()", {"began": 0}),
        ("TIMESTAMP DEFAULT NOW()", {"began": 2**31}),
        ("TIMESTAMP(1)", {"microsecond": None}),
        ("DATETIME DEFAULT NOW()", {"time_zone": ""}),
        ("DATETIME DEFAULT NOW()", {"time_zone": "SYSTEM"}),
        ("TIMESTAMP DEFAULT '2020-01-01 00:00:00'", {"time_zone": "Europe/Berlin"}),
        ("TIMESTAMP DEFAULT '1970-01-01 05:30:00'", {}),
        ("DATE DEFAULT NOW()", {}),
        ("DATETIME(3) DEFAULT NOW(2)", {}),
        ("DATETIME DEFAULT (NOW())", {}),
    ],
)
def test_a_time_that_is_not_told_is_not_guessed(definition: str, unknown: dict[str, Any]) -> None:
    session = replace(TOLD, **unknown)
    [reason] = evolution(f"ALTER TABLE t ADD a {definition}", session=session, flavour="mariadb").unprovable
    assert "'a'" in reason


def test_null_becomes_the_time_in_a_timestamp_that_is_not_null() -> None:
    schema = TableSchema((KEYED.columns[0], Column("a", "timestamp", fraction=3)), ("Id",), "primary")
    for sql_mode in (0, STRICT_TRANS_TABLES):
        change = evolution("ALTER TABLE t MODIFY a TIMESTAMP(3)", schema, session=TOLD, sql_mode=sql_mode)
        assert not change.unprovable
        assert [(column.name, text) for column, text in change.fills] == [("a", "2020-01-01 00:00:00.123")]
        not_null = evolution("ALTER TABLE t MODIFY a TIMESTAMP(3) NOT NULL", schema, sql_mode=sql_mode)
        assert "NULL" in not_null.unprovable[0]
    assert not evolution("ALTER TABLE t MODIFY a TIMESTAMP(3) NULL", schema, session=TOLD).fills


def test_defaults_that_rows_never_need_do_not_stop_a_new_table() -> None:
    text = "CREATE TABLE t (a FLOAT DEFAULT 0.123456789, b DATE NOT NULL, c TIMESTAMP DEFAULT '2020-01-01')"
    assert names(created(text)) == ["a", "b", "c"]


def test_text_is_not_sql_mode_oracle() -> None:
    parsed = statements.parse("CREATE TABLE t (a DATE)", database="shop", sql_mode=1 << 9, flavour="mariadb")
    assert isinstance(parsed.changes[0], statements.Unfollowed)


def test_empty_strings_are_null_where_mariadb_says_so() -> None:
    text = "CREATE TABLE t (a VARCHAR(9) DEFAULT '')"
    assert created(text, "mariadb", 1 << 32).column("a").default is None
    assert created(text, "mysql", 1 << 32).column("a").default == ""


@pytest.mark.parametrize(
    ("clauses", "columns", "origins"),
    [
        ("DROP n", "Id x", "Id x"),
        ("RENAME COLUMN n TO x, RENAME COLUMN x TO n", "Id x n", "Id n x"),
        ("CHANGE n x INT, CHANGE x n INT", "Id x n", "Id n x"),
        ("DROP n, ADD n INT", "Id x n", "Id x -"),
        ("DROP n, RENAME COLUMN x TO n", "Id n", "Id x"),
        ("MODIFY x INT FIRST", "x Id n", "x Id n"),
        ("CHANGE n m INT AFTER x, ADD a INT AFTER m", "Id x m a", "Id x n -"),
        ("ADD a INT AFTER m, RENAME COLUMN n TO m", "Id m a x", "Id n - x"),
        ("MODIFY Id INT AFTER x, MODIFY n INT AFTER Id", "x Id n", "x Id n"),
    ],
)
def test_every_value_is_traced_to_its_column(clauses: str, columns: str, origins: str) -> None:
    change = evolution(f"ALTER TABLE t {clauses}")
    assert names(change.after) == columns.split()
    assert [origin or "-" for origin in change.origins] == origins.split()


def test_what_was_excluded_stays_out_or_is_read_anew() -> None:
    schema = replace(KEYED, excluded=frozenset({"x"}))
    assert not evolution("ALTER TABLE t MODIFY x TEXT, ADD a INT", schema).unprovable
    assert not evolution("ALTER TABLE t RENAME COLUMN n TO x, DROP x", schema).unprovable
    assert not evolution("ALTER TABLE t DROP x, ADD x INT NOT NULL", schema).fills
    [reason] = evolution("ALTER TABLE t RENAME COLUMN x TO y", schema).unprovable
    assert "excluded" in reason


@pytest.mark.parametrize(
    ("clauses", "sql_mode", "proved"),
    [
        ("MODIFY n BIGINT NOT NULL AUTO_INCREMENT UNIQUE", STRICT_TRANS_TABLES, False),
        ("MODIFY n BIGINT NOT NULL AUTO_INCREMENT UNIQUE", STRICT_TRANS_TABLES | NO_AUTO_VALUE_ON_ZERO, True),
        ("MODIFY x INT NOT NULL", STRICT_TRANS_TABLES, True),
        ("MODIFY x INT NOT NULL", 0, False),
        ("ADD PRIMARY KEY (x)", STRICT_TRANS_TABLES, True),
        ("ALTER x SET DEFAULT (1 + 1)", 0, True),
        ("ADD g INT AS (n + 1)", STRICT_TRANS_TABLES, False),
        ("MODIFY x INT AS (n + 1) STORED", STRICT_TRANS_TABLES, False),
    ],
)
def test_values_that_may_be_others_are_said(clauses: str, sql_mode: int, proved: bool) -> None:
    change = evolution(f"ALTER TABLE t {clauses}", UNKEYED, sql_mode=sql_mode)
    assert (change.unprovable == ()) == proved


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("TEXT CHARACTER SET utf8mb3", True),
        ("CHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", True),
        ("VARCHAR(9) CHARACTER SET utf8mb4", False),
        ("VARCHAR(9) CHARACTER SET utf16", False),
        ("VARBINARY(27)", False),
    ],
)
def test_what_became_of_invalid_text_is_told_in_the_same_character_set_alone(kind: str, kept: bool) -> None:
    schema = TableSchema((*KEYED.columns, Column("v", "varchar", length=9, charset="utf8mb3")), KEYED.key, "primary")
    assert (evolution(f"ALTER TABLE t MODIFY v {kind}", schema).reencoded == ()) == kept
    assert not evolution("ALTER TABLE t DROP v, ADD v BLOB", schema).reencoded


def test_generated_columns_follow_the_columns_they_are_made_of() -> None:
    schema = replace(KEYED, columns=(*KEYED.columns, Column("g", "int", generated=True)))
    assert evolution("ALTER TABLE t MODIFY x BIGINT", schema).unprovable
    assert not evolution("ALTER TABLE t MODIFY x INT DEFAULT 5, DROP n", schema).unprovable


@pytest.mark.parametrize(
    ("clauses", "anew"),
    [
        ("MODIFY v VARCHAR(9) COLLATE utf8mb4_bin", "same chain"),
        ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "same chain"),
        ("COLLATE utf8mb4_bin", "same chain"),
        ("MODIFY v VARCHAR(19)", "same size chain"),
        ("MODIFY n BIGINT", "sum chain"),
        ("MODIFY o VARCHAR(99)", ""),
        ("MODIFY o VARCHAR(9) COLLATE utf8mb4_bin, ADD p INT", ""),
        ("DROP n, ADD n INT", "sum chain"),
    ],
)
def test_generated_columns_are_computed_anew_from_what_changes(clauses: str, anew: str) -> None:
    schema = created(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, v VARCHAR(9), o VARCHAR(9), same INT AS (v = 'A') VIRTUAL,"
        " size VARCHAR(9) AS (CONCAT(v, 'A')) VIRTUAL, `sum` INT AS (n + 1) STORED,"
        " chain INT AS (same + `sum`) VIRTUAL)"
    )
    unprovable = [why.split("'")[1] for why in evolution(f"ALTER TABLE t {clauses}", schema).unprovable]
    assert sorted(unprovable) == sorted(anew.split())


def test_a_shape_comes_back_from_json() -> None:
    text = "CREATE TABLE t (a INT(5) ZEROFILL, b FLOAT(7,3), c ENUM('x') NOT NULL, UNIQUE (c), KEY (b)) CHARSET latin1"
    schema = created(text)
    loaded = loads(TableSchema, dumps(schema))
    assert (loaded, loaded.indexes, loaded.fingerprint) == (schema, schema.indexes, schema.fingerprint)
    assert replace(schema, indexes=()).fingerprint == schema.fingerprint


def test_system_versioning_leaves_current_rows_as_they_are() -> None:
    versioned = evolution("ALTER TABLE t ADD SYSTEM VERSIONING", flavour="mariadb")
    assert (versioned.after, versioned.unprovable) == (replace(KEYED, versioned=True), ())
    text = "ALTER TABLE t DROP SYSTEM VERSIONING, DROP PERIOD FOR SYSTEM_TIME"
    assert evolution(text, versioned.after, flavour="mariadb").after == KEYED


def test_times_that_old_rows_get_are_not_told() -> None:
    text = "ALTER TABLE t ADD s TIMESTAMP(6) AS ROW START, ADD e TIMESTAMP(6) AS ROW END, ADD SYSTEM VERSIONING"
    shown = evolution(text, flavour="mariadb")
    assert len(shown.unprovable) == 2
    assert (shown.after.row_end, shown.after.hidden, shown.after.key) == ("e", (), ("Id",))
    hidden = evolution("ALTER TABLE t DROP s, DROP e, MODIFY n BIGINT NOT NULL", shown.after, flavour="mariadb")
    assert (hidden.after.row_end, hidden.unprovable) == ("row_end", ())


@pytest.mark.parametrize(
    "clauses",
    [
        "DROP x, ADD x INT, MODIFY x BIGINT FIRST",
        "DROP x, ADD x INT DEFAULT 1, ALTER x SET DEFAULT 2",
        "ADD y INT, DROP x, CHANGE x y BIGINT",
        "RENAME COLUMN x TO y, ADD x INT DEFAULT 1, ALTER x SET DEFAULT 2",
    ],
)
def test_a_column_altered_beside_another_of_its_name_is_not_followed(clauses: str) -> None:
    with pytest.raises(SchemaMismatch):
        after(f"ALTER TABLE t {clauses}", flavour="mariadb")


def test_columns_defined_beside_two_character_sets_are_not_followed() -> None:
    both = "CONVERT TO CHARACTER SET utf8mb4, CHARSET latin1"
    assert after(f"ALTER TABLE t {both}", flavour="mariadb").charset == "latin1"
    with pytest.raises(SchemaMismatch, match="beside two character sets, utf8mb4 and latin1"):
        after(f"ALTER TABLE t {both}, ADD v VARCHAR(9) BINARY", flavour="mariadb")


MEMBERS = "CREATE TABLE t (e ENUM('x', '{member}')) CHARACTER SET {old}"


@pytest.mark.parametrize(
    ("member", "old", "new"),
    [
        ("é", "latin1", "cp1251"),
        ("é", "latin1", "utf8mb4"),
        ("y", "latin1", "utf16"),
        ("y", "ucs2", "latin1"),
        ("?", "ascii", "latin1"),
    ],
)
def test_the_servers_read_the_bytes_of_members_in_another_character_set(member: str, old: str, new: str) -> None:
    with pytest.raises(SchemaMismatch, match="gives members of the column 'e' other characters"):
        after(f"ALTER TABLE t CONVERT TO CHARACTER SET {new}", created(MEMBERS.format(member=member, old=old)))


@pytest.mark.parametrize(("member", "old", "new"), [("é", "utf8mb3", "utf8mb4"), ("y", "latin1", "utf8mb4")])
def test_members_that_have_the_same_bytes_stay(member: str, old: str, new: str) -> None:
    (column,) = after(
        f"ALTER TABLE t CONVERT TO CHARACTER SET {new}", created(MEMBERS.format(member=member, old=old))
    ).columns
    assert (column.values, column.charset) == (("x", member), new)


@pytest.mark.parametrize(("member", "charset"), [("é", "ascii"), ("é", "cp1251"), ("\U0001f600", "utf8mb3")])
def test_members_that_become_question_marks_are_not_followed(member: str, charset: str) -> None:
    text = f"CREATE TABLE t (e ENUM('{member}') CHARACTER SET {charset})"
    [change] = statements.parse(text, database="shop", sql_mode=0, flavour="mysql").changes
    assert isinstance(change, statements.Unfollowed)
