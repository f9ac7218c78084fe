"""A sink's folder on a disk: one process writes into it, and a file in it tells what stood at the last commit."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from binlake.errors import SinkFailed
from binlake.metadata import formats
from binlake.metadata.feed_watermarks import FeedPosition

_TOLD = "_position.json"
_REMEDY = "let the sink name a folder that this account may write, on a disk with room"


class PositionFolder:
    """``state``: what the last commit told, JSON values by name; with ``fresh``'s before the first one."""

    def __init__(self, path: Path, owner: str, fresh: Mapping[str, Any], cut: Callable[[dict[str, Any]], None]) -> None:
        """owner: feed and source, whose folder it is. cut: is given the state, and takes back what a run that died
        wrote behind it.

        Raises SinkFailed: another process writes into it, it is another's, it is damaged or can't be written.
        """
        self.path = path
        self._owner, self._fresh = owner, fresh
        with self.writing():
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "_lock").open("ab")
        try:
            with self.writing():
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.state = self._read()
                cut(self.state)
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict[str, Any]:
        path = self.path / _TOLD
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return {"owner": self._owner, "position": None, **self._fresh}
        except ValueError as error:
            raise SinkFailed(f"{path} is damaged: {error}", remedy="let the sink name an empty folder") from None
        if found.get("owner") != self._owner:
            raise SinkFailed(f"{self.path} is {found.get('owner')}'s", remedy="give each feed a folder of its own")
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the disk refuses is the sink's failure."""
        try:
            yield
        except BlockingIOError:
            raise SinkFailed(f"another process writes into {self.path}", remedy="wait for it to end") from None
        except OSError as error:
            raise SinkFailed(f"can't write into {self.path}: {error.strerror or error}", remedy=_REMEDY) from error

    def position(self) -> FeedPosition | None:
        text = self.state["position"]
        return formats.read(FeedPosition, text) if text else None

    def commit(self, position: FeedPosition) -> None:
        """The state stands, with the feed's place."""
        self.state["position"] = formats.written(position)
        self.replace(_TOLD, json.dumps(self.state, ensure_ascii=False))

    def replace(self, name: str, text: str) -> None:
        """A file of the folder is as before or new, whatever happens."""
        temporary = self.path / f"{name}.writing"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def close(self) -> None:
        self._lock.close()
