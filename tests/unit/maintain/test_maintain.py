"""The upkeep that needs no Spark: who may be touched, what goes, what is written down, and that it ends with others."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.config import PipelineConfig
from binlake.config.table_modes import TableModes
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, LeaseHeld, SparkNeeded, UsageError
from binlake.lake.lake_versions import lake_versions
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.maintain.maintain import MaintainReport, maintain, wants_spark
from binlake.phases import upkeep_beside
from binlake.phases.upkeep_beside import UpkeepBeside
from binlake.pipeline import metadata_of
from binlake.planner.steps import Life
from binlake.position import Position, Range
from binlake.records import feed_watermarks, table_versions, watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema
from binlake.spark.starting import no_session
from binlake.store.metadata import Metadata
from binlake.store.rows import ReadableRow

SHAPE = TableSchema((Column("id", "int"),), ("id",), "primary")
HERE = Position("s", "b.000001", 4, 1)
HOUR = 3600


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A source with the tables d.a and d.b, whose three versions were written ten, six and two hours ago."""
    made = PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path)},
            "maintain": {"history_hours": 4, "metadata_hours": 4},
        }
    )
    metadata = metadata_of(made)
    lives = [Life(name, TableName("d", name), SHAPE, HERE, HERE) for name in "ab"]
    for life in lives:
        for version, hours in enumerate((10, 6, 2)):
            write(made.table_path(life.name), version, hours)
    with lease.held(metadata) as held:
        watermarks.started(metadata, lives, batch=0, versions={life.id: 2 for life in lives})
        held.stand(RecordedState(0, HERE))
    return made


def write(path: str, row: int, hours: float, kept_hours: int = 4) -> None:
    properties = {
        "delta.deletedFileRetentionDuration": f"interval {kept_hours * HOUR} seconds",
        "delta.logRetentionDuration": "interval 2592000 seconds",
        "delta.enableExpiredLogCleanup": "false",
    }
    write_deltalake(path, pa.table({"id": pa.array([row], pa.int32())}), mode="overwrite", configuration=properties)
    for file in Path(path).rglob("*"):
        if file.is_file() and file.stat().st_mtime > time.time() - HOUR:
            os.utime(file, (time.time() - hours * HOUR,) * 2)


def no_spark(why: str) -> NoReturn:
    raise AssertionError("Spark isn't needed")


def kept(config: PipelineConfig, *patterns: str) -> MaintainReport:
    return maintain(config, no_spark, metadata_of(config), Report(), tables=list(patterns) or None, patience=0)


def status(config: PipelineConfig, table: str, **changed: Any) -> None:
    metadata = metadata_of(config)
    watermarks.write(metadata, [replace(watermarks.of_life(metadata, table), **changed)])


def rows(config: PipelineConfig, table: str, version: int | None = None) -> list[int]:
    path = config.table_path(TableName("d", table))
    ids: list[int] = DeltaTable(path, version=version).to_pyarrow_table()["id"].to_pylist()
    return ids


def test_what_nobody_was_promised_goes_and_the_rest_is_as_it_was(config: PipelineConfig) -> None:
    """The second version was replaced two hours ago, and four are promised; the first six hours ago."""
    assert not wants_spark(config, metadata_of(config))
    report = kept(config)
    assert [(table.table, table.removed_files, table.left) for table in report.tables] == [
        ("d.a", 1, ""),
        ("d.b", 1, ""),
    ]
    assert (rows(config, "a"), rows(config, "a", 1)) == ([2], [1])
    with pytest.raises(FileNotFoundError):
        rows(config, "a", 0)
    assert {table.removed_files for table in kept(config).tables} == {0}


