"""Rows of a range of keys are read again: what the log never told comes into the lake, and the table continues."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import pytest
from deltalake import DeltaTable

from binlake import pipeline
from binlake.doctor import beforehand
from binlake.errors import LakeTableChanged, LeaseHeld, TableError, UsageError
from binlake.faults import FaultPoint
from binlake.lease import lease
from binlake.merge.engine import exchange
from binlake.merge.position_texts import boundary_text
from binlake.phases.bootstrap import KeysAsked
from binlake.phases.replay import ReplayRequest
from binlake.records import decisions, record, status
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.lake_columns import BATCH, COMMITTED, POSITION
from binlake.schema.table import TableName
from binlake.snapshot.snapshot import SnapshotResult
from binlake.storage import files
from mirror import Mirror, on_mariadb, on_mysql

WRONG = "wrong"
ROWS = "(1,'a'),(2,'b'),(3,'c'),(4,'d'),(5,'e'),(6,'f'),(7,'g'),(8,'h'),(9,'i')"


def anew(mirror: Mirror, table: str, keys: str, **options: Any) -> SnapshotResult:
    asked = KeysAsked([f"{mirror.database}.{table}"], keys)
    (result,) = pipeline.snapshot_keys(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), asked, **options)
    return result


def refused(mirror: Mirror, table: str, keys: str, lock: str = "flush") -> str:
    """By the step, and before Spark is started for it; gives what is told."""
    with pytest.raises(UsageError) as late:
        anew(mirror, table, keys, lock=lock)
    with pytest.raises(UsageError) as early:
        beforehand.check_snapshot(mirror.config, mirror.origin, [f"{mirror.database}.{table}"], keys, lock)
    assert str(early.value) == str(late.value)
    return str(late.value)


def behind_the_log(mirror: Mirror, *statements: str) -> None:
    """Changes that the server tells nobody."""
    mirror.execute("SET sql_log_bin = 0", *statements, "SET sql_log_bin = 1")


def lake(mirror: Mirror, table: str, column: str = "v") -> set[Any]:
    rows = mirror.spark.read.format("delta").load(mirror.path(table)).select(column).collect()
    return {row[0] for row in rows}


@pytest.fixture
def t(mirror: Mirror) -> Mirror:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", f"INSERT INTO t VALUES {ROWS}")
    mirror.snapshot()
    return mirror


@pytest.mark.parametrize("reader", ["direct", "jdbc"])
def test_what_the_log_never_told_comes_into_the_lake(t: Mirror, reader: Literal["direct", "jdbc"]) -> None:
    t.reader = reader
    behind_the_log(
        t, "UPDATE t SET v = 'X' WHERE id = 4", "DELETE FROM t WHERE id = 5", "INSERT INTO t VALUES (10, 'J')"
    )
    t.execute("UPDATE t SET v = 'A' WHERE id = 1", "INSERT INTO t VALUES (11, 'k')", "DELETE FROM t WHERE id = 6")
    result = anew(t, "t", "4..10", run="by hand")
    (recorded,) = record.recorded_by(t.metadata, "by hand")
    assert [(table.table, table.inserted) for table in recorded.tables] == [(f"{t.database}.t", 1)]
    assert (result.rows, str(result.high)) == (5, t.watermark("t")["position"])
    t.assert_equal("t")
    t.execute("UPDATE t SET v = 'Y' WHERE id IN (4, 9)", "DELETE FROM t WHERE id = 10")
    t.sync()
    t.assert_equal("t")
    t.assert_each_once("t")


@on_mariadb
def test_rows_outside_of_the_range_are_let_be(t: Mirror) -> None:
    behind_the_log(t, "UPDATE t SET v = CONCAT(v, '!')")
    anew(t, "t", "3..4")
    assert lake(t, "t") == {"a", "b", "c!", "d!", "e", "f", "g", "h", "i"}
    anew(t, "t", "..2")
    assert lake(t, "t") == {"a!", "b!", "c!", "d!", "e", "f", "g", "h", "i"}
    anew(t, "t", "5..")
    t.assert_equal("t")


@on_mysql
def test_data_files_without_such_rows_stay(t: Mirror) -> None:
    t.execute("INSERT INTO t VALUES (100, 'x'), (101, 'y')")
    t.sync()
    before = set(DeltaTable(t.path("t")).file_uris())
    behind_the_log(t, "UPDATE t SET v = 'Y' WHERE id = 101")
    anew(t, "t", "100..200")
    after = set(DeltaTable(t.path("t")).file_uris())
    assert len(before - after) == len(after - before) == 1
    t.assert_equal("t")


@on_mariadb
def test_rows_that_deletion_vectors_hide_stay_away(t: Mirror) -> None:
    t.spark.sql(f"DELETE FROM delta.`{t.path('t')}` WHERE id = -1")  # nothing, and nobody's change
    with_vectors = t.config.model_copy(update={"merge": t.config.merge.model_copy(update={"without_spark_mb": 0})})
    t.execute("DELETE FROM t WHERE id IN (2, 7)")
    t._sync(with_vectors, 0, {})
    behind_the_log(t, "UPDATE t SET v = 'X' WHERE id = 3")
    anew(t, "t", "3..3")
    t.assert_equal("t")


@pytest.mark.parametrize(
    ("columns", "key", "values", "keys"),
    [
        pytest.param("k INT", "k", "-3, -2, -1, 0, 1, 2", "-2..1", id="negative"),
        pytest.param(
            "k BIGINT UNSIGNED", "k", "1, 9223372036854775808, 18446744073709551614, 18446744073709551615",
            "9223372036854775808..", id="unsigned",
        ),
        pytest.param("k DECIMAL(10,2)", "k", "-1.50, -1.49, 0, 1.10, 1.11, 1.12", "-1.49..1.11", id="decimal"),
        pytest.param(
            "k DECIMAL(38,8)", "k", ", ".join(f"123456789012345678901234567890.0000000{n}" for n in range(5)),
            "123456789012345678901234567890.00000001..123456789012345678901234567890.00000003", id="many digits",
        ),
        pytest.param("k INT(9) ZEROFILL", "k", "1, 2, 3, 4", "000000002..3", id="zerofilled"),
        pytest.param("k INT", "k DESC", "1, 2, 3, 4, 5", "2..4", id="downwards"),
        pytest.param("k INT, b INT DEFAULT 7", "b, k", "1, 2, 3", "7..7", id="the first of two"),
    ],
)  # fmt: skip
def test_keys_of_many_kinds(mirror: Mirror, columns: str, key: str, values: str, keys: str) -> None:
    rows = ", ".join(f"({value}, 'there')" for value in values.split(", "))
    mirror.execute(
        f"CREATE TABLE t ({columns}, v VARCHAR(20), PRIMARY KEY ({key}))", f"INSERT INTO t (k, v) VALUES {rows}"
    )
    mirror.snapshot()
    first, last = keys.split("..")
    column = key.split(",")[0].split()[0]
    behind_the_log(mirror, f"UPDATE t SET v = 'anew' WHERE {column} >= {first} AND {column} <= {last or '1e30'}")
    counted = mirror.server.execute("SELECT COUNT(*) FROM t WHERE v = 'anew'", database=mirror.database)
    result = anew(mirror, "t", keys)
    assert result.rows == int(counted[0][0]) > 0
    mirror.assert_equal("t")


@on_mysql
def test_odd_names(mirror: Mirror) -> None:
    mirror.reader = "jdbc"
    mirror.execute(
        "CREATE TABLE `we[i]{r}d*? t` (`a b` INT PRIMARY KEY, `c;d` VARCHAR(9))",
        "INSERT INTO `we[i]{r}d*? t` VALUES (1, 'x'), (2, 'y'), (3, 'z')",
    )
    mirror.snapshot()
    behind_the_log(mirror, "UPDATE `we[i]{r}d*? t` SET `c;d` = 'Y' WHERE `a b` = 2")
    pipeline.snapshot_keys(
        mirror.config, mirror.origin, lambda _: mirror.spark, Report(), KeysAsked([f"{mirror.database}.*"], "2..3")
    )
    mirror.assert_equal("we[i]{r}d*? t")


def test_the_tables_shape_is_that_of_the_position(t: Mirror) -> None:
    t.execute("ALTER TABLE t ADD w INT DEFAULT 5 FIRST, RENAME COLUMN v TO x", "UPDATE t SET w = 6 WHERE id = 2")
    behind_the_log(t, "UPDATE t SET x = 'X' WHERE id IN (2, 3)")
    anew(t, "t", "2..3")
    t.assert_equal("t")


@on_mariadb
def test_a_range_without_rows_empties_the_lakes(t: Mirror) -> None:
    behind_the_log(t, "DELETE FROM t WHERE id < 4")
    assert anew(t, "t", "..3").rows == 0
    t.assert_equal("t")
    behind_the_log(t, "DELETE FROM t")
    anew(t, "t", "-100..100")
    t.assert_equal("t")


@pytest.mark.parametrize(
    ("keys", "refusal"),
    [
        ("5", "write FIRST..LAST"), ("..", "write FIRST..LAST"), ("9..5", "begins behind its end"),
        ("a..b", "no value of id"), ("1.5..2", "no value of id"), ("1..99999999999999999999", "no value of id"),
        ("NaN..2", "no value of id"), ("1..1e5000000", "no value of id"),
    ],
)  # fmt: skip
@on_mysql
def test_what_is_no_range_is_refused(t: Mirror, keys: str, refusal: str) -> None:
    before = t.version("t")
    assert refusal in refused(t, "t", keys)
    assert t.version("t") == before


WIDE = "CREATE TABLE wide (k DECIMAL(39,0) PRIMARY KEY)"


@on_mysql
def test_tables_for_which_there_is_no_range(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE text (k VARCHAR(9) PRIMARY KEY)", "CREATE TABLE none (k INT)", WIDE)
    mirror.snapshot()
    kind = "key begins with k"
    for table, refusal in (("text", kind), ("wide", kind), ("none", "has no key"), ("*", "names 3 tables")):
        assert refusal in refused(mirror, table, "1..2")
    mirror.execute("CREATE TABLE new (k INT PRIMARY KEY)")
    assert "isn't known here" in refused(mirror, "new", "1..2")
    assert "no included table matches" in refused(mirror, "nowhere", "1..2")
    with pytest.raises(UsageError, match="no table is named"):
        beforehand.check_snapshot(mirror.config, mirror.origin, [], "1..2")
    with pytest.raises(UsageError, match=r"no included table matches .*[.]nowhere"):
        beforehand.check_snapshot(mirror.config, mirror.origin, [f"{mirror.database}.nowhere"])
    beforehand.check_snapshot(mirror.config, mirror.origin, [f"{mirror.database}.*"])


@on_mysql
def test_only_a_table_that_follows_has_its_rows_read(t: Mirror) -> None:
    assert "under a lock" in refused(t, "t", "1..2", lock="none")
    beforehand.check_snapshot(t.config, t.origin, [f"{t.database}.t"], "1..2")
    decisions.pause(t.config, TableName(t.database, "t"), Reason("tests", "wait"))
    assert "is paused" in refused(t, "t", "1..2")


@on_mysql
def test_a_replay_begins_behind_rows_that_no_batch_brought(t: Mirror) -> None:
    t.options = {"maintain": {"staging_hours": 24}}
    t.execute("UPDATE t SET v = 'A' WHERE id = 1")
    t.sync()
    behind_the_log(t, "UPDATE t SET v = 'X' WHERE id = 4")
    anew(t, "t", "4..4")
    t.execute("UPDATE t SET v = 'I' WHERE id = 9")
    t.sync()
    (replayed,) = pipeline.replay(t.config, lambda _: t.spark, Report(), ReplayRequest([f"{t.database}.t"], prove=True))
    assert (replayed.from_batch, replayed.equals_version) == (1, t.version("t"))
    t.assert_equal("t")


@on_mysql
def test_a_table_that_others_changed_is_not_patched(t: Mirror) -> None:
    t.spark.sql(f"UPDATE delta.`{t.path('t')}` SET v = 'wrong' WHERE id = 8")
    with pytest.raises(LakeTableChanged, match="changed what binlake wrote"):
        anew(t, "t", "1..2")
    assert WRONG in lake(t, "t")


POINTS: list[FaultPoint] = [
    "lock taken",
    "chunk copied",
    "chunks written",
    "recorded",
    "commit begun",
    "rows committed",
]


@pytest.mark.parametrize("point", POINTS)
@on_mysql
def test_cut_off_and_run_again(t: Mirror, point: FaultPoint) -> None:
    behind_the_log(t, "UPDATE t SET v = 'X' WHERE id = 4")
    t.execute("UPDATE t SET v = 'A' WHERE id = 1")
    with t.cut_off_at(point):
        anew(t, "t", "4..5")
    t.sync()
    assert not status.read_status(t.config).snapshots
    anew(t, "t", "4..5")
    t.assert_equal("t")
    assert files.subfolders(t.config.staging_path("snapshot")) == []
    assert t.metadata.read("snapshots", where="snapshot LIKE '%-keys'") == []


@on_mysql
def test_what_died_is_cleaned_without_another(t: Mirror) -> None:
    with t.cut_off_at("chunks written"):
        anew(t, "t", "4..5")
    t.maintain()
    assert t.metadata.read("snapshots", where="snapshot LIKE '%-keys'") == []
    t.snapshot()
    t.assert_equal("t")


@on_mysql
def test_a_run_that_lost_its_lease_changes_nothing(t: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    behind_the_log(t, "UPDATE t SET v = 'X' WHERE id = 4")
    before = t.version("t")
    opened = exchange._Exchange.__init__

    def meanwhile(self: Any, *arguments: Any) -> None:
        opened(self, *arguments)
        t.metadata.swap("lease", "token IS NOT NULL", {"token": "another's", "holder": "elsewhere pid 1 started 1"})

    monkeypatch.setattr(exchange._Exchange, "__init__", meanwhile)
    with pytest.raises(LeaseHeld):
        anew(t, "t", "4..5")
    assert t.version("t") == before


@on_mysql
def test_a_commit_that_comes_in_between_is_kept(t: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    behind_the_log(t, "UPDATE t SET v = 'X' WHERE id = 4")
    t.execute("INSERT INTO t VALUES (20, 'z')")
    t.sync()
    commit, others = exchange._Exchange.commit, iter([f"OPTIMIZE delta.`{t.path('t')}`"])

    def late(self: Any, *arguments: Any) -> int:
        for statement in others:
            t.spark.newSession().sql(statement)
        return commit(self, *arguments)

    monkeypatch.setattr(exchange._Exchange, "commit", late)
    anew(t, "t", "4..5")
    assert "OPTIMIZE" in [commit["operation"] for commit in DeltaTable(t.path("t")).history()]
    t.assert_equal("t")


@on_mysql
def test_a_table_whose_columns_are_others_is_refused(t: Mirror) -> None:
    t.options = {"policies": {"on_drop_column": "keep"}}
    t.execute("ALTER TABLE t ADD w INT DEFAULT 3", "ALTER TABLE t DROP v")
    with pytest.raises(TableError, match="columns are others than the server's: v"):
        anew(t, "t", "1..2")


@on_mysql
def test_the_lease_is_free_afterwards(t: Mirror) -> None:
    anew(t, "t", "1..2")
    assert lease.read(t.metadata).holder is None


def test_rows_that_are_read_anew_tell_when_and_where_they_were_read(mirror: Mirror) -> None:
    mirror.modes = [{"tables": "*.t", "row_metadata": ["batch", "committed", "position"]}]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a')")
    mirror.snapshot()
    mirror.execute("INSERT INTO t VALUES (2, 'b'), (3, 'c')")
    mirror.sync()

    def told() -> dict[int, tuple[Any, ...]]:
        rows = mirror.spark.read.format("delta").load(mirror.path("t")).collect()
        return {row["id"]: (row[BATCH], row[COMMITTED], row[POSITION]) for row in rows}

    before = told()
    behind_the_log(mirror, "UPDATE t SET v = 'X' WHERE id = 3", "INSERT INTO t VALUES (4, 'd')")
    began = datetime.now()
    result = anew(mirror, "t", "3..9")
    after = told()
    assert (after[1], after[2], after.keys()) == (before[1], before[2], {1, 2, 3, 4})
    for batch, committed, position in (after[3], after[4]):
        assert (batch, position) == (0, boundary_text(*result.low.order))
        assert began <= committed <= datetime.now()
