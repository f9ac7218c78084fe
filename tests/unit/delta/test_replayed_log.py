"""What is known of a table's log is continued by the commits behind it, and is never that of another table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from binlake.delta import delta_actions, delta_commits, replayed_log
from binlake.delta.delta_actions import DeltaAction

APP = "binlake:shop:1"


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    commit(path, 1)
    return path


def commit(path: str, version: int, app: str = APP) -> None:
    """Append a row under a transaction version."""
    properties = CommitProperties(app_transactions=[Transaction(app, version)])
    write_deltalake(path, pa.table({"n": [version]}), mode="append", commit_properties=properties)


def recorded(path: str, app: str = APP) -> int | None:
    return replayed_log.transaction_version(path, DeltaTable(path), app)


def files(path: str) -> list[str]:
    paths: list[str] = pa.table(DeltaTable(path).get_add_actions())["path"].to_pylist()
    return paths


def forget_commit(path: str, version: int) -> None:
    (Path(path) / "_delta_log" / f"{version:020}.json").unlink()


def test_each_further_commit_is_seen(path: str) -> None:
    assert recorded(path) == 1
    for version in (2, 3):
        commit(path, version)
        assert recorded(path) == version
    assert recorded(path, "another") is None
    commit(path, 7, "another")
    assert (recorded(path), recorded(path, "another")) == (3, 7)


def test_only_commits_that_came_since_are_read(path: str) -> None:
    first = files(path)
    log = DeltaTable(path)
    assert replayed_log.transaction_version(path, log, APP) == 1
    assert replayed_log.added(path, 0, first)
    commit(path, 2)
    log.update_incremental()
    assert replayed_log.transaction_version(path, log, APP) == 2
    commit(path, 3)
    log.update_incremental()
    forget_commit(path, 0)
    assert replayed_log.transaction_version(path, log, APP) == 3
    assert (replayed_log.added(path, 2, first) or {}).keys() == set(first)


def test_a_table_that_was_made_anew_is_another(path: str) -> None:
    commit(path, 2)
    before = files(path)
    assert recorded(path) == 2
    assert replayed_log.added(path, 1, before)
    shutil.rmtree(path)
    for version in (5, 6, 7):
        commit(path, version, "another")
    assert recorded(path) is None
    assert recorded(path, "another") == 7
    assert replayed_log.added(path, 2, before) is None
    assert (replayed_log.added(path, 2, files(path)) or {}).keys() == set(files(path))


def test_an_older_version_is_read_by_itself(path: str) -> None:
    older = DeltaTable(path)
    commit(path, 2)
    assert recorded(path) == 2
    assert replayed_log.transaction_version(path, older, APP) == 1
    assert recorded(path) == 2


def test_files_come_go_and_get_deletion_vectors(path: str) -> None:
    (first,) = files(path)
    assert replayed_log.added(path, 0, [first])
    marked: DeltaAction = {
        **(delta_actions.added(path, 0, [first]) or {})[first],
        "deletionVector": {"storageType": "u"},
    }
    delta_commits.write(path, 1, [{"remove": {"path": first}}, {"add": marked}])
    assert replayed_log.added(path, 1, [first]) == {first: marked}
    delta_commits.write(path, 2, [{"remove": {"path": first, "deletionVector": {"storageType": "u"}}}])
    assert replayed_log.added(path, 2, [first]) is None
    assert replayed_log.added(path, 2, []) == {}


def test_a_log_that_was_cleaned_up_is_read_from_its_checkpoint(path: str) -> None:
    assert recorded(path) == 1
    for version in (2, 3, 4):
        commit(path, version)
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        forget_commit(path, version)
    assert recorded(path) == 4
    assert (replayed_log.added(path, 3, files(path)) or {}).keys() == set(files(path))
