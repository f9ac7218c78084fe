"""A table whose files in the lake are damaged: verify says so, and status doesn't call it verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.config.table_modes import BesideMode
from binlake.errors import TableError
from binlake.phases.verification import VerifyRequest
from binlake.records.decisions import Reason
from binlake.records.status import TableStatus, read_status
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.verify.repair.repair import Unrepairable
from mirror import Mirror, on_mysql
from no_session import NoSession
from operated_source import forget_what_is_in_memory
from servers import Server
from without_spark import no_spark, path, repair, sync, verify

pytestmark = on_mysql


@pytest.fixture
def alone(server: Server, database: str, lake: Any) -> Mirror:
    """A table with a deletion vector, at Delta version 2, and another one; both were verified."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "CREATE TABLE whole (id INT PRIMARY KEY)", "INSERT INTO whole VALUES (1)",
    )  # fmt: skip
    begin_alone(mirror)
    for number in (1, 2):
        mirror.execute(f"DELETE FROM t WHERE id = {number}", f"INSERT INTO t VALUES ({number + 9}, 'new')")
        with mock.patch("binlake.delta.layout.FEW_BYTES", 0):  # rows are marked as in large files
            sync(mirror)
    assert verify(mirror).equal
    return mirror


def status_of(mirror: Mirror, table: str) -> TableStatus:
    (row,) = [row for row in read_status(mirror.config).tables if row.table.endswith(f".{table}")]
    return row


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 3] = bytes(byte ^ 0xFF for byte in content[4 : len(content) // 3])
    file.write_bytes(content)


DAMAGES = [
    ("part-*.parquet", remove), ("part-*.parquet", cut), ("part-*.parquet", flip), ("deletion_vector_*.bin", remove),
    ("deletion_vector_*.bin", cut), ("_delta_log/*01.json", remove), ("_delta_log/*01.json", cut),
]  # fmt: skip


@pytest.mark.parametrize(("files", "damage"), DAMAGES)
def test_status_says_what_cannot_be_read(alone: Mirror, files: str, damage: Callable[[Path], None]) -> None:
    assert status_of(alone, "t").verified_through
    kept = {file: file.read_bytes() for file in Path(path(alone, "t")).glob(files)}
    for file in kept:
        damage(file)
    by_itself = {table.name.table: table for table in pipeline.verify_lake(alone.config).tables}
    assert (by_itself["t"].is_unreadable, by_itself["whole"].equal) == (True, True)
    assert status_of(alone, "t").reason.startswith("can't be read: ")
    for file, content in kept.items():
        file.write_bytes(content)
    assert all(table.equal for table in pipeline.verify_lake(alone.config).tables)
    assert status_of(alone, "t").verified_through
    for file in kept:
        damage(file)

    compared = {table.name.table: table for table in verify(alone).tables}

    assert (compared["t"].state, compared["t"].is_unreadable) == ("failed", True)
    assert "binlake repair --config FILE" in compared["t"].remedy
    assert compared["whole"].equal
    for table, through in (("t", False), ("whole", True)):
        assert bool(status_of(alone, table).verified_through) is through
    status = status_of(alone, "t")
    assert status.reason.startswith("can't be read: ")
    assert status.remedy.startswith("binlake repair --config FILE")
    for file, content in kept.items():
        file.write_bytes(content)
    changed = pipeline.verify(alone.config, alone.origin, no_spark, Report(), VerifyRequest(changed=True))
    assert changed.equal
    assert status_of(alone, "t").verified_through
    assert status_of(alone, "t").reason is None


@pytest.mark.parametrize(("files", "damage"), DAMAGES[:-1])
def test_a_repair_puts_back_what_damaged_files_held(alone: Mirror, files: str, damage: Callable[[Path], None]) -> None:
    """And the rows of no other file are written."""
    # Of two vectors the newest is in use.
    damage(max(Path(path(alone, "t")).glob(files), key=lambda file: file.stat().st_mtime_ns))
    before = {file.name for file in Path(path(alone, "t")).glob("part-*.parquet")}
    (planned,) = [table for table in repair(alone, dry_run=True).tables if table.name.table == "t"]
    assert planned.is_unreadable

    repair(alone).refuse_unrepaired()

    assert verify(alone).equal
    assert status_of(alone, "t").verified_through
    assert status_of(alone, "t").reason is None
    assert len({file.name for file in Path(path(alone, "t")).glob("part-*.parquet")} - before) == 1
    alone.execute("UPDATE t SET v = 'later'", "INSERT INTO t VALUES (1, 'again')")
    sync(alone)
    assert verify(alone).equal


def test_a_repair_that_puts_nothing_right_leaves_damaged_files(alone: Mirror) -> None:
    """Readers would miss their rows without a word."""
    (file, *_) = sorted(Path(path(alone, "t")).glob("part-*.parquet"))
    file.unlink()
    version = alone.version("t")
    with mock.patch("binlake.verify.repair.repair.Repairs._refuse_unknown", side_effect=Unrepairable("a reason")):
        (refused,) = [table for table in repair(alone).tables if table.name.table == "t"]
    assert refused.repair
    assert (refused.repair.state, refused.repair.reason) == ("refused", "a reason")
    assert alone.version("t") == version
    assert status_of(alone, "t").reason.startswith("can't be read: ")


@pytest.mark.parametrize("remedy", ["restored", "moved away"])
def test_a_log_that_cannot_be_read_stops_its_table_alone(alone: Mirror, remedy: str) -> None:
    kept = damage_first_commit(path(alone, "t"))
    alone.execute("INSERT INTO whole VALUES (2)")
    sync(alone)
    assert status_of(alone, "t").status == "following"  # nothing changed it, and it isn't read
    for number in (20, 21):
        alone.execute(f"INSERT INTO t VALUES ({number}, 'x')", f"INSERT INTO whole VALUES ({number})")
        sync(alone)
        status = status_of(alone, "t")
        assert (status.status, "reading the Delta table" in status.reason) == ("stopped", True)
        assert f"move {path(alone, 't')} away" in status.remedy
        assert status_of(alone, "whole").status == "following"
        alone.assert_equal("whole")
    forget_what_is_in_memory()
    if remedy == "restored":
        first_commit(path(alone, "t")).write_bytes(kept)
        name = TableName(alone.database, "t")
        pipeline.resume(alone.config, alone.origin, no_spark, Report(), name, Reason("ann", "it was restored"))
    else:
        shutil.rmtree(path(alone, "t"))
        alone.options = {**alone.options, "snapshot": {"reader": "direct"}}
        pipeline.bootstrap(alone.config, alone.origin, NoSession(), Report(), tables=[f"{alone.database}.t"])  # type: ignore[arg-type]
    alone.execute("DELETE FROM t WHERE id = 20", "INSERT INTO whole VALUES (4)")
    sync(alone)
    assert status_of(alone, "t").status == "following"
    alone.assert_equal("t", "whole")


def test_a_snapshot_of_all_tables_leaves_out_one_whose_log_cannot_be_read(alone: Mirror) -> None:
    damage_first_commit(path(alone, "t"))
    alone.options = {**alone.options, "snapshot": {"reader": "direct"}}
    alone.execute("INSERT INTO t VALUES (20, 'x')", "INSERT INTO whole VALUES (2)")
    before = alone.watermark("whole")["table_id"]
    with pytest.raises(TableError, match="reading the Delta table") as refused:
        pipeline.bootstrap(alone.config, alone.origin, NoSession(), Report())  # type: ignore[arg-type]
    assert f"move {path(alone, 't')} away" in refused.value.remedy
    assert alone.watermark("whole")["table_id"] != before
    sync(alone)
    assert status_of(alone, "t").status == "stopped"
    assert status_of(alone, "whole").status == "following"
    alone.assert_equal("whole")


def test_by_policy_a_log_that_cannot_be_read_ends_the_run(alone: Mirror) -> None:
    alone.options = {**alone.options, "policies": {"on_merge_failure": "stop_run"}}
    damage_first_commit(path(alone, "t"))
    alone.execute("INSERT INTO t VALUES (20, 'x')")
    with pytest.raises(TableError, match="reading the Delta table"):
        sync(alone)


@pytest.mark.parametrize("mode", ["history", "log"])
def test_a_history_or_log_whose_log_cannot_be_read_stands_still_alone(alone: Mirror, mode: BesideMode) -> None:
    alone.modes = [{"tables": "*.t", mode: {}}]
    alone.execute("INSERT INTO t VALUES (20, 'x')")
    sync(alone)
    folder = alone.config.beside_path(TableName(alone.database, "t"), mode)
    damage_first_commit(folder)
    for number in (21, 22):
        alone.execute(f"INSERT INTO t VALUES ({number}, 'y')", f"INSERT INTO whole VALUES ({number})")
        sync(alone)
        alone.assert_equal("t", "whole")
    (problem,) = read_status(alone.config).beside
    assert "reading the Delta table" in problem.problem
    shutil.rmtree(folder)
    forget_what_is_in_memory()
    alone.execute("INSERT INTO t VALUES (23, 'z')")
    sync(alone)
    alone.assert_equal("t", "whole")
    assert read_status(alone.config).beside == ()


def first_commit(folder: str) -> Path:
    return Path(folder, "_delta_log", f"{0:020}.json")


def damage_first_commit(folder: str) -> bytes:
    """Empty a table's first commit, which holds its columns, and return what it held."""
    kept = first_commit(folder).read_bytes()
    first_commit(folder).write_bytes(b"")
    forget_what_is_in_memory()
    return kept
