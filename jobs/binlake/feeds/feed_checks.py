"""``binlake doctor`` for feeds, a source's own or those of a file: nothing is sent, made or changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig, SinkConfig
from binlake.doctor.check import Check
from binlake.errors import BinlakeError, NoSnapshotYet, SinkFailed
from binlake.feeds import condition, positions
from binlake.feeds.error_layers import handler_of
from binlake.feeds.feeds_file import Feeds
from binlake.feeds.registry import OWN_SINKS, webhook
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.feeds.sinks import kafka
from binlake.lease import lease
from binlake.store.metadata import metadata_of


def checks(config: PipelineConfig) -> list[Check]:
    """Return a check for each part of each feed that may be wrong."""
    source = config.source.name
    return [_check(f"feed {feed.name}, {part}", ask) for feed in config.feeds for part, ask in _parts(feed, source)]


def checks_of_file(feeds: Feeds) -> list[Check]:
    """Return the checks of a file of feeds, and of the lakes that the feeds read."""
    sources = {config.source.name: config for config, _ in feeds}
    results = [_check(f"source {name}", partial(_recorded_state, config)) for name, config in sources.items()]
    for config, feed in feeds:
        name = f"feed {feed.name} of {config.source.name}"
        results += [_check(f"{name}, {part}", ask) for part, ask in _parts(feed, config.source.name)]
    return results


def _recorded_state(config: PipelineConfig) -> str:
    if (recorded_state := lease.read(metadata_of(config)).recorded_state) is None:
        raise NoSnapshotYet
    return f"{config.root} is at batch {recorded_state.batch}"


def _check(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except BinlakeError as error:
        return Check(name, False, error.message, error.remedy)


def _parts(feed: FeedConfig, source: str) -> Iterator[tuple[str, Callable[[], str]]]:
    if (where := feed.where) is not None:
        yield "where", lambda: condition.parse(where).text
    if (registry := feed.registry) is not None:
        yield "registry", lambda: _registry(*registry)
    if (handler := feed.errors.handler) is not None:
        yield "errors", lambda: f"{handler} is {type(handler_of(feed)).__name__}"
    yield "sink", lambda: _sink(feed, feed.sink, source)
    if feed.position != "metadata":
        yield "position", lambda: _position(feed.position, feed.name, source)


def _registry(address: str, connection: str | None) -> str:
    return f"{address} has {len(SchemaRegistry(address, connection=connection).subjects())} subjects"


def _sink(feed: FeedConfig, sink: SinkConfig, source: str) -> str:
    if sink.scheme == "kafka":
        return f"Kafka at {sink.address} has {kafka.brokers(sink)} brokers"
    if sink.scheme in ("http", "https"):
        webhook(feed, source).reach()
        return f"{sink.address} can be reached"
    if (own := sink.own) is not None:
        OWN_SINKS.load(own)
        return f"{sink.url} can be imported"
    return _writable(Path(sink.folder) / source)


def _position(position: str, feed: str, source: str) -> str:
    kind, _, where = position.partition(":")
    if kind == "file":
        return _writable(Path(where))
    if kind == "mysql":
        return positions.TablePositions(where, f"{source}/{feed}").check()
    positions.STORES.load(position)
    return f"{position} can be imported"


def _writable(folder: Path) -> str:
    """Return that the folder can be written, or made. Raises SinkFailed if not."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return f"{folder} can be written"
    raise SinkFailed(f"{existing} can't be written", remedy="name a folder that this account may write")
