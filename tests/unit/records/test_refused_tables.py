"""Why tables were refused by a snapshot, as metadata note it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from binlake.errors import TableError
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import watermarks
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata

HERE = Position("server", "binlog.000001", 100, 1)
SHAPE = TableSchema((Column("id", "int", nullable=False),), ("id",), "primary")
T, LIVING, ASKED = (TableName("shop", name) for name in ("t", "living", "asked"))


def noted(metadata: Metadata) -> dict[str, tuple[Any, ...]]:
    rows = metadata.read("watermarks")
    return {row["table"]: (row["status"], row["reason"], row["remedy"]) for row in rows}


def test_a_table_without_a_life_is_missing_with_the_reason_until_it_begins(tmp_path: Path) -> None:
    metadata = Metadata(str(tmp_path))
    life = Life("life", LIVING, SHAPE, HERE, HERE)
    watermarks.started(metadata, [life], batch=1, versions={"life": 0})
    waits = watermarks.unsnapshotted_row(ASKED, "resnapshot", "renamed from elsewhere", batch=1, position=HERE)
    watermarks.write(metadata, [waits])
    refused = {name: TableError(f"{name}: its keys cascade", remedy="do so") for name in (T, LIVING, ASKED)}
    watermarks.note_refused(metadata, refused, batch=1, position=HERE)
    assert noted(metadata) == {
        "t": ("missing", "its keys cascade", "do so"),
        "living": ("following", None, None),
        "asked": ("resnapshot", "its keys cascade", "do so"),
    }
    written = metadata.table("watermarks").version()
    watermarks.note_refused(metadata, refused, batch=1, position=HERE)
    assert metadata.table("watermarks").version() == written, "nothing new is nothing written"
    watermarks.started(metadata, [Life("new", T, SHAPE, HERE, HERE)], batch=1, versions={"new": 0})
    assert noted(metadata)["t"] == ("following", None, None)
