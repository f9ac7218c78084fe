"""Whatever a statement is: the parser ends, quickly, and raises nothing."""

from __future__ import annotations

import time
from contextlib import suppress

from hypothesis import given, settings, strategies as st

from binlake.ddl import statements
from binlake.errors import BinlakeError
from binlake.position import Flavour
from binlake.schema.table import Column, Index, TableSchema

FLAVOURS: st.SearchStrategy[Flavour] = st.sampled_from(("mysql", "mariadb"))
SHAPE = TableSchema(
    (
        Column("t", "int", nullable=False),
        Column("u", "varchar", length=20, charset="latin1"),
        Column("c", "enum", values=("a", "d"), charset="utf8mb4"),
    ),
    ("t",),
    "primary",
    indexes=(Index("u", ("u", "t"), (5, None), True),),
)
MODES = st.integers(0, 2**33)
WORDS = st.sampled_from(
    [
        "CREATE",
        "ALTER",
        "DROP",
        "TABLE",
        "TEMPORARY",
        "IF",
        "NOT",
        "EXISTS",
        "OR",
        "REPLACE",
        "LIKE",
        "SELECT",
        "AS",
        "ADD",
        "COLUMN",
        "FIRST",
        "AFTER",
        "UNIQUE",
        "PRIMARY",
        "KEY",
        "INDEX",
        "CONSTRAINT",
        "FOREIGN",
        "REFERENCES",
        "ON",
        "DELETE",
        "SET",
        "NULL",
        "DEFAULT",
        "CHARSET",
        "CHARACTER",
        "COLLATE",
        "latin1",
        "binary",
        "INT",
        "VARCHAR",
        "TEXT",
        "BLOB",
        "ENUM",
        "DECIMAL",
        "FLOAT",
        "DOUBLE",
        "BIT",
        "YEAR",
        "TIME",
        "DATE",
        "DATETIME",
        "TIMESTAMP",
        "LONG",
        "NATIONAL",
        "CHAR",
        "SERIAL",
        "UNSIGNED",
        "ZEROFILL",
        "AUTO_INCREMENT",
        "GENERATED",
        "ALWAYS",
        "COMMENT",
        "PARTITION",
        "BY",
        "EXCHANGE",
        "WITH",
        "RENAME",
        "TO",
        "MODIFY",
        "CHANGE",
        "CONVERT",
        "ENGINE",
        "INNODB",
        "ORDER",
        "FORCE",
        "ALGORITHM",
        "UPDATE",
        "INTO",
        "VALUES",
        "FROM",
        "USING",
        "JOIN",
        "WHERE",
        "TRUNCATE",
        "ANALYZE",
        "USER",
        "DATABASE",
        "DEFINER",
        "STATEMENT",
        "FOR",
        "t",
        "u",
        "`a.b`",
        '"c"',
        "'d'",
        "''",
        "5",
        "-1",
        "1.5",
        "1e400",
        "1e-400",
        "0x41",
        "x'4'",
        "b'1'",
        "65535",
        "99999999999999999999",
        "(",
        ")",
        ",",
        ".",
        ";",
        "=",
        "@",
        "*",
        "-",
        "+",
        "/*",
        "*/",
        "/*!",
        "--",
        "/*!50000",
        "/*M!",
        "#",
        "'",
        '"',
        "`",
        "é",
        "🙂",
        "NOW()",
        "'2020-01-01'",
        "'0000-00-00'",
        "'-838:59:59.5'",
        "20200101",
        "CURRENT_TIMESTAMP",
        "CASE",
        "WHEN",
        "END",
        "_latin1",
        "_ucs2 0x0041",
        "_binary",
        "N'é'",
        "_koi8r 0xFF",
        "0x9353",
        "sjis",
        "@v",
        "@@sql_mode",
        ":=",
        "{",
        "}",
        "{d '2020-01-01'}",
        "DATE'2020-1-1'",
        "\\N",
        "\ufffd",
        "SET STATEMENT",
        "sql_mode",
        "REMOVE PARTITIONING",
        "PARTITION BY",
        "10.7",
        ".5",
        "VISIBLE",
        "INVISIBLE",
    ]
)
DEFINITIONS = st.lists(WORDS, max_size=12).map(" ".join)
STATEMENTS = st.one_of(
    st.text(),
    st.lists(WORDS, max_size=40).map(" ".join),
    st.lists(WORDS, max_size=40).map("".join),
    DEFINITIONS.map("CREATE TABLE t (a {})".format),
    DEFINITIONS.map("CREATE TABLE t (a INT) {}".format),
    DEFINITIONS.map("ALTER TABLE t {}".format),
    DEFINITIONS.map("ALTER TABLE t ORDER BY {}".format),
    DEFINITIONS.map("ALTER TABLE t ADD a INT DEFAULT {}".format),
    DEFINITIONS.map("CREATE TABLE t (a VARCHAR(9) DEFAULT {})".format),
    DEFINITIONS.map("CREATE TABLE t (a ENUM({}) CHARSET sjis)".format),
    DEFINITIONS.map("ALTER TABLE t ADD a DECIMAL({})".format),
    DEFINITIONS.map("SET STATEMENT {} FOR ALTER TABLE t ADD a INT".format),
    DEFINITIONS.map("SET STATEMENT sql_mode=1 FOR ALTER TABLE t ADD a {}".format),
    st.tuples(st.binary(max_size=9), st.sampled_from(("latin1", "sjis", "ucs2", "koi8r", "utf8mb4", "binary"))).map(
        lambda pair: (
            f"ALTER TABLE t ADD a ENUM(0x{pair[0].hex()}) CHARSET {pair[1]} DEFAULT _{pair[1]} 0x{pair[0].hex()}"
        )
    ),
    DEFINITIONS.map("ALTER TABLE t ADD a {}".format),
    st.text().map("ALTER TABLE t ADD a VARCHAR(9) DEFAULT {!r}".format),
    st.tuples(
        st.sampled_from(
            ("INT", "DECIMAL(9,2)", "FLOAT", "DOUBLE(5,2)", "BIT(5)", "YEAR", "TIME(2)", "DATE", "DATETIME")
        ),
        st.one_of(st.text("0123456789-+:. eE", max_size=30), st.text(max_size=9)),
    ).map(lambda pair: f"ALTER TABLE t ADD a {pair[0]} DEFAULT '{pair[1]}'"),
)


