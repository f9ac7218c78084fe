"""Tables that are odd as a whole: from snapshot and binlog to Delta, equal to the server."""

from __future__ import annotations

import hashlib

import pytest

from binlog_slices import from_server, read_all, rows, transports, written
from mirror import Mirror, on_mysql
from servers import Server
from virtual_columns import are_all_logged

MIB = 1 << 20


def test_generated_and_invisible_columns(mirror: Mirror) -> None:
    stored = "STORED" if mirror.server.kind == "mysql" else "PERSISTENT"
    mirror.execute(
        "CREATE TABLE made (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s VARCHAR(9) AS (CONCAT('#', a))"
        f" {stored}, hidden INT INVISIBLE DEFAULT 7, z INT)",
        "INSERT INTO made (id, a, z) VALUES (1, 10, 1), (2, NULL, 2), (3, 30, 3)",
    )
    mirror.snapshot()
    without = set() if are_all_logged(mirror.server) else {"s"}
    mirror.assert_equal("made", without=without)
    mirror.execute(
        "INSERT INTO made (id, a, hidden, z) VALUES (4, 40, 8, 4)",
        "UPDATE made SET a = 11 WHERE id = 1",
        "UPDATE made SET hidden = NULL WHERE id = 2",
        "DELETE FROM made WHERE id = 3",
    )
    mirror.sync()
    mirror.assert_equal("made", without=without)


def test_the_generated_invisible_primary_key_is_the_key(mirror: Mirror) -> None:
    if mirror.server.kind == "mariadb":
        # MariaDB has no such thing: an invisible key that counts up is the nearest.
        create = ["CREATE TABLE keyed (k BIGINT AUTO_INCREMENT INVISIBLE PRIMARY KEY, v VARCHAR(5))"]
    else:
        create = ["SET sql_generate_invisible_primary_key = ON", "CREATE TABLE keyed (v VARCHAR(5))"]
    mirror.execute(*create, "INSERT INTO keyed (v) VALUES ('a'), ('a'), ('b')")
    (result,) = mirror.snapshot()
    assert len(result.schema.key) == 1
    assert result.schema.key_kind == "primary"
    mirror.execute("INSERT INTO keyed (v) VALUES ('a')", "DELETE FROM keyed WHERE v = 'a' LIMIT 1")
    mirror.sync()
    mirror.assert_equal("keyed")


def wide(count: int) -> str:
    return f"CREATE TABLE wide (id INT PRIMARY KEY, {', '.join(f'c{number} SMALLINT' for number in range(count - 1))})"


@pytest.mark.parametrize("count", [250, 251, 252])
def test_widths_that_a_byte_can_just_tell(server: Server, database: str, count: int) -> None:
    values = [None if number % 3 else -number for number in range(count - 1)]
    with written(server) as made:
        server.execute(
            wide(count),
            f"INSERT INTO wide VALUES (3, {', '.join('NULL' if v is None else str(v) for v in values)})",
            f"UPDATE wide SET c{count - 2} = 7",
            database=database,
        )
    for transport in transports(server).values():
        inserted, updated = rows(read_all(transport, made.part, database))
        assert list(inserted["after"].values()) == [3, *values]
        assert updated["before"] == inserted["after"]
        assert list(updated["after"].values()) == [3, *values[:-1], 7]


@on_mysql
def test_as_many_columns_as_innodb_takes(mirror: Mirror) -> None:
    count = 1017
    mirror.execute(
        wide(count), f"INSERT INTO wide VALUES (1, {', '.join(map(str, range(count - 1)))})",
        "INSERT INTO wide (id) VALUES (2)",
    )  # fmt: skip
    mirror.snapshot()
    mirror.execute(
        f"INSERT INTO wide VALUES (3, {', '.join('NULL' if n % 3 else str(-n) for n in range(count - 1))})",
        f"UPDATE wide SET c{count - 2} = 7, c0 = NULL WHERE id < 3",
    )
    mirror.sync()
    mirror.assert_equal("wide")


def test_values_beyond_16_mib(mirror: Mirror) -> None:
    """Events and packets that the protocol splits."""
    with mirror.server.setting("max_allowed_packet", 128 * MIB):
        mirror.execute(
            "CREATE TABLE large (id INT PRIMARY KEY, b LONGBLOB, t LONGTEXT)",
            f"INSERT INTO large VALUES (1, REPEAT(x'00ff', {9 * MIB}), 'x')",
        )
        mirror.snapshot()
        mirror.execute(
            f"INSERT INTO large VALUES (2, 'y', REPEAT('é', {9 * MIB}))", "UPDATE large SET t = 'changed' WHERE id = 1"
        )
        mirror.sync()
        rows = mirror.spark.sql(
            f"SELECT id, length(b), sha2(b, 256), octet_length(t), sha2(CAST(t AS BINARY), 256) "
            f"FROM delta.`{mirror.path('large')}` ORDER BY id"
        ).collect()
    values = [(1, b"\0\xff" * (9 * MIB), b"changed"), (2, b"y", "é".encode() * (9 * MIB))]
    assert [tuple(row) for row in rows] == [
        (key, len(b), hashlib.sha256(b).hexdigest(), len(t), hashlib.sha256(t).hexdigest()) for key, b, t in values
    ]


