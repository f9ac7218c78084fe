"""What the relay reads of a batch of which a table's rows lack values, as MariaDB logs them in minimal images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from binlake.binlog.border import DELETE, Mutations
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import FeedError
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.position import Position, Range, Slice
from binlake.relay import reading
from binlake.relay.core import Relay
from binlake.relay.queues import TableFilter
from binlake.relay.reading import RecordedBatches
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.serialization import dumps
from binlake.staging.staged_files import SliceWriter
from binlake.store.metadata import Metadata

WHOLE, PARTIAL = TableName("shop", "whole"), TableName("shop", "partial")
COLUMNS = (Column("id", "int", nullable=False), Column("v", "int"))
START = Position.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562/binlog.000001:4@1700000000")
RANGE = Range(START, START, (Slice("binlog.000001", 4, 1 << 30, 0, whole=False),))


class Recorded:
    """Metadata of one recorded batch."""

    def read(self, name: str, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [{"attempt": "attempt", "range": dumps(RANGE)}] if name == "batches" else []


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedBatches:
    """A batch with a deleted row of each table."""
    writer = SliceWriter(str(tmp_path), 0, FAIL)
    for offset, name in ((100, WHOLE), (200, PARTIAL)):
        row = {"op": DELETE, "file": 1, "offset": offset, "row": 0, "committed_us": 1, "before": {"id": 7}}
        made = pa.RecordBatch.from_pylist([row], staged_schema(COLUMNS, FAIL))
        writer.write(Mutations(name, COLUMNS, ("id",), 0, made))
    files = (replace(file, absent=("v",) if file.name == PARTIAL else ()) for file in writer.finish())
    manifest = Manifest(1, "attempt", (StagedSlice(0, tuple(files), (), ()),))
    monkeypatch.setattr(reading, "read_manifest", lambda *_: manifest)
    recorded_state = SimpleNamespace(batch=1, prepared=())
    monkeypatch.setattr(RecordedBatches, "recorded_state", recorded_state)
    monkeypatch.setattr(RecordedBatches, "newest", 0)
    config = SimpleNamespace(staging_path=lambda *_: "", included=lambda _: True)
    return RecordedBatches(cast("Any", config), cast("Metadata", Recorded()))


@pytest.fixture
def relay(batches: RecordedBatches, tmp_path: Path) -> Relay:
    held = cast("Any", SimpleNamespace(advance=lambda *_: None, update=lambda **_: None))
    return Relay(batches, str(tmp_path / "relay.json"), held)


def test_a_table_whose_rows_lack_values_holds_up_nobody_and_its_clients_are_told(relay: Relay) -> None:
    both = relay.register("both", [TableFilter(WHOLE, 7), TableFilter(PARTIAL, 7)])
    other = relay.register("other", [TableFilter(WHOLE, 7)])
    both.batch = other.batch = 0
    relay.arrive()
    assert [event.name for event in relay.poll(other, 10).events] == [WHOLE]
    with pytest.raises(FeedError, match=r"events of batches 1 to 1 are lost to both: .* couldn't be decoded"):
        relay.poll(both)
    assert [event.name for event in relay.poll(both, 10).events] == [WHOLE]
