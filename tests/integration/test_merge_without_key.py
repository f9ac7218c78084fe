"""Rows without a key, of XA transactions, rolled back or system-versioned are merged without Spark."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from deltalake import DeltaTable

from begun_alone import begin_alone
from binlake.delta import layout
from mirror import Mirror, on_mariadb, sync_alone
from servers import Server

CREATED = "CREATE TABLE t (n INT, f DOUBLE, v VARCHAR(9), d DECIMAL(5,2), b VARBINARY(4), at DATETIME(3))"
ROW = "1, -0.0, 'one', 1.5, 'b', '2024-02-29 12:34:56.5'"
LOGGED_BEHIND_SAVEPOINT = ("CREATE TEMPORARY TABLE tmp (i INT)", "DROP TEMPORARY TABLE tmp")
"""Statements that can't be taken back: MariaDB logs what was taken back with them, and that it was."""


@pytest.fixture
def keyless(mirror: Mirror) -> Mirror:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute(CREATED, f"INSERT INTO t VALUES ({ROW}), ({ROW}), ({ROW}), (NULL, NULL, NULL, NULL, NULL, NULL)")
    mirror.snapshot()
    return mirror


@pytest.mark.parametrize("small", [layout.FEW_BYTES, 0], ids=["rewritten", "marked"])
def test_rows_without_a_key(keyless: Mirror, small: int) -> None:
    for statements in (
        (f"INSERT INTO t VALUES ({ROW}), (2, 0, '', 0, '', NULL)", "INSERT INTO t (d) VALUES (1)"),
        ("DELETE FROM t WHERE n = 1 LIMIT 2", "UPDATE t SET v = 'new' WHERE n IS NULL"),
        ("UPDATE t SET f = 0e0 WHERE n = 1 LIMIT 1", "DELETE FROM t WHERE d = 1"),
        (f"INSERT INTO t VALUES ({ROW})", "DELETE FROM t WHERE n = 1 LIMIT 1", "UPDATE t SET n = n + 1"),
        ("DELETE FROM t",),
        (f"INSERT INTO t VALUES ({ROW})",),
    ):  # fmt: skip
        keyless.execute(*statements)
        with mock.patch.object(layout, "FEW_BYTES", small):
            sync_alone(keyless)
        keyless.assert_equal("t")
    keyless.assert_each_once("t")


@on_mariadb
def test_changes_that_come_to_nothing_write_no_file(keyless: Mirror) -> None:
    before = DeltaTable(keyless.path("t")).file_uris()
    keyless.execute("INSERT INTO t (n) VALUES (8)", "DELETE FROM t WHERE n = 8")
    sync_alone(keyless)
    assert DeltaTable(keyless.path("t")).file_uris() == before
    keyless.assert_equal("t")
    keyless.assert_each_once("t")


def test_rows_of_xa_transactions_and_behind_savepoints(mirror: Mirror) -> None:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    mirror.execute("CREATE TABLE n (v VARCHAR(9))", "INSERT INTO n VALUES ('a'), ('a')")
    mirror.snapshot()
    mirror.execute(
        "XA START 'q'", "UPDATE t SET v = 'xa' WHERE id = 1", "DELETE FROM t WHERE id = 2", "DELETE FROM n LIMIT 1",
        "XA END 'q'", "XA PREPARE 'q'",
    )  # fmt: skip
    mirror.execute("UPDATE t SET v = 'plain' WHERE id = 3", "INSERT INTO n VALUES ('b')")
    sync_alone(mirror)
    mirror.execute("XA COMMIT 'q'", "UPDATE t SET id = 2 WHERE id = 1")
    mirror.execute(
        "BEGIN", "INSERT INTO t VALUES (5, 'kept')", "SAVEPOINT s", "INSERT INTO t VALUES (6, 'back')",
        "ROLLBACK TO SAVEPOINT s", "INSERT INTO n VALUES ('kept')", "COMMIT",
    )  # fmt: skip
    sync_alone(mirror)
    mirror.assert_equal("t", "n")
    mirror.assert_each_once("t", "n")


