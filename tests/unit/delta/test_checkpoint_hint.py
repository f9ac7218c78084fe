"""The hint at the newest checkpoint of a Delta log is a hint: whatever it says, the table is read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta import checkpoints, log_files, opened_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import HINT, CheckpointHint

WRONG = [
    '{"version":99,"size":9}', '{"version":9,"size":9}', '{"version":3,"size":9}', "[]", "null", '"x"', "7", "{}", "{",
    "", "[" * 100_000, '{"version":"5"}', '{"version":null}', '{"version":true}', '{"version":-1}', '{"version":1e400}',
    '{"version":5,"parts":0}', '{"version":5,"parts":1000000000}', '{"version":5,"parts":"2"}',
]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table with a checkpoint at version 5, four commits behind it, and without the commits before."""
    path = str(tmp_path / "t")
    for number in range(6):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    DeltaTable(path).create_checkpoint()
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    for number in range(5):
        Path(path, f"_delta_log/{number:020}.json").unlink()
    return path


@pytest.mark.parametrize("hint", WRONG, ids=lambda hint: hint[:30] or "empty")
def test_a_wrong_hint_keeps_nobody_from_a_table(hint: str, table: str) -> None:
    Path(table, HINT).write_text(hint)
    log = LakeLog(table, "binlake:s:t")
    assert (log.version(), log.rows(), log.recorded()) == (9, 10, -1)
    checkpoints.is_time(table, 9)
    checkpoints.write(table, 9)
    assert json.loads(Path(table, HINT).read_text())["version"] in (5, 9, 3)
    write_deltalake(table, pa.table({"n": [10]}), mode="append")
    assert LakeLog(table, "binlake:s:t").rows() == 11
    assert opened_tables.opened(table, 9).version() == 9


@pytest.mark.parametrize("hint", WRONG, ids=lambda hint: hint[:30] or "empty")
def test_actions_are_read_whatever_the_hint_says(hint: str, table: str) -> None:
    name = DeltaTable(table, version=5).get_add_actions().column("path")[0].as_py()
    Path(table, HINT).write_text(hint)
    actions = log_files.added(table, 5, [name])
    assert actions is None or actions.keys() == {name}
    if "version" not in hint:
        assert actions is not None


def test_a_right_hint_stays(table: str) -> None:
    assert log_files.read_hint(table) == CheckpointHint(5)
    assert not log_files.remove_wrong_hint(table)
    assert log_files.read_hint(table) == CheckpointHint(5)
    assert log_files.checkpoint_before(table, 9) == ([f"{table}/_delta_log/{5:020}.checkpoint.parquet"], 6)


def test_a_table_without_a_hint_has_none(table: str) -> None:
    Path(table, HINT).unlink()
    assert log_files.read_hint(table) is None
    assert not log_files.remove_wrong_hint(table)


def test_the_parts_of_a_checkpoint_are_numbered() -> None:
    paths = CheckpointHint(5, 2).paths("t")
    assert paths == [f"t/_delta_log/{5:020}.checkpoint.{n:010}.{2:010}.parquet" for n in (1, 2)]
