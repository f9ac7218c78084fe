"""A feed whose place was in metadata that are gone doesn't begin again by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from binlake.config import PipelineConfig
from binlake.errors import FeedError
from binlake.feeds.carry import Parts, carry
from binlake.feeds.registry import make_format
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.records import lost_tables
from binlake.store.metadata import metadata_of
from feeding import Kept


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    feed = {"name": "out", "format": {"type": "text"}, "sink": "https://nowhere.invalid/"}
    given = {"source": {"name": "shop", "connection": tmp_path.as_uri()}, "lake": {"path": str(tmp_path / "lake")}}
    made = PipelineConfig.model_validate({**given, "tables": {"include": ["a.*"]}, "feeds": [feed]})
    with lease.held(metadata_of(made)) as held:
        held.stand(RecordedState(0, Position("mysql-1-a", "b.000001", 4, 1)))
    return made


def carried(config: PipelineConfig, sink: Kept, *, restarts: bool = False) -> int:
    return carry(config, config.feeds[0], Parts(make_format, lambda feed, source: sink), restarts=restarts).batch


def test_it_stops_until_somebody_begins_it_anew(config: PipelineConfig) -> None:
    metadata = metadata_of(config)
    assert carried(config, Kept()) == 0
    lost_tables.find(metadata)
    shutil.rmtree(metadata.location("feeds"))
    for _ in range(2):
        with pytest.raises(FeedError, match="nobody knows where the feed is") as refused:
            carried(config, Kept())
        assert "--restart-from lake" in refused.value.remedy
    assert carried(config, Kept(), restarts=True) == 0
    assert carried(config, Kept()) == 0


def test_a_sink_that_keeps_its_place_goes_on(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept, "keeps_position", True)
    metadata = metadata_of(config)
    assert carried(config, Kept()) == 0
    lost_tables.find(metadata)
    shutil.rmtree(metadata.location("feeds"))
    assert carried(config, Kept()) == 0
