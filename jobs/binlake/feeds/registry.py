"""The registry of formats and sinks: one entry each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from binlake.config.feed_config import DebeziumFormat, FeedConfig, SpecificFormat
from binlake.feeds import error_layers, positions
from binlake.feeds.carry import Parts
from binlake.feeds.contract import FeedContext, Format, Register, Sink
from binlake.feeds.formats.binlog_events import BinlogEvents
from binlake.feeds.formats.connect import Writer
from binlake.feeds.formats.connect_avro import AvroWriter
from binlake.feeds.formats.connect_json import JsonWriter
from binlake.feeds.formats.csvlog import CsvLog
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.generic import Generic
from binlake.feeds.formats.specific import Specific
from binlake.feeds.formats.text import Text
from binlake.feeds.plugins import PluginGroup, methods_of
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.feeds.sinks.binlog_folder import BinlogFolder
from binlake.feeds.sinks.kafka import KafkaSink
from binlake.feeds.sinks.topic_files import FileSink
from binlake.feeds.sinks.webhook import Webhook, WebhookSettings
from binlake.source.connection import from_environment


def _writer(settings: DebeziumFormat) -> Writer:
    if settings.registry is None:
        return JsonWriter(schemas=settings.schemas)
    return AvroWriter(_schemas(settings), settings.subjects)


def _schemas(settings: DebeziumFormat | SpecificFormat) -> Register:
    assert settings.registry is not None
    return SchemaRegistry(settings.registry, settings.compatibility, settings.registry_connection).register


FORMATS: dict[str, Callable[[Any, FeedContext], Format]] = {
    "binlog": BinlogEvents,
    "csv": CsvLog,
    "debezium": lambda settings, context: Debezium(settings, context, _writer(settings)),
    "generic": Generic,
    "specific": lambda settings, context: Specific(settings, context, _schemas(settings)),
    "text": Text,
}
"""Makers of formats by ``format.type``; each takes the format's settings and the feed's context."""


def _file(feed: FeedConfig, source: str) -> Sink:
    return FileSink(Path(feed.sink.folder) / source, f"{source}/{feed.name}", feed.sink.settings)


def _binlog(feed: FeedConfig, source: str) -> Sink:
    return BinlogFolder(Path(feed.sink.folder) / source, f"{source}/{feed.name}", feed.sink.settings)


def webhook(feed: FeedConfig, source: str) -> Webhook:
    """Make a feed's webhook. Raises ConfigurationError."""
    sink = feed.sink
    secret = from_environment(sink.connection).password.encode() if sink.connection else None
    return Webhook(sink.url, f"{source}/{feed.name}", WebhookSettings.of(sink.settings), secret or None)


SINKS: dict[str, Callable[[FeedConfig, str], Sink]] = {
    "binlog": _binlog,
    "file": _file,
    "http": webhook,
    "https": webhook,
    "kafka": lambda feed, source: KafkaSink(feed.sink, f"{source}/{feed.name}"),
}
"""Makers of sinks by the scheme of ``sink``; each takes the feed and the source's name."""


def make_format(feed: FeedConfig, context: FeedContext) -> Format:
    """Make a feed's format. Raises ConfigurationError."""
    return FORMATS[feed.format.type](feed.format, context)


OWN_SINKS = PluginGroup(
    "sink", "binlake.feed_sinks", tuple(sorted(SINKS)), methods_of(Sink), "binlake.feeds.contract.Sink"
)
"""Sinks of one's own; each is made with the feed's FeedConfig and the source's name."""


def make_sink(feed: FeedConfig, source: str) -> Sink:
    """Make a feed's sink. Raises ConfigurationError, SinkFailed."""
    if (own := feed.sink.own) is not None:
        made: Sink = OWN_SINKS.make(own, feed, source)
        return made
    return SINKS[feed.sink.scheme](feed, source)


def refuse_unknown_names(feed: FeedConfig) -> None:
    """Raise ConfigurationError where a setting of a feed names a class of the user's own that isn't installed."""
    named = (
        (OWN_SINKS, feed.sink.own),
        (positions.STORES, feed.own_position),
        (error_layers.HANDLERS, feed.errors.handler),
    )
    for group, name in named:
        if name is not None:
            group.refuse_unknown(name)


PARTS = Parts(make_format, make_sink)
"""The default makers of formats and sinks."""
