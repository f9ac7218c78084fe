"""Chunks cover every key once, and metadata gives a dead snapshot back."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from binlake.config import PipelineConfig
from binlake.position import Position
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot, plan
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.state.metadata import Metadata

NAME = TableName("d", "t")
KEYED = TableSchema((Column("id", "int", nullable=False), Column("v", "varchar", length=9)), ("id",), "primary")
P1, P2 = Position("s", "b.000001", 4, 1), Position("s", "b.000001", 99, 1)


class Answers(Source):
    """A source that knows the least and the greatest key."""

    def __init__(self, least: int | None, most: int | None) -> None:
        self.row = {"least": least, "most": most}

    def query(self, sql: str, args: Any = None) -> list[dict[str, Any]]:
        return [self.row]


def table(rows: int, schema: TableSchema = KEYED, engine: str = "InnoDB") -> SourceTable:
    return SourceTable(NAME, "BASE TABLE", engine, rows, 0, schema)


def edges(planned: TableSnapshot) -> list[tuple[int | None, int | None]]:
    return [(chunk.lower, chunk.upper) for chunk in planned.chunks]


def test_ranges_meet_and_the_outer_ones_are_open() -> None:
    assert edges(plan(Answers(1, 100), table(100), chunk_rows=25)) == [(None, 26), (26, 51), (51, 76), (76, None)]


@pytest.mark.parametrize(("least", "most"), [(-(2**63), 2**63 - 1), (0, 2**64 - 1), (5, 5), (7, 8)])
def test_ranges_cover_every_key_once(least: int, most: int) -> None:
    found = edges(plan(Answers(least, most), table(1000), chunk_rows=10))
    assert found[0][0] is None
    assert found[-1][1] is None
    for (_, upper), (lower, _) in pairwise(found):
        assert upper == lower
    inner = [upper for _, upper in found[:-1] if upper is not None]
    assert inner == sorted(set(inner))
    assert all(least < edge <= most for edge in inner)


@pytest.mark.parametrize(
    "found",
    [
        table(5),
        table(1000, TableSchema(KEYED.columns)),
        table(1000, TableSchema(KEYED.columns, ("v",), "unique")),
        table(1000, engine="MyISAM"),
    ],
)
def test_one_chunk(found: SourceTable) -> None:
    assert edges(plan(Answers(1, 1000), found, chunk_rows=10)) == [(None, None)]


def test_an_emptied_table_is_one_chunk() -> None:
    assert edges(plan(Answers(None, None), table(1000), chunk_rows=10)) == [(None, None)]


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["*.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )


def records(config: PipelineConfig) -> Records:
    return Records(config, Metadata(f"{config.root}/_binlake"))


def begun(config: PipelineConfig, schema: TableSchema = KEYED) -> TableSnapshot:
    made = plan(Answers(1, 100), table(100, schema), chunk_rows=50)
    if len(made.chunks) > 1:
        made.put(Chunk(0, made.chunks[0].lower, made.chunks[0].upper, P1, P2, rows=7, bytes=70, lock_ms=3))
    records(config).save(made)
    return made


def test_a_dead_snapshot_is_taken_up(config: PipelineConfig) -> None:
    made = begun(config)
    found = records(config).unfinished(table(100), lambda position: position == P1)
    assert found is not None
    assert (found.id, found.chunks, found.schema) == (made.id, made.chunks, made.schema)
    assert [chunk.number for chunk in found.pending] == [1]


def test_a_dead_snapshot_is_of_no_use(config: PipelineConfig) -> None:
    begun(config)
    other = TableSchema((*KEYED.columns, Column("w", "int")), ("id",), "primary")
    assert records(config).unfinished(table(100, other), lambda position: True) is None
    assert records(config).unfinished(table(100), lambda position: False) is None
    keyless = TableSchema(KEYED.columns)
    begun(config, keyless)
    assert records(config).unfinished(table(100, keyless), lambda position: True) is None


def test_forgotten_snapshots_lose_their_files(config: PipelineConfig) -> None:
    made = begun(config)
    folder = Path(records(config).folder(made.id, 0))
    folder.mkdir(parents=True)
    records(config).forget(NAME, but=made.id)
    assert folder.exists()
    records(config).forget(NAME)
    assert not folder.parent.exists()
    assert records(config).unfinished(table(100), lambda position: True) is None


def test_only_the_newest_committed_one_counts(config: PipelineConfig) -> None:
    made = begun(config)
    made.table_id = "id"
    records(config).save(made, committed=True)
    found = records(config).committed(table(100))
    assert found is not None
    assert (found.table_id, found.low, found.high, found.rows) == ("id", P1, P2, 7)
    time.sleep(0.01)
    begun(config)
    assert records(config).committed(table(100)) is None
    assert os.path.isdir(config.root)
