"""What is known equal of chunks, noted in metadata beside processes that write there, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.errors import WrittenMeanwhile
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata
from binlake.verify.reading.key_cells import KeyCells
from binlake.verify.reading.known_chunks import ChunkNotes, KnownChunks

NAME = TableName("shop", "orders")
AT = Position("server", "binlog.000001", 4, 1)


def noted_while(path: Path, writes: int) -> list[int]:
    """Note two chunks while another process writes the table so many times; return the chunks that are noted."""
    others, left = Metadata(str(path)), [writes]
    others.append("verified", [{"table_id": "life", "chunk": number} for number in range(9)])

    def write_meanwhile() -> None:
        if left[0]:
            left[0] -= 1
            others.replace("verified", "chunk = 8", [{"table_id": "life", "chunk": 8}])

    schema = TableSchema((Column("id", "int"),), ("id",), "primary")
    notes = ChunkNotes(Metadata(str(path), write_meanwhile), {NAME: Life("life", NAME, schema, AT, AT)})
    notes.put(NAME, KnownChunks.none(KeyCells(shares=2)))
    notes.write()
    return sorted(row["chunk"] for row in others.read("verified"))


def test_notes_are_written_again_where_others_wrote_meanwhile(tmp_path: Path) -> None:
    assert noted_while(tmp_path, 0) == noted_while(tmp_path / "beside", 3) == [0, 1]


def test_notes_that_others_always_overtake_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrittenMeanwhile):
        noted_while(tmp_path, 100)
