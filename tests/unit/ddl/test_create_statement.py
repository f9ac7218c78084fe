"""CREATE TABLE of a recorded shape."""

from __future__ import annotations

from binlake.ddl import statements
from binlake.ddl.create_statement import create_database, create_table
from binlake.schema.table import Column, Index, TableName, TableSchema

COLUMNS = (
    Column("id", "int", unsigned=True, nullable=False, auto_increment=True, zerofill=5),
    Column("na`me", "varchar", length=20, charset="utf8mb4", nullable=False, default="it's \\"),
    Column("kind", "enum", charset="latin1", values=("a'b", "c")),
    Column("price", "decimal", precision=9, scale=2, unsigned=True, zerofill=10, default="000.00"),
    Column("at", "timestamp", fraction=3, default="2026-01-01 00:00:00.000"),
    Column("bits", "bit", length=3, default="b'101'"),
    Column("note", "text", charset="utf8mb4"),
)
SCHEMA = TableSchema(
    COLUMNS, ("id",), "primary", charset="latin1",
    indexes=(
        Index("u", ("na`me",), (None,), unique=True), Index("part", ("note", "kind"), (5, None)),
        Index("words", ("note",), (None,)), Index("of_expression", (None,), (None,)),
    ),
)  # fmt: skip


def test_a_tables_columns_and_keys() -> None:
    assert create_table(TableName("sh`op", "t"), SCHEMA, "mysql").splitlines() == [
        "CREATE TABLE `sh``op`.`t` (",
        "  `id` int(5) unsigned zerofill AUTO_INCREMENT NOT NULL,",
        "  `na``me` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL DEFAULT 'it''s \\\\',",
        "  `kind` enum('a''b','c') CHARACTER SET latin1 NULL,",
        "  `price` decimal(9,2) unsigned zerofill NULL DEFAULT '000.00',",
        "  `at` timestamp(3) NULL,",
        "  `bits` bit(3) NULL DEFAULT b'101',",
        "  `note` text CHARACTER SET utf8mb4 NULL,",
        "  PRIMARY KEY (`id`),",
        "  UNIQUE KEY `u` (`na``me`),",
        "  KEY `part` (`note`(5), `kind`),",
        "  FULLTEXT KEY `words` (`note`)",
        ") DEFAULT CHARACTER SET latin1",
    ]
    assert "COLLATE utf8mb4_nopad_bin" in create_table(TableName("a", "b"), SCHEMA, "mariadb")
    assert create_database("a`b", "latin1") == "CREATE DATABASE IF NOT EXISTS `a``b` CHARACTER SET latin1"


def test_we_follow_it_ourselves() -> None:
    """Read back, it is the shape it was made of, but for what a statement can't tell."""
    text = create_table(TableName("a", "b"), SCHEMA, "mysql")
    (change,) = statements.parse(text, database="", sql_mode=0, flavour="mysql").changes
    assert isinstance(change, statements.CreateTable)
    assert str(change.name) == "a.b"