def test_upkeep_beside_batches_does_what_needs_no_spark(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six small files of one table become one; what nobody was promised goes from both."""
    monkeypatch.setattr(upkeep_beside, "_FIRST", 0.0)
    path = config.table_path(TableName("d", "b"))
    for row in range(3, 8):
        write_deltalake(path, pa.table({"id": pa.array([row], pa.int32())}), mode="append")
    status(config, "b", delta_version=7)
    said = io.StringIO()
    ended = UpkeepBeside(Report(said))
    ended.end()
    for upkeep in (ended, UpkeepBeside(Report(said))):
        assert (rows(config, "a", 0), rows(config, "b", 0)) == ([0], [0])
        upkeep.begin(config, None)
        assert upkeep._thread is not None
        upkeep._thread.join()
    assert not said.getvalue()
    for table in "ab":
        assert rows(config, table, 1) == [1]
        with pytest.raises(FileNotFoundError):
            rows(config, table, 0)
    assert rows(config, "b") == [2, *range(3, 8)]
    assert len(DeltaTable(path).file_uris()) == 1
    watermark = next(row for row in metadata_of(config).read("watermarks") if row["table"] == "b")
    assert watermark["delta_version"] == DeltaTable(path).version() == 8


def kept_beside(config: PipelineConfig) -> None:
    upkeep = UpkeepBeside(Report(quiet=True))
    upkeep.begin(config, None)
    assert upkeep._thread is not None
    upkeep._thread.join()


@pytest.mark.parametrize("keep", [kept, kept_beside])
def test_no_staging_is_kept_for_a_killed_process_that_printed_it(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, keep: Callable[[PipelineConfig], object]
) -> None:
    monkeypatch.setattr(upkeep_beside, "_FIRST", 0.0)
    metadata, dead, begun = metadata_of(config), feed_watermarks.new_tail(), feed_watermarks.new_tail()
    for name in (dead, begun, "out"):
        feed_watermarks.register(metadata, name, FeedLimits(1, 1))
    assert metadata.swap("feeds", f"feed <> '{begun}'", {"updated_us": 0})
    keep(config)
    assert sorted(row["feed"] for row in metadata.read("feeds")) == sorted([begun, "out"])


@pytest.mark.parametrize("damaged", ["a", "a__log"])
def test_a_log_that_cant_be_read_hides_no_other_table(config: PipelineConfig, damaged: str) -> None:
    modes = config.tables.model_copy(update={"modes": [TableModes.model_validate({"tables": "d.a", "log": {}})]})
    config = config.model_copy(update={"tables": modes})
    write(config.table_path(TableName("d", "a__log")), 1, 2)
    path = Path(config.table_path(TableName("d", damaged)))
    max(path.glob("_delta_log/*.json")).write_text("not JSON\n")
    for row in range(3, 8):
        write_deltalake(
            config.table_path(TableName("d", "b")), pa.table({"id": pa.array([row], pa.int32())}), mode="append"
        )
    status(config, "b", delta_version=7)
    assert wants_spark(config, metadata_of(config)), "many small files"
    with pytest.raises(LakeError, match=damaged):
        maintain(config, no_session, metadata_of(config), Report(quiet=True), patience=0)
    with pytest.raises(FileNotFoundError):
        rows(config, "b", 0)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("data", Path.unlink),
        ("data", lambda file: file.write_bytes(b"PAR1")),
        ("log", lambda file: file.write_text("not JSON\n")),
    ],
    ids=["no data file", "a damaged data file", "a damaged log"],
)
def test_upkeep_beside_batches_goes_on_where_one_table_cant_be_read(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, file: str, damage: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(upkeep_beside, "_FIRST", 0.0)
    path = config.table_path(TableName("d", "a"))
    for row in range(3, 8):
        write_deltalake(path, pa.table({"id": pa.array([row], pa.int32())}), mode="append")
    status(config, "a", delta_version=7)
    newest = DeltaTable(path).get_add_actions()["path"].to_pylist()[0] if file == "data" else f"_delta_log/{7:020}.json"
    damage(Path(path, newest))
    said = io.StringIO()
    upkeep = UpkeepBeside(Report(said))
    upkeep.begin(config, None)
    assert upkeep._thread is not None
    upkeep._thread.join()
    assert "d/a failed" in said.getvalue()
    with pytest.raises(FileNotFoundError):
        rows(config, "b", 0)


@pytest.mark.parametrize(
    ("files", "limit", "seconds"),
    [(5, 2, 400), (5, 200, 3600), (5, 0.01, 120), (2, 0.01, 3600)],
    ids=["in proportion", "at most", "at least", "too few to be put together"],
)
def test_upkeep_beside_batches_comes_sooner_where_many_small_files_come(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, files: int, limit: float, seconds: float
) -> None:
    """A table got so many files in a thousand seconds; ``limit`` may come between two upkeeps."""
    monkeypatch.setattr(upkeep_beside, "_FIRST", 0.0)
    monkeypatch.setattr(upkeep_beside, "_FILES", limit)
    upkeep = UpkeepBeside(Report(io.StringIO()))
    upkeep._looked -= 1000.0
    for row in range(files - 1):
        path = config.table_path(TableName("d", "b"))
        write_deltalake(path, pa.table({"id": pa.array([row], pa.int32())}), mode="append")
    status(config, "b", delta_version=1 + files)
    upkeep.begin(config, None)
    assert upkeep._thread is not None
    upkeep._thread.join()
    assert upkeep._pause == pytest.approx(seconds, rel=0.2)
    upkeep.begin(config, None)
    assert upkeep._due - time.monotonic() == pytest.approx(seconds, rel=0.2)


def test_upkeep_beside_batches_lets_go_of_metadata_that_are_older_than_promised(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_beside, "_FIRST", 0.0)
    metadata, now = metadata_of(config), time.time_ns() // 1_000
    for batch, days in ((1, 100), (2, 80), (3, 1)):
        at_us = now - days * 24 * HOUR * 1_000_000
        metadata.append("batches", [{"batch": batch, "state": "recorded", "updated_us": at_us}])
    upkeep = UpkeepBeside(Report(io.StringIO()))
    upkeep.begin(config, None)
    assert upkeep._thread is not None
    upkeep._thread.join()
    assert sorted(row["batch"] for row in metadata.read("batches", ["batch"])) == [2, 3]


def test_what_is_pinned_while_files_are_going_stays(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = metadata_of(config)
    of_batch = {"batch": 1, "kind": "batch", "at_us": 1, "began_us": 1, "committed_us": 1}
    life = {"table_id": "a", "database": "d", "table": "a", "status": "following", "delta_version": 0}
    metadata.append("lake_versions", [{**of_batch, "position": str(HERE)}, {**of_batch, **life}])
    noted = table_versions.note_readable_since

    def note(metadata: Metadata, name: TableName, version: int) -> list[ReadableRow]:
        if name.table == "a":
            metadata.append("pins", [{"name": "kept", "batch": 1, "who": "w", "why": "y", "at_us": 1}])
        return noted(metadata, name, version)

    monkeypatch.setattr(table_versions, "note_readable_since", note)
    report = kept(config)
    assert {table.table: (table.removed_files, table.pinned_bytes > 0) for table in report.tables} == {
        "d.a": (0, True),
        "d.b": (1, False),
    }
    assert rows(config, "a", 0) == [0]
    assert "1 pinned version keeps 0.0 MB of files" in report.headline


def test_of_batches_of_seconds_one_of_each_hour_is_kept_with_what_it_needs(config: PipelineConfig) -> None:
    """Fourteen in each of two hours, more than a day ago, and two since."""
    promised = config.maintain.model_copy(update={"history_hours": 100})
    config = config.model_copy(update={"maintain": promised})
    metadata, path = metadata_of(config), config.table_path(TableName("d", "a"))
    shutil.rmtree(path)
    hour = time.time() // HOUR * HOUR
    times = [hour - hours * HOUR + minute * 60 for hours in (40, 30) for minute in range(14)] + [hour - 7200, hour - 60]
    life = {"table_id": "a", "database": "d", "table": "a", "status": "following"}
    noted: list[dict[str, Any]] = []
    for batch, at in enumerate(times):
        write(path, batch, (time.time() - at) / HOUR, kept_hours=100)
        own = {"batch": batch, "kind": "batch", "at_us": int(at * 1e6), "began_us": int(at * 1e6)}
        noted += [{**own, "position": str(HERE), "committed_us": 1}, {**own, **life, "delta_version": batch}]
        if batch in (9, 20):
            DeltaTable(path).create_checkpoint()
            aged(path, at)
    metadata.append("lake_versions", noted)
    status(config, "a", delta_version=29)
    table = {table.table: table for table in kept(config, "d.a").tables}["d.a"]
    assert (table.removed_files, table.left) == (30 - 4, "")
    staying = [version for version in lake_versions(metadata) if version.readable]
    assert [version.batch for version in staying] == [13, 27, 28, 29]
    for version in staying:
        assert rows(config, "a", version.tables["d.a"]) == [version.batch]
    log = sorted(int(file.name[:20]) for file in (Path(path) / "_delta_log").glob("*.json"))
    assert log == [9, 10, 11, 12, 13, *range(20, 30)]
    assert kept(config, "d.a").tables[0].removed_files == 0


def aged(path: str, at: float) -> None:
    for file in Path(path).rglob("*.checkpoint.parquet"):
        if file.stat().st_mtime > time.time() - HOUR:
            os.utime(file, (at,) * 2)


def test_a_log_grows_no_longer_than_promised_though_nobody_commits_by_spark(config: PipelineConfig) -> None:
    path = config.table_path(TableName("d", "a"))
    for row in range(3, 12):
        write(path, row, 800)
        if row == 10:
            DeltaTable(path).create_checkpoint()
    for file in (Path(path) / "_delta_log").iterdir():
        os.utime(file, (time.time() - 800 * HOUR,) * 2)
    status(config, "a", delta_version=11)
    assert {table.table: table.removed_log_files for table in kept(config).tables} == {"d.a": 10, "d.b": 0}
    assert [commit["version"] for commit in DeltaTable(path).history()] == [11, 10]
    assert rows(config, "a") == [11]


def test_a_clock_a_week_ahead_costs_former_versions_alone(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, true_ns, week = time.time, time.time_ns, 7 * 24 * HOUR
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: true() + week)
        ahead.setattr(time, "time_ns", lambda: true_ns() + week * 10**9)
        assert {(table.removed_files, table.left) for table in kept(config).tables} == {(2, "")}
    assert {(table.removed_files, table.left) for table in kept(config).tables} == {(0, "")}
    assert [rows(config, table) for table in "ab"] == [[2], [2]]


def test_a_run_is_noted_and_its_result_is_plain(config: PipelineConfig) -> None:
    report = kept(config, "d.b")
    stored = json.loads(json.dumps(report.to_json()))
    assert set(stored) == {
        "tables",
        "metadata",
        "staging_removed",
        "folders_removed",
        "seconds",
        "pinned_versions",
        "why_spark",
    }
    (row,) = metadata_of(config).read("runs")
    assert (row["kind"], json.loads(row["tables"]), row["message"]) == ("maintain", stored["tables"], report.headline)
    assert rows(config, "a", 0) == [0], "it wasn't asked for"


def test_sizes_are_noted_where_they_differ(config: PipelineConfig) -> None:
    def noted() -> list[tuple[str, int, int]]:
        rows = sorted(metadata_of(config).read("lake_sizes"), key=lambda row: (row["at_us"], row["table"]))
        return [(row["table"], row["bytes"], row["files"]) for row in rows]

    def size(table: str) -> int:
        actions = DeltaTable(config.table_path(TableName("d", table))).get_add_actions()
        return sum(pa.table(actions)["size_bytes"].to_pylist())

    kept(config)
    both = [("a", size("a"), 1), ("b", size("b"), 1)]
    assert noted() == both
    kept(config)
    assert noted() == both, "nothing differs"
    metadata = metadata_of(config)
    watermarks.write(metadata, [replace(watermarks.of_life(metadata, "b"), table="c")])
    shutil.move(config.table_path(TableName("d", "b")), config.table_path(TableName("d", "c")))
    kept(config, "d.a")
    assert noted() == both, "it is asked for one table"
    kept(config)
    assert noted() == [*both, ("b", 0, 0), ("c", size("c"), 1)]
    status(config, "b", status="stopped")
    kept(config)
    assert len(noted()) == 4, "what is left alone is as it was"


def test_of_a_dropped_table_replaced_files_go_and_its_rows_stay(config: PipelineConfig) -> None:
    """And one whose folder went with it isn't spoken of."""
    for table in "ab":
        status(config, table, status="dropped")
    shutil.rmtree(config.table_path(TableName("d", "b")))
    assert not wants_spark(config, metadata_of(config))
    assert [(table.table, table.removed_files, table.left) for table in kept(config).tables] == [("d.a", 1, "")]
    assert (rows(config, "a"), rows(config, "a", 1)) == ([2], [1])
    with pytest.raises(FileNotFoundError):
        rows(config, "a", 0)


def test_a_dropped_table_that_others_write_is_theirs(config: PipelineConfig) -> None:
    status(config, "a", status="dropped")
    deleted_by_others(config)
    a, _ = kept(config).tables
    assert ("DELETE" in a.left, a.removed_files, rows(config, "a", 0)) == (True, 0, [0])


def test_a_folder_of_a_table_that_died_before_its_first_commit_goes(config: PipelineConfig) -> None:
    """Not a young one, one that a snapshot may continue with, one of a life, and one that holds something else."""

    def unborn(path: str, name: str = "snapshot-1/part.parquet", hours: float = 5) -> Path:
        file = Path(path) / name
        file.parent.mkdir(parents=True)
        (Path(path) / "_delta_log").mkdir(exist_ok=True)  # Spark makes it before the commit
        file.write_bytes(b"x")
        os.utime(file, (time.time() - hours * HOUR,) * 2)
        return Path(path)

    dead = [unborn(f"{config.root}/d/dead"), unborn(f"{config.ghosts}/d/_dead_gho")]
    half_a_snapshot(config, "half")
    alive = [
        unborn(f"{config.root}/d/young", hours=3),
        unborn(f"{config.root}/d/half"),
        unborn(f"{config.root}/d/exports", name="part-0.parquet"),
        unborn(f"{config.root}/_replayed/d"),
    ]
    shutil.rmtree(config.table_path(TableName("d", "b")))
    alive.append(unborn(config.table_path(TableName("d", "b"))))
    report = kept(config)
    assert sorted(report.folders_removed) == sorted(map(str, dead))
    assert "2 folders of earlier tables" in report.headline
    assert not any(folder.exists() for folder in dead)
    assert all(folder.exists() for folder in alive)


def deleted_by_others(config: PipelineConfig) -> None:
    DeltaTable(config.table_path(TableName("d", "a"))).delete()


def half_a_snapshot(config: PipelineConfig, table: str = "a") -> None:
    metadata_of(config).append(
        "snapshots", [{"snapshot": "x", "database": "d", "table": table, "state": "staged", "updated_us": 1}]
    )


@pytest.mark.parametrize(
    ("happened", "why"),
    [
        (lambda config: status(config, "a", status="stopped"), "it is stopped"),
        (lambda config: status(config, "a", status="resnapshot"), "it is resnapshot"),
        (half_a_snapshot, "a snapshot of it isn't finished"),
        (deleted_by_others, "DELETE at Delta version 3 changed what binlake wrote"),
    ],
)
def test_tables_that_are_left_alone(config: PipelineConfig, happened: Callable[[Any], None], why: str) -> None:
    happened(config)
    a, b = kept(config).tables
    assert why in a.left
    assert (a.removed_files, b.removed_files, b.left) == (0, 1, "")
    assert rows(config, "a", 0) == [0]


def test_upkeep_by_others_is_known_from_then_on(config: PipelineConfig) -> None:
    path = config.table_path(TableName("d", "a"))
    write_deltalake(path, pa.table({"id": pa.array([9], pa.int32())}), mode="append")
    status(config, "a", delta_version=3)
    DeltaTable(path).optimize.compact()
    kept(config)
    (row,) = [row for row in metadata_of(config).read("watermarks") if row["table_id"] == "a"]
    assert row["delta_version"] == DeltaTable(path).version() == 4


def test_while_a_batch_is_open_nothing_is_touched(config: PipelineConfig) -> None:
    with lease.held(metadata_of(config)) as held:
        held.open(OpenBatch(1, Range(HERE, HERE, ())))
    with pytest.raises(UsageError, match=r"batch 1 is open \(planned\)") as refused:
        kept(config)
    assert "binlake sync" in refused.value.remedy
    assert rows(config, "a", 0) == [0]


def test_a_run_at_work_is_waited_for_as_long_as_patience_lasts(config: PipelineConfig) -> None:
    with lease.held(metadata_of(config)), pytest.raises(LeaseHeld):
        kept(config)
    assert rows(config, "a", 0) == [0]


def test_patterns_that_name_no_table(config: PipelineConfig) -> None:
    with pytest.raises(UsageError, match=r"no table of the lake matches d\.none, e\.\*"):
        kept(config, "d.none", "d.*", "e.*")
    with pytest.raises(UsageError, match="no table of the lake matches"):
        wants_spark(config, metadata_of(config), ["d.none"])


def test_a_table_loses_its_deletion_vectors_by_spark_where_all_is_left_to_it(config: PipelineConfig) -> None:
    """And the rest of its upkeep isn't left out."""
    asked: list[str] = []

    def session(why: str) -> NoReturn:
        asked.append(why)
        raise SparkNeeded(why)

    merge = config.merge.model_copy(update={"without_spark_mb": 0})
    lake = config.lake.model_copy(update={"without_deletion_vectors": ["d.a"]})
    log = LakeLog.of(config, TableName("d", "a"), "a")
    plain_tables.commit_settings(log.path, log.opened(), {}, {"delta.enableDeletionVectors": "true"})
    with lease.held(metadata_of(config)) as held:
        watermarks.started(
            held.metadata, [Life("a", TableName("d", "a"), SHAPE, HERE, HERE)], batch=0, versions={"a": 3}
        )
    maintain(config.model_copy(update={"merge": merge, "lake": lake}), session, metadata_of(config), Report(quiet=True))
    assert asked == ["d.a: it is to have no deletion vectors"]
