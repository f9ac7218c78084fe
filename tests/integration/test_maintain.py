"""The upkeep of the lake: fewer files, the same rows, and nothing lost that is promised or under way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from binlake import faults, pipeline
from binlake.cli import command_line
from binlake.delta import layout
from binlake.errors import LeaseHeld, UsageError
from binlake.lease import lease
from binlake.maintain import upkeep_by_spark
from binlake.maintain.maintain import maintain, wants_spark
from binlake.maintain.table_upkeep import TablesUpkeep
from binlake.records import decisions
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark import session
from binlake.spark.starting import no_session
from binlake.store.metadata import query
from long_life import BRIEF, begin, live
from mirror import Merge, Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.delta.delta_log import LakeLog
    from binlake.maintain.upkeep_by_spark import Rewriting

TABLES = ("keyed", "named", "keyless", "mapped")
NOW = {"history_hours": 0, "metadata_hours": 0}
"""Nothing of the past is promised."""


@pytest.fixture
def worn(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Mirror:
    """Tables of all kinds of keys, each of several small files; of one, the columns have other names in the files.

    Syncs mark rows without Spark, unless its parameter is another way of merging. Spark looks after the tables.
    """
    monkeypatch.setattr(layout, "FEWEST", 2)
    mirror.merges = (getattr(request, "param", "mark"),)
    mirror.reader = "jdbc" if mirror.merges == ("spark",) else "direct"
    mirror.execute(
        "CREATE TABLE keyed (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE named (name VARCHAR(20) PRIMARY KEY, v INT)",
        "CREATE TABLE keyless (v VARCHAR(20), n INT)",
        "CREATE TABLE mapped (id INT PRIMARY KEY, old INT)",
        "ALTER TABLE mapped RENAME COLUMN old TO renamed",
    )
    mirror.snapshot()
    mirror.execute("ALTER TABLE mapped RENAME COLUMN renamed TO `renamed again`")
    for number in range(2):
        work(mirror, number)
        mirror.sync()
    return mirror


def work(mirror: Mirror, number: int) -> None:
    mirror.execute(
        f"INSERT INTO keyed VALUES ({number * 2}, 'a'), ({number * 2 + 1}, 'b')",
        "UPDATE keyed SET v = CONCAT(LEFT(v, 9), '!') WHERE id % 3 = 0",
        f"INSERT INTO named VALUES ('n{number}', {number}), ('N {number}', {number})",
        "INSERT INTO keyless VALUES ('same', 1), ('same', 1)",
        "DELETE FROM keyless LIMIT 1",
        f"INSERT INTO mapped VALUES ({number}, {number})",
    )


def promising(mirror: Mirror, **promises: Any) -> None:
    mirror.options = {**mirror.options, "maintain": promises}


def files_of(mirror: Mirror, table: str) -> list[str]:
    return DeltaTable(mirror.path(table)).file_uris()


def on_disk(mirror: Mirror, table: str) -> int:
    return len(list(Path(mirror.path(table)).rglob("*.parquet"))) - len(
        list((Path(mirror.path(table)) / "_delta_log").rglob("*.parquet"))
    )


def rows_at(mirror: Mirror, table: str, version: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(mirror.path(table), version=version).to_pylist()
    return sorted(rows, key=str)


@on_mariadb
@pytest.mark.parametrize("worn", ["spark"], indirect=True)
def test_few_files_the_same_rows_and_the_log_is_followed_on(worn: Mirror) -> None:
    promising(worn, **NOW)
    before = {table: (len(files_of(worn, table)), rows_at(worn, table, worn.version(table))) for table in TABLES}
    reports = {table.table.rpartition(".")[2]: table for table in worn.maintain().tables}
    for table in TABLES:
        count, rows = before[table]
        assert len(files_of(worn, table)) == (1 if count >= 2 else count)
        assert rows_at(worn, table, worn.version(table)) == rows
        upkeep = reports[table]
        assert (upkeep.files_before, upkeep.left) == (count, "")
        rewritten = (count, 1, 1) if count >= 2 else (0, 0, count)
        assert (upkeep.rewritten_files, upkeep.written_files, upkeep.files_after) == rewritten
        assert (upkeep.removed_files > 0) == (table in ("keyed", "keyless")), "what syncs replaced"
        assert upkeep.delta_version == worn.version(table) == worn.watermark(table)["delta_version"]
    assert min(before[table][0] for table in ("named", "mapped")) >= 2
    worn.maintain()
    assert [on_disk(worn, table) for table in TABLES] == [len(files_of(worn, table)) for table in TABLES]
    worn.assert_equal(*TABLES)
    work(worn, 7)
    report = worn.sync()
    assert {table.status for table in report.tables} == {"following"}
    worn.assert_equal(*TABLES)
    worn.assert_each_once(*TABLES)
    assert worn.verify().equal


@on_mysql
def test_versions_within_the_promise_stay_readable_and_older_ones_go(worn: Mirror) -> None:
    versions = {version: rows_at(worn, "named", version) for version in range(1, worn.version("named") + 1)}
    worn.maintain()
    assert len(files_of(worn, "named")) == 1
    assert {version: rows_at(worn, "named", version) for version in versions} == versions
    promising(worn, **NOW)
    worn.maintain()
    worn.assert_equal("named")
    with pytest.raises(Exception, match=r"(?i)no such file|not found"):
        rows_at(worn, "named", max(versions))


@on_mysql
def test_what_has_nothing_to_do_costs_no_spark(worn: Mirror) -> None:
    promising(worn, **NOW)
    assert wants_spark(worn.config, worn.metadata)
    worn.maintain()
    worn.maintain()
    assert not wants_spark(worn.config, worn.metadata)
    versions = [worn.version(table) for table in TABLES]

    def no_spark(why: str) -> SparkSession:
        raise AssertionError("Spark isn't needed")

    report = maintain(worn.config, no_spark, worn.metadata, Report())
    assert {table.rewritten_files + table.removed_files for table in report.tables} == {0}
    assert [worn.version(table) for table in TABLES] == versions
    promising(worn, history_hours=1000, log_hours=1000)
    assert wants_spark(worn.config, worn.metadata), "Delta is to keep removed files for longer"
    worn.maintain()
    assert DeltaTable(worn.path("keyed")).metadata().configuration["delta.deletedFileRetentionDuration"] == (
        "interval 3600000 seconds"
    )
    assert not wants_spark(worn.config, worn.metadata)


@on_mysql
def test_old_deletion_vectors_go(worn: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    worn.execute("INSERT INTO keyed VALUES " + ", ".join(f"({key}, 'many')" for key in range(100, 200)))
    for number in range(4):
        worn.options["merge"] = {"without_spark_mb": 16 * (number % 2)}
        worn.execute(f"UPDATE keyed SET v = 'marked' WHERE id = {100 + number}")
        worn.sync()
    folder = Path(worn.path("keyed"))
    assert len(list(folder.rglob("*.bin"))) >= 3
    promising(worn, **NOW)
    worn.maintain()
    worn.maintain()
    assert len(list(folder.rglob("*.bin"))) <= 1
    worn.assert_equal("keyed")


@on_mysql
def test_some_tables_alone(worn: Mirror) -> None:
    report = worn.maintain("*.named")
    assert [table.table for table in report.tables] == [f"{worn.database}.named"]
    assert len(files_of(worn, "named")) == 1
    assert len(files_of(worn, "keyed")) > 1
    with pytest.raises(UsageError, match="no table of the lake matches"):
        worn.maintain("*.none")


@on_mysql
def test_the_command_line_tells_each_table_and_the_run_is_noted(
    worn: Mirror, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "build", lambda name, **options: spark)
    assert command_line.run(["maintain", "--config", str(worn.write_yaml()), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {
        "tables", "metadata", "staging_removed", "folders_removed", "seconds", "pinned_versions", "why_spark",
    }  # fmt: skip
    assert {table["table"].rpartition(".")[2] for table in report["tables"]} == set(TABLES)
    assert set(report["tables"][0]) == {
        "table", "files_before", "files_after", "bytes_before", "bytes_after", "rewritten_files", "written_files",
        "removed_files", "removed_bytes", "removed_log_files", "pinned_bytes", "delta_version", "seconds", "left",
    }  # fmt: skip
    assert {"lease", "runs", "watermarks"} <= {table["table"] for table in report["metadata"]}
    (row,) = [row for row in worn.metadata.read("runs") if row["kind"] == "maintain"]
    assert json.loads(row["tables"]) == report["tables"]
    assert command_line.run(["maintain", "--config", str(worn.write_yaml())]) == 0
    assert f"{worn.database}.keyed" in capsys.readouterr().out
    assert command_line.run(["status", "--config", str(worn.write_yaml()), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_run"]["kind"] == "sync"


# what is under way ----------------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], None]) -> list[str]:
    """``act`` happens once, when a run comes to the point; gives where it happened."""
    happened: list[str] = []

    def at_point(reached: str) -> None:
        if reached == point and not happened:
            happened.append(reached)
            act()

    monkeypatch.setattr(faults, "at_point", at_point)
    return happened


@on_mysql
def test_a_sync_while_files_are_rewritten_is_first_and_loses_nothing(
    worn: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces the files that are being put together: these are chosen again."""

    def sync() -> None:
        worn.execute("UPDATE keyed SET v = 'meanwhile'", "DELETE FROM keyed WHERE id = 3")
        worn.sync()

    promising(worn, **NOW)
    happened = meanwhile(monkeypatch, "rows rewritten", sync)
    (report,) = worn.maintain("*.keyed").tables
    assert happened
    assert (report.left, len(files_of(worn, "keyed"))) == ("", 1)
    worn.assert_equal("keyed")
    worn.assert_each_once("keyed")
    work(worn, 8)
    worn.sync()
    worn.assert_equal(*TABLES)


