"""``binlake tail``: staged mutations on the console, without a place that is kept; nothing is held for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.feed_config import FeedConfig
from binlake.feeds.carry import BatchReader, Outlet, Parts, oldest_staged
from binlake.feeds.contract import FeedContext, Message
from binlake.feeds.selection import Selection
from binlake.state import lease
from binlake.state.feed_watermarks import FeedPosition
from binlake.state.lease import Standing
from binlake.state.metadata import metadata_of

_LOOK_AGAIN = 2.0


class ConsoleSink:
    """A message a line."""

    keeps_position = False

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def begin(self) -> None:
        """Nothing to prepare."""

    def send(self, messages: Sequence[Message]) -> None:
        self._out.writelines(f"{readable(message)}\n" for message in messages)

    def commit(self, position: FeedPosition) -> None:
        self._out.flush()

    def position(self) -> FeedPosition | None:
        return None

    def close(self) -> None:
        self._out.flush()


def readable(message: Message) -> str:
    """A message as text: what is no UTF-8 as hexadecimal."""
    if message.value is None:
        return f"{_text(message.key)} (tombstone)"
    return _text(message.value)


def _text(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data.decode().replace("\n", "\\n")
    except UnicodeDecodeError:
        return "0x" + data.hex()


@dataclass(frozen=True)
class Tail:
    """What is asked. start: the first batch; None: what comes from now on. follow: for ever, until interrupted."""

    start: int | None
    follow: bool = False


def tail(config: PipelineConfig, feed: FeedConfig, asked: Tail, parts: Parts, out: TextIO) -> None:
    """Print what is staged. Raises UsageError where the batch asked for isn't, or isn't any more."""
    metadata = metadata_of(config)
    selection = Selection.of(config, feed)
    reader = BatchReader(config, metadata, selection)
    standing = _standing(config)
    context = FeedContext(feed.name, config.source.name, standing.position.server, standing.position.flavour)
    place = FeedPosition(_first(config, asked, standing) - 1)
    outlet = Outlet(parts.make_format(feed, context), ConsoleSink(out), _nowhere, place)
    while True:
        while place.batch < standing.batch:
            place = reader.carry(place, outlet, None).position
        if not asked.follow:
            return
        time.sleep(_LOOK_AGAIN)
        standing = _standing(config)


def _nowhere(position: FeedPosition, messages: int) -> Any:
    """The place isn't kept."""


def _standing(config: PipelineConfig) -> Standing:
    standing = lease.read(metadata_of(config)).standing
    if standing is None:
        raise UsageError("no table has a snapshot yet", remedy="run binlake snapshot (or the bootstrap DAG) first")
    return standing


def _first(config: PipelineConfig, asked: Tail, standing: Standing) -> int:
    oldest = oldest_staged(config, standing.batch)
    if asked.start is None:
        return standing.batch + 1
    if asked.start and asked.start < oldest:
        raise UsageError(
            f"batch {asked.start} isn't staged any more; the oldest that is, is {oldest}",
            remedy="staging is kept for feeds, up to their keep_gb and keep_hours: begin with --from start",
        )
    return max(asked.start, oldest)
