"""What a merge looks for in the lake, and what it appends without a look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from mirror import on_mariadb, on_mysql

if TYPE_CHECKING:
    from mirror import Mirror


def data_files(mirror: Mirror, table: str, action: str) -> set[str]:
    """Those that the newest commit adds or removes."""
    log = Path(mirror.path(table)) / "_delta_log" / f"{mirror.version(table):020}.json"
    actions: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    return {entry[action]["path"] for entry in actions if action in entry}


def was_appended(mirror: Mirror, table: str) -> bool:
    (commit,) = DeltaTable(mirror.path(table)).history(1)
    return commit["operation"] == "WRITE" and not data_files(mirror, table, "remove")


@pytest.fixture(params=[0, 16], ids=["by Spark", "without"])
def followed(mirror: Mirror, request: pytest.FixtureRequest) -> Mirror:
    mirror.options["merge"] = {"without_spark_mb": request.param}
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (10, 'a'), (20, 'b')")
    mirror.sync()
    return mirror


@on_mysql
def test_rows_under_new_keys_are_appended(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (21, 'c')", "INSERT INTO t VALUES (5, 'd'), (22, 'e')")
    followed.sync()
    followed.assert_equal("t")
    assert was_appended(followed, "t")


@on_mariadb
def test_rows_that_came_changed_and_went_within_a_batch(followed: Mirror) -> None:
    followed.execute(
        "INSERT INTO t VALUES (30, 'never'), (31, 'old'), (32, 'moves')",
        "UPDATE t SET v = 'new' WHERE id = 31",
        "UPDATE t SET id = 33 WHERE id = 32",
        "DELETE FROM t WHERE id = 30",
    )
    followed.sync()
    followed.assert_equal("t")
    assert was_appended(followed, "t")
    followed.execute("INSERT INTO t VALUES (40, 'never')", "DELETE FROM t WHERE id = 40")
    report = followed.sync()
    followed.assert_equal("t")
    assert [(table.inserted, table.deleted) for table in report.tables] == [(1, 1)]
    followed.assert_each_once("t")


@on_mysql
def test_keys_that_move_and_come_back(followed: Mirror) -> None:
    followed.execute(
        "UPDATE t SET id = 99 WHERE id = 10",
        "DELETE FROM t WHERE id = 20",
        "INSERT INTO t VALUES (20, 'again'), (10, 'another')",
        "REPLACE INTO t VALUES (20, 'replaced'), (98, 'new')",
    )
    followed.sync()
    followed.assert_equal("t")
    assert not was_appended(followed, "t")


@on_mariadb
def test_a_key_that_the_lake_kept_below_the_log_doesnt_come_twice(followed: Mirror) -> None:
    followed.execute(
        "SET SESSION sql_log_bin = 0",
        "DELETE FROM t WHERE id = 20",
        "SET SESSION sql_log_bin = 1",
        "INSERT INTO t VALUES (20, 'new'), (21, 'beside')",
    )
    followed.sync()
    followed.assert_equal("t")


@on_mysql
def test_rows_at_both_ends_touch_their_own_files_alone(followed: Mirror) -> None:
    for first in (100, 200, 300):
        followed.execute(f"INSERT INTO t VALUES ({first}, 'x'), ({first + 50}, 'y')")
        followed.sync()
    files = DeltaTable(followed.path("t")).get_add_actions(flatten=True)
    held = {path: low for path, low in zip(files["path"].to_pylist(), files["min.id"].to_pylist(), strict=True)}
    followed.execute("UPDATE t SET v = 'z' WHERE id IN (20, 350)", "INSERT INTO t VALUES (1000, 'new')")
    followed.sync()
    followed.assert_equal("t")
    removed = data_files(followed, "t", "remove")
    assert all(held[path] not in (100, 200) for path in removed)
    assert removed


@on_mariadb
def test_an_append_that_wasnt_recorded_is_not_repeated(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (21, 'c')")
    with followed.cut_off_at("epoch committed"):
        followed.sync()
    assert was_appended(followed, "t")
    version = followed.version("t")
    followed.sync()
    followed.assert_equal("t")
    followed.assert_each_once("t")
    assert followed.version("t") == version


@on_mysql
def test_statistics_are_those_of_the_keys_own_column(mirror: Mirror) -> None:
    """Column mapping leaves a renamed column its old name in the files."""
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (a INT PRIMARY KEY, b INT, gone INT)",
        "INSERT INTO t VALUES (1, 100, 0), (2, 200, 0)",
        "ALTER TABLE t DROP gone",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    )
    mirror.sync()
    mirror.execute("UPDATE t SET a = 7 WHERE b = 2", "INSERT INTO t (b, a) VALUES (100, 5)")
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("INSERT INTO t (b, a) VALUES (150, 2)")
    mirror.sync()
    mirror.assert_equal("t")
    assert was_appended(mirror, "t")


def test_unsigned_and_composite_keys(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE big (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "CREATE TABLE pair (tenant SMALLINT, id BIGINT, v INT, PRIMARY KEY (tenant, id))",
        "CREATE TABLE named (k VARCHAR(9) PRIMARY KEY, v INT)",
        "INSERT INTO big VALUES (0, 1), (9223372036854775807, 2)",
        "INSERT INTO pair VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO named VALUES ('a', 1)",
    )
    mirror.sync()
    mirror.execute(
        "INSERT INTO big VALUES (18446744073709551615, 3), (9223372036854775808, 4)",
        "INSERT INTO pair VALUES (1, 3, 3), (2, 4, 4)",
        "INSERT INTO named VALUES ('b', 2)",
    )
    mirror.sync()
    mirror.assert_equal("big", "pair", "named")
    assert was_appended(mirror, "pair")
    mirror.execute(
        "UPDATE big SET v = v + 1",
        "UPDATE pair SET id = 1 WHERE tenant = 2 AND id = 2",
        "INSERT INTO pair VALUES (2, 2, 9)",
        "UPDATE named SET v = 3",
    )
    mirror.sync()
    mirror.assert_equal("big", "pair", "named")
