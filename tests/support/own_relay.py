"""Relays in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi.testclient import TestClient

from binlake.config import PipelineConfig
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import RELAY, FeedLimits
from binlake.relay.core import Relay, state_path
from binlake.relay.http_routes import application
from binlake.relay.reading import RecordedBatches
from binlake.relay.serve import FirstBytes, Served
from binlake.store.metadata import metadata_of

SECRET = b"shared by all of the tests"


@contextmanager
def over_http(config: PipelineConfig) -> Iterator[tuple[Relay, TestClient]]:
    """A lake's relay, and a client that asks it over HTTP."""
    metadata = metadata_of(config)
    with feed_watermarks.held(metadata, RELAY, FeedLimits(1, 1)) as held:
        relay = Relay(RecordedBatches(config, metadata), state_path(config), held)
        yield relay, TestClient(application(relay, SECRET, SECRET))


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, Served]]:
    """A relay of an empty lake on a port of its own, in a thread of this process."""
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "fuzz", "connection": "none", "server_id": 1},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": str(folder)},
        }
    )
    metadata = metadata_of(config)
    with feed_watermarks.held(metadata, "relay", FeedLimits(1, 1)) as held:
        relay = Relay(RecordedBatches(config, metadata), str(folder / "relay.json"), held)
        made = Served(relay, SECRET, None)
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(loop.create_server(lambda: FirstBytes(made), "127.0.0.1", 0))
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield server.sockets[0].getsockname()[1], made
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            server.close()
            made.executor.shutdown()
