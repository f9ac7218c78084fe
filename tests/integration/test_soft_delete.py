"""Columns of a mirror's own, and deleted rows that stay in it: SQL in, rows and what is told of them out."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.errors import TableError
from binlake.phases.bootstrap import KeysAsked
from binlake.phases.replay import ReplayRequest
from binlake.report import Report
from binlake.schema.table import TableName
from mirror import WAYS, Mirror, by_spark_in_the_soak, on_mariadb, on_mysql, sync_alone

Row = dict[str, Any]
ROW_METADATA = ("batch", "committed", "position")


def keeping(mirror: Mirror, *tables: str, **modes: Any) -> None:
    mirror.modes = [{"tables": f"{mirror.database}.{table}", "soft_delete": True, **modes} for table in tables]


def rows_in(path: str) -> list[Row]:
    stored = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    return pa.table(stored).to_pylist()


def rows(mirror: Mirror, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of all rows in the order of the first, and whether they are deleted."""
    stored = rows_in(mirror.path(table))
    for row in stored:
        assert row["_deleted"] == (row["_deleted_at"] is not None), row
    return sorted((*(row[name] for name in columns), row["_deleted"]) for row in stored)


def deleted_at(mirror: Mirror, table: str) -> dict[Any, datetime]:
    return {row["id"]: row["_deleted_at"] for row in rows_in(mirror.path(table)) if row["_deleted"]}


def assert_live(mirror: Mirror, *tables: str) -> None:
    """The rows that aren't deleted are the server's, also as verify reads them."""
    for table in tables:
        server = mirror.server.execute(f"SELECT * FROM {table}", database=mirror.database)
        live = [row for row in rows_in(mirror.path(table)) if not row["_deleted"]]
        assert sorted([str(value) for value in row] for row in server) == sorted(
            [str(value) for name, value in row.items() if not name.startswith("_")] for row in live
        )


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    keeping(mirror, "t")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    return mirror


EVERY_WAY = (
    "INSERT INTO t VALUES (3, 'c'), (4, 'brief')",
    "DELETE FROM t WHERE id = 4",
    "UPDATE t SET id = 9 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (2, 'back')",
    "UPDATE t SET v = 'last' WHERE id = 3",
    "DELETE FROM t WHERE id = 3",
)
LEFT = [(1, "a", True), (2, "back", False), (3, "last", True), (4, "brief", True), (9, "a", False)]


@on_mysql
@by_spark_in_the_soak
def test_deleted_rows_stay_with_their_last_values(followed: Mirror, way: dict[str, int]) -> None:
    assert rows(followed, "t", "id", "v") == [(1, "a", False), (2, "b", False)]
    followed.options["merge"] = way
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert rows(followed, "t", "id", "v") == LEFT
    before = deleted_at(followed, "t")
    assert before[1] <= before[3] <= datetime.now(UTC)
    followed.execute("INSERT INTO t VALUES (3, 'again')", "TRUNCATE TABLE t", "INSERT INTO t VALUES (2, 'new')")
    followed.sync()
    assert rows(followed, "t", "id", "v") == [
        (1, "a", True), (2, "new", False), (3, "again", True), (4, "brief", True), (9, "a", True),
    ]  # fmt: skip
    after = deleted_at(followed, "t")
    assert (after[1], after[4]) == (before[1], before[4])
    assert after[3] == after[9] > before[3]


