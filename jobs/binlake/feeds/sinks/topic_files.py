"""The sink ``file://``: a folder with a file per topic and a line per message.

The folder's ``_position.json`` has each file's length at the last commit, with the feed's position. Bytes that a killed
run wrote after that are truncated when the next run opens the folder. So a reader who stops at those lengths sees each
message once; one who follows the growing files may see the last messages twice.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from binlake import names
from binlake.config.units import bytes_of_mb
from binlake.errors import ConfigurationError
from binlake.feeds.contract import Message
from binlake.feeds.sinks.position_folder import PositionFolder
from binlake.records.feed_watermarks import FeedPosition
from binlake.storage import private_files

_MOST_OPEN = 200
_LIKE_A_PART = re.compile(r"\.(?=[0-9]+\Z)")


class FileSink:
    """One feed's files of one source. A line break inside a message is ``\\n``; a tombstone is an empty line."""

    keeps_position = True

    def __init__(self, folder: Path, owner: str, settings: Mapping[str, Any] | None = None) -> None:
        """owner: ``source/feed``, which alone may use the folder. settings: file_mb, the size in MB (10**6 bytes) after
        which a topic's messages go into another file, ``{topic}.1.log`` and so on; unlimited by default.

        Raises SinkFailed if another process writes into the folder, ConfigurationError for unknown settings.
        """
        others = dict(settings or {})
        self._most = bytes_of_mb(float(others.pop("file_mb"))) if "file_mb" in others else math.inf
        if others:
            raise ConfigurationError(f"file:// has no setting {min(others)}", remedy="it has file_mb")
        self._parts: dict[str, int] = {}
        self._folder = folder
        self._open: dict[str, IO[bytes]] = {}
        self._lengths: dict[str, int] = {}
        self._kept = PositionFolder(folder, owner, {"lengths": {}}, self._cut)
        with self._kept.writing():
            self._forget_what_was_taken_away()

    def _cut(self, state: dict[str, Any]) -> None:
        self._lengths = state["lengths"]
        for path in self._folder.glob("*.log"):
            length = self._lengths.get(path.name, 0)
            if path.stat().st_size > length:
                os.truncate(path, length)

    def _forget_what_was_taken_away(self) -> None:
        """Note the lengths of files that somebody removed or emptied, before more is written into them: the next run
        cuts them off by the noted lengths."""
        paths = ((name, self._folder / name) for name in self._lengths)
        sizes = {name: path.stat().st_size if path.exists() else 0 for name, path in paths}
        shorter = {name: size for name, size in sizes.items() if size < self._lengths[name]}
        if shorter:
            self._lengths |= shorter
            self._kept.save()

    def position(self) -> FeedPosition | None:
        """Return the position of the last commit; None before the first one."""
        return self._kept.position()

    def begin(self) -> None:
        """Do nothing: what isn't committed is truncated later."""

    def send(self, messages: Sequence[Message]) -> None:
        """Append a line for each message to its topic's file. Raises SinkFailed where the folder can't be written."""
        lines: dict[str, list[bytes]] = {}
        for message in messages:
            lines.setdefault(message.topic, []).append((message.value or b"").replace(b"\n", b"\\n") + b"\n")
        with self._kept.writing():
            for topic, parts in lines.items():
                data = b"".join(parts)
                name = self._name(self._stem(topic), len(data))
                self._file(name).write(data)
                self._lengths[name] = self._lengths.get(name, 0) + len(data)

    def _stem(self, topic: str) -> str:
        """Return the beginning of a topic's files. One that ends like another topic's part is written differently."""
        stem = names.folder(topic)
        return _LIKE_A_PART.sub("~2E", stem) if self._most < math.inf else stem

    def _name(self, stem: str, size: int) -> str:
        """Return the name of the file for a topic's next ``size`` bytes."""
        if stem not in self._parts:
            self._parts[stem] = self._newest_part(stem)
        length = self._lengths.get(_name_of(stem, self._parts[stem]), 0)
        if length and length + size > self._most:
            self._parts[stem] += 1
        return _name_of(stem, self._parts[stem])

    def _newest_part(self, stem: str) -> int:
        """Return the number of the file that former runs began last: a message never goes before those it follows."""
        part = 0
        while self._most < math.inf and _name_of(stem, part + 1) in self._lengths:
            part += 1
        return part

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close_files()
            self._open[name] = private_files.opened(self._folder / name, "ab")
        return self._open[name]

    def commit(self, position: FeedPosition) -> None:
        """Sync the files, then replace the state with their lengths and the position. Raises SinkFailed."""
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
        """Close the files, and give up what wasn't committed."""
        for file in self._open.values():
            with suppress(OSError):  # what a full disk doesn't take isn't committed
                file.close()
        self._open.clear()
        self._kept.close()


def _name_of(stem: str, part: int) -> str:
    return f"{stem}.{part}.log" if part else f"{stem}.log"
