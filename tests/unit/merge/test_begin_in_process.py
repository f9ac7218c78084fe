"""A snapshot's commit by this process, whatever others commit meanwhile; test_first_commit.py holds it against
Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlake.config import PipelineConfig
from binlake.delta import delta_commits, plain_files, plain_tables
from binlake.delta.delta_actions import DataFile
from binlake.delta.delta_log import FENCES, LakeLog, overtaking
from binlake.delta.delta_schema import DeltaSchema
from binlake.errors import LakeTableChanged, LeaseHeld, LeftToSpark
from binlake.merge.engine import begin_in_process
from binlake.storage import files

SCHEMA = DeltaSchema((("id", "INT"),), "snapshot")
BATCH = 4
CONFIG = PipelineConfig.model_validate(
    {
        "source": {"name": "shop", "connection": "shop", "server_id": 1},
        "tables": {"include": ["d.*"]},
        "lake": {"path": "/nowhere"},
    }
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def there(path: str) -> str:
    """The path of a table that another life made of three rows."""
    begin(path, "old", 3, batch=BATCH - 1)
    return path


def begin(path: str, life: str, rows: int, *, batch: int = BATCH, is_ours: Callable[[], None] = lambda: None) -> None:
    data = copied(path, life, rows)
    log, note = LakeLog(path, f"binlake:shop:{life}"), {"binlake": {"snapshot": f"of {life}", "life": life}}
    begin_in_process.begin(log, SCHEMA, data, CONFIG, batch=batch, note=note, is_ours=is_ours)


def copied(path: str, life: str, rows: int) -> tuple[DataFile, ...]:
    return plain_files.write(path, f"snapshot-{life}", pa.table({"id": pa.array(range(rows), pa.int32())}))


def at(number: int, act: Callable[[], Any]) -> Callable[[], None]:
    """Return what does nothing but where it is called for this time, counted from one, where it acts."""
    calls = iter(range(1, 100))

    def called() -> None:
        if next(calls) == number:
            act()

    return called


def answers_lost(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the store say that a commit is there already, because it was asked twice."""
    write, refuse = files.write_if_absent, at(number, lambda: (_ for _ in ()).throw(FileExistsError()))

    def written(name: str, text: str) -> None:
        write(name, text)
        refuse()

    monkeypatch.setattr(files, "write_if_absent", written)


def recorded(path: str, life: str) -> int:
    return LakeLog(path, f"binlake:shop:{life}").recorded()


def snapshots(path: str) -> Iterator[str]:
    """Which snapshots were committed, the newest first."""
    for commit in LakeLog(path, "").history():
        if '"snapshot": "' in (note := commit.get("userMetadata", "")):
            yield note.partition('"snapshot": "of ')[2].partition('"')[0]


def test_it_comes_in_the_place_of_another_life(there: str) -> None:
    begin(there, "new", 5)
    assert (LakeLog(there, "").rows(), list(snapshots(there))) == (5, ["new", "old"])
    assert recorded(there, "old") == overtaking(BATCH) < recorded(there, "new")


@pytest.mark.parametrize("number", [1, 2], ids=["the fence", "the rows"])
def test_a_commit_whose_answer_is_lost_is_made_once(there: str, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    answers_lost(monkeypatch, number)
    begin(there, "new", 5)
    assert (LakeLog(there, "").rows(), list(snapshots(there))) == (5, ["new", "old"])


def test_a_first_commit_whose_answer_is_lost_is_made_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers_lost(monkeypatch, 1)
    begin(path, "new", 5)
    assert (LakeLog(path, "").rows(), list(snapshots(path))) == (5, ["new"])


def test_a_life_that_comes_behind_the_fence_meets_another(there: str) -> None:
    """Which is put up where the commit of the rows is refused."""

    def claim() -> None:
        log = LakeLog(there, "binlake:shop:late").opened()
        claimed = {"txn": {"appId": "binlake:shop:late", "version": 1, "lastUpdated": plain_tables.now()}}
        delta_commits.commit(log, there, [claimed])

    begin(there, "new", 5, is_ours=at(2, claim))
    assert recorded(there, "late") == overtaking(BATCH) < recorded(there, "new")
    assert (LakeLog(there, "").rows(), list(snapshots(there))) == (5, ["new", "old"])


def test_a_table_that_comes_within_the_commit_meets_a_fence(path: str) -> None:
    begin(path, "new", 5, is_ours=at(1, lambda: begin(path, "old", 3, batch=BATCH - 1)))
    assert recorded(path, "old") == overtaking(BATCH) < recorded(path, "new")
    assert (LakeLog(path, "").rows(), list(snapshots(path))) == (5, ["new", "old"])


def test_another_snapshot_of_the_same_life_isnt_taken_for_this_commit(there: str) -> None:
    """A run that lost its lease copied the table at the same position, and commits last what it read."""

    def commit() -> None:
        log, data = LakeLog(there, "binlake:shop:new"), copied(there, "woken", 4)
        note = {"binlake": {"snapshot": "of woken", "life": "new"}}
        begin_in_process.begin(log, SCHEMA, data, CONFIG, batch=BATCH, note=note, is_ours=lambda: None)

    begin(there, "new", 5, is_ours=at(2, commit))
    assert (LakeLog(there, "").rows(), list(snapshots(there))) == (5, ["new", "woken", "old"])


@pytest.mark.parametrize("number", [1, 2], ids=["before the fence", "before the rows"])
def test_who_lost_the_lease_commits_no_rows(there: str, number: int) -> None:
    def lose() -> None:
        raise LeaseHeld("another process holds the lease", remedy="wait")

    with pytest.raises(LeaseHeld):
        begin(there, "new", 5, is_ours=at(number, lose))
    assert (LakeLog(there, "").rows(), list(snapshots(there))) == (3, ["old"])


def test_names_that_need_column_mapping_are_left_to_spark_where_a_table_is(there: str) -> None:
    """Whose mode Spark changes in a commit before that of the rows."""
    odd, log = DeltaSchema((("i d", "INT"),), "snapshot"), LakeLog(there, "binlake:shop:new")
    with pytest.raises(LeftToSpark, match="odd names"):
        begin_in_process.check(log, odd, CONFIG)


def test_a_table_that_others_write_all_the_time_is_left(there: str) -> None:
    def write() -> None:
        info = {"timestamp": plain_tables.now(), "operation": "OPTIMIZE", "operationParameters": {}}
        delta_commits.commit(LakeLog(there, "").opened(), there, [{"commitInfo": info}])

    with pytest.raises(LakeTableChanged, match="was written by others"):
        begin(there, "new", 5, is_ours=write)
    assert (LakeLog(there, "").version(), LakeLog(there, "").rows()) == (FENCES, 3)
