"""Epochs that are merged without Spark: which are, and that nothing is lost where others commit beside them.

Each test of both ways is run with files that are written again, and with rows that are marked in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from binlake.delta import layout
from binlake.errors import LeftToSpark
from binlake.merge.engine import in_process
from binlake.records import runs
from binlake.storage import parquet_files
from mirror import on_mariadb, on_mysql, sync_alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror import Mirror

EVERY_WAY = (
    "UPDATE t SET v = 'changed' WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (9, 'new', 1.5)",
    "UPDATE t SET id = 10 WHERE id = 3",
)


def was_by_spark(mirror: Mirror) -> bool:
    log = Path(mirror.path("t")) / "_delta_log" / f"{mirror.version('t'):020}.json"
    (info,) = (
        action["commitInfo"] for line in log.read_text().splitlines() if "commitInfo" in (action := json.loads(line))
    )
    return bool(info["engineInfo"].startswith("Apache-Spark"))


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all data files were large."""
    monkeypatch.setattr(layout, "FEW_BYTES", 0)


@pytest.fixture(params=["rewritten", "marked"])
def either_way(request: pytest.FixtureRequest) -> None:
    if request.param == "marked":
        request.getfixturevalue("marked")


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n DECIMAL(5, 1))",
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', NULL)",
    )
    mirror.snapshot()
    return mirror


@pytest.fixture
def by_spark(followed: Mirror, spark: SparkSession) -> Callable[[str], None]:
    return lambda statement: spark.sql(statement.format(t=f"delta.`{followed.path('t')}`")) and None


def marked_rows(mirror: Mirror) -> int:
    """Rows that stay in data files and count as deleted."""
    vectors = DeltaTable(mirror.path("t")).deletion_vectors().read_all()
    return sum(not kept for vector in vectors["selection_vector"].to_pylist() for kept in vector)


