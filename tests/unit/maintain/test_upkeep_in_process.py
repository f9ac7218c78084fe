"""Small data files become one, with the same rows, whatever batches commit meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake.config import PipelineConfig
from binlake.delta import delta_commits, layout, log_files, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.layout import Rewrite
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LeftToSpark
from binlake.maintain.upkeep_in_process import RewritingHere, fits
from binlake.schema.table import Column, TableSchema
from binlake.store.metadata import query

SHAPE = TableSchema((Column("id", "int"), Column("v", "varchar(9)")), ("id",), "primary")
NOTE = {"binlake": {"source": "s", "maintain": "layout"}}


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    source = {"name": "s", "connection": "c", "server_id": 1}
    return PipelineConfig.model_validate(
        {"source": source, "tables": {"include": ["d.*"]}, "lake": {"path": str(tmp_path)}}
    )


@pytest.fixture
def log(tmp_path: Path) -> LakeLog:
    """Ten rows in five files; one file lacks a column that came later, of two files the first row is hidden."""
    log = LakeLog(str(tmp_path / "t"), "app")
    schema = DeltaSchema((("id", "INT"), ("v", "STRING")), "identity")
    plain_tables.create(log, schema, OwnCommit("WRITE", 1, NOTE, {}, {}), rows_of(0, ("id", "v")))
    for number in (4, 2, 3, 1):
        append(log, rows_of(number, ("id",) if number == 4 else ("id", "v")))
    hide(log, {file: [0] for file in log.opened().file_uris()[:2]})
    return log


def rows_of(number: int, columns: tuple[str, ...]) -> pa.Table:
    return pa.table({"id": pa.array([2 * number + 1, 2 * number], pa.int32()), "v": [f"{number}", None]}).select(
        columns
    )


def append(log: LakeLog, rows: pa.Table) -> None:
    delta_commits.commit(log.opened(), log.path, [{"add": added_file(log.path, rows)}])


def hide(log: LakeLog, places: dict[str, list[int]]) -> None:
    paths = [uri.rpartition("/")[2] for uri in places]
    adds = plain_tables.actions_of(log.opened(), log.path, paths)
    hidden = {uri.rpartition("/")[2]: rows for uri, rows in places.items()}
    marked = plain_tables.marked(log.opened(), log.path, [(add, BitMap64(hidden[add["path"]])) for add in adds])
    delta_commits.commit(log.opened(), log.path, [*map(plain_tables.removed, adds), *marked])


def content(log: LakeLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(log.path).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


def all_files(log: LakeLog) -> Rewrite:
    return Rewrite(tuple(layout.data_files(log.opened(), log.path, SHAPE)), 1)


def written(log: LakeLog, config: PipelineConfig) -> RewritingHere:
    made = RewritingHere(log, config)
    made.write(all_files(log), ("id",))
    return made


def test_the_rows_stay_and_hidden_ones_go(log: LakeLog, config: PipelineConfig) -> None:
    before = content(log)
    assert len(before) == 8
    made = written(log, config)
    assert content(log) == before
    assert made.commit(NOTE)
    assert (content(log), made.written_files, len(log.opened().file_uris())) == (before, 1, 1)
    assert layout.deleted_rows(log.opened(), log.path).total() == 0
    assert query(log.path)["id"].to_pylist() == [row["id"] for row in before], "sorted by the key"
    (commit,) = log.history(since=log.version() - 1)
    assert (commit["operation"], json.loads(commit["userMetadata"])) == ("OPTIMIZE", NOTE)
    assert not any(action.changes_data for action in log_files.read_commit(log.path, log.version()).files)


def test_a_batch_that_left_the_files_alone_is_no_conflict(log: LakeLog, config: PipelineConfig) -> None:
    made = written(log, config)
    append(log, pa.table({"id": pa.array([99], pa.int32()), "v": ["new"]}))
    assert made.commit(NOTE)
    assert [row["id"] for row in content(log)][-1] == 99
    assert (len(content(log)), len(log.opened().file_uris())) == (9, 2)


def take_away(log: LakeLog, uris: list[str]) -> None:
    gone = plain_tables.actions_of(log.opened(), log.path, [uri.rpartition("/")[2] for uri in uris])
    delta_commits.commit(log.opened(), log.path, list(map(plain_tables.removed, gone)))


def put_elsewhere(log: LakeLog, uris: list[str], marked: str) -> None:
    hide(log, {marked: [0]})
    take_away(log, uris)
    append(log, rows_of(9, ("id", "v")))


def take_all_away(log: LakeLog) -> None:
    take_away(log, log.opened().file_uris())


@pytest.mark.parametrize(
    "change",
    [
        lambda log, uris: hide(log, {uris[-1]: [1]}),
        lambda log, uris: hide(log, {uris[0]: [0, 1], uris[3]: [0]}),
        lambda log, uris: take_away(log, uris[-1:]),
        lambda log, uris: put_elsewhere(log, uris[:2], uris[2]),
        lambda log, uris: take_all_away(log),
    ],
    ids=["a row", "rows of files with hidden ones", "a file", "rows, and files whose rest lies elsewhere", "all"],
)
def test_what_a_batch_took_out_of_the_files_meanwhile_is_gone(
    log: LakeLog, config: PipelineConfig, change: Callable[[LakeLog, list[str]], object]
) -> None:
    made = written(log, config)
    change(log, sorted(log.opened().file_uris(), key=lambda uri: uri in log.opened().file_uris()[:2], reverse=True))
    before = content(log)
    assert made.commit(NOTE)
    assert content(log) == before
    assert len(log.opened().file_uris()) <= 2
    assert not any(action.changes_data for action in log_files.read_commit(log.path, log.version()).files)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_batches_take_out_meanwhile_the_rows_are_the_same(
    log: LakeLog, config: PipelineConfig, seed: int
) -> None:
    """Rewrites of two groups of files in one commit, the one sorted by the key."""
    chance = random.Random(seed)
    for first in range(100, 700, 100):
        ids = chance.sample(range(first * 10, first * 10 + 900), 40)
        append(log, pa.table({"id": pa.array(ids, pa.int32()), "v": [str(number) for number in ids]}))
    files = layout.data_files(log.opened(), log.path, SHAPE)
    made = RewritingHere(log, config)
    made.write(Rewrite(tuple(files[:6]), 1), ("id",))
    made.write(Rewrite(tuple(files[6:]), 1), ())
    for _ in range(3):
        large = {file.path: file.rows for file in layout.data_files(log.opened(), log.path, SHAPE) if file.rows > 2}
        marked = chance.sample(sorted(large), min(3, len(large)))
        hide(log, {path: sorted({0, *chance.sample(range(large[path]), 9)}) for path in marked})
    take_away(log, chance.sample(log.opened().file_uris(), 1))
    before = content(log)
    assert made.commit(NOTE)
    assert content(log) == before
    assert len(log.opened().file_uris()) == 2


def test_a_table_without_deletion_vectors_is_written_again_behind_a_batch(log: LakeLog, config: PipelineConfig) -> None:
    table = log.opened()
    settings = {**table.metadata().configuration, "delta.enableDeletionVectors": "false"}
    changed = plain_tables.metadata_with(table, table.schema().to_json(), settings)
    delta_commits.commit(table, log.path, [changed])
    made = written(log, config)
    take_away(log, log.opened().file_uris()[-1:])
    before = content(log)
    assert made.commit(NOTE)
    assert content(log) == before
    assert not any(add.vector for add in log_files.files_at(log.path, log.version()).values())


def test_what_isn_t_plain_or_small_is_left_to_spark(log: LakeLog, config: PipelineConfig) -> None:
    few = all_files(log)
    assert fits(few, config)
    assert not fits(Rewrite(few.files, 2), config)
    DeltaTable(log.path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(LeftToSpark, match=r"delta\.appendOnly"):
        RewritingHere(log, config)
