"""Snapshot and log meet at one position: nothing is lost between them, nothing counted twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from binlake.errors import UsageError
from binlake.phases import bootstrap
from mirror import on_mariadb

if TYPE_CHECKING:
    from mirror import Mirror

SEED = 20_260_131
TABLES = ("parent", "child", "keyless")


def fill(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE parent (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40), total DECIMAL(12,2),"
        " at DATETIME(6), best_child BIGINT UNSIGNED)",
        "CREATE TABLE child (a VARCHAR(10) COLLATE utf8mb4_general_ci, b INT, parent BIGINT UNSIGNED, j JSON,"
        " PRIMARY KEY (a, b))",
        "CREATE TABLE keyless (v INT, t VARCHAR(5))",
        "INSERT INTO parent (name, total, at) WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s"
        " WHERE n < 900) SELECT CONCAT('name ', n), n / 7, '2024-01-01 00:00:00.000001' FROM s",
        "INSERT INTO child SELECT CONCAT('k', id), id % 10, id, '{\"x\": 1}' FROM parent",
        "INSERT INTO keyless SELECT id % 5, 'x' FROM parent",
    )


def mutate(mirror: Mirror, dice: random.Random, transactions: int) -> None:
    """Random transactions over tables whose rows refer to each other, some rolled back."""
    with mirror.server.connect(database=mirror.database, autocommit=False) as connection:
        cursor = connection.cursor()
        for _ in range(transactions):
            for _ in range(dice.randrange(1, 5)):
                cursor.execute(statement(dice))
            if dice.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()


def statement(dice: random.Random) -> str:
    some, other = dice.randrange(1, 1500), dice.randrange(10**6)
    return dice.choice(
        [
            f"INSERT IGNORE INTO parent (id, name, total) VALUES ({some}, 'n{other}', {other} / 100)",
            f"UPDATE parent SET total = total + 1, best_child = {other} WHERE id BETWEEN {some} AND {some + 20}",
            f"UPDATE IGNORE parent SET id = {some} WHERE id = {dice.randrange(1, 1500)}",
            f"DELETE FROM parent WHERE id = {some}",
            f"REPLACE INTO child VALUES ('{dice.choice('kK')}{some}', {some % 10}, {some}, '[{other}]')",
            f"UPDATE IGNORE child SET a = UPPER(a), parent = {other} WHERE b = {some % 10} AND parent % 7 = 0",
            f"DELETE FROM child WHERE parent BETWEEN {some} AND {some + 5}",
            f"INSERT INTO keyless VALUES ({some % 5}, NULL), ({some % 5}, NULL), ({some % 5}, 'x')",
            f"UPDATE keyless SET t = 'y' WHERE v = {some % 5} LIMIT 3",
            f"DELETE FROM keyless WHERE v = {some % 5} LIMIT 2",
        ]
    )


@contextmanager
def writes_going_on(mirror: Mirror) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        dice = random.Random(SEED)
        while not ended.wait(0.005):
            mutate(mirror, dice, 1)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("lock", ["flush", "tables", "none"])
def test_bootstrap_under_writes_then_syncs(mirror: Mirror, lock: str) -> None:
    fill(mirror)
    if lock == "none":
        mirror.exclude = [f"{mirror.database}.keyless"]  # without a key a table needs a lock
    with writes_going_on(mirror):
        results = mirror.snapshot(lock=lock)
    assert all(result.lock_ms < 2000 for result in results)
    (noted,) = [row["why_spark"] for row in mirror.metadata.read("runs", where="kind = 'bootstrap'")]
    assert {noted} == {result.to_json()["why_spark"] for result in results} != {""}
    tables = [table for table in TABLES if lock != "none" or table != "keyless"]
    rounds = 3 if (lock, mirror.server.kind) == ("flush", "mysql") else 1
    for round_ in range(rounds):
        mutate(mirror, random.Random(SEED + round_), 30)
        mirror.sync()
        if round_ in (0, rounds - 1):
            mirror.assert_equal(*tables)
    assert mirror.verify().equal


@on_mariadb
def test_empty_late_and_again(mirror: Mirror) -> None:
    """A table without rows, one added later, a new snapshot of one: the others keep their watermarks."""
    mirror.execute(
        "CREATE TABLE bare (id INT PRIMARY KEY)",
        "CREATE TABLE early (id INT PRIMARY KEY)",
        "CREATE TABLE late (id INT PRIMARY KEY)",
        "CREATE TABLE brief (id INT PRIMARY KEY)",
        "INSERT INTO early VALUES (1)",
        "INSERT INTO late VALUES (1)",
    )
    mirror.options = {"policies": {"on_unfollowable": "stop"}}
    mirror.exclude = [f"{mirror.database}.late", f"{mirror.database}.brief"]
    mirror.snapshot()
    mirror.execute("INSERT INTO late VALUES (2)", "INSERT INTO bare VALUES (1)")
    mirror.sync()
    mirror.assert_equal("bare", "early")
    before = mirror.watermark("early")
    mirror.exclude = []
    mirror.execute("INSERT INTO late VALUES (3)", "INSERT INTO brief VALUES (1)")
    report = mirror.sync()
    assert {table.table: table.status for table in report.tables} == {
        f"{mirror.database}.brief": "missing",
        f"{mirror.database}.late": "missing",
    }
    mirror.execute("DROP TABLE brief")
    assert [table.table for table in mirror.sync().tables] == [f"{mirror.database}.late"]  # which is told each time
    assert "brief" not in {row["table"] for row in mirror.metadata.read("watermarks")}
    assert [str(result.name) for result in mirror.snapshot()] == [f"{mirror.database}.late"]
    mirror.execute("INSERT INTO late VALUES (4)", "INSERT INTO early VALUES (2)")
    mirror.sync()
    mirror.assert_equal("bare", "early", "late")
    assert mirror.watermark("early")["table_id"] == before["table_id"]
    mirror.execute("ALTER TABLE early ADD COLUMN v INT AS (id + 1) STORED")
    mirror.sync()
    assert mirror.watermark("early")["status"] == "stopped"
    mirror.snapshot(f"{mirror.database}.early")
    mirror.execute("INSERT INTO early (id) VALUES (3)")
    mirror.sync()
    mirror.assert_equal("bare", "early", "late")
    assert mirror.watermark("early")["table_id"] != before["table_id"]


def test_patterns_that_match_nothing(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(UsageError, match="no included table matches"):
        mirror.snapshot("nowhere.*")
    with pytest.raises(UsageError, match="run binlake snapshot"):
        mirror.sync()


@on_mariadb
def test_small_tables_are_a_short_copy(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that would be copied count: the ones that aren't followed yet, or those that are named."""
    monkeypatch.setattr(bootstrap, "SHORT_COPY", 1 << 20)
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    assert bootstrap.is_short_copy(mirror.config, mirror.endpoint, None)
    mirror.execute(
        "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(4000))",
        "INSERT INTO b SELECT seq, REPEAT('x', 4000) FROM seq_1_to_600",
        "ANALYZE TABLE b",
    )
    assert not bootstrap.is_short_copy(mirror.config, mirror.endpoint, None)
    assert bootstrap.is_short_copy(mirror.config, mirror.endpoint, ["*.a"])
    mirror.snapshot("*.b")
    assert bootstrap.is_short_copy(mirror.config, mirror.endpoint, None)
