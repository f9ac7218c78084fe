"""The sink ``file://``: a folder with a file for each topic, a message a line.

The folder's ``_position.json`` says how long each file is at the last commit, with the feed's place: what was written
behind it, by a run that died, is cut off when the next one opens the folder. So whoever reads up to the told lengths
reads each message once; who reads the files as they grow may read the last ones twice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from binlake import names
from binlake.config.units import bytes_of_mb
from binlake.errors import ConfigurationError
from binlake.feeds.contract import Message
from binlake.feeds.sinks.position_folder import PositionFolder
from binlake.metadata.feed_watermarks import FeedPosition

_MOST_OPEN = 200


class FileSink:
    """One feed's files of one source. A line break inside a message is ``\\n``; a tombstone is an empty line."""

    keeps_position = True

    def __init__(self, folder: Path, owner: str, settings: Mapping[str, Any] | None = None) -> None:
        """Open the folder of a feed and source, the ``owner``.

        settings: file_mb, the megabytes (10**6 bytes) after which a topic's next messages go into another file,
        ``{topic}.1.log`` and so on; without it none do.

        Raises SinkFailed where another process writes into the folder, ConfigurationError for unknown settings.
        """
        told = dict(settings or {})
        self._most = bytes_of_mb(float(told.pop("file_mb"))) if "file_mb" in told else math.inf
        if told:
            raise ConfigurationError(f"file:// has no setting {min(told)}", remedy="it has file_mb")
        self._parts: dict[str, int] = {}
        self._folder = folder
        self._open: dict[str, IO[bytes]] = {}
        self._lengths: dict[str, int] = {}
        self._kept = PositionFolder(folder, owner, {"lengths": {}}, self._cut)

    def _cut(self, state: dict[str, Any]) -> None:
        self._lengths = state["lengths"]
        for path in self._folder.glob("*.log"):
            length = self._lengths.get(path.name, 0)
            if path.stat().st_size > length:
                os.truncate(path, length)

    def position(self) -> FeedPosition | None:
        return self._kept.position()

    def begin(self) -> None:
        """Nothing: what is written is cut off unless it is committed."""

    def send(self, messages: Sequence[Message]) -> None:
        lines: dict[str, list[bytes]] = {}
        for message in messages:
            lines.setdefault(message.topic, []).append((message.value or b"").replace(b"\n", b"\\n") + b"\n")
        with self._kept.writing():
            for topic, parts in lines.items():
                data = b"".join(parts)
                name = self._name(names.folder(topic), len(data))
                self._file(name).write(data)
                self._lengths[name] = self._lengths.get(name, 0) + len(data)

    def _name(self, stem: str, size: int) -> str:
        """The file of a topic's next messages."""
        while True:
            part = self._parts.get(stem, 0)
            name = f"{stem}.{part}.log" if part else f"{stem}.log"
            if not (length := self._lengths.get(name, 0)) or length + size <= self._most:
                return name
            self._parts[stem] = part + 1

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close_files()
            self._open[name] = (self._folder / name).open("ab")
        return self._open[name]

    def commit(self, position: FeedPosition) -> None:
        with self._kept.writing():
            for file in self._open.values():
                file.flush()
                os.fsync(file.fileno())
            self._kept.commit(position)

    def _close_files(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._kept.close()
