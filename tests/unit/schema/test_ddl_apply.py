"""Shapes after a change, and what old rows hold in added columns."""

from __future__ import annotations

import pytest

from binlake.errors import SchemaMismatch, UnfollowedStatement
from binlake.schema import ddl
from binlake.schema.lexer import STRICT_TRANS_TABLES, Flavour
from binlake.schema.table import Column, TableSchema

KEYED = TableSchema(
    (Column("Id", "int", nullable=False), Column("n", "int", nullable=False), Column("x", "int")), ("Id",), "primary"
)
UNKEYED = TableSchema(KEYED.columns)
UNIQUE = TableSchema(KEYED.columns, ("n",), "unique")


def after(
    text: str, schema: TableSchema = KEYED, *, flavour: Flavour = "mysql", table_charset: str = "utf8mb4"
) -> TableSchema:
    parsed = ddl.parse(text, database="shop", sql_mode=STRICT_TRANS_TABLES, flavour=flavour)
    for change in parsed.changes:
        assert isinstance(change, ddl.ShapeChange)
        schema = ddl.apply(schema, change, table_charset=table_charset)
    return schema


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
    def charset(clauses: str) -> str | None:
        return after(f"ALTER TABLE t {clauses}", table_charset="latin1").column("a").charset

    assert charset("ADD a TEXT") == "latin1"
    assert charset("ADD a TEXT CHARSET cp1251") == "cp1251"
    assert charset("ADD a TEXT, DEFAULT CHARSET utf8mb4") == "utf8mb4"
    assert after("ALTER TABLE t ADD a TEXT(300)", table_charset="binary").column("a").type == "blob"
    assert after("ALTER TABLE t ADD a TEXT(60)").column("a").type == "tinytext"
    assert after("ALTER TABLE t ADD a TEXT(300)", table_charset="latin1").column("a").type == "text"


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD N INT", "ALTER TABLE t ADD a INT AFTER nowhere"])
def test_changes_that_do_not_fit_the_shape_are_told(text: str) -> None:
    with pytest.raises(SchemaMismatch):
        after(text)


def test_if_not_exists_leaves_what_is_there() -> None:
    text = "ALTER TABLE t ADD COLUMN IF NOT EXISTS N DATETIME DEFAULT NOW(), ADD COLUMN IF NOT EXISTS a INT DEFAULT 3"
    assert names(after(text, flavour="mariadb")) == ["Id", "n", "x", "a"]
    [change] = ddl.parse(text, database="shop", sql_mode=0, flavour="mariadb").changes
    assert isinstance(change, ddl.AddColumns)
    assert [column.name for column in ddl.new_columns(KEYED, change)] == ["a"]
    with pytest.raises(ddl.NotConstant):
        after("ALTER TABLE t ADD COLUMN IF NOT EXISTS d DATETIME DEFAULT NOW()", flavour="mariadb")


@pytest.mark.parametrize(
    ("text", "schema", "followed"),
    [
        ("ALTER TABLE t ADD UNIQUE (n)", KEYED, True),
        ("ALTER TABLE t ADD UNIQUE (n)", UNKEYED, False),
        ("ALTER TABLE t ADD UNIQUE (x)", UNKEYED, True),
        ("ALTER TABLE t ADD UNIQUE (n, x)", UNIQUE, True),
        ("CREATE UNIQUE INDEX i ON t (n)", UNIQUE, False),
        ("CREATE UNIQUE INDEX i ON t ((n + 1))", UNKEYED, True),
        ("DROP INDEX i ON t", KEYED, True),
        ("DROP INDEX i ON t", UNKEYED, True),
        ("DROP INDEX i ON t", UNIQUE, False),
        ("DROP INDEX `PRIMARY` ON t", KEYED, False),
        ("ALTER TABLE t DROP CONSTRAINT `primary`", KEYED, False),
        ("ALTER TABLE t ADD a INT NOT NULL UNIQUE", KEYED, True),
        ("ALTER TABLE t ADD a INT NOT NULL UNIQUE", UNKEYED, False),
        ("ALTER TABLE t ADD a INT UNIQUE", UNKEYED, True),
    ],
)
def test_indexes_count_where_they_may_be_the_key(text: str, schema: TableSchema, followed: bool) -> None:
    if followed:
        assert after(text, schema).key == schema.key
    else:
        with pytest.raises(UnfollowedStatement):
            after(text, schema)


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
    assert ddl.old_row_default(after(f"ALTER TABLE t ADD a {definition}").column("a")) == default


@pytest.mark.parametrize(
    "definition",
    [
        "INT AUTO_INCREMENT UNIQUE",
        "SERIAL",
        "DATE NOT NULL",
        "DATE DEFAULT '0000-00-00'",
        "DATETIME DEFAULT '2020-00-01'",
        "DATETIME NOT NULL",
        "TIMESTAMP NOT NULL",
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
        "VARCHAR(9) DEFAULT x'C3A9'",
        "VARBINARY(9) DEFAULT 'é'",
        "VARBINARY(9) DEFAULT x'6100'",
        "VARBINARY(9) DEFAULT x'0061'",
        "BINARY(9) DEFAULT x'610062'",
        "VARCHAR(9) CHARSET ucs2 DEFAULT x'0041'",
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
def test_what_is_no_constant_is_not_followed(definition: str) -> None:
    with pytest.raises(UnfollowedStatement):
        after(f"ALTER TABLE t ADD a {definition}")


def test_defaults_that_rows_never_need_do_not_stop_a_new_table() -> None:
    text = "CREATE TABLE t (a FLOAT DEFAULT 0.123456789, b DATE NOT NULL, c TIMESTAMP DEFAULT '2020-01-01')"
    assert names(after(text)) == ["a", "b", "c"]


def test_text_is_not_sql_mode_oracle() -> None:
    parsed = ddl.parse("CREATE TABLE t (a DATE)", database="shop", sql_mode=1 << 9, flavour="mariadb")
    assert isinstance(parsed.changes[0], ddl.Unfollowed)


def test_empty_strings_are_null_where_mariadb_says_so() -> None:
    text = "CREATE TABLE t (a VARCHAR(9) DEFAULT '')"
    for flavour, default in (("mariadb", None), ("mysql", "")):
        [created] = ddl.parse(text, database="d", sql_mode=1 << 32, flavour=flavour).changes  # type: ignore[arg-type]
        assert isinstance(created, ddl.CreateTable)
        assert created.schema.column("a").default == default


def test_dropped_partitions_and_renames_are_told_apart_from_silence() -> None:
    with pytest.raises(UnfollowedStatement) as caught:
        after("ALTER TABLE t DROP PARTITION p0")
    assert "DROP PARTITION" in str(caught.value)
    assert "snapshot" in caught.value.remedy
