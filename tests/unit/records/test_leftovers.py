"""Which files of a table's folder no promised version needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import LakeError
from binlake.records.leftovers import Unneeded, expired_log, remove_data, remove_log, remove_unborn, unneeded
from binlake.schema.table import TableName
from binlake.snapshot.attempts import Attempts
from binlake.store.metadata import query

HOUR = 3600


@pytest.fixture
def log(tmp_path: Path) -> LakeLog:
    """Versions 0 to 3, committed 40, 30, 20 and 10 hours ago, each in the place of the one before."""
    path = tmp_path / "t"
    for version in range(4):
        write_deltalake(str(path), pa.table({"version": [version]}), mode="overwrite")
        aged(path, hours=40 - 10 * version)
    return LakeLog(str(path), "app")


def aged(path: Path, hours: float) -> None:
    """What was written since the last time."""
    for file in path.rglob("*"):
        if file.is_file() and file.stat().st_mtime > time.time() - HOUR:
            os.utime(file, (time.time() - hours * HOUR,) * 2)


def versions_of(log: LakeLog, leftovers: Unneeded) -> set[int]:
    """Whose only file it was."""
    names = {file.name for file in leftovers.files}
    made = {DeltaTable(log.path, version=version).file_uris()[0].rpartition("/")[2]: version for version in range(4)}
    assert names <= made.keys()
    return {made[name] for name in names}


@pytest.mark.parametrize(("hours", "gone"), [(50, set()), (35, set()), (25, {0}), (15, {0, 1}), (5, {0, 1, 2})])
def test_a_version_stays_readable_for_its_hours_after_it_was_replaced(log: LakeLog, hours: int, gone: set[int]) -> None:
    """Version 0 was replaced 30 hours ago: for whoever is promised 35 it is still to be read."""
    leftovers = unneeded(log, time.time() - hours * HOUR)
    assert versions_of(log, leftovers) == gone
    remove_data(log, leftovers.files)
    for version in {0, 1, 2, 3} - gone:
        assert DeltaTable(log.path, version=version).to_pyarrow_table()["version"].to_pylist() == [version]


def test_an_orphan_of_a_dead_run_goes_when_it_is_old(log: LakeLog) -> None:
    orphan = Path(log.path) / "part-of-a-dead-merge.parquet"
    orphan.write_bytes(b"x")
    assert "part-of-a-dead-merge.parquet" not in {file.name for file in unneeded(log, time.time() - HOUR).files}
    aged(Path(log.path), hours=2)
    assert "part-of-a-dead-merge.parquet" in {file.name for file in unneeded(log, time.time() - HOUR).files}


def test_a_log_that_doesn_t_reach_back_leaves_everything(log: LakeLog) -> None:
    DeltaTable(log.path).create_checkpoint()
    for version in (0, 1):
        (Path(log.path) / "_delta_log" / f"{version:020}.json").unlink()
    assert unneeded(log, time.time() - 25 * HOUR) == Unneeded()
    assert len(unneeded(log, time.time() - 5 * HOUR).files) == 3


@pytest.fixture
def long_log(tmp_path: Path) -> LakeLog:
    """Versions 0 to 24, each committed an hour after the one before, the last now, with checkpoints at 10 and 20."""
    path, log = tmp_path / "t", tmp_path / "t" / "_delta_log"
    for version in range(25):
        write_deltalake(str(path), pa.table({"version": [version]}), mode="append")
        if version in (10, 20):
            DeltaTable(str(path)).create_checkpoint()
    for version in range(25):
        (log / f"{version:020}.crc").write_text("{}")  # Spark's
        for file in log.glob(f"{version:020}*"):
            os.utime(file, (time.time() - (24 - version) * HOUR,) * 2)
    return LakeLog(str(path), "app")


@pytest.mark.parametrize(("hours", "first"), [(30, 0), (14.5, 0), (13.5, 10), (4.5, 10), (3.5, 20), (0, 20)])
def test_of_a_log_the_versions_of_the_promised_hours_stay(long_log: LakeLog, hours: float, first: int) -> None:
    """That which stood at their beginning, too, and the checkpoint before it."""
    gone = expired_log(long_log, time.time() - hours * HOUR).files
    remove_log(long_log, gone)
    there = sorted(int(file.name[:20]) for file in (Path(long_log.path) / "_delta_log").glob("0*"))
    assert (there[0], there[-1]) == (first, 24)
    assert len(gone) == first * 2 + (first == 20), "commits, checksums, a checkpoint"
    for version in {first, 20, 24}:
        assert DeltaTable(long_log.path, version=version).count() == version + 1
    assert len(DeltaTable(long_log.path).history()) == 25 - first


def test_half_a_checkpoint_and_a_file_touched_later_remove_nothing(long_log: LakeLog) -> None:
    folder = Path(long_log.path) / "_delta_log"
    for version in (10, 20):
        whole = folder / f"{version:020}.checkpoint.parquet"
        whole.rename(folder / f"{version:020}.checkpoint.{1:010}.{2:010}.parquet")
    assert expired_log(long_log, time.time()).files == ()
    (folder / f"{20:020}.checkpoint.{2:010}.{2:010}.parquet").write_bytes(b"x")
    assert len(expired_log(long_log, time.time()).files) == 41
    (folder / f"{3:020}.json").touch()
    assert expired_log(long_log, time.time() - HOUR).files == ()


def test_pinned_versions_keep_their_files_and_what_leads_to_them(long_log: LakeLog) -> None:
    """Versions 3, which no checkpoint precedes, and 12, behind the checkpoint at 10."""
    now = time.time()
    contents = {version: rows_at(long_log, version) for version in (3, 12, 24)}
    gone = expired_log(long_log, now, pinned=(3, 12)).files
    left = {int(file.name[:20]) for file in LogFiles.of(long_log.path).files} - {int(file.name[:20]) for file in gone}
    assert left == {0, 1, 2, 3, 10, 11, 12, 20, 21, 22, 23, 24}
    remove_log(long_log, gone)
    remove_data(long_log, unneeded(long_log, now + HOUR, pinned=(3, 12)).files)
    assert {version: rows_at(long_log, version) for version in contents} == contents


def rows_at(log: LakeLog, version: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = query(log.path, version=version).to_pylist()
    return rows


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder outside the table's, with files that look like its own."""
    folder = tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    for name in ("part-1.parquet", "deep/part-2.parquet", f"{0:020}.json", f"{1:020}.json"):
        (folder / name).write_bytes(b"x")
    aged(folder, hours=100)
    return folder


