"""Which events that stop a batch can be stepped over."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.config import PipelineConfig
from binlake.errors import CorruptEvent, UsageError
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.position import Position, Range, Slice
from binlake.records import decisions
from binlake.records.decisions import Reason
from binlake.records.record import note_poison
from binlake.store.metadata import metadata_of

FILE = "binlog.000001"
START, STOP = Position("server", FILE, 4, 1), Position("server", FILE, 900, 1)
PART = Slice(FILE, 4, 900, 1, whole=False)
PLAN = OpenBatch(1, Range(START, STOP, (PART,)))
ANN = Reason("ann", "we know")


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path / "lake")},
        }
    )


def stopped(config: PipelineConfig, raw: bytes) -> None:
    """A batch that stopped at offset 400. raw: what was read of the event."""
    with lease.held(metadata_of(config)) as held:
        held.stand(RecordedState(0, START))
        held.open(PLAN)
        error = CorruptEvent("an event shorter than its header", file=FILE, offset=400, remedy="run binlake snapshot")
        error.raw = raw
        note_poison(held.metadata, PLAN, error)


def test_an_event_that_was_read_is_stepped_over(config: PipelineConfig) -> None:
    stopped(config, b"event")
    decisions.skip_event(config, (FILE, 400), ANN)
    assert decisions.skips(metadata_of(config))(PART) == {400}


def test_an_event_that_may_concern_withheld_columns_is_not(config: PipelineConfig) -> None:
    masked = config.model_validate({**config.model_dump(), "columns": [{"columns": "d.t.email", "null": True}]})
    stopped(masked, b"")
    with pytest.raises(UsageError, match="can't be stepped over where columns are masked") as refused:
        decisions.skip_event(masked, (FILE, 400), ANN)
    assert refused.value.remedy.startswith("run binlake snapshot")
    assert decisions.skips(metadata_of(config))(PART) == frozenset()


def test_an_event_without_a_known_end_is_not(config: PipelineConfig) -> None:
    stopped(config, b"")
    with pytest.raises(UsageError, match="where its event ends isn't known") as refused:
        decisions.skip_event(config, (FILE, 400), ANN)
    assert refused.value.remedy == "run binlake snapshot"
    assert decisions.skips(metadata_of(config))(PART) == frozenset()
