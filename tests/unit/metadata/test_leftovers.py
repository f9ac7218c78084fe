"""Which files of a table's folder no promised version needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta.delta_log import LakeLog
from binlake.metadata.leftovers import Unneeded, expired_log, remove_data, remove_log, unneeded

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


def versions_of(log: LakeLog, found: Unneeded) -> set[int]:
    """Whose only file it was."""
    names = {file.name for file in found.data}
    made = {DeltaTable(log.path, version=version).file_uris()[0].rpartition("/")[2]: version for version in range(4)}
    assert names <= made.keys()
    return {made[name] for name in names}


@pytest.mark.parametrize(("hours", "gone"), [(50, set()), (35, set()), (25, {0}), (15, {0, 1}), (5, {0, 1, 2})])
def test_a_version_stays_readable_for_its_hours_after_it_was_replaced(log: LakeLog, hours: int, gone: set[int]) -> None:
    """Version 0 was replaced 30 hours ago: for whoever is promised 35 it is still to be read."""
    found = unneeded(log, time.time() - hours * HOUR, marked=0)
    assert versions_of(log, found) == gone
    remove_data(log, found.data)
    for version in {0, 1, 2, 3} - gone:
        assert DeltaTable(log.path, version=version).to_pyarrow_table()["version"].to_pylist() == [version]


def test_an_orphan_of_a_dead_run_goes_when_it_is_old(log: LakeLog) -> None:
    orphan = Path(log.path) / "part-of-a-dead-merge.parquet"
    orphan.write_bytes(b"x")
    assert "part-of-a-dead-merge.parquet" not in {file.name for file in unneeded(log, time.time() - HOUR, 0).data}
    aged(Path(log.path), hours=2)
    assert "part-of-a-dead-merge.parquet" in {file.name for file in unneeded(log, time.time() - HOUR, 0).data}


def test_a_log_that_doesn_t_reach_back_leaves_everything(log: LakeLog) -> None:
    DeltaTable(log.path).create_checkpoint()
    for version in (0, 1):
        (Path(log.path) / "_delta_log" / f"{version:020}.json").unlink()
    assert unneeded(log, time.time() - 25 * HOUR, 0) == Unneeded()
    assert len(unneeded(log, time.time() - 5 * HOUR, 0).data) == 3


def test_old_deletion_vectors_beyond_those_in_use_are_counted(log: LakeLog) -> None:
    for number in range(5):
        (Path(log.path) / f"deletion_vector_{number}.bin").write_bytes(b"x")
    aged(Path(log.path), hours=2)
    assert unneeded(log, time.time() - HOUR, marked=2).vectors == 3


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
    gone = expired_log(long_log, time.time() - hours * HOUR)
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
    assert expired_log(long_log, time.time()) == ()
    (folder / f"{20:020}.checkpoint.{2:010}.{2:010}.parquet").write_bytes(b"x")
    assert len(expired_log(long_log, time.time())) == 41
    (folder / f"{3:020}.json").touch()
    assert expired_log(long_log, time.time() - HOUR) == ()
