"""Small data files become one, with the same rows, whatever batches commit meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake.config import PipelineConfig
from binlake.delta import delta_actions, layout, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.layout import Rewrite
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LeftToSpark
from binlake.maintain.upkeep_in_process import RewritingHere, fits
from binlake.metadata.metadata import query
from binlake.schema.table import Column, TableSchema

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
    hide(log, {file: [0] for file in log.log().file_uris()[:2]})
    return log


def rows_of(number: int, columns: tuple[str, ...]) -> pa.Table:
    return pa.table({"id": pa.array([2 * number + 1, 2 * number], pa.int32()), "v": [f"{number}", None]}).select(
        columns
    )


def append(log: LakeLog, rows: pa.Table) -> None:
    delta_actions.commit(log.log(), log.path, [{"add": added_file(log.path, rows)}])


def hide(log: LakeLog, places: dict[str, list[int]]) -> None:
    paths = [uri.rpartition("/")[2] for uri in places]
    adds = plain_tables.actions_of(log.log(), log.path, paths)
    hidden = {uri.rpartition("/")[2]: rows for uri, rows in places.items()}
    marked = plain_tables.marked(log.path, [(add, BitMap64(hidden[add["path"]])) for add in adds])
    delta_actions.commit(log.log(), log.path, [*map(plain_tables.removed, adds), *marked])


def content(log: LakeLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(log.path).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


def all_files(log: LakeLog) -> Rewrite:
    return Rewrite(tuple(layout.data_files(log.log(), SHAPE)), 1)


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
    assert (content(log), made.written_files, len(log.log().file_uris())) == (before, 1, 1)
    assert layout.deleted_rows(log.log()).total() == 0
    assert query(log.path)["id"].to_pylist() == [row["id"] for row in before], "sorted by the key"
    (commit,) = log.history(since=log.version() - 1)
    assert (commit["operation"], json.loads(commit["userMetadata"])) == ("OPTIMIZE", NOTE)
    changed = [entry.get("add") or entry.get("remove") for entry in delta_actions.of_commit(log.path, log.version())]
    assert not any(action["dataChange"] for action in changed if action)


def test_a_batch_that_left_the_files_alone_is_no_conflict(log: LakeLog, config: PipelineConfig) -> None:
    made = written(log, config)
    append(log, pa.table({"id": pa.array([99], pa.int32()), "v": ["new"]}))
    assert made.commit(NOTE)
    assert [row["id"] for row in content(log)][-1] == 99
    assert (len(content(log)), len(log.log().file_uris())) == (9, 2)


@pytest.mark.parametrize("change", ["marked", "removed"])
def test_a_batch_that_changed_one_of_the_files_is(log: LakeLog, config: PipelineConfig, change: str) -> None:
    made = written(log, config)
    uri = log.log().file_uris()[-1]
    if change == "marked":
        hide(log, {uri: [1]})
    else:
        gone = plain_tables.actions_of(log.log(), log.path, [uri.rpartition("/")[2]])
        delta_actions.commit(log.log(), log.path, list(map(plain_tables.removed, gone)))
    before = content(log)
    version = log.version()
    assert not made.commit(NOTE)
    assert (content(log), log.version()) == (before, version)
    assert written(log, config).commit(NOTE)
    assert content(log) == before


def test_what_isn_t_plain_or_small_is_left_to_spark(log: LakeLog, config: PipelineConfig) -> None:
    few = all_files(log)
    assert fits(few, config)
    assert not fits(Rewrite(few.files, 2), config)
    DeltaTable(log.path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(LeftToSpark, match=r"delta\.appendOnly"):
        RewritingHere(log, config)
