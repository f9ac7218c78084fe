"""The catalog gives the normal form: what information_schema means, not how each server spells it."""

from __future__ import annotations

import pytest

from binlake.ddl import statements
from binlake.schema.foreign_key import ForeignKey
from binlake.schema.table import Index, TableName, TableSchema
from binlake.source import foreign_keys
from binlake.source.catalog import read_schemas, read_tables
from binlake.source.endpoint import Endpoint
from binlake.source.listed_tables import list_tables
from binlake.source.server import Source
from server_shape import read_schema
from servers import Server


def schema_of(server: Server, database: str, definition: str) -> TableSchema:
    server.execute("DROP TABLE IF EXISTS t", f"CREATE TABLE t ({definition})", database=database)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        name = TableName(database, "t")
        schema = read_schema(source, name)
        assert read_schemas(source, [name]) == {name: schema}
        return schema


@pytest.mark.parametrize(
    ("definition", "key", "kind"),
    [
        ("a INT, b INT NOT NULL, PRIMARY KEY (b, a)", ("b", "a"), "primary"),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE zz (a), UNIQUE aa (b)", ("a",), "unique"),
        ("a INT, b INT NOT NULL, UNIQUE (a), UNIQUE (b)", ("b",), "unique"),
        ("a VARCHAR(30) NOT NULL, UNIQUE (a(4))", (), "none"),
        ("a VARCHAR(30) NOT NULL, b INT NOT NULL, UNIQUE p (a(4), b), UNIQUE q (b, a)", ("b", "a"), "unique"),
        ("a INT, KEY (a)", (), "none"),
    ],
)
def test_key(server: Server, database: str, definition: str, key: tuple[str, ...], kind: str) -> None:
    schema = schema_of(server, database, definition)
    assert (schema.key, schema.key_kind) == (key, kind)


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("a TEXT NOT NULL UNIQUE, b INT NOT NULL UNIQUE", ("b",)),
        ("a TEXT NOT NULL UNIQUE", ()),
        ("a VARCHAR(768) NOT NULL UNIQUE", ("a",)),
        ("a VARCHAR(769) NOT NULL UNIQUE", ()),
        ("a VARBINARY(2000) NOT NULL, b VARBINARY(2000) NOT NULL, UNIQUE (a, b)", ()),
        ("a VARCHAR(9) NOT NULL, UNIQUE (a) USING HASH", ()),
        ("a VARCHAR(9) NOT NULL, UNIQUE u USING HASH (a)", ()),
    ],
)
def test_a_unique_key_that_mariadb_keeps_by_a_hash_is_none(
    mariadb_server: Server, definition: str, key: tuple[str, ...]
) -> None:
    mariadb_server.execute("CREATE OR REPLACE DATABASE hashed")
    schema = schema_of(mariadb_server, "hashed", definition)
    assert schema.key == key
    parsed = statements.parse(f"CREATE TABLE t ({definition})", database="hashed", sql_mode=0, flavour="mariadb")
    assert parsed.changes == (statements.CreateTable(TableName("hashed", "t"), schema),)
    mariadb_server.execute("DROP DATABASE hashed")


def test_columns(server: Server, database: str) -> None:
    schema = schema_of(
        server,
        database,
        "i INT(5) ZEROFILL, b TINYINT(1) DEFAULT 1, u TINYINT(1) UNSIGNED, d DECIMAL(9,2) DEFAULT 1.5, "
        "x BIT(9) DEFAULT b'101', v VARCHAR(20) CHARACTER SET latin1 DEFAULT 'it''s', w VARCHAR(9) DEFAULT 'NULL', "
        "n INT DEFAULT NULL, bn BINARY(3) DEFAULT 'ab', ts TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3), "
        "g INT AS (i + 1) VIRTUAL, s INT AS (i + 1) STORED, h INT INVISIBLE, f FLOAT(7,3), t TIME(2), "
        "ex VARCHAR(40) DEFAULT (UUID())",
    )
    columns = {column.name: column for column in schema.columns}
    assert (columns["i"].unsigned, columns["i"].length) == (True, None)
    assert (columns["b"].length, columns["b"].default, columns["u"].length) == (1, "1", None)
    assert (columns["d"].precision, columns["d"].scale, columns["d"].default) == (9, 2, "1.50")
    assert (columns["x"].length, columns["x"].default) == (9, "b'101'")
    assert (columns["v"].charset, columns["v"].length, columns["v"].default) == ("latin1", 20, "it's")
    assert (columns["w"].default, columns["n"].default, columns["bn"].default) == ("NULL", None, "0x6162")
    assert (columns["ts"].fraction, columns["ts"].default_is_expression, columns["ts"].default) == (3, True, None)
    assert columns["ex"].default_is_expression
    assert (columns["g"].generated, columns["s"].generated, columns["h"].invisible) == (True, True, True)
    assert (columns["f"].precision, columns["f"].scale, columns["t"].fraction) == (7, 3, 2)
    assert (columns["i"].zerofill, columns["s"].zerofill) == (5, 0)


