"""Events that can't be read any more: a client is told once, and continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from binlake.errors import FeedError
from binlake.relay.client_events import RelayEvent
from binlake.relay.clients import Client
from binlake.relay.core import Relay
from binlake.relay.queues import TableFilter
from binlake.relay.reading import Arrived, Numbered, RecordedBatches
from binlake.schema.table import TableName

KEPT, LEFT_OUT = TableName("shop", "kept"), TableName("shop", "left_out")


class Batches:
    """Two batches with a row of each table. included: the tables of the YAML."""

    source = "shop"

    def __init__(self) -> None:
        self.tables = [KEPT, LEFT_OUT]
        self.newest = 0
        self.lacking: set[TableName] = set()

    @property
    def recorded_state(self) -> Any:
        return SimpleNamespace(batch=self.newest, prepared=())

    def included(self, name: TableName) -> bool:
        return name in self.tables

    def oldest(self, newest: int) -> int:
        return 1

    def counts(self, after: int) -> list[Any]:
        return []

    def arrived(self, batch: int, prepared: Any, wanted: Any) -> Any:
        return [Arrived(tuple(self.tables), np.arange(2), np.array([1, 1]))], (), self.lacking

    def events(self, batch: int, prepared: Any, filters: Any, first: int, after: Any) -> Iterator[Numbered]:
        for number, name in list(enumerate(self.tables))[first:]:
            event = RelayEvent(1, "binlog.000001", batch * 100 + number, name, 1, None, ())
            yield Numbered(number, (0, 0, number, 0, 0), event)


@pytest.fixture
def batches() -> Batches:
    return Batches()


@pytest.fixture
def relay(batches: Batches, tmp_path: Path) -> Relay:
    held = cast("Any", SimpleNamespace(advance=lambda *_: None, update=lambda **_: None))
    return Relay(cast("RecordedBatches", batches), str(tmp_path / "relay.json"), held)


@pytest.fixture
def client(relay: Relay, batches: Batches) -> Client:
    """A client for whom four events wait, before the relay was begun again under another YAML."""
    registered = relay.register("reader", [TableFilter(KEPT, 7), TableFilter(LEFT_OUT, 7)])
    batches.newest = 2
    relay.arrive()
    batches.tables = [KEPT]
    return registered


def test_events_of_a_table_that_the_yaml_leaves_out_since(relay: Relay, client: Client) -> None:
    assert [event.name for event in relay.poll(client).events] == [KEPT]
    with pytest.raises(FeedError, match="1 event of batch 1 is lost to reader: the YAML leaves out"):
        relay.poll(client)
    assert [(event.name, event.position) for event in relay.poll(client).events] == [(KEPT, 200)]


def test_what_was_read_before_a_lost_event_is_told_after_the_error(relay: Relay, client: Client) -> None:
    told: list[int] = []
    for _ in range(4):
        try:
            told += [event.position for event in relay.poll(client, 10).events]
        except FeedError:
            told.append(0)
    assert told == [0, 0, 100, 200], "0 is an error"


def test_a_client_is_told_of_a_batch_that_lacks_events_of_its_tables_and_the_rest_of_it_comes(
    relay: Relay, batches: Batches
) -> None:
    client, other = (relay.register(str(name), [TableFilter(name, 7)]) for name in (KEPT, LEFT_OUT))
    batches.newest, batches.lacking = 1, {KEPT}
    relay.arrive()
    with pytest.raises(FeedError, match="events of batches 1 to 1 are lost to shop"):
        relay.poll(client)
    assert relay.poll(client).events
    assert relay.poll(other).events
