"""Feeds of a mirrored database, and what came out of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from binlake.config.feed_config import FeedConfig
from binlake.feeds.carry import FeedRun, Parts, carry
from binlake.feeds.contract import Message
from binlake.feeds.registry import PARTS, make_format
from binlake.records.feed_watermarks import FeedPosition
from mirror import Mirror

_PLACE = re.compile(r"^\S+ \S+ \S+\.\d+:\d+(\+\d+)? ")
_GTID = re.compile(r" ([0-9a-f-]{36}:\d+|\d+-\d+-\d+)$")


class Kept:
    """A sink that keeps messages in memory."""

    keeps_position = False

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def begin(self) -> None:
        """Nothing to prepare."""

    def send(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def commit(self, position: FeedPosition) -> None:
        """All is kept."""

    def position(self) -> FeedPosition | None:
        return None

    def close(self) -> None:
        """Nothing is open."""


def feed(mirror: Mirror, **settings: Any) -> FeedConfig:
    """A feed of the mirror's, in its YAML too: staging is kept for it. By default text, all tables to one file."""
    made = {
        "name": "out",
        "format": {"type": "text", "topic": "all"},
        "sink": f"file://{mirror.folder}/out",
        **settings,
    }
    mirror.options["feeds"] = [made]
    return FeedConfig.model_validate(made)


def carried(mirror: Mirror, config: FeedConfig, **options: Any) -> FeedRun:
    return carry(mirror.config, config, PARTS, **options)


def kept(mirror: Mirror, config: FeedConfig) -> list[Message]:
    """What the feed's format makes of what is staged."""
    sink = Kept()
    carry(mirror.config, config, Parts(make_format, lambda feed, source: sink))
    return sink.messages


def lines(folder: Path, topic: str = "all", source: str = "tests") -> list[str]:
    """Messages of a file:// sink up to its last commit."""
    position = json.loads((folder / source / "_position.json").read_text())
    name = f"{topic}.log"
    if name not in position["lengths"]:
        return []
    return (folder / source / name).read_bytes()[: position["lengths"][name]].decode().splitlines()


def plain_lines(mirror: Mirror) -> list[str]:
    """What the feed of text told, without moments, places, GTIDs and the database's name."""
    plain = (_GTID.sub("", _PLACE.sub("", line)) for line in lines(mirror.folder / "out"))
    return [line.replace(f"{mirror.database}.", "") for line in plain]