@on_mysql
def test_deleted_rows_follow_statements(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (3, 'c')", "DELETE FROM t WHERE id = 1")
    followed.sync()
    keeping(followed, "[tu]")
    followed.execute(
        "ALTER TABLE t ADD n INT NOT NULL DEFAULT 7, RENAME COLUMN v TO w",
        "DELETE FROM t WHERE id = 2",
        "ALTER TABLE t DROP w",
        "INSERT INTO t VALUES (5, 5)",
        "RENAME TABLE t TO u",
        "DELETE FROM u WHERE id = 5",
    )
    followed.sync()
    assert rows(followed, "u", "id", "n") == [(1, 7, True), (2, 7, True), (3, 7, False), (5, 5, True)]


@on_mysql
def test_no_spark_is_asked_for(followed: Mirror) -> None:
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    followed.execute("TRUNCATE TABLE t", "ALTER TABLE t ADD n INT", "INSERT INTO t VALUES (2, 'x', 1)")
    sync_alone(followed)
    assert rows(followed, "t", "id", "v", "n") == [
        (1, "a", None, True), (2, "x", 1, False), (3, "last", None, True), (4, "brief", None, True),
        (9, "a", None, True),
    ]  # fmt: skip
    assert all(report.equal for report in followed.verify().tables)


@on_mysql
def test_a_snapshot_keeps_deleted_rows(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.options = {"merge": WAYS[0], "snapshot": {"reader": "direct"}}  # of keys; few rows are read by JDBC
    mirror.snapshot()
    keeping(mirror, "t", row_metadata=[*ROW_METADATA])
    mirror.execute("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'c'), (4, 'd'), (5, 'e')")
    sync_alone(mirror)  # the mirror has no deleted rows that may stay
    assert rows(mirror, "t", "id") == [(2, False), (3, False), (4, False), (5, False)]
    copied = {(row["_binlake_batch"], row["_binlake_position"]) for row in rows_in(mirror.path("t"))}
    assert [batch for batch, _ in copied] == [0]
    mirror.execute("DELETE FROM t WHERE id = 3")
    batch = mirror.sync().batch
    first = deleted_at(mirror, "t")
    (deleted,) = [row for row in rows_in(mirror.path("t")) if row["_deleted"]]
    assert (deleted["_binlake_batch"], deleted["_binlake_committed"]) == (batch, first[3])
    assert [position for _, position in copied] < [deleted["_binlake_position"]]
    mirror.execute(
        "SET SESSION binlog_format = STATEMENT", "DELETE FROM t WHERE id = 4", "UPDATE t SET v = 'unseen' WHERE id = 2"
    )
    mirror.sync()
    assert rows(mirror, "t", "id", "v") == [(2, "unseen", False), (3, "c", True), (4, "d", True), (5, "e", False)]
    assert deleted_at(mirror, "t")[3] == first[3] < deleted_at(mirror, "t")[4]
    by_id = {row["id"]: row for row in rows_in(mirror.path("t"))}
    assert by_id[3] == deleted
    assert by_id[4]["_binlake_batch"] == 0
    assert by_id[2]["_binlake_position"] == by_id[4]["_binlake_position"] > deleted["_binlake_position"]
    mirror.execute("INSERT INTO t VALUES (3, 'back')", "DELETE FROM t WHERE id = 5")
    with mirror.cut_off_at("rows committed"):
        mirror.snapshot("*.t", lock="none")
    mirror.snapshot("*.t", lock="none")
    mirror.sync()
    assert rows(mirror, "t", "id", "v") == [(2, "unseen", False), (3, "back", False), (4, "d", True), (5, "e", True)]
    assert_live(mirror, "t")
    mirror.execute("SET sql_log_bin = 0", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5, 'returned')")
    asked = KeysAsked([f"{mirror.database}.t"], "3..9")
    pipeline.snapshot_keys(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), asked)
    assert rows(mirror, "t", "id", "v") == [
        (2, "unseen", False), (3, "back", True), (4, "d", True), (5, "returned", False),
    ]  # fmt: skip


@pytest.mark.soak
@on_mysql
def test_a_table_that_an_online_schema_change_replaced_keeps_deleted_rows(followed: Mirror) -> None:
    keeping(followed, "t", history={})
    followed.execute("DELETE FROM t WHERE id = 1")
    followed.sync()
    followed.execute(
        "CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD n INT", "INSERT INTO _t_gho SELECT *, 1 FROM t",
        "RENAME TABLE t TO _t_del, _t_gho TO t", "DROP TABLE _t_del", "INSERT INTO t VALUES (3, 'c', 3)",
    )  # fmt: skip
    followed.sync()
    followed.sync()
    assert rows(followed, "t", "id", "v", "n") == [(1, "a", None, True), (2, "b", 1, False), (3, "c", 3, False)]
    followed.execute("DELETE FROM t WHERE id = 3")
    followed.sync()
    history = rows_in(followed.config.beside_path(TableName(followed.database, "t"), "history"))
    assert [(row["id"], row["n"]) for row in history if row["is_current"]] == [(2, 1)]


@on_mariadb
def test_verify_and_repair_know_the_rows_of_the_server(followed: Mirror) -> None:
    keeping(followed, "t", history={}, row_metadata=["batch"])
    followed.options["maintain"] = {"staging_hours": 1}
    followed.execute("INSERT INTO t VALUES (8, 'brief')", "DELETE FROM t WHERE id = 8")
    followed.sync()
    followed.execute(*EVERY_WAY)
    followed.sync()
    followed.execute("XA START 'x'", "INSERT INTO t VALUES (7, 'held')", "XA END 'x'", "XA PREPARE 'x'")
    followed.execute("XA COMMIT 'x'", "DELETE FROM t WHERE id = 7")
    followed.sync()
    request = ReplayRequest([f"{followed.database}.t"], prove=True)
    (replayed,) = pipeline.replay(followed.config, lambda _: followed.spark, Report(), request)
    assert replayed.equals_version is not None
    spark, path = followed.spark, followed.path("t")
    assert all(table.equal for table in followed.verify().tables)
    assert pipeline.verify_lake(followed.config).tables[0].equal
    followed.options["verify"] = {"by": "hash"}
    assert all(table.equal for table in followed.verify().tables)
    spark.sql(f"UPDATE delta.`{path}` SET v = 'changed', _deleted = false, _deleted_at = NULL WHERE id IN (2, 3)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 9")
    followed.execute("SET sql_log_bin = 0", "INSERT INTO t VALUES (4, 'unlogged')")
    repaired = pipeline.repair(followed.config, followed.origin, lambda _: spark, Report()).tables[0]
    assert repaired.repair
    newest = {row["_binlake_batch"] for row in rows_in(path) if row["id"] in (3, 4, 9)}
    assert newest == {followed.watermark("t")["batch"]}
    assert (repaired.repair.state, repaired.repair.counts) == ("repaired", {"changed": 1, "missing": 2, "extra": 1})
    assert all(table.equal for table in followed.verify().tables)
    assert rows(followed, "t", "id", "v") == [
        (1, "a", True), (2, "back", False), (3, "changed", True), (4, "unlogged", False), (7, "held", True),
        (9, "a", False),
    ]  # fmt: skip
    history = rows_in(followed.config.beside_path(TableName(followed.database, "t"), "history"))
    current = {(row["id"], row["v"]) for row in history if row["is_current"]}
    assert current == {(2, "back"), (4, "unlogged"), (9, "a")}


@on_mysql
def test_values_of_deleted_rows_from_before_a_mask_do_not_stay(followed: Mirror) -> None:
    mirror = followed
    mirror.execute("DELETE FROM t WHERE id = 2")
    mirror.sync()
    mirror.options["columns"] = [{"columns": "*.t.v", "mask": {"keep_last": 1, "with": "#"}}]
    mirror.execute("INSERT INTO t VALUES (3, 'cat')")
    mirror.snapshot()
    assert rows(mirror, "t", "id", "v") == [(1, "#", False), (2, None, True), (3, "##t", False)]
    mirror.execute("DELETE FROM t WHERE id = 3")
    mirror.sync()
    mirror.snapshot()
    assert rows(mirror, "t", "id", "v") == [(1, "#", False), (2, None, True), (3, "##t", True)]


@on_mysql
def test_rows_that_a_new_condition_leaves_out_go_with_their_values(followed: Mirror) -> None:
    condition, followed.reader = {"tables": "*.t", "where": "id <> 2"}, "direct"
    followed.execute("INSERT INTO t VALUES (3, 'c')", "DELETE FROM t WHERE id = 1")
    sync_alone(followed)
    followed.options["rows"] = [condition]
    assert "no deleted ones of before" in sync_alone(followed)
    assert rows(followed, "t", "id", "v") == [(3, "c", False)]
    followed.execute("DELETE FROM t WHERE id IN (2, 3)", "INSERT INTO t VALUES (4, 'd')")
    sync_alone(followed)
    followed.snapshot()
    assert rows(followed, "t", "id", "v") == [(3, "c", True), (4, "d", False)], "they were written under the condition"
    followed.options["rows"] = [{**condition, "where": "id <> 3"}]
    sync_alone(followed)
    assert rows(followed, "t", "id", "v") == [(4, "d", False)]


@on_mysql
def test_deleted_rows_with_keys_from_before_their_hashes_are_refused(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", '{"password": "a long enough secret of tests"}')
    mirror.execute("CREATE TABLE t (name VARCHAR(20) PRIMARY KEY)", "INSERT INTO t VALUES ('ann'), ('bob')")
    keeping(mirror, "t")
    mirror.snapshot()
    mirror.options["columns"] = [{"columns": "*.t.name", "hash": {"key": "pii_key"}}]
    with pytest.raises(TableError, match="its deleted rows have name, which is of its key, without its mask"):
        mirror.snapshot()


@on_mysql
def test_tables_whose_deleted_rows_can_not_stay_are_refused(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE keyless (id INT)", "CREATE TABLE taken (id INT PRIMARY KEY, _Deleted INT)")
    mirror.execute("CREATE TABLE fine (id INT PRIMARY KEY)")
    keeping(mirror, "*")
    for name, why in (("keyless", "it has no key"), ("taken", "'_Deleted' has the name of one of the mirror's own")):
        with pytest.raises(TableError, match=why) as refused:
            mirror.snapshot(f"*.{name}")
        assert "soft_delete" in refused.value.remedy
    mirror.snapshot("*.fine")
    mirror.execute("ALTER TABLE fine ADD _deleted_at DATE")
    (stopped,) = [table for table in mirror.sync().tables if table.table.endswith("fine")]
    assert stopped.status == "stopped"
    assert "_deleted_at" in stopped.reason


def statements(chance: random.Random, count: int) -> list[str]:
    """Random changes of rows; some touch none."""

    def key() -> int:
        return chance.randrange(12)

    kinds: list[Callable[[], str]] = [
        lambda: f"REPLACE INTO t (id, v) VALUES ({key()}, {chance.randrange(99)})",
        lambda: f"INSERT IGNORE INTO t (id, v) VALUES ({key()}, {chance.randrange(99)})",
        lambda: f"UPDATE t SET v = v + 1 WHERE id = {key()}",
        lambda: f"UPDATE IGNORE t SET id = {key()} WHERE id = {key()}",
        lambda: f"DELETE FROM t WHERE id IN ({key()}, {key()}, {key()})",
        lambda: chance.choice(("BEGIN", "COMMIT", "COMMIT", "TRUNCATE TABLE t")),
    ]
    return [chance.choice(kinds)() for _ in range(count)]


def expected(mirror: Mirror) -> dict[int, Row]:
    """All rows of the mirror with what is told of them, by the log beside it."""
    by_id: dict[int, Row] = {}
    for row in sorted(rows_in(mirror.path("t") + "__log"), key=lambda row: row["position"]):
        written = {f"_binlake_{name}": row[name] for name in ROW_METADATA}
        live = [key for key in by_id if not by_id[key]["_deleted"]]
        for key in live if row["operation"] == "truncate" else [row["before_id"]]:
            if key is not None:
                value = by_id[key]["v"] if row["operation"] == "truncate" else row["before_v"]
                by_id[key] = {"id": key, "v": value, "_deleted": True, "_deleted_at": row["committed"], **written}
        if (key := row["after_id"]) is not None:
            by_id[key] = {"id": key, "v": row["after_v"], "_deleted": False, "_deleted_at": None, **written}
    return by_id


def test_random_changes_with_kills_leave_what_the_log_tells(mirror: Mirror) -> None:
    chance = random.Random(1)
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    keeping(mirror, "t", log={}, row_metadata=[*ROW_METADATA])
    mirror.follow_from_here()
    mirror.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for _ in range(2):
        mirror.execute(*statements(chance, 120), "COMMIT")
        mirror.sync_cut_off(chance, 0.5, most=2)
        there = rows_in(mirror.path("t"))
        assert {row["id"]: row for row in there} == expected(mirror)
        assert len(there) == len(expected(mirror))
        assert_live(mirror, "t")
        mirror.assert_each_once("t")
