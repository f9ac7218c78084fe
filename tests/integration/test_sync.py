"""The log is followed: what happens on the server happens in the lake."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirror import on_mariadb, on_mysql

if TYPE_CHECKING:
    from mirror import Mirror


def test_a_table_born_in_the_log_is_created_and_filled(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), at DATETIME(3))",
        "INSERT INTO t VALUES (1, 'one', 1.50, '2024-02-29 12:00:00.123'), (2, NULL, NULL, NULL), (3, '', -0.01, NULL)",
        "UPDATE t SET name = 'zwei' WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
        "DELETE FROM t WHERE id = 1",
    )
    report = mirror.sync()
    mirror.assert_equal("t")
    (table,) = report.tables
    assert (table.inserted, table.updated, table.deleted) == (3, 2, 1)
    assert mirror.watermark("t")["status"] == "following"


@on_mysql
def test_a_second_sync_with_nothing_new_commits_nothing(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.sync()
    version = mirror.version("t")
    report = mirror.sync()
    assert mirror.version("t") == version
    assert report.message.startswith("nothing new: proved up to ")
    assert report.tables == ()


ALL_TYPES = """CREATE TABLE t (
    id BIGINT UNSIGNED PRIMARY KEY, ti TINYINT, tu TINYINT UNSIGNED, flag TINYINT(1), si SMALLINT, su SMALLINT UNSIGNED,
    mi MEDIUMINT, mu MEDIUMINT UNSIGNED, i INT, iu INT UNSIGNED, b BIGINT, d DECIMAL(38,10), wide DECIMAL(65,30),
    f FLOAT, g DOUBLE, bit1 BIT(1), bits BIT(13), da DATE, dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP(3) NULL,
    tm TIME(6), y YEAR, c CHAR(5), v VARCHAR(50), l VARCHAR(30) CHARACTER SET latin1, tx TEXT, bi BINARY(16),
    vb VARBINARY(10), bl BLOB, e ENUM('a', 'ü', ''), s SET('x', 'y'), j JSON, p POINT,
    virt BIGINT AS (i + 1) VIRTUAL, twice BIGINT AS (i * 2) STORED
)"""
COLUMNS = (
    "id, ti, tu, flag, si, su, mi, mu, i, iu, b, d, wide, f, g, bit1, bits, da, dt, dt6, ts, tm, y, c, v, l, tx, bi, "
    "vb, bl, e, s, j, p"
)
LEAST = (
    "0, -128, 0, 0, -32768, 0, -8388608, 0, -2147483648, 0, -9223372036854775808, -9999999999999999999999999999.9, "
    "-0.000000000000000000000000000001, -3.4e38, -1.7e308, b'0', b'0', '0001-01-01', '0001-01-01', "
    "'1582-10-04 00:00:00.000001', '1970-01-01 00:00:01', '-838:59:59', 1901, '', '', '', '', '', '', '', 'a', '', "
    "'{}', ST_GeomFromText('POINT(0 0)')"
)
GREATEST = (
    "18446744073709551615, 127, 255, 5, 32767, 65535, 8388607, 16777215, 1073741822, 4294967295, 9223372036854775807, "
    "9999999999999999999999999999.9999999999, 12345678901234567890123456789012345.6, 1.17549e-38, 4.9e-324, b'1', "
    "b'1111111111111', '9999-12-31', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999', "
    "'838:59:59', 2155, 'abc  ', 'trailing ', 'é€', '😀 \\\\ ''quoted''', UNHEX('01020000000000000000000000000000'), "
    "UNHEX('00FF00'), UNHEX('0000'), 'ü', 'x,y', '[1, 1.0, \"ü\", null, {\"b\": 1, \"a\": 18446744073709551615}]', "
    "ST_GeomFromText('POINT(-1.5 2.5)')"
)


def test_every_type_through_insert_update_and_delete(mirror: Mirror) -> None:
    mirror.follow_from_here()
    nulls = "7, " + ", ".join(["NULL"] * (COLUMNS.count(",")))
    mirror.execute(
        ALL_TYPES,
        *(f"INSERT INTO t ({COLUMNS}) VALUES ({values})" for values in (LEAST, GREATEST, nulls)),
    )
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute(
        "UPDATE t SET tm = '-00:00:00.5', g = -0.0, y = 0, e = '', s = 'y', v = NULL, i = 5 WHERE id = 7",
        "UPDATE t SET id = 8, tx = '' WHERE id = 0",
        "DELETE FROM t WHERE id = 18446744073709551615",
    )
    mirror.sync()
    mirror.assert_equal("t")


def test_types_that_one_server_has(mirror: Mirror) -> None:
    mirror.follow_from_here()
    if mirror.server.kind == "mysql":
        mirror.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3))",
            "INSERT INTO t VALUES (1, STRING_TO_VECTOR('[1, -0.5, 3e38]')), (2, NULL)",
        )
        mirror.sync()
        mirror.assert_equal("t")
        return
    mirror.execute(
        "CREATE TABLE t (u UUID PRIMARY KEY, four INET4, six INET6)",
        "INSERT INTO t VALUES (UUID(), '10.0.0.0', '::'), ('00000000-0000-0000-0000-000000000000', NULL, NULL)",
        "INSERT INTO t VALUES ('8f0e1d2c-3b4a-4f5e-8d7c-000000000000', '255.255.255.255', '::ffff:1.2.3.4')",
        "INSERT INTO t VALUES ('8f0e1d2c-3b4a-7f5e-8d7c-0a0b0c0d0e00', '0.0.0.0', '2001:db8::1:0:0:1')",
        "UPDATE t SET six = 'fe80::' WHERE four IS NULL",
    )
    mirror.sync()
    mirror.assert_equal("t")


def test_add_column_truncate_drop_and_create_again(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 7, ADD COLUMN note VARCHAR(9) DEFAULT 'it''s' AFTER id",
        "INSERT INTO t VALUES (3, 'x', 'c', 9)",
        "ALTER TABLE t ADD COLUMN flags BIT(3) DEFAULT b'101', ADD COLUMN tm TIME DEFAULT '-01:02:03'",
        "UPDATE t SET v = 'z' WHERE id = 1",
    )
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("TRUNCATE TABLE t", "INSERT INTO t (id, v) VALUES (1, 'after')")
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("DROP TABLE t", "CREATE TABLE t (k VARCHAR(5) PRIMARY KEY)", "INSERT INTO t VALUES ('new')")
    mirror.sync()
    mirror.assert_equal("t")
    kinds = [(row["kind"], row["action"]) for row in mirror.history()]
    assert kinds == [
        ("CREATE TABLE", "followed"),
        ("ALTER TABLE", "followed"),
        ("ALTER TABLE", "followed"),
        ("TRUNCATE TABLE", "followed"),
        ("DROP TABLE", "followed"),
        ("CREATE TABLE", "followed"),
    ]


def test_what_the_log_cant_tell_stops_its_table_and_no_other_where_the_policy_says_so(mirror: Mirror) -> None:
    mirror.options = {"policies": {"tables": {"*.t": {"on_unfollowable": "stop"}}}}
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD w INT AS (id + 1)",
        "INSERT INTO t (id) VALUES (2)",
        "INSERT INTO other VALUES (1)",
    )
    report = mirror.sync()
    mirror.assert_equal("other")
    stopped = mirror.watermark("t")
    assert stopped["status"] == "stopped"
    assert "binlog" in stopped["reason"]
    assert "--tables" in stopped["remedy"]
    assert {table.table.split(".")[1]: table.status for table in report.tables} == {
        "t": "stopped",
        "other": "following",
    }
    mirror.execute("INSERT INTO other VALUES (2)", "INSERT INTO t (id) VALUES (3)")
    version = mirror.version("t")
    mirror.sync()
    mirror.assert_equal("other")
    assert mirror.version("t") == version


def test_rows_without_a_key_keep_their_multiplicity(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (a INT, b VARCHAR(5))",
        "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL)",
        "DELETE FROM t WHERE a = 1 LIMIT 1",
    )
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute(
        "UPDATE t SET b = 'y' LIMIT 2", "INSERT INTO t VALUES (1, 'x')", "DELETE FROM t WHERE a IS NULL LIMIT 1"
    )
    mirror.sync()
    mirror.assert_equal("t")


@on_mariadb
def test_odd_names(mirror: Mirror) -> None:
    mirror.follow_from_here()
    table, column, plain = "we`ird.; DROP TABLE x/%~日本'\"", "a b`c.d;,={}'\"", "_x"
    quoted = "`" + table.replace("`", "``") + "`"
    column_quoted = "`" + column.replace("`", "``") + "`"
    mirror.execute(
        f"CREATE TABLE {quoted} ({column_quoted} INT PRIMARY KEY, `image` VARCHAR(9), `op` INT)",
        f"INSERT INTO {quoted} VALUES (1, 'a', 1), (2, 'b', 2)",
        f"UPDATE {quoted} SET {column_quoted} = 3 WHERE `op` = 2",
        f"CREATE TABLE {plain} (`image` INT, `file` INT, PRIMARY KEY (`image`, `file`))",
        f"INSERT INTO {plain} VALUES (1, 1)",
        f"ALTER TABLE {plain} ADD COLUMN `späte Spalte;` INT DEFAULT 5",
    )
    mirror.sync()
    mirror.assert_equal(table, plain)


def test_keys_compare_as_bytes(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES ('a', 1), ('b', 2), ('c ', 3)",
        "UPDATE t SET k = 'A' WHERE k = 'a'",
        "DELETE FROM t WHERE k = 'B'",
        "INSERT INTO t VALUES ('B', 4)",
        "UPDATE t SET v = 5 WHERE k = 'C'",
    )
    mirror.sync()
    mirror.assert_equal("t")


@on_mysql
def test_swapped_keys_and_several_tables_in_one_transaction(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE u (id INT PRIMARY KEY, t INT)",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
    )
    mirror.sync()
    mirror.execute(
        "BEGIN",
        "UPDATE t SET id = 99 WHERE id = 1",
        "UPDATE t SET id = 1 WHERE id = 2",
        "UPDATE t SET id = 2 WHERE id = 99",
        "INSERT INTO u VALUES (1, 1), (2, 2)",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (5, 'never')",
        "ROLLBACK",
    )
    mirror.sync()
    mirror.assert_equal("t", "u")


def test_an_interval_ends_before_the_first_commit_at_or_after_its_end(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    time.sleep(2.1)  # MariaDB's commit times are whole seconds
    end = datetime.now(UTC).replace(microsecond=0)
    time.sleep(1.1)
    mirror.execute("INSERT INTO t VALUES (2)")
    first = mirror.sync(until=end)
    assert [(table.inserted, table.status) for table in first.tables] == [(1, "following")]
    again = mirror.sync(until=end)
    stop = first.position.split("/")[-1].split("@")[0]
    assert again.message.startswith(f"nothing new: proved up to {stop}, the stop of batch 1; what was committed before")
    assert again.message.endswith(f": it was merged by batch 1, whose stop is {stop}")
    assert again.batch == first.batch
    mirror.sync(until=datetime.now(UTC))
    mirror.assert_equal("t")


@on_mariadb
def test_the_quarantine_names_where_a_table_stopped(mirror: Mirror) -> None:
    mirror.options = {"policies": {"on_unfollowable": "stop"}}
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    mirror.execute("ALTER TABLE t ADD w INT AS (v + 1)")
    report = mirror.sync()
    assert report.tables[0].newly_stopped
    (row,) = mirror.metadata.read("quarantine")
    assert (row["table"], row["table_id"]) == ("t", mirror.watermark("t")["table_id"])
    assert row["reason"].startswith(f"{row['file']}:{row['offset']}: ")
