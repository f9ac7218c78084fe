"""What the log has of columns that a server keeps in a table and shows nobody."""

from __future__ import annotations

import pytest

from binlake import binlog
from binlake.binlog.border import Mutations
from binlake.schema.hidden import without_hashes
from binlake.schema.table import Column, TableName, TableSchema
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from mirror import on_mariadb, on_mysql
from server_shape import read_schema
from servers import Server


def logged(server: Server, database: str, *statements: str) -> tuple[tuple[Column, ...], TableSchema]:
    """The newest table map's columns of ``t`` after the statements, and its shape in the catalog."""
    file, offset, *_ = server.execute(f"SHOW {'MASTER' if server.kind == 'mariadb' else 'BINARY LOG'} STATUS")[0]
    server.execute(*statements, database=database)
    items = binlog.open(server.uri(), f"{file}:{offset}").mutations(lambda schema, name: schema == database)
    *_, last = [item for item in items if isinstance(item, Mutations)]
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        return last.columns, read_schema(source, TableName(database, "t"))


def names(columns: tuple[Column, ...]) -> list[str]:
    return [column.name for column in columns]


@on_mysql
@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("CREATE TABLE t (a INT, b JSON, KEY ((a + 1)), UNIQUE ((a * 2)))", "INSERT INTO t VALUES (1, '[]')"), "ab"),
        (
            (
                "CREATE TABLE t (a INT, b JSON, KEY ((CAST(b->'$.x' AS UNSIGNED ARRAY))))",
                "INSERT INTO t VALUES (1, '{\"x\": [1, 2]}')",
            ),
            "ab",
        ),
        (("CREATE TABLE t (a INT, b TEXT, FULLTEXT (b))", "INSERT INTO t VALUES (1, 'words')"), "ab"),
        (
            (
                "SET SESSION sql_generate_invisible_primary_key = ON",
                "CREATE TABLE t (a INT)",
                "INSERT INTO t VALUES (1)",
            ),
            ["my_row_id", "a"],
        ),
    ],
)
def test_mysql_logs_what_its_catalog_shows(
    server: Server, database: str, statements: tuple[str, ...], expected: list[str]
) -> None:
    columns, schema = logged(server, database, *statements)
    assert names(columns) == names(schema.columns) == list(expected)


@on_mariadb
@pytest.mark.parametrize(
    ("definition", "hidden"),
    [
        ("a INT, b TEXT, FULLTEXT (b)", []),
        ("a INT, b TEXT UNIQUE", ["DB_ROW_HASH_1"]),
        ("a INT, b VARCHAR(768) NOT NULL UNIQUE", []),
        ("a INT, b VARCHAR(769) NOT NULL UNIQUE", ["DB_ROW_HASH_1"]),
        ("a INT, b VARCHAR(9), UNIQUE (b) USING HASH", ["DB_ROW_HASH_1"]),
        ("b TEXT, c INT AS (LENGTH(b)) VIRTUAL, UNIQUE (b), UNIQUE (b, c)", ["DB_ROW_HASH_1", "DB_ROW_HASH_2"]),
        ("DB_ROW_HASH_1 INT, b TEXT UNIQUE", ["DB_ROW_HASH_2"]),
        ("b TEXT UNIQUE, DB_ROW_HASH_1 BIGINT UNSIGNED", ["DB_ROW_HASH_2"]),
        ("b TEXT, DB_ROW_HASH_1 BIGINT UNSIGNED", []),
        ("b TEXT, DB_ROW_HASH_1 BIGINT UNSIGNED, DB_ROW_HASH_3 BIGINT UNSIGNED, UNIQUE (b)", ["DB_ROW_HASH_2"]),
    ],
)
def test_mariadb_logs_the_hashes_of_long_unique_keys_too(
    server: Server, database: str, definition: str, hidden: list[str]
) -> None:
    columns, schema = logged(server, database, f"CREATE TABLE t ({definition})", "INSERT INTO t (b) VALUES ('x')")
    assert names(columns) == names(schema.columns) + hidden
    assert without_hashes(columns, schema) == columns[: len(schema.columns)]