def test_indexes_and_the_default_character_set(server: Server, database: str) -> None:
    schema = schema_of(
        server,
        database,
        "a INT, b VARCHAR(9) NOT NULL, c INT NOT NULL AUTO_INCREMENT, KEY k (a), UNIQUE n (a, b), UNIQUE p (b(4)), "
        "UNIQUE z (c), UNIQUE y (b)",
    )
    assert schema.charset == "utf8mb4"
    assert [index.name for index in schema.indexes] == ["z", "y", "p", "n", "k"]
    assert schema.indexes[2] == Index("p", ("b",), (4,), unique=True)
    assert [column.auto_increment for column in schema.columns] == [False, False, True]
    server.execute("ALTER TABLE t COLLATE cp1251_bin", database=database)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        assert read_schema(source, TableName(database, "t")).charset == "cp1251"


def test_values_of_enum_and_set(server: Server, database: str) -> None:
    values = ("a", "b'c", "d\\e", "f,g", "", "h)i", "n\nl", 'q"', "日本")
    listed = ", ".join("'" + value.replace("\\", "\\\\").replace("'", "''") + "'" for value in values)
    schema = schema_of(server, database, f"e ENUM({listed}), s SET('x', 'y''z')")
    assert schema.column("e").values == values
    assert schema.column("s").values == ("x", "y'z")


def test_generated_invisible_primary_key(mysql_server: Server) -> None:
    mysql_server.execute(
        "CREATE DATABASE IF NOT EXISTS gipk",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE gipk.t (x INT)",
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
    )
    try:
        with Source.open(Endpoint("127.0.0.1", mysql_server.port, "root", "")) as source:
            schema = read_schema(source, TableName("gipk", "t"))
        assert schema.key == ("my_row_id",)
        assert schema.column("my_row_id").invisible
    finally:
        mysql_server.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON", "DROP DATABASE gipk")


def test_mariadb_types_and_kinds(mariadb_server: Server) -> None:
    mariadb_server.execute(
        "CREATE OR REPLACE DATABASE kinds",
        "CREATE TABLE kinds.t (u UUID, a INET4, b INET6, j JSON, c TEXT COMPRESSED)",
        "CREATE TABLE kinds.v (x INT) WITH SYSTEM VERSIONING",
        "CREATE SEQUENCE kinds.s",
        "CREATE VIEW kinds.w AS SELECT 1",
    )
    with Source.open(Endpoint("127.0.0.1", mariadb_server.port, "root", "")) as source:
        kinds = {listed.name.table: listed.kind for listed in list_tables(source) if listed.name.database == "kinds"}
        table = read_tables(source, [TableName("kinds", "t")])[TableName("kinds", "t")]
    assert kinds == {"t": "BASE TABLE", "v": "SYSTEM VERSIONED", "s": "SEQUENCE", "w": "VIEW"}
    assert [column.type for column in table.schema.columns] == ["uuid", "inet4", "inet6", "longtext", "text"]
    mariadb_server.execute("DROP DATABASE kinds")


def test_names_as_they_stand(server: Server, database: str) -> None:
    odd = "o dd.`n'a\"m\\e; DROP TABLE a"
    quoted = odd.replace("`", "``")
    server.execute(f"CREATE TABLE `{quoted}` (`i d``` INT PRIMARY KEY)", "CREATE TABLE T1 (a INT)", database=database)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        assert read_schema(source, TableName(database, odd)).key == ("i d`",)
        assert read_tables(source, [TableName(database, "t1")]) == {}


def test_head_and_logs(server: Server) -> None:
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        file, offset, gtid_set = source.head()
        logs = source.binary_logs()
        assert logs[-1] == (file, offset)
        server.execute("CREATE DATABASE IF NOT EXISTS head_moves", "DROP DATABASE head_moves")
        assert source.head()[1] > offset
        assert source.head()[2] != gtid_set
        assert abs(source.now() - source.now()) < 60_000_000


def test_tables_whose_names_the_catalog_holds_for_equal(server: Server, database: str) -> None:
    names = [TableName(database, table) for table in ("A", "a", "á")]
    server.execute(*(f"CREATE TABLE `{name.table}` (`{name.table}` INT)" for name in names), database=database)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        schemas = read_schemas(source, names)
        assert {name: [column.name for column in shape.columns] for name, shape in schemas.items()} == {
            name: [name.table] for name in names
        }
        assert read_tables(source, names).keys() == set(names)


def test_foreign_keys(server: Server, database: str) -> None:
    server.execute(
        "CREATE TABLE parent (a INT, b INT, PRIMARY KEY (a, b))",
        "CREATE TABLE child (id INT PRIMARY KEY, b INT, a INT, up INT,"
        " CONSTRAINT whose FOREIGN KEY (a, b) REFERENCES parent (a, b) ON DELETE CASCADE,"
        " CONSTRAINT above FOREIGN KEY (up) REFERENCES child (id))",
        database=database,
    )
    child, parent = TableName(database, "child"), TableName(database, "parent")
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        assert foreign_keys.read(source, [database]) == [
            ForeignKey(child, "above", ("up",), child, ("id",)),
            ForeignKey(child, "whose", ("a", "b"), parent, ("a", "b")),
        ]