def test_a_linked_folder_in_a_table_is_not_looked_into(log: LakeLog, elsewhere: Path) -> None:
    (Path(log.path) / "part-of-a-link").symlink_to(elsewhere)
    leftovers = unneeded(log, time.time() - 5 * HOUR)
    assert versions_of(log, leftovers) == {0, 1, 2}
    remove_data(log, leftovers.files)
    assert len([file for file in elsewhere.rglob("*") if file.is_file()]) == 4


def test_nothing_is_deleted_through_a_link_that_came_after_the_look(log: LakeLog, elsewhere: Path) -> None:
    inside = Path(log.path) / "inside"
    (inside / "deep").mkdir(parents=True)
    for name in ("part-1.parquet", "deep/part-2.parquet"):
        (inside / name).write_bytes(b"x")
    aged(inside, hours=100)
    leftovers = [file for file in unneeded(log, time.time() - 50 * HOUR).files if file.name.startswith("inside")]
    assert len(leftovers) == 2
    inside.rename(Path(log.path).parent / "moved")
    inside.symlink_to(elsewhere)
    with pytest.raises(LakeError, match="inside is a symbolic link"):
        remove_data(log, leftovers)
    assert len([file for file in elsewhere.rglob("*") if file.is_file()]) == 4


def test_a_linked_log_stays_whole(long_log: LakeLog, elsewhere: Path) -> None:
    folder = Path(long_log.path) / "_delta_log"
    folder.rename(elsewhere / "log")
    folder.symlink_to(elsewhere / "log")
    gone = expired_log(long_log, time.time()).files
    assert gone
    with pytest.raises(LakeError, match="_delta_log is a symbolic link") as caught:
        remove_log(long_log, gone)
    assert "symbolic link's place" in caught.value.remedy
    assert all((elsewhere / "log" / file.name).exists() for file in gone)


def test_a_dead_snapshot_behind_a_link_stays(tmp_path: Path) -> None:
    source = {"name": "s", "connection": "c", "server_id": 4001}
    lake = {"path": str(tmp_path / "lake")}
    config = PipelineConfig.model_validate({"source": source, "tables": {"include": ["d.*"]}, "lake": lake})
    table = Path(config.table_path(TableName("d", "unborn")))
    attempt = table / Attempts.new()
    attempt.mkdir(parents=True)
    (attempt / "part-0.parquet").write_bytes(b"x")
    aged(table, hours=100)
    linked = table.parent.parent / "linked"
    table.parent.rename(tmp_path / "outside")
    linked.symlink_to(tmp_path / "outside")
    assert remove_unborn(config, (), time.time()) == []
    linked.unlink()
    (tmp_path / "outside").rename(table.parent)
    assert remove_unborn(config, (), time.time()) == [str(table)]
    assert not table.exists()
