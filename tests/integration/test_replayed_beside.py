"""What a history or a log lost is written again from the staging that is kept, once, and only if it is proved."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from begun_alone import begin_alone
from binlake.config.table_modes import BesideMode
from binlake.errors import CheckFailed
from binlake.faults import FaultPoint
from binlake.records.status import read_status
from binlake.schema.table import TableName
from binlake.store.metadata import query
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import repair, sync, verify

pytestmark = on_mysql
MODES: tuple[BesideMode, ...] = ("history", "log")
BATCHES = (
    ["UPDATE t SET v = 'x' WHERE id < 3"],
    ["DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 'd')"],
    ["ALTER TABLE t ADD n INT", "UPDATE t SET n = 7, v = 'y' WHERE id = 1"],
    ["UPDATE t SET v = 'z' WHERE id IN (1, 3)", "XA START 'x'", "INSERT INTO t VALUES (8, 'xa', 8)", "XA END 'x'",
     "XA PREPARE 'x'"],
    ["XA COMMIT 'x'", "DELETE FROM t WHERE id = 4"],
)  # fmt: skip


@pytest.fixture
def alone(server: Server, database: str, lake: Any) -> Mirror:
    """A table with a history and a log, to which several batches came, whose staging is kept."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.modes = [{"tables": f"{database}.t", "history": {}, "log": {}}]
    mirror.options = {"maintain": {"staging_hours": 24}}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    begin_alone(mirror)
    for statements in BATCHES:
        mirror.execute(*statements)
        sync(mirror)
    return mirror


def path(mirror: Mirror, mode: BesideMode) -> Path:
    return Path(mirror.config.beside_path(TableName(mirror.database, "t"), mode))


def rows(mirror: Mirror, mode: BesideMode) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in query(str(path(mirror, mode))).to_pylist())


def lose_commits(mirror: Mirror, mode: BesideMode, count: int) -> None:
    for commit in sorted(path(mirror, mode).glob("_delta_log/0*.json"))[-count:]:
        commit.unlink()


def lose_newest_file(mirror: Mirror, mode: BesideMode) -> None:
    """The newest data file that is in use is gone."""
    log = DeltaTable(str(path(mirror, mode)))
    used = [path(mirror, mode) / name for name in pa.table(log.get_add_actions())["path"].to_pylist()]
    max(used, key=lambda file: file.stat().st_mtime_ns).unlink()


def by_somebody_else(mirror: Mirror, mode: BesideMode) -> None:
    """Somebody deletes rows of the table, in a commit."""
    DeltaTable(str(path(mirror, mode))).delete("operation = 'update'" if mode == "log" else "NOT is_current")


