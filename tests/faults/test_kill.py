"""SIGKILL at any moment, run again: the lake is as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from binlake.delta import layout
from binlake.faults import FaultPoint
from mirror import SHORT_LIVED, Mirror, in_the_soak, on_mariadb, on_mysql

SHAPED = ("renamed", "typed", "one", "two", "emptied", "late")
KILLED = Path(__file__).parent / "killed.py"
POINTS: tuple[FaultPoint, ...] = (
    "planned", "slice staged", "manifest written", "data file written", "epoch committed", "schema evolved",
    "table merged", "merged", "recorded",
)  # fmt: skip
MARKED: tuple[FaultPoint, ...] = ("rows marked", "data file written", "epoch committed")
OF_SNAPSHOT: tuple[FaultPoint, ...] = (
    "lock taken", "chunk copied", "chunks written", "commit begun", "rows committed", "snapshot committed",
    "bootstrap noted", "lives begun",
)  # fmt: skip
OF_MAINTAIN: tuple[FaultPoint, ...] = (
    "versions thinned", "versions known", "rows rewritten", "layout committed", "vacuumed", "log shortened",
    "metadata compacted", "leftovers removed",
)  # fmt: skip


def killed_sync(mirror: Mirror, point: str, count: int, verb: str = "sync") -> None:
    command = [sys.executable, str(KILLED), point, str(count), verb, "--config", str(mirror.write_yaml())]
    environment = {**os.environ, **SHORT_LIVED, "AIRFLOW_CONN_TESTS": mirror.server.uri()}
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr


def work(mirror: Mirror) -> None:
    """Inserts, updates, deletes, a key change and DDL between them, on three tables."""
    mirror.execute(
        "INSERT INTO a SELECT seq, 'new' FROM (WITH RECURSIVE s (seq) AS (SELECT 1001 UNION ALL SELECT seq + 1 FROM s"
        " WHERE seq < 1500) SELECT seq FROM s) x",
        "UPDATE a SET v = 'changed' WHERE id % 3 = 0",
        "UPDATE b SET id = id + 1000 WHERE id < 5",
        "ALTER TABLE b ADD COLUMN n INT DEFAULT 7",
        "DELETE FROM a WHERE id % 7 = 0",
        "INSERT INTO b VALUES (5000, 'late', 1)",
        "INSERT INTO c VALUES (1, 'x'), (1, 'x')",
        "TRUNCATE TABLE c",
        "INSERT INTO c VALUES (2, 'y')",
    )


def change_shapes(mirror: Mirror) -> None:
    """A statement of each class, with rows before and after it."""
    mirror.execute(
        "ALTER TABLE named RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "UPDATE named SET a = 5 WHERE id = 1",
        "ALTER TABLE named DROP b",
        "ALTER TABLE typed MODIFY n BIGINT, ADD d DATETIME DEFAULT '2024-01-01' FIRST",
        "INSERT INTO typed (id, n) VALUES (9, 99999999999)",
        "INSERT INTO one VALUES (2, 'one')",
        "INSERT INTO two VALUES ('two', 2)",
        "RENAME TABLE one TO tmp, two TO one, tmp TO two",
        "DELETE FROM one WHERE n = 1",
        "INSERT INTO two VALUES (3, 'was one')",
        "RENAME TABLE named TO renamed",
        "TRUNCATE TABLE emptied",
        "INSERT INTO emptied VALUES (7)",
        "CREATE TABLE late LIKE typed",
        "INSERT INTO late SELECT * FROM typed",
    )


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(10))",
        "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(10))",
        "CREATE TABLE c (id INT, v VARCHAR(10))",
        "INSERT INTO a SELECT seq, 'old' FROM (WITH RECURSIVE s (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s"
        " WHERE seq < 900) SELECT seq FROM s) x",
        "INSERT INTO b VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    mirror.sync()
    return mirror


@pytest.fixture
def shaped(mirror: Mirror) -> Mirror:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE named (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE typed (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE one (id INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE two (k VARCHAR(9) PRIMARY KEY, n INT)",
        "CREATE TABLE emptied (id INT)",
        "INSERT INTO named VALUES (1, 1, 10), (2, 2, 20)",
        "INSERT INTO typed VALUES (1, 1), (2, NULL)",
        "INSERT INTO one VALUES (1, 'one')",
        "INSERT INTO two VALUES ('first', 1)",
        "INSERT INTO emptied VALUES (1), (1)",
    )
    mirror.sync()
    return mirror


def cut_off_at_each(followed: Mirror, points: tuple[FaultPoint, ...]) -> None:
    followed.options["merge"] = {"without_spark_mb": 16}
    work(followed)
    for point in points:
        with followed.cut_off_at(point):
            followed.sync()
    followed.sync()
    followed.assert_equal("a", "b", "c")
    followed.assert_each_once("a", "b", "c")


@on_mysql
def test_cut_off_at_one_point_after_another(followed: Mirror) -> None:
    """Each run continues with what the one before left."""
    cut_off_at_each(followed, POINTS)
    assert {row["batch"] for row in followed.metadata.read("batches")} == {1, 2}


@on_mariadb
def test_cut_off_where_rows_are_marked(followed: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are in large data files."""
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    cut_off_at_each(followed, MARKED)