@on_mariadb
@pytest.mark.parametrize("times", [1, 9], ids=["once", "all the time"])
def test_files_that_syncs_replace_before_they_are_read_are_chosen_anew_or_left(
    worn: Mirror, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """As beside a follower, whose batches come while Spark starts."""
    begun: list[int] = []
    begin = upkeep_by_spark.Rewriting.__init__

    def after_a_sync(rewriting: Rewriting, session: SparkSession, log: LakeLog) -> None:
        begun.append(1)
        if len(begun) <= times:
            worn.merges = ("rewrite",)
            for statement in ("UPDATE keyed SET v = {}", "INSERT INTO keyed VALUES (9{}, '')"):
                worn.execute(statement.format(len(begun)))
                worn.sync()
        begin(rewriting, session, log)

    monkeypatch.setattr(upkeep_by_spark.Rewriting, "__init__", after_a_sync)
    promising(worn, **NOW)
    (report,) = worn.maintain("*.keyed").tables
    assert len(begun) == min(times + 1, 3)
    assert ("batches replace its files" in report.left) == (times > 1)
    worn.assert_equal("keyed")
    worn.assert_each_once("keyed")


@on_mysql
@pytest.mark.parametrize("way", ["mark", "rewrite"])
def test_what_a_sync_changes_while_the_process_itself_rewrites_files_is_hidden_there(
    worn: Mirror, monkeypatch: pytest.MonkeyPatch, way: Merge
) -> None:
    def sync() -> None:
        worn.merges = (way,)
        worn.execute("UPDATE keyed SET v = 'meanwhile' WHERE id % 2 = 0", "DELETE FROM keyed WHERE id = 3")
        worn.sync()

    happened = meanwhile(monkeypatch, "rows rewritten", sync)
    upkeep = TablesUpkeep(worn.config, no_session, worn.metadata, Report(), 60.0)
    (report,) = upkeep.tables(["*.keyed"])
    assert happened
    assert (report.left, report.written_files) == ("", 1)
    worn.assert_equal("keyed")
    worn.assert_each_once("keyed")
    work(worn, 8)
    worn.sync()
    worn.assert_equal(*TABLES)


@on_mysql
def test_a_table_that_goes_while_its_files_are_rewritten_stays_away(
    worn: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    worn.options |= {"policies": {"on_drop_table": "drop"}}

    def drop() -> None:
        worn.execute("DROP TABLE keyed")
        worn.sync()

    happened = meanwhile(monkeypatch, "rows rewritten", drop)
    with pytest.raises(Exception, match="run maintain again"):
        worn.maintain("*.keyed")
    assert happened
    assert not Path(worn.path("keyed"), "_delta_log").exists()
    worn.execute("CREATE TABLE keyed (id INT PRIMARY KEY)", "INSERT INTO keyed VALUES (1)")
    worn.sync()
    worn.assert_equal("keyed")


@on_mysql
def test_in_the_middle_of_a_sync_it_waits(worn: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    work(worn, 9)
    versions = {table: worn.version(table) for table in TABLES}

    def look() -> None:
        with pytest.raises(LeaseHeld, match="works on this source since"):
            worn.maintain()

    happened = meanwhile(monkeypatch, "merged", look)
    worn.sync()
    assert happened
    assert all(worn.version(table) == version + 1 for table, version in versions.items())
    worn.assert_equal(*TABLES)


@on_mysql
def test_an_open_batch_is_left_to_sync(worn: Mirror) -> None:
    work(worn, 9)
    with worn.cut_off_at("epoch committed"):
        worn.sync()
    with pytest.raises(UsageError, match=r"is open \(staged\)") as refused:
        worn.maintain()
    assert "binlake sync" in refused.value.remedy
    assert lease.read(worn.metadata).holder is None
    worn.sync()
    worn.assert_equal(*TABLES)
    worn.maintain()
    worn.assert_equal(*TABLES)


@on_mysql
def test_a_half_done_snapshot_and_what_stands_still_are_left_alone(worn: Mirror) -> None:
    promising(worn, **NOW)
    with worn.cut_off_at("chunks written"):
        worn.snapshot("*.keyed")
    worn.spark.sql(f"DELETE FROM delta.`{worn.path('keyless')}`")
    pause = decisions.pause
    pause(worn.config, TableName(worn.database, "mapped"), Reason("me", "to see"))
    staged = sorted(Path(worn.path("keyed")).glob("snapshot-*/part-*.parquet"))
    disk = {table: on_disk(worn, table) for table in ("keyed", "keyless")}
    reports = {table.table.rpartition(".")[2]: table for table in worn.maintain().tables}
    assert reports["keyed"].left == "a snapshot of it isn't finished"
    assert "changed what binlake wrote" in reports["keyless"].left
    assert {table: on_disk(worn, table) for table in disk} == disk
    assert sorted(Path(worn.path("keyed")).glob("snapshot-*/part-*.parquet")) == staged
    assert (reports["mapped"].left, reports["mapped"].files_after) == ("", 1), "a paused table catches up all the same"
    worn.snapshot("*.keyed")
    work(worn, 11)
    worn.sync()
    worn.assert_equal("keyed", "named")
    assert worn.watermark("keyless")["status"] == "stopped"
    (stopped,) = worn.maintain("*.keyless").tables
    assert stopped.left == "it is stopped"
    reason = Reason("me", "seen")
    pipeline.resume(
        worn.config, worn.origin, lambda _: worn.spark, Report(), TableName(worn.database, "mapped"), reason
    )
    worn.assert_equal("mapped")


@on_mysql
def test_upkeep_between_a_snapshot_s_commit_and_its_life(worn: Mirror) -> None:
    """By somebody else, for ours waits: what was committed is found behind it."""
    with worn.cut_off_at("snapshot committed"):
        worn.snapshot("*.keyed")
    worn.spark.sql(f"ALTER TABLE delta.`{worn.path('keyed')}` SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    worn.snapshot("*.keyed")
    worn.assert_equal("keyed")
    notes = [json.loads(commit.get("userMetadata") or "{}") for commit in DeltaTable(worn.path("keyed")).history()]
    assert len([note for note in notes if note.get("binlake", {}).get("snapshot")]) == 2, "it isn't copied again"


@on_mysql
def test_files_and_metadata_of_many_syncs_stay_bounded(mirror: Mirror) -> None:
    """As the DAG does in years: promises are over within the test."""
    mirror.options = {"maintain": {**BRIEF, **NOW, "log_hours": 0}}
    begin(mirror, 1000)
    stands = list(live(mirror, 12, 4))
    assert max(stand.data_files for stand in stands) < 4
    first, *later = stands
    for stand in later:
        assert stand.files_on_disk <= first.files_on_disk + 8, stands
        assert stand.log_files <= 3 * 13, "commits since the last checkpoint but one, Spark's with a checksum"
        assert stand.metadata_files <= first.metadata_files + 20, stands
    mirror.assert_equal("t")