@on_mariadb
def test_what_an_xa_transaction_took_back_never_was(server: Server, database: str, lake: Path) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE n (v VARCHAR(9))", "INSERT INTO n VALUES ('a'), ('a')",
    )  # fmt: skip
    begin_alone(mirror)
    mirror.execute(
        "XA START 'q'", "INSERT INTO t VALUES (3, 'kept')", "SAVEPOINT s", "UPDATE t SET v = 'back' WHERE id = 1",
        "DELETE FROM n LIMIT 1", *LOGGED_BEHIND_SAVEPOINT, "ROLLBACK TO s", "UPDATE t SET v = 'kept' WHERE id = 2",
        "XA END 'q'", "XA PREPARE 'q'",
    )  # fmt: skip
    sync_alone(mirror)
    mirror.execute("XA COMMIT 'q'")
    sync_alone(mirror)
    mirror.assert_equal("t", "n")
    mirror.assert_each_once("t", "n")


@on_mariadb
def test_what_was_taken_back_stops_no_table_that_is_only_appended_to(server: Server, database: str, lake: Path) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.options = {"policies": {"without_key": "append"}}
    mirror.execute("CREATE TABLE n (v VARCHAR(9))", "INSERT INTO n VALUES ('a')")
    begin_alone(mirror)
    mirror.execute(
        "BEGIN", "INSERT INTO n VALUES ('kept')", "SAVEPOINT s", "UPDATE n SET v = 'back'", "DELETE FROM n",
        *LOGGED_BEHIND_SAVEPOINT, "ROLLBACK TO s", "COMMIT",
    )  # fmt: skip
    sync_alone(mirror)
    mirror.assert_equal("n")
    mirror.execute("UPDATE n SET v = 'other' WHERE v = 'a'")
    sync_alone(mirror)
    assert mirror.watermark("n")["status"] == "stopped"


def test_a_table_that_lost_its_key_unlogged_stops(server: Server, database: str, lake: Path) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')")
    begin_alone(mirror)
    mirror.execute("SET sql_log_bin = 0", "ALTER TABLE t DROP PRIMARY KEY")
    mirror.execute("INSERT INTO t VALUES (1, 'again')")
    sync_alone(mirror)
    watermark = mirror.watermark("t")
    assert (watermark["status"], "its primary key is another" in watermark["reason"]) == ("stopped", True)


@on_mariadb
def test_a_batch_whose_rows_were_all_taken_back(server: Server, database: str, lake: Path) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE t (a INT, b VARCHAR(9), PRIMARY KEY (a, b))", "INSERT INTO t VALUES (1, 'a')",
        "CREATE TABLE s (a INT, b VARCHAR(9), PRIMARY KEY (a, b)) WITH SYSTEM VERSIONING",
        "INSERT INTO s VALUES (1, 'a')",
    )  # fmt: skip
    begin_alone(mirror)
    mirror.execute(
        "BEGIN", "SAVEPOINT s", "UPDATE t SET b = 'back'", "DELETE FROM s", *LOGGED_BEHIND_SAVEPOINT, "ROLLBACK TO s",
        "COMMIT",
    )  # fmt: skip
    sync_alone(mirror)
    mirror.assert_equal("t", "s")


@on_mariadb
def test_rows_of_a_system_versioned_table(mirror: Mirror) -> None:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) WITH SYSTEM VERSIONING",
        "CREATE TABLE n (v VARCHAR(9)) WITH SYSTEM VERSIONING",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO n VALUES ('a'), ('a')",
    )
    mirror.snapshot()
    mirror.execute(
        "UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 'again')"
    )
    mirror.execute("UPDATE n SET v = 'b' LIMIT 1", "DELETE FROM n WHERE v = 'a'", "INSERT INTO n VALUES ('b')")
    sync_alone(mirror)
    mirror.assert_equal("t", "n")
