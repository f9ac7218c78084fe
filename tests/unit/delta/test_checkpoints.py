"""Checkpoints stay small where files live for seconds, and tell of every other file that was replaced."""

from __future__ import annotations

import itertools
import json
import random
import stat
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta import checkpoints, delta_commits
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.log_files import LogFiles


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of one row, whose checkpoints come every ten commits."""
    monkeypatch.setattr(checkpoints, "_SECONDS", 0)
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"n": [0]}))
    return path


def add() -> DeltaAction:
    stats = json.dumps({"numRecords": 1})
    fields = {"partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True, "stats": stats}
    return {"add": {"path": f"part-{uuid.uuid4()}.parquet", **fields}}


def remove(added: DeltaAction) -> DeltaAction:
    at = int(time.time() * 1000)
    return {"remove": {"path": added["add"]["path"], "deletionTimestamp": at, "dataChange": True}}


def info(hours_ago: float) -> DeltaAction:
    return {"commitInfo": {"timestamp": int((time.time() - hours_ago * 3600) * 1000), "operation": "MERGE"}}


def tombstones(table: Path) -> set[str]:
    checkpoint = max((table / "_delta_log").glob("*.checkpoint.parquet"))
    removed = pq.ParquetFile(checkpoint).read(columns=["remove.path"])["remove"].to_pylist()
    return {action["path"] for action in removed if action and action["path"]}


def commits(table: Path, actions: list[list[DeltaAction]]) -> None:
    for change in actions:
        delta_commits.commit(DeltaTable(str(table)), str(table), change)


def test_a_checkpoint_leaves_out_files_that_lived_for_seconds(table: Path) -> None:
    first = DeltaTable(str(table)).file_uris()[0].rpartition("/")[2]
    old, brief = [add() for _ in range(4)], [add() for _ in range(30)]
    commits(table, [[info(2), *old]])
    commits(table, [[info(0), new, *([remove(before)] if before else [])] for before, new in
                    zip([None, *brief[:-1]], brief, strict=True)])  # fmt: skip
    commits(table, [[info(0), remove(old[0]), remove({"add": {"path": first}})]])
    commits(table, [[info(0), add()] for _ in range(8)])
    newest = DeltaTable(str(table))
    assert newest.version() % 10 == 0
    removed = tombstones(table)
    assert removed > {old[0]["add"]["path"], first}, "who looks for files that may go must leave these"
    assert len(removed) < 2 + 8
    there = {uri.rpartition("/")[2] for uri in newest.file_uris()}
    assert len(there) == 4 + 8
    assert {file["add"]["path"] for file in (*old[1:], brief[-1])} < there
    assert LogFiles.of(str(table)).needed_by(newest.version()) == there
    log = table / "_delta_log"
    hint = json.loads((log / "_last_checkpoint").read_text())
    checkpoint = max(log.glob("*.checkpoint.parquet"))
    assert (hint["version"], hint["sizeInBytes"]) == (newest.version(), checkpoint.stat().st_size)
    assert hint["size"] == pq.read_metadata(checkpoint).num_rows
    assert stat.S_IMODE(checkpoint.stat().st_mode) == stat.S_IMODE(min(log.glob("*.json")).stat().st_mode)


def marks(added: DeltaAction, number: int) -> DeltaAction:
    """The file with another deletion vector."""
    vector = {"storageType": "u", "pathOrInlineDv": f"{number:020}", "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    return {"add": {**added["add"], "deletionVector": vector}}


def unmarked(added: DeltaAction) -> DeltaAction:
    """The removal of a file with its deletion vector."""
    gone, vector = remove(added)["remove"], added["add"].get("deletionVector")
    return {"remove": {**gone, **({"deletionVector": vector} if vector else {})}}


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced at last", "still there"])
def test_a_checkpoint_tells_when_an_old_file_was_replaced_that_got_marks_for_minutes(
    table: Path, is_replaced: bool
) -> None:
    """Delta's VACUUM removes it by this time: it is older than the retention, and its readers came a minute ago."""
    old = add()
    marked = [old, *(marks(old, number) for number in range(17))]
    commits(table, [[info(2), old]])
    commits(table, [[info(0), unmarked(before), after] for before, after in itertools.pairwise(marked)])
    assert DeltaTable(str(table)).version() == 18
    last = unmarked(marked[-1]) if is_replaced else add()
    commits(table, [[info(0), last], [info(0), add()]])
    checkpoint = max((table / "_delta_log").glob("*.checkpoint.parquet"))
    removed = pq.ParquetFile(checkpoint).read(columns=["remove"])["remove"].to_pylist()
    of_file = [gone for gone in removed if gone and gone["path"] == old["add"]["path"]]
    without_marks, *others = sorted(of_file, key=lambda gone: gone["deletionTimestamp"])
    assert without_marks["deletionVector"] is None
    assert [gone["deletionTimestamp"] for gone in others] == (
        [last["remove"]["deletionTimestamp"]] if is_replaced else []
    )


