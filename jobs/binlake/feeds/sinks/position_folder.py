"""A sink's folder on a disk, with the state of the last commit in a file. One process at a time may write into it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from binlake.errors import SinkFailed
from binlake.records.feed_watermarks import FeedPosition
from binlake.storage import private_files
from binlake.store import formats

_STATE_FILE = "_position.json"
_REMEDY = "let the sink name a folder that this account may write, on a disk with room"


class PositionFolder:
    """A sink's folder. state: JSON values by name, as of the last commit; ``fresh`` before the first one."""

    def __init__(self, path: Path, owner: str, fresh: Mapping[str, Any], cut: Callable[[dict[str, Any]], None]) -> None:
        """owner: ``source/feed``, which alone may use the folder. cut: called with the state, to remove what a killed
        run wrote after it.

        Raises SinkFailed if another process writes into the folder, another feed owns it, or it can't be read or
        written.
        """
        self.path = path
        self._owner, self._fresh = owner, fresh
        with self.writing():
            private_files.make_folder(path)
            self._lock = private_files.opened(path / "_lock", "ab")
        try:
            with self.writing():
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.state = self._read()
                cut(self.state)
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict[str, Any]:
        path = self.path / _STATE_FILE
        try:
            state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"owner": self._owner, "position": None, **self._fresh}
        except ValueError as error:
            raise SinkFailed(f"{path} is damaged: {error}", remedy="let the sink name an empty folder") from None
        if state.get("owner") != self._owner:
            raise SinkFailed(f"{self.path} is {state.get('owner')}'s", remedy="give each feed a folder of its own")
        return state

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Translate errors of the disk into SinkFailed."""
        try:
            yield
        except BlockingIOError:
            raise SinkFailed(f"another process writes into {self.path}", remedy="wait for it to end") from None
        except OSError as error:
            raise SinkFailed(f"can't write into {self.path}: {error.strerror or error}", remedy=_REMEDY) from error

    def position(self) -> FeedPosition | None:
        """Return the position of the last commit; None before the first one."""
        text = self.state["position"]
        return formats.read(FeedPosition, text) if text else None

    def commit(self, position: FeedPosition) -> None:
        """Write the state, with the feed's position."""
        self.state["position"] = formats.written(position)
        self.save()

    def save(self) -> None:
        """Write the state with the position that it has."""
        self.replace(_STATE_FILE, json.dumps(self.state, ensure_ascii=False))

    def replace(self, name: str, text: str) -> None:
        """Replace a file of the folder atomically."""
        temporary = self.path / f"{name}.writing"
        with private_files.opened(temporary, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def close(self) -> None:
        """Release the folder's lock."""
        self._lock.close()