@on_mariadb
def test_cut_off_after_each_change_of_shape(shaped: Mirror) -> None:
    change_shapes(shaped)
    shaped.sync_cut_off(random.Random(), 1.0)
    shaped.assert_equal(*SHAPED)
    shaped.assert_each_once(*SHAPED)


@on_mariadb
def test_a_snapshot_cut_off_at_one_point_after_another(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(10))",
        "CREATE TABLE b (id INT, v VARCHAR(10))",
        "INSERT INTO a VALUES (1, 'old'), (2, 'old')",
        "INSERT INTO b VALUES (1, 'same'), (1, 'same')",
    )
    for number, point in enumerate(OF_SNAPSHOT, start=3):
        # Each continues with the other's chunks.
        mirror.options["snapshot"] = {"reader": ("direct", "jdbc")[number % 2]}
        with mirror.cut_off_at(point):
            mirror.snapshot()
        mirror.execute(f"INSERT INTO a VALUES ({number}, 'new')", "INSERT INTO b VALUES (1, 'same')")
    mirror.snapshot()
    mirror.execute("DELETE FROM a WHERE id = 1", "DELETE FROM b LIMIT 1")
    mirror.sync()
    mirror.assert_equal("a", "b")


@on_mariadb
@pytest.mark.parametrize("policy", ["resnapshot", "stop"])
def test_cut_off_before_a_snapshot_and_the_table_is_renamed(mirror: Mirror, policy: str) -> None:
    mirror.options = {"policies": {"on_unfollowable": policy}}
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.sync()
    mirror.execute("ALTER TABLE t ADD twice INT AS (id * 2) STORED")
    with mirror.cut_off_at("recorded"):
        mirror.sync()
    mirror.execute("RENAME TABLE t TO u", "INSERT INTO u (id) VALUES (2)")
    mirror.sync()
    if policy == "stop":
        assert mirror.watermark("u")["status"] == "stopped"
        assert f"{mirror.database}.u" in mirror.watermark("u")["remedy"]
        mirror.snapshot("*.u")
    mirror.assert_equal("u")
    living = [row for row in mirror.metadata.read("watermarks") if row["status"] != "dropped"]
    assert [(row["table"], row["status"]) for row in living] == [("u", "following")]


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
@pytest.mark.parametrize("point", ["within stage", "within merge", *in_the_soak("planned", "merged")])
def test_killed_and_run_again(followed: Mirror, point: str) -> None:
    work(followed)
    if point == "within merge":
        followed.options["merge"] = {"without_spark_mb": 0}
    killed_sync(followed, point, 1)
    followed.sync()
    followed.assert_equal("a", "b", "c")
    followed.assert_each_once("a", "b", "c")


@pytest.mark.soak
@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_killed_between_changes_of_shape_and_run_again(shaped: Mirror) -> None:
    change_shapes(shaped)
    killed_sync(shaped, "epoch committed", 7)
    shaped.sync()
    shaped.assert_equal(*SHAPED)
    shaped.assert_each_once(*SHAPED)


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_upkeep_killed_at_each_point_and_run_again(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time something is to do; syncs continue in between."""
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE named (name VARCHAR(9) PRIMARY KEY, n INT)")
    maintained = {
        "maintain": {"history_hours": 0, "log_hours": 0, "metadata_hours": 0},
        "merge": {"without_spark_mb": 0},
    }
    for number, point in enumerate(OF_MAINTAIN):
        mirror.options = {"merge": {"without_spark_mb": 16}}
        for half in "ab":
            mirror.execute(f"INSERT INTO named VALUES ('{half}{number}', 1), ('{half}-{number}', 2)")
            mirror.sync()
        mirror.assert_equal("named")
        mirror.options = maintained
        if point in ("layout committed", "metadata compacted"):
            killed_sync(mirror, point, 1, "maintain")
            continue
        with mirror.cut_off_at(point):
            mirror.maintain()
    mirror.execute("UPDATE named SET n = 3 WHERE name = 'a1'")
    mirror.sync()
    assert [table.left for table in mirror.maintain().tables] == [""]
    mirror.maintain()
    mirror.assert_equal("named")
    mirror.assert_each_once("named")
    there = {path.name for path in Path(mirror.path("named")).glob("*.parquet")}
    assert there == {uri.rpartition("/")[2] for uri in DeltaTable(mirror.path("named")).file_uris()}
