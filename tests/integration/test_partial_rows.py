"""Partial rows: made whole where the event holds what is missing, else the table stops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from binlake import binlog
from binlake.binlog.border import Mutations, Stopped
from servers import Server

pytestmark = pytest.mark.parametrize("server", ["mysql"], indirect=True)  # MariaDB has minimal images alone

DOCUMENT = {
    "a": 1, "b": {"c": [1, 2, 3], "d e": "x", "ü": None}, "big": 12345678901, "neg": -7, "t": True,
    "long": "l" * 300, "list": [{"k": 1}, {"k": 2}, [1, [2, [3]]]], "f": 1.5,
    "deep": {"x": {"y": {"z": []}}},
}  # fmt: skip
CHANGES = [
    "JSON_SET(j, '$.a', 2)",
    "JSON_SET(j, '$.a', -32768)",
    "JSON_SET(j, '$.new', 'inserted')",
    "JSON_SET(j, '$.b.\"d e\"', JSON_OBJECT('in', 'side'))",
    "JSON_SET(j, '$.b.\"ü\"', 'ä', '$.b.c[1]', 70000)",
    "JSON_SET(j, '$.b.c[3]', 'appended')",
    "JSON_SET(j, '$.b.c[last]', CAST('2024-02-29 12:00:00.5' AS DATETIME(6)))",
    "JSON_SET(j, '$.b.c', JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST('12:00' AS TIME), 18446744073709551615))",
    "JSON_SET(j, '$.b.c[last-1]', 'before the last', '$.big[0]', 5)",
    "JSON_SET(j, '$.big[last]', 6, '$.neg[1]', 'wrapped')",
    "JSON_SET(j, '$.list[2][last][last][0]', 'deep')",
    "JSON_REMOVE(j, '$.b.c[0]')",
    "JSON_REMOVE(j, '$.long')",
    "JSON_REMOVE(j, '$.list[0]', '$.list[1][1][0]')",
    "JSON_REPLACE(j, '$.deep.x.y.z', JSON_OBJECT('more', JSON_ARRAY(1, 2)))",
    'JSON_SET(j, \'$."quo\\\\"te"\', 1)',
    "JSON_SET(j, '$.$dollar', 1, '$._under', 2)",
    "JSON_SET(j, '$.f', 1e300, '$.t', false)",
    "JSON_SET(j, '$.a', REPEAT('x', 70000))",
    "JSON_REMOVE(j, '$.a')",
    "JSON_SET(j, '$', JSON_ARRAY(1))",
    "JSON_SET(j, '$[5]', 'end')",
    "NULL",
    "CAST('{\"whole\": 1}' AS JSON)",
]


def place(server: Server) -> str:
    file, offset, *_ = server.execute("SHOW BINARY LOG STATUS")[0]
    return f"{file}:{offset}"


def after(server: Server, database: str, start: str) -> list[dict[str, Any]]:
    return [row for batch in binlog.open(server.uri(), start).batches(database, "t") for row in
            batch.column("after").to_pylist()]  # fmt: skip


def before(server: Server, database: str, start: str) -> list[dict[str, Any]]:
    return [row for batch in binlog.open(server.uri(), start).batches(database, "t") for row in
            batch.column("before").to_pylist()]  # fmt: skip


@pytest.mark.parametrize("compression", ["OFF", "ON"])
def test_json_differences_give_the_servers_text(server: Server, database: str, compression: str) -> None:
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, j JSON, v TEXT, k JSON)",
        f"INSERT INTO t VALUES (1, 0, '{json.dumps(DOCUMENT)}', 'v', '{{\"k\": [1]}}')",
        database=database,
    )
    start = place(server)
    texts = [server.execute("SELECT CAST(j AS CHAR) FROM t", database=database)[0][0]]
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        cursor.execute(f"SET SESSION binlog_transaction_compression = {compression}")
        for number, change in enumerate(CHANGES, 1):
            cursor.execute(f"UPDATE t SET n = {number}, j = {change}")
            cursor.execute("SELECT CAST(j AS CHAR) FROM t")
            texts.append(cursor.fetchall()[0][0])
    rows = after(server, database, start)
    assert [row["j"] for row in rows] == texts[1:]
    assert [row["j"] for row in before(server, database, start)] == texts[:-1]
    assert [row["n"] for row in rows] == list(range(1, len(CHANGES) + 1))
    assert {(row["v"], row["k"]) for row in rows} == {("v", '{"k": [1]}')}
    kinds = [event.name for event in binlog.open(server.uri(), start).events()]
    assert kinds.count("PARTIAL_UPDATE_ROWS") > len(CHANGES) // 2


def test_many_rows_and_two_documents_in_one_event(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (j JSON, id INT PRIMARY KEY, k JSON)", database=database)
    rows = ", ".join(f"""('{{"a": [{n}], "b": "{n}"}}', {n}, '[{n}, null]')""" for n in range(200))
    server.execute(f"INSERT INTO t VALUES {rows}", database=database)
    start = place(server)
    server.execute(
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
        "UPDATE t SET j = JSON_SET(j, '$.a[0]', id * 2), k = IF(id % 2, JSON_SET(k, '$[1]', 'set'), k)",
        "UPDATE t SET k = NULL, j = JSON_REMOVE(j, '$.b') WHERE id % 3 = 0",
        database=database,
    )
    images = {row["id"]: row for row in after(server, database, start)}
    expected = server.execute("SELECT id, CAST(j AS CHAR), CAST(k AS CHAR) FROM t", database=database)
    assert [(row["id"], row["j"], row["k"]) for _, row in sorted(images.items())] == list(expected)


def test_a_minimal_update_with_a_full_image_before_it_is_made_whole(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (a INT, b VARCHAR(10), c TEXT)", database=database)
    server.execute("INSERT INTO t VALUES (1, 'x', NULL), (2, NULL, 'text')", database=database)
    start = place(server)
    server.execute(
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE t SET b = 'y'",
        "UPDATE t SET c = NULL, a = a + 10 WHERE a = 2",
        database=database,
    )
    assert after(server, database, start) == [
        {"a": 1, "b": "y", "c": None},
        {"a": 2, "b": "y", "c": "text"},
        {"a": 12, "b": "y", "c": None},
    ]


@pytest.mark.parametrize(
    ("image", "change"),
    [
        ("MINIMAL", "UPDATE t SET v = 'z' WHERE id = 1"),
        ("MINIMAL", "DELETE FROM t WHERE id = 1"),
        ("MINIMAL", "INSERT INTO t (id) VALUES (9)"),
        ("NOBLOB", "UPDATE t SET v = 'z' WHERE id = 1"),
        ("NOBLOB", "DELETE FROM t WHERE id = 1"),
    ],
)
def test_what_the_event_doesnt_hold_stops_the_table(server: Server, database: str, image: str, change: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10) DEFAULT 'd', b BLOB)", database=database)
    start = place(server)
    server.execute("INSERT INTO t VALUES (1, 'x', 'y')", f"SET SESSION binlog_row_image = '{image}'", change,
                   database=database)  # fmt: skip
    mutations = list(binlog.open(server.uri(), start).mutations())
    assert [type(item) for item in mutations] == [Mutations, Stopped]
    assert isinstance(mutations[1], Stopped)
    assert (mutations[1].reason, mutations[1].remedy.split(" ")[:3]) == (
        "the log holds partial row images",
        ["SET", "GLOBAL", "binlog_row_image=FULL"],
    )