def test_a_checkpoint_tells_of_all_files_of_a_table_that_changes_by_the_hour(table: Path) -> None:
    hourly = [add() for _ in range(20)]
    commits(table, [[info(30 - number), new, *([remove(before)] if before else [])] for number, (before, new) in
                    enumerate(zip([None, *hourly[:-1]], hourly, strict=True))])  # fmt: skip
    assert tombstones(table) == {file["add"]["path"] for file in hourly[:-1]}


def test_commits_of_seconds_have_few_checkpoints(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_SECONDS", 3600)
    monkeypatch.setattr(checkpoints, "_COMMITS", 20)
    commits(table, [[info(0), add()] for _ in range(59)])
    first, second, *_ = sorted(int(file.name[:20]) for file in (table / "_delta_log").glob("*.checkpoint.parquet"))
    assert (first, 30 <= second <= 50) == (10, True)


def test_tables_that_change_together_write_their_checkpoints_in_different_batches() -> None:
    patience = [checkpoints.patience_of(f"/lake/shop/t{number}") for number in range(50)]
    assert (min(patience) >= 1, max(patience) < 2) == (True, True)
    assert len(set(patience)) > 20


def transaction(version: int) -> DeltaAction:
    return {"txn": {"appId": f"app {version % 3}", "version": version, "lastUpdated": version}}


def random_changes(chance: random.Random, count: int) -> list[list[DeltaAction]]:
    """Commits that add files, give some of them deletion vectors, replace some, and bring one back."""
    there: list[DeltaAction] = []
    gone: list[DeltaAction] = []
    changes = []
    for number in range(count):
        change = [info(0), transaction(number)]
        added = gone.pop() if gone and not chance.randrange(4) else add()
        for _ in range(min(len(there), chance.randrange(3))):
            old = there.pop(chance.randrange(len(there)))
            change.append(unmarked(old))
            if chance.randrange(2):
                there.append(marks(old, number))
                change.append(there[-1])
            else:
                gone.append(old)
        there.append(added)
        changes.append([*change, added])
    return changes


def rows_of(actions: pa.Table) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in actions.to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_a_checkpoint_that_is_continued_is_the_one_that_deltalake_writes(tmp_path: Path, seed: int) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"n": [0]}), configuration={"delta.checkpointInterval": "1000"})
    DeltaTable(table).create_checkpoint()
    for version, change in enumerate(random_changes(random.Random(seed), 40), 1):
        delta_commits.write(table, version, change)
        if version % 20 == 0:
            continued = checkpoints.continued(table, version)
            DeltaTable(table).create_checkpoint()
            written = pq.ParquetFile(f"{table}/_delta_log/{version:020}.checkpoint.parquet").read()
            assert continued is not None
            assert continued.schema == written.schema
            assert rows_of(continued) == rows_of(written)


def test_of_a_table_that_is_followed_deltalake_writes_a_checkpoint_after_one_to_two_hours(table: Path) -> None:
    def by_deltalake(count: int) -> bool:
        before = checkpoints._by_deltalake.get(str(table))
        commits(table, [[info(0), add()] for _ in range(count)])
        newest = DeltaTable(str(table))
        assert json.loads((table / "_delta_log" / "_last_checkpoint").read_text())["version"] == newest.version()
        assert pq.read_metadata(max((table / "_delta_log").glob("*.checkpoint.parquet"))).num_rows == count_of(newest)
        return checkpoints._by_deltalake.get(str(table)) != before

    def count_of(newest: DeltaTable) -> int:
        return len(newest.file_uris()) + 2  # the schema, and the protocol

    assert [by_deltalake(10), by_deltalake(10), by_deltalake(10)] == [True, False, False]
    checkpoints._by_deltalake.put(str(table), (checkpoints._by_deltalake.get(str(table)) or 0.0) - 7200)
    assert [by_deltalake(10), by_deltalake(10)] == [True, False]


def metadata(table: Path) -> DeltaAction:
    """The table's settings, written again."""
    for line in (table / "_delta_log" / f"{0:020}.json").read_text().splitlines():
        if "metaData" in (action := json.loads(line)):
            return {"metaData": action["metaData"]}
    raise AssertionError


@pytest.mark.parametrize("case", ["settings", "another field", "an encoded path", "no checkpoint", "other columns"])
def test_deltalake_writes_a_checkpoint_of_more_than_plain_files(table: Path, case: str) -> None:
    if case != "no checkpoint":
        DeltaTable(str(table)).create_checkpoint()
    if case == "other columns":
        checkpoint = min((table / "_delta_log").glob("*.checkpoint.parquet"))
        actions = pq.ParquetFile(checkpoint).read()
        pq.write_table(actions.append_column("more", pa.nulls(actions.num_rows, pa.string())), checkpoint)
    added = add()
    if case == "another field":
        added["add"]["future"] = 1
    if case == "an encoded path":
        added["add"]["path"] = "n=%20/part.parquet"
    delta_commits.write(str(table), 1, [info(0), metadata(table) if case == "settings" else added])
    assert checkpoints.continued(str(table), 1) is None
