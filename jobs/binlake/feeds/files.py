"""The sink ``file://``: a folder with a file for each topic, a message a line.

The folder's ``_position.json`` says how long each file is at the last commit, with the feed's place: what was written
behind it, by a run that died, is cut off when the next one opens the folder. So whoever reads up to the told lengths
reads each message once; who reads the files as they grow may read the last ones twice.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from binlake import names
from binlake.errors import ConfigurationError, SinkFailed
from binlake.feeds.contract import Message
from binlake.state import formats
from binlake.state.feed_watermarks import FeedPosition

_MOST_OPEN = 200
_REMEDY = "let the sink name a folder that this account may write, on a disk with room"


class FileSink:
    """One feed's files of one source. A line break inside a message is ``\\n``; a tombstone is an empty line."""

    keeps_position = True

    def __init__(self, folder: Path, owner: str, settings: Mapping[str, Any] | None = None) -> None:
        """owner: feed and source, whose folder it is. settings: file_mb, after which a topic's next messages go into
        another file, ``{topic}.1.log`` and so on; without it none does.

        Raises SinkFailed where another process writes into the folder, ConfigurationError for unknown settings.
        """
        told = dict(settings or {})
        self._most = float(told.pop("file_mb", math.inf)) * 1e6
        if told:
            raise ConfigurationError(f"file:// has no setting {min(told)}", remedy="it has file_mb")
        self._parts: dict[str, int] = {}
        self._folder = folder
        self._owner = owner
        self._open: dict[str, IO[bytes]] = {}
        self._lengths: dict[str, int] = {}
        self._kept = ExitStack()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = self._kept.enter_context((folder / "_lock").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._state = self._read()
            self._cut()
        except BlockingIOError:
            self._kept.close()
            raise SinkFailed(f"another process writes into {folder}", remedy="wait for it to end") from None
        except OSError as error:
            self._kept.close()
            raise _failed(folder, error) from error

    @property
    def _path(self) -> Path:
        return self._folder / "_position.json"

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {"owner": self._owner, "lengths": {}, "position": None}
        except ValueError as error:
            raise SinkFailed(f"{self._path} is damaged: {error}", remedy="let the sink name an empty folder") from None
        if found.get("owner") != self._owner:
            raise SinkFailed(f"{self._folder} is {found.get('owner')}'s", remedy="give each feed a folder of its own")
        return found

    def _cut(self) -> None:
        """Take back what was written behind the last commit."""
        self._lengths = dict(self._state["lengths"])
        for path in self._folder.glob("*.log"):
            length = self._lengths.get(path.name, 0)
            if path.stat().st_size > length:
                os.truncate(path, length)

    def position(self) -> FeedPosition | None:
        text = self._state["position"]
        return formats.read(FeedPosition, text) if text else None

    def begin(self) -> None:
        """Nothing: what is written is cut off unless it is committed."""

    def send(self, messages: Sequence[Message]) -> None:
        lines: dict[str, list[bytes]] = {}
        for message in messages:
            lines.setdefault(message.topic, []).append((message.value or b"").replace(b"\n", b"\\n") + b"\n")
        try:
            for topic, parts in lines.items():
                data = b"".join(parts)
                name = self._name(names.folder(topic), len(data))
                self._file(name).write(data)
                self._lengths[name] = self._lengths.get(name, 0) + len(data)
        except OSError as error:
            raise _failed(self._folder, error) from error

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
        told = {"owner": self._owner, "lengths": self._lengths, "position": formats.written(position)}
        temporary = self._folder / "_position.writing"
        try:
            for file in self._open.values():
                file.flush()
                os.fsync(file.fileno())
            with temporary.open("w") as handle:
                json.dump(told, handle, ensure_ascii=False)
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise _failed(self._folder, error) from error

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


def _failed(folder: Path, error: OSError) -> SinkFailed:
    return SinkFailed(f"can't write into {folder}: {error.strerror or error}", remedy=_REMEDY)