def test_enum_and_set_values_change_between_mutations(mirror: Mirror) -> None:
    """The number in the log means what the definition said at that moment."""
    mirror.execute(
        "CREATE TABLE named (id INT PRIMARY KEY, e ENUM('a','b'), s SET('x','y'))",
        "INSERT INTO named VALUES (1, 'a', 'x'), (2, 'b', 'x,y')",
    )
    mirror.snapshot()
    with written(mirror.server) as made:
        mirror.execute(
            "INSERT INTO named VALUES (3, 'b', 'y')",
            "ALTER TABLE named MODIFY e ENUM('c','b','a'), MODIFY s SET('z','x','y')",
            "INSERT INTO named VALUES (4, 'c', 'y,z')",
            "UPDATE named SET e = 'c' WHERE id = 1",
        )
    mutations = rows(read_all(from_server(mirror.server), made.part, mirror.database))
    assert [row["after"] for row in mutations] == [
        {"id": 3, "e": "b", "s": "y"},
        {"id": 4, "e": "c", "s": "z,y"},
        {"id": 1, "e": "c", "s": "x"},
    ]
    assert mutations[2]["before"] == {"id": 1, "e": "a", "s": "x"}
    mirror.sync()
    mirror.snapshot("*.named")  # where the ALTER isn't followed, the table has stopped and asks for this
    mirror.assert_equal("named")


def test_text_keys_with_trailing_spaces_and_odd_case(mirror: Mirror) -> None:
    """Keys that the collation calls equal are one row, whose bytes change."""
    mirror.execute(
        "CREATE TABLE words (w VARCHAR(20) PRIMARY KEY, n INT) COLLATE utf8mb4_general_ci",
        "INSERT INTO words VALUES ('a', 1), ('É', 2), ('x ', 3)",
    )
    mirror.snapshot()
    mirror.execute(
        "REPLACE INTO words VALUES ('A', 10)",
        "UPDATE words SET w = 'e' WHERE w = 'É'",
        "INSERT INTO words VALUES ('X', 4) ON DUPLICATE KEY UPDATE w = VALUES(w), n = 5",
    )
    mirror.sync()
    mirror.assert_equal("words")


def test_dates_that_no_calendar_has_come_with_a_column(mirror: Mirror) -> None:
    """Their text is beside them, in rows that no event names; NULL becomes the time, and the zero date stays."""
    mirror.options["invalid_dates"] = "keep_text"
    mirror.execute(
        "SET sql_mode = '', explicit_defaults_for_timestamp = OFF",
        "CREATE TABLE zeros (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL)",
        "INSERT INTO zeros VALUES (1, '0000-00-00'), (2, NULL), (3, '2020-01-01 00:00:00.5')",
    )
    mirror.snapshot()
    asked = len(mirror.metadata.read("snapshots"))
    mirror.execute(
        "SET sql_mode = '', explicit_defaults_for_timestamp = OFF",
        "ALTER TABLE zeros ADD second TIMESTAMP, ADD third TIMESTAMP(2)",
        "ALTER TABLE zeros ADD d DATE NOT NULL, ADD dt DATETIME(4) NOT NULL",
        "INSERT INTO zeros (id) VALUES (4)",
        "ALTER TABLE zeros MODIFY ts TIMESTAMP(3)",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "ALTER TABLE zeros ADD odd DATE DEFAULT '2021-02-30', ADD fine DATETIME DEFAULT '2020-02-29'",
    )
    mirror.sync()
    mirror.assert_equal("zeros")
    assert len(mirror.metadata.read("snapshots")) == asked


def test_a_key_never_holds_an_invalid_date(mirror: Mirror) -> None:
    """Even where the policy keeps their text: MERGE couldn't find the row again. The table stops, with the remedy."""
    mirror.options["invalid_dates"] = "keep_text"
    mirror.execute(
        "CREATE TABLE dated (d DATE PRIMARY KEY, n INT)",
        "CREATE TABLE beside (id INT PRIMARY KEY)",
        "INSERT INTO dated VALUES ('2020-01-01', 1)",
    )
    mirror.snapshot()
    mirror.execute(
        "INSERT INTO dated VALUES ('2020-01-02', 2)",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO dated VALUES ('0000-00-00', 3)",
        "UPDATE dated SET n = 4 WHERE n = 3",
        "INSERT INTO beside VALUES (1)",
    )
    mirror.sync()
    mirror.assert_equal("beside")
    stopped = mirror.watermark("dated")
    assert stopped["status"] == "stopped"
    assert "'d'" in stopped["reason"]
    mirror.execute("DELETE FROM dated WHERE n = 4")
    mirror.snapshot("*.dated")
    mirror.sync()
    mirror.assert_equal("dated")
