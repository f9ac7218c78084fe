"""A history or a log that lost what a batch wrote to it is stopped, and the mirror continues."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from begun_alone import begin_alone
from binlake.config.table_modes import BesideMode
from binlake.errors import CheckFailed
from binlake.merge import beside
from binlake.records.status import read_status
from binlake.schema.table import TableName
from binlake.store.metadata import query
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import repair, sync, verify

pytestmark = on_mysql
MODES: tuple[BesideMode, ...] = ("history", "log")


@pytest.fixture
def alone(server: Server, database: str, lake: Any) -> Mirror:
    """A table with a history and a log, to which two batches came."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.modes = [{"tables": f"{database}.t", "history": {}, "log": {}}]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(mirror)
    for number in (3, 4):
        mirror.execute(f"INSERT INTO t VALUES ({number}, 'new')")
        sync(mirror)
    return mirror


def path(mirror: Mirror, mode: BesideMode) -> str:
    return mirror.config.beside_path(TableName(mirror.database, "t"), mode)


def rows(mirror: Mirror, mode: BesideMode) -> int:
    return query(path(mirror, mode)).num_rows


def newest_commit(mirror: Mirror, mode: BesideMode) -> Path:
    return max(Path(path(mirror, mode), "_delta_log").glob("0*.json"))


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_commit_is_told_and_nothing_is_written_behind_it(alone: Mirror, mode: BesideMode) -> None:
    other = next(other for other in MODES if other != mode)
    lost = newest_commit(alone, mode)
    content = lost.read_bytes()
    lost.unlink()
    before, others = rows(alone, mode), rows(alone, other)

    for number in (5, 6):
        alone.execute(f"INSERT INTO t VALUES ({number}, 'new')")
        sync(alone)
        assert rows(alone, mode) == before
        assert rows(alone, other) == others + number - 4
        (problem,) = read_status(alone.config).beside
        assert problem.table == f"{alone.database}.t__{mode}"
        assert "commits are lost" in problem.problem
        assert "binlake repair --config FILE --tables" in problem.remedy
    assert verify(alone).compared[0].equal
    lost.write_bytes(content)  # it comes back, without what came meanwhile
    alone.execute("INSERT INTO t VALUES (7, 'new')")
    sync(alone)
    assert rows(alone, mode) == before + 1
    assert "lacks batches" in read_status(alone.config).beside[0].problem


@pytest.mark.parametrize("mode", MODES)
def test_what_somebody_else_wrote_is_told(alone: Mirror, mode: BesideMode) -> None:
    DeltaTable(path(alone, mode)).restore(0 if mode == "log" else 1)
    alone.execute("INSERT INTO t VALUES (5, 'new')")
    sync(alone)
    assert "RESTORE at Delta version" in read_status(alone.config).beside[0].problem


@pytest.mark.parametrize("mode", MODES)
def test_an_unexpected_error_stops_it_alone(alone: Mirror, mode: BesideMode, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(step: Any, commit: Any) -> None:
        raise RecursionError

    other = next(other for other in MODES if other != mode)
    before, others = rows(alone, mode), rows(alone, other)
    with monkeypatch.context() as broken:
        broken.setitem(beside.WRITERS, mode, fails)  # type: ignore[arg-type]
        alone.execute("INSERT INTO t VALUES (5, 'new')")
        sync(alone)
    alone.execute("INSERT INTO t VALUES (6, 'new')")
    sync(alone)
    assert rows(alone, mode) == before
    assert rows(alone, other) == others + 2
    (problem,) = read_status(alone.config).beside
    assert problem.table == f"{alone.database}.t__{mode}"
    assert "lacks batches" in problem.problem
    assert "binlake repair --config FILE --tables" in problem.remedy
    assert verify(alone).compared[0].equal


def test_upkeep_and_a_folder_that_is_moved_away_are_none_of_it(alone: Mirror) -> None:
    DeltaTable(path(alone, "log")).optimize.compact()
    Path(path(alone, "history")).rename(f"{path(alone, 'history')}_aside")
    alone.execute("INSERT INTO t VALUES (5, 'new')")
    sync(alone)
    assert read_status(alone.config).beside == ()
    assert rows(alone, "log") == 3


@pytest.mark.parametrize("mode", MODES)
def test_an_error_while_it_is_first_created_stops_it_alone(
    alone: Mirror, mode: BesideMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch begins it."""

    def fails(step: Any, commit: Any) -> None:
        raise RecursionError

    other = next(other for other in MODES if other != mode)
    shutil.rmtree(path(alone, mode))
    others = rows(alone, other)
    with monkeypatch.context() as broken:
        broken.setitem(beside.WRITERS, mode, fails)  # type: ignore[arg-type]
        alone.execute("INSERT INTO t VALUES (5, 'new')")
        sync(alone)
    assert not Path(path(alone, mode)).exists()
    assert rows(alone, other) == others + 1
    (problem,) = read_status(alone.config).beside
    assert problem.table == f"{alone.database}.t__{mode}"
    assert "RecursionError" in problem.problem
    assert verify(alone).compared[0].equal
    alone.execute("INSERT INTO t VALUES (6, 'new')")
    sync(alone)
    assert read_status(alone.config).beside == ()
    assert rows(alone, mode) == (6 if mode == "history" else 1)
    assert all(table.equal for table in verify(alone).tables)


@pytest.mark.parametrize("mode", MODES)
def test_somebody_elses_table_in_its_place_stops_it_alone(alone: Mirror, mode: BesideMode) -> None:
    other = next(other for other in MODES if other != mode)
    shutil.rmtree(path(alone, mode))
    write_deltalake(path(alone, mode), pa.table({"id": [1]}))
    others = rows(alone, other)
    for number in (5, 6):
        alone.execute(f"INSERT INTO t VALUES ({number}, 'new')")
        sync(alone)
        assert rows(alone, mode) == 1
        assert rows(alone, other) == others + number - 4
        assert any("isn't the" in problem.problem for problem in read_status(alone.config).beside)
    with pytest.raises(CheckFailed):
        repair(alone).refuse_unrepaired()
    assert rows(alone, mode) == 1
    shutil.rmtree(path(alone, mode))
    alone.execute("INSERT INTO t VALUES (7, 'new')")
    sync(alone)
    assert rows(alone, mode) == (7 if mode == "history" else 1)
    assert read_status(alone.config).beside == ()
    alone.assert_equal("t")