@on_mysql
@pytest.mark.usefixtures("either_way")
def test_a_sync_of_plain_tables_asks_for_no_spark(followed: Mirror) -> None:
    followed.execute(*EVERY_WAY)
    assert "merged 100% 1 of 1 tables\n" in sync_alone(followed)
    followed.assert_equal("t")
    followed.execute("DELETE FROM t")
    sync_alone(followed)
    followed.assert_equal("t")
    followed.execute("INSERT INTO t VALUES (1, 'a', 1)")
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", "changeDataFeed, delta.enableChangeDataFeed"),
        ("ADD CONSTRAINT positive CHECK (n > 0 OR n IS NULL)", "checkConstraints, delta.constraints.positive"),
        ("SET TBLPROPERTIES ('delta.feature.v2Checkpoint' = 'supported')", "v2Checkpoint"),
    ],
)
def test_what_a_table_has_beyond_plain_rows_is_left_to_spark_and_why_is_said(
    followed: Mirror, by_spark: Callable[[str], None], change: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    by_spark(f"ALTER TABLE {{t}} {change}")
    followed.execute(*EVERY_WAY)
    run = followed.sync()
    assert was_by_spark(followed)
    followed.assert_equal("t")
    (table,) = run.tables
    assert table.why_spark == f"the table has {why}"
    assert f"merge of {table.table} by Spark: {table.why_spark}\n" in capsys.readouterr().err
    recorded = runs.of_batch(followed.metadata, run.batch or 0)
    assert recorded is not None
    assert recorded.tables == (table,)


@on_mariadb
@pytest.mark.usefixtures("either_way")
def test_columns_that_were_renamed_dropped_added_and_swapped(followed: Mirror, spark: SparkSession) -> None:
    """Data files have them under names of their own."""
    followed.execute(
        "INSERT INTO t VALUES (7, 'g', 7)",
        "ALTER TABLE t RENAME COLUMN id TO number",
        "ALTER TABLE t ADD COLUMN id INT",
        "INSERT INTO t (number, v, n, id) VALUES (11, 'k', 1.5, -11)",
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ADD COLUMN v VARCHAR(9)",
        "ALTER TABLE t RENAME COLUMN v TO id, RENAME COLUMN id TO v",
    )
    followed.sync()
    followed.assert_equal("t")
    followed.execute(
        "INSERT INTO t (number, n, v, id) VALUES (12, 2.5, -12, 'new')",
        "UPDATE t SET v = 0, id = 'changed' WHERE number IN (1, 11)",
        "DELETE FROM t WHERE number = 2",
        "UPDATE t SET number = 20 WHERE number = 3",
    )
    sync_alone(followed)
    followed.assert_equal("t")
    followed.execute("UPDATE t SET n = n + 1 WHERE number IN (4, 12, 20)", "DELETE FROM t WHERE number = 11")
    sync_alone(followed)
    followed.assert_equal("t")
    followed.execute("INSERT INTO t (number, n, v, id) VALUES (99, 2.5, -12, 'new')")
    sync_alone(followed)
    assert DeltaTable(followed.path("t")).history(1)[0]["operation"] == "WRITE", "its key is above all others"
    by_spark = spark.sql(f"SELECT number, n, v, id FROM delta.`{followed.path('t')}` ORDER BY number").collect()
    on_server = followed.server.execute("SELECT number, n, v, id FROM t ORDER BY number", database=followed.database)
    assert [tuple(row) for row in by_spark] == list(on_server)
    followed.assert_each_once("t")


@on_mysql
def test_rows_of_large_files_are_marked_by_spark_and_without_by_turns(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    filler = ", ".join(f"({n}, '{n}', 1)" for n in range(1000, 1100))
    followed.execute(f"INSERT INTO t VALUES {filler}")
    followed.sync()
    with monkeypatch.context() as larger:
        larger.setattr(layout, "FEW_BYTES", 0)
        for turn in range(6):
            followed.options["merge"] = {"without_spark_mb": 16 * (turn % 2)}
            followed.execute(f"DELETE FROM t WHERE id % 20 = {turn}", f"UPDATE t SET v = '{turn}' WHERE id % 20 = 10")
            followed.sync()
            assert was_by_spark(followed) == (turn % 2 == 0)
            assert marked_rows(followed) >= turn
            followed.assert_equal("t")
            by_spark = spark.sql(f"SELECT * FROM delta.`{followed.path('t')}` ORDER BY id").collect()
            on_server = followed.server.execute("SELECT * FROM t ORDER BY id", database=followed.database)
            assert [tuple(row) for row in by_spark] == list(on_server)
    followed.options["merge"] = {"without_spark_mb": 16}
    followed.execute("UPDATE t SET v = 'changed'")
    sync_alone(followed)
    assert not marked_rows(followed), "files that are small are written without their marked rows"
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
@pytest.mark.usefixtures("either_way")
def test_rows_that_a_batch_wrote_are_not_read_again_by_the_next(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.execute("UPDATE t SET v = 'changed'")
    sync_alone(followed)
    read_within, read = parquet_files.read_within, []

    def noted(path: str, *arguments: Any, **named: Any) -> pa.Table | None:
        read.append(path)
        return read_within(path, *arguments, **named)

    monkeypatch.setattr(parquet_files, "read_within", noted)
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")
    assert read == [], "the mirror's file as the staged one: the process that wrote their rows still has them"


@on_mysql
def test_small_files_beside_a_large_one_are_written_anew_with_the_new_rows(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them reaches over all keys, so that it had to be looked into by every further batch."""
    monkeypatch.setattr(layout, "FEW_BYTES", 40_000)
    rows = ", ".join(f"({n}, '{n * 2654435761**2 % 2**61:x}', {n % 1000})" for n in range(1000, 6000))
    followed.execute(f"INSERT INTO t VALUES {rows}")
    sync_alone(followed)
    (large,) = (path for path in DeltaTable(followed.path("t")).file_uris() if Path(path).stat().st_size > 40_000)
    for turn in range(8):
        followed.execute(
            f"UPDATE t SET v = 'turn {turn}' WHERE id % 500 = {turn}",
            f"UPDATE t SET n = n + 1 WHERE v = 'turn {turn - 2}'",
            f"DELETE FROM t WHERE v = 'turn {turn - 1}' AND id < 2000",
            f"UPDATE t SET id = -{turn} WHERE id = {1400 + turn}",
        )
        sync_alone(followed)
        followed.assert_equal("t")
        paths = DeltaTable(followed.path("t")).file_uris()
        assert large in paths, "its rows are marked"
        assert len(paths) <= 3, "with that of the snapshot"
    assert marked_rows(followed) > 80
    followed.assert_each_once("t")


@on_mysql
def test_rows_are_marked_in_a_file_that_was_written_lately_and_it_is_written_anew_later(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else batches of seconds would write the whole table each time."""
    monkeypatch.setattr(layout, "_TINY", 0)
    for row, bytes_per_second, marked in ((1, 0, 1), (2, 0, 2), (3, 1e9, 0), (4, 0, 1)):
        monkeypatch.setattr(layout, "_PER_SECOND", bytes_per_second)
        followed.execute(f"UPDATE t SET v = 'again' WHERE id = {row}")
        sync_alone(followed)
        followed.assert_equal("t")
        followed.assert_each_once("t")
        assert marked_rows(followed) == marked


@on_mysql
def test_very_small_files_go_with_the_rows_of_any_batch_where_there_are_many(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that only insert look into no file, and leave one each."""
    monkeypatch.setattr(layout, "_MANY", 3)
    files = []
    for row in range(20, 27):
        followed.execute(f"INSERT INTO t VALUES ({row}, 'new', 1)")
        sync_alone(followed)
        followed.assert_equal("t")
        followed.assert_each_once("t")
        files.append(len(DeltaTable(followed.path("t")).file_uris()))
    assert max(files) <= 3
    assert files[-4:].count(1) == 1


@on_mysql
@pytest.mark.usefixtures("marked")
def test_a_very_small_file_that_isnt_read_here_stays(followed: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise LeftToSpark("it is of another form")

    monkeypatch.setattr(layout, "_MANY", 1)
    monkeypatch.setattr(in_process, "_read", refused)
    files = len(DeltaTable(followed.path("t")).file_uris())
    followed.execute("INSERT INTO t VALUES (20, 'new', 1)")
    sync_alone(followed)
    followed.assert_equal("t")
    assert len(DeltaTable(followed.path("t")).file_uris()) == files + 1


@on_mysql
@pytest.mark.usefixtures("marked")
def test_a_file_of_which_no_row_is_left_goes(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (9, 'new', 1), (10, 'new', 1)")
    sync_alone(followed)
    files = len(DeltaTable(followed.path("t")).file_uris())
    followed.execute("DELETE FROM t WHERE id = 9")
    sync_alone(followed)
    assert (len(DeltaTable(followed.path("t")).file_uris()), marked_rows(followed)) == (files, 1)
    followed.execute("DELETE FROM t WHERE id = 10")
    sync_alone(followed)
    assert (len(DeltaTable(followed.path("t")).file_uris()), marked_rows(followed)) == (files - 1, 0)
    followed.assert_equal("t")


@on_mysql
@pytest.mark.usefixtures("marked")
def test_a_table_that_shall_have_no_deletion_vectors_gets_none(
    followed: Mirror, by_spark: Callable[[str], None]
) -> None:
    by_spark("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    assert not marked_rows(followed)
    followed.assert_equal("t")


@on_mysql
def test_many_staged_rows_are_left_to_spark(followed: Mirror) -> None:
    followed.options["merge"] = {"without_spark_mb": 0.0005}
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert was_by_spark(followed)
    followed.assert_equal("t")


@on_mysql
@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("change", ["OPTIMIZE {t}", "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false')"])
def test_a_commit_between_read_and_commit_makes_the_step_begin_again(
    followed: Mirror, by_spark: Callable[[str], None], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.execute("INSERT INTO t VALUES (5, 'e', 5)")
    sync_alone(followed)
    commit, tries = in_process._commit, []

    def late(*arguments: Any) -> None:
        if not tries:
            by_spark(change)
        tries.append(arguments)
        commit(*arguments)

    monkeypatch.setattr(in_process, "_commit", late)
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert len(tries) == (2 if change.startswith("OPTIMIZE") else 1), "the setting leaves it to Spark"
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
@pytest.mark.usefixtures("either_way")
def test_a_commit_whose_answer_got_lost_is_known_again(followed: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was asked twice says that the version is there."""
    commit = in_process._commit

    def lost(*arguments: Any) -> None:
        commit(*arguments)
        raise CommitFailedError("Failed to commit transaction: 0")

    monkeypatch.setattr(in_process, "_commit", lost)
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
@pytest.mark.usefixtures("either_way")
def test_spark_goes_on_from_checkpoints_made_without_it(
    followed: Mirror, by_spark: Callable[[str], None], spark: SparkSession
) -> None:
    by_spark("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '3')")
    for number in range(20, 24):
        followed.execute(f"INSERT INTO t VALUES ({number}, 'new', 1)", "UPDATE t SET n = n + 1")
        sync_alone(followed)
    logs = Path(followed.path("t")) / "_delta_log"
    newest = max(logs.glob("*.checkpoint.parquet"))
    assert int(newest.name.partition(".")[0]) > 1
    for file in logs.glob("*.json"):
        if file.name[:20] < newest.name[:20]:
            file.unlink()
    followed.options["merge"] = {"without_spark_mb": 0}
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert was_by_spark(followed)
    followed.assert_equal("t")


KEYS = {
    "DATE": ("'2020-01-01'", "'2020-02-01'", "'2021-01-01'"),
    "DATETIME(6)": ("'1500-01-01 00:00:00.000001'", "'2020-02-01 10:00:00.123456'", "'2021-01-01 00:00:00.999999'"),
    "TIMESTAMP(6)": ("'1971-01-01 00:00:00.000001'", "'2020-02-01 10:00:00.123456'", "'2021-01-01 00:00:00.999999'"),
    "DECIMAL(12,3)": ("-99.125", "-0.001", "7.5"),
    "VARCHAR(80) CHARACTER SET utf8mb4": (f"'{'k' * 32}'", f"'{'k' * 32}~~'", f"'{'l' * 40}\U0001f600'"),
}
"""Of each type keys that ascend."""


def test_keys_of_other_types_find_their_files(mirror: Mirror) -> None:
    """Without Spark, and at last by Spark's MERGE."""
    mirror.options["merge"] = {"without_spark_mb": 16}
    tables = [f"t{number}" for number in range(len(KEYS))]
    for table, (kind, (first, second, _)) in zip(tables, KEYS.items(), strict=True):
        mirror.execute(
            f"CREATE TABLE {table} (v INT, id {kind} PRIMARY KEY)",
            f"INSERT INTO {table} VALUES (1, {first}), (2, {second})",
        )
    mirror.snapshot()
    kept = {table: set(DeltaTable(mirror.path(table)).file_uris()) for table in tables}
    for table, (*_, third) in zip(tables, KEYS.values(), strict=True):
        mirror.execute(f"INSERT INTO {table} VALUES (3, {third})")
    sync_alone(mirror)
    mirror.assert_equal(*tables)
    for table, (*_, third) in zip(tables, KEYS.values(), strict=True):
        log = DeltaTable(mirror.path(table))
        assert log.history(1)[0]["operation"] == "WRITE", f"{table}: a key above all others is appended"
        kept[table] = kept[table] & set(log.file_uris())
        mirror.execute(f"UPDATE {table} SET v = 4 WHERE id = {third}")
    sync_alone(mirror)
    mirror.assert_equal(*tables)
    for table, (first, second, third) in zip(tables, KEYS.values(), strict=True):
        assert kept[table] <= set(DeltaTable(mirror.path(table)).file_uris()), f"{table}: the first rows' file stays"
        mirror.execute(
            f"UPDATE {table} SET v = 5 WHERE id = {second}",
            f"DELETE FROM {table} WHERE id = {first}",
            f"UPDATE {table} SET id = {first} WHERE id = {third}",
        )
    mirror.options["merge"] = {"without_spark_mb": 0}
    mirror.sync()
    mirror.assert_equal(*tables)
    mirror.assert_each_once(*tables)