def gone_staging(mirror: Mirror, batch: int) -> None:
    shutil.rmtree(mirror.config.staging_path(str(batch)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lost", [1, 3])
def test_commits_that_are_lost(alone: Mirror, mode: BesideMode, lost: int) -> None:
    before = rows(alone, mode)
    lose_commits(alone, mode, lost)
    repair(alone).refuse_unrepaired()
    assert rows(alone, mode) == before
    assert verify(alone).equal
    assert read_status(alone.config).beside == ()


@pytest.mark.parametrize("mode", MODES)
def test_batches_that_passed_while_it_stood_still(alone: Mirror, mode: BesideMode) -> None:
    lose_commits(alone, mode, 1)
    alone.execute("UPDATE t SET v = 'unseen' WHERE id = 3")
    sync(alone)
    alone.execute("DELETE FROM t WHERE id = 3")
    sync(alone)
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal
    unseen = [text for text in rows(alone, mode) if "'unseen'" in text]
    assert len(unseen) == (1 if mode == "history" else 2)
    assert not any("'gap'" in text for text in rows(alone, mode))
    alone.execute("INSERT INTO t VALUES (11, 'later', 1)")
    sync(alone)
    assert verify(alone).equal
    assert len(rows(alone, mode)) == rows(alone, mode).total()


@pytest.mark.parametrize("damage", [lose_newest_file, by_somebody_else])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noted", [True, False])
def test_rows_that_are_lost(alone: Mirror, mode: BesideMode, damage: Any, noted: bool) -> None:
    if noted:
        assert verify(alone).equal
    before = rows(alone, mode)
    damage(alone, mode)
    assert verify(alone).equal is False
    planned = [table.repair.state for table in repair(alone, dry_run=True).tables if table.repair]
    assert planned == ["planned"]
    repair(alone).refuse_unrepaired()
    assert rows(alone, mode) == before
    assert verify(alone).equal
    assert read_status(alone.config).beside == ()


@pytest.mark.parametrize("mode", MODES)
def test_a_part_that_is_lost_comes_once(alone: Mirror, mode: BesideMode) -> None:
    """Of a batch's rows one alone is lost, and then all of them: the repair that was killed is done once more."""
    before = rows(alone, mode)
    lose_newest_file(alone, mode)
    points: tuple[FaultPoint, ...] = ("data file written", "rows committed")
    for point in points:
        with alone.cut_off_at(point):
            repair(alone)
    repair(alone)
    assert rows(alone, mode) == before
    assert verify(alone).equal


def test_a_log_whose_first_file_is_lost_is_written_again_from_nothing(alone: Mirror) -> None:
    before = rows(alone, "log")
    log = DeltaTable(str(path(alone, "log")), version=0)
    (first,) = pa.table(log.get_add_actions())["path"].to_pylist()
    (path(alone, "log") / first).unlink()
    repair(alone).refuse_unrepaired()
    assert rows(alone, "log") == before
    assert verify(alone).equal


@pytest.mark.parametrize("mode", MODES)
def test_without_staging_it_stays_refused_with_a_reason(alone: Mirror, mode: BesideMode) -> None:
    before = rows(alone, mode)
    newest = max(int(folder.name) for folder in Path(alone.config.staging_path("1")).parent.iterdir())
    lose_newest_file(alone, mode)
    gone_staging(alone, newest)
    report = repair(alone)
    with pytest.raises(CheckFailed):
        report.refuse_unrepaired()
    (refused,) = [table for table in report.tables if table.repair]
    assert refused.repair is not None
    assert f"the staging of batch {newest} is gone" in refused.repair.reason
    assert "restore its files" in refused.repair.remedy
    (problem,) = read_status(alone.config).beside
    assert problem.table == f"{alone.database}.t__{mode}"
    assert problem.problem
    assert len(before) == before.total()


@pytest.mark.parametrize("mode", MODES)
def test_a_delta_log_that_cannot_be_read_is_refused(alone: Mirror, mode: BesideMode) -> None:
    sorted(path(alone, mode).glob("_delta_log/0*.json"))[2].unlink()
    (refused,) = [table for table in repair(alone).tables if table.repair]
    assert refused.repair is not None
    assert (refused.name.table, refused.repair.state) == (f"t__{mode}", "refused")
    assert "read" in refused.repair.reason
    assert "restore its files" in refused.repair.remedy


@pytest.mark.parametrize("mode", MODES)
def test_a_result_that_is_not_proved_is_not_put_in_place(alone: Mirror, mode: BesideMode) -> None:
    """Rows were verified that no version and no staging gives again: nothing is written."""
    assert verify(alone).equal
    metadata = alone.metadata
    (noted,) = [row for row in metadata.read("verified", where="chunk = -1") if row["table"] == f"t__{mode}"]
    metadata.replace(
        "verified", f"chunk = -1 AND table_id = '{noted['table_id']}'", [{**noted, "rows": noted["rows"] + 1}]
    )
    version = DeltaTable(str(path(alone, mode))).version()
    lose_newest_file(alone, mode)
    with pytest.raises(CheckFailed):
        repair(alone).refuse_unrepaired()
    assert DeltaTable(str(path(alone, mode))).version() == version


def test_a_history_that_was_compared_with_the_mirror_meanwhile_goes_on_from_the_mirror(alone: Mirror) -> None:
    lose_commits(alone, "history", 1)
    alone.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'n')")
    sync(alone)
    repair(alone).refuse_unrepaired()
    current = [row for row in query(str(path(alone, "history"))).to_pylist() if row["is_current"]]
    assert [(row["id"], row["v"]) for row in current] == [(1, "n")]
    assert verify(alone).equal


def test_the_commit_tells_what_it_wrote_again(alone: Mirror) -> None:
    lose_commits(alone, "log", 1)
    repair(alone)
    newest = max(path(alone, "log").glob("_delta_log/0*.json"))
    info = json.loads(newest.read_text().splitlines()[0])["commitInfo"]
    note = json.loads(info["userMetadata"])["binlake"]
    assert note["replayed"] == {"first": 5, "rows": {"5": 2}}