@settings(max_examples=600, deadline=None)
@given(STATEMENTS, FLAVOURS, MODES, st.sampled_from(["", "shop"]))
def test_any_text_is_read_to_an_end(text: str, flavour: Flavour, sql_mode: int, database: str) -> None:
    parsed = statements.parse(text, database=database, sql_mode=sql_mode, flavour=flavour)
    assert parsed.kind
    concerned = {name for change in parsed.changes for name in statements.tables_of(change)}
    assert concerned <= set(parsed.tables)
    for change in parsed.changes:
        if isinstance(change, statements.AlterTable):
            with suppress(BinlakeError):
                statements.evolve(SHAPE, change, flavour=flavour)
    assert all(name.database for name in parsed.tables)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        [
            "(",
            ")",
            ",",
            "'",
            "CASE ",
            "END ",
            "{",
            "@",
            "SET STATEMENT a=1 FOR ",
            "SET STATEMENT a=",
            "`",
            "/*",
            "/*!",
            "a",
            "1",
            ".",
            "-",
            "DEFAULT ",
            "ADD a INT,",
            "\\",
            "- ",
        ]
    ),
    FLAVOURS,
)
def test_time_grows_with_length(piece: str, flavour: Flavour) -> None:
    started = time.process_time()
    for head in ("", "ALTER TABLE t ", "CREATE TABLE t (a INT ", "UPDATE ", "FROBNICATE "):
        statements.parse(head + piece * 5_000, database="shop", sql_mode=0, flavour=flavour)
    assert time.process_time() - started < 5
