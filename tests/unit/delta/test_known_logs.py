"""What is known of a table's log is continued by the commits behind it, and is never that of another table."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from binlake.delta import delta_commits, log_files, opened_tables
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_log import LakeLog

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
    return opened_tables.transaction_version(path, DeltaTable(path), app)


def files(path: str) -> list[str]:
    return files_of(DeltaTable(path))


def files_of(table: DeltaTable) -> list[str]:
    paths: list[str] = pa.table(table.get_add_actions())["path"].to_pylist()
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
    assert opened_tables.transaction_version(path, log, APP) == 1
    assert opened_tables.added(path, 0, first)
    commit(path, 2)
    log.update_incremental()
    assert opened_tables.transaction_version(path, log, APP) == 2
    commit(path, 3)
    log.update_incremental()
    forget_commit(path, 0)
    assert opened_tables.transaction_version(path, log, APP) == 3
    assert (opened_tables.added(path, 2, first) or {}).keys() == set(first)


def test_a_table_that_was_made_anew_is_another(path: str) -> None:
    commit(path, 2)
    before = files(path)
    assert recorded(path) == 2
    assert opened_tables.added(path, 1, before)
    shutil.rmtree(path)
    for version in (5, 6, 7):
        commit(path, version, "another")
    assert recorded(path) is None
    assert recorded(path, "another") == 7
    assert opened_tables.added(path, 2, before) is None
    assert (opened_tables.added(path, 2, files(path)) or {}).keys() == set(files(path))


def test_an_older_version_is_read_by_itself(path: str) -> None:
    older = DeltaTable(path)
    commit(path, 2)
    assert recorded(path) == 2
    assert opened_tables.transaction_version(path, older, APP) == 1
    assert recorded(path) == 2


def test_files_come_go_and_get_deletion_vectors(path: str) -> None:
    (first,) = files(path)
    assert opened_tables.added(path, 0, [first])
    marked: DeltaAction = {
        **(log_files.added(path, 0, [first]) or {})[first].fields,
        "deletionVector": {"storageType": "u"},
    }
    delta_commits.write(path, 1, [{"remove": {"path": first}}, {"add": marked}])
    assert opened_tables.added(path, 1, [first]) == {first: Add(marked)}
    delta_commits.write(path, 2, [{"remove": {"path": first, "deletionVector": {"storageType": "u"}}}])
    assert opened_tables.added(path, 2, [first]) is None
    assert opened_tables.added(path, 2, []) == {}


def test_a_log_that_was_cleaned_up_is_read_from_its_checkpoint(path: str) -> None:
    assert recorded(path) == 1
    for version in (2, 3, 4):
        commit(path, version)
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        forget_commit(path, version)
    assert recorded(path) == 4
    assert (opened_tables.added(path, 3, files(path)) or {}).keys() == set(files(path))


def test_no_checkpoint_is_read_for_files_that_came_behind_it(path: str) -> None:
    before = set(files(path))
    DeltaTable(path).create_checkpoint()
    commit(path, 2)
    (came,) = {*files(path)} - before
    (checkpoint,) = Path(path).glob("_delta_log/*.checkpoint.parquet")
    checkpoint.write_bytes(b"damaged")
    assert (log_files.added(path, 1, [came]) or {}).keys() == {came}
    assert log_files.added(path, 1, [came, *before]) is None


def test_a_commit_of_this_process_is_known_as_it_was_written(path: str) -> None:
    opened = opened_tables.newest(path)
    (first,) = (log_files.added(path, 0, files(path)) or {}).values()
    again = {**first.fields, "path": f"again-{first.path}", "partitionValues": {}, "dataChange": True}
    info = {"timestamp": 1, "operation": "MERGE", "userMetadata": json.dumps({"binlake": {"step": 1}})}
    actions = [
        {"commitInfo": info},
        {"txn": {"appId": APP, "version": 2}},
        {"add": again},
        {"remove": {**first.fields}},
    ]
    delta_commits.commit(opened, path, actions)
    assert opened_tables.info_at(path, 1) == info
    assert next(LakeLog(path, APP).history()) == {**info, "version": 1}
    assert files_of(opened_tables.newest(path)) == [again["path"]] == files(path)
    assert (recorded(path), opened_tables.added(path, 1, [again["path"]])) == (2, {again["path"]: Add(again)})
    commit(path, 3)
    assert opened_tables.info_at(path, 2) is None
    assert next(LakeLog(path, APP).history())["version"] == 2


def test_a_commit_with_other_settings_is_read(path: str) -> None:
    opened = opened_tables.newest(path)
    lines = (Path(path) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    metadata = next(action["metaData"] for action in map(json.loads, lines) if "metaData" in action)
    settings = {**metadata, "configuration": {"delta.logRetentionDuration": "interval 9 days"}}
    delta_commits.commit(opened, path, [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, {"metaData": settings}])
    assert opened_tables.newest(path).metadata().configuration == settings["configuration"]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_asked_in_any_order_is_what_the_log_says(path: str, seed: int) -> None:
    """Commits of several writers and applications, checkpoints, other settings, and a table in the place of another."""
    chance = random.Random(seed)

    def change() -> None:
        match chance.randrange(8):
            case 0:
                DeltaTable(path).create_checkpoint()
            case 1:
                DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": f"{chance.randrange(5, 90)}"})
            case 2:
                DeltaTable(path).delete(f"n = {chance.randrange(9)}")
            case 3 if not chance.randrange(4):
                shutil.rmtree(path)
                commit(path, chance.randrange(1, 9), "another")
            case _:
                commit(path, chance.randrange(1, 9), chance.choice([APP, "another"]))

    def ask() -> None:
        log = DeltaTable(path)
        if chance.randrange(3) and log.version():
            log = DeltaTable(path, version=chance.randrange(max(0, log.version() - 3), log.version() + 1))
        fresh = DeltaTable(path, version=log.version())
        app = chance.choice([APP, "another"])
        match chance.randrange(3):
            case 0:
                newest, expected = opened_tables.newest(path), DeltaTable(path)
                assert newest.version() == expected.version()
                assert newest.metadata().configuration == expected.metadata().configuration
                assert sorted(newest.file_uris()) == sorted(expected.file_uris())
                told, wanted = (pa.table(table.get_add_actions()).sort_by("path") for table in (newest, expected))
                assert told.to_pylist() == wanted.to_pylist()
            case 1:
                assert opened_tables.transaction_version(path, log, app) == fresh.transaction_version(app)
            case _:
                paths = chance.sample(there := files_of(fresh), min(len(there), 3))
                known = opened_tables.added(path, log.version(), paths)
                if known is not None:  # a checkpoint may be behind an older version
                    sizes = {file["path"]: file["size_bytes"] for file in pa.table(fresh.get_add_actions()).to_pylist()}
                    assert {name: add.size for name, add in known.items()} == {name: sizes[name] for name in paths}

    for _ in range(60):
        for step in chance.choices([change, ask], k=3):
            step()
