"""The lake checked by itself: each table is compared as it was verified, and only that position is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from begun_source import SCHEMA, begin, life_of
from binlake import config
from binlake.config import PipelineConfig
from binlake.errors import CheckFailed
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from binlake.verify.lake_check import check_lake
from binlake.verify.reading.key_cells import ComparedColumns, KeyCells
from binlake.verify.reading.known_chunks import ChunkNotes, KnownChunks, VerifiedAt
from binlake.verify.reading.row_checksums import Sums

NAMES = (TableName("shop", "orders"), TableName("shop", "customers"))
ROWS = pa.record_batch({"id": [1, 2]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))


def at(offset: int) -> Position:
    return Position("server", "binlog.000001", offset, 1)


def merge(source: PipelineConfig, name: TableName) -> None:
    """Commit rows to a table, as binlake does."""
    note = json.dumps({"binlake": {"life": life_of(name).id, "batch": 1, "step": 0}})
    properties = CommitProperties(custom_metadata={"userMetadata": note})
    write_deltalake(source.table_path(name), pa.table(ROWS), mode="append", commit_properties=properties)


def note_verified(source: PipelineConfig, name: TableName, position: Position) -> None:
    """Note that a table's rows were equal to the server's, at its first Delta version."""
    cells, compared = KeyCells(shares=1), ComparedColumns(SCHEMA)
    sums, measured = Sums.empty(cells.count), compared.measured(ROWS, cells)
    sums.add(measured.cells, measured.checksums)
    known = KnownChunks.none(cells).compared(np.array([True]), sums, sums, VerifiedAt(1, str(position), 0))
    notes = ChunkNotes(metadata_of(source), {name: life_of(name)})
    notes.put(name, known)
    notes.write()


@pytest.fixture
def source(tmp_path: Path) -> PipelineConfig:
    """A source of two tables, which follow the log at 900."""
    source = config.load(begin(tmp_path, NAMES, RecordedState(3, at(900))))
    for name in NAMES:
        merge(source, name)
    return source


def checked(source: PipelineConfig) -> str:
    report = check_lake(source, metadata_of(source), None)
    assert report.equal
    return report.to_text()


def test_the_position_is_the_one_that_was_verified(source: PipelineConfig) -> None:
    for name in NAMES:
        note_verified(source, name, at(700))
    assert "2 of 2 tables equal at binlog.000001:700 (the server wasn't asked" in checked(source)


def test_a_table_that_was_merged_into_since(source: PipelineConfig) -> None:
    for name in NAMES:
        note_verified(source, name, at(700))
    merge(source, NAMES[0])
    said = checked(source)
    assert said.count("newer files") == 1
    assert "shop.orders: 2 rows, Delta version 0\n    its newer files, merged since it was verified, weren't" in said
    assert "2 of 2 tables equal at binlog.000001:700" in said


def test_tables_that_were_verified_at_different_positions(source: PipelineConfig) -> None:
    for name, offset in zip(NAMES, (700, 800), strict=True):
        note_verified(source, name, at(offset))
    assert "2 of 2 tables equal at the position at which each was verified (" in checked(source)


def test_nothing_was_verified(source: PipelineConfig) -> None:
    report = check_lake(source, metadata_of(source), None)
    assert report.headline.startswith("0 of 0 tables equal, 2 not compared (")
    assert report.to_json()["position"] is None


def test_rows_that_were_not_read_are_not_counted(source: PipelineConfig) -> None:
    """And the advice begins with what fixes the least."""
    for name in NAMES:
        note_verified(source, name, at(700))
    write_deltalake(source.table_path(NAMES[0]), pa.table(ROWS), mode="append")
    report = check_lake(source, metadata_of(source), None)
    said = report.to_text()
    assert "shop.orders: 2 rows verified; the lake's weren't read" in said
    assert "0 in the lake" not in said
    with pytest.raises(CheckFailed) as refused:
        report.refuse_unequal()
    assert 0 < refused.value.remedy.index("binlake repair") < refused.value.remedy.index("snapshot")
