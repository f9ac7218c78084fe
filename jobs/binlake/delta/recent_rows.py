"""Rows of small data files that this process wrote lately.

Who follows a source changes the same small tables every second: what a batch writes, the next one reads to write it
anew. A data file never changes, so its rows are those that were written. What is known of a file is dropped when others
need the room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pyarrow as pa

_MOST_OF_A_FILE, _MOST = 512_000, 32_000_000
"""Bytes of memory, of a file's rows and of all."""


class _Recent:
    """Rows by the path of their file, the ones used last at the end."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[pa.Table, int]] = {}
        self._bytes = 0
        self._keeping = threading.Lock()

    def keep(self, path: str, rows: pa.Table, size: int) -> None:
        with self._keeping:
            self._kept[path] = rows, size
            self._bytes += size
            while self._bytes > _MOST:
                self._bytes -= self._kept.pop(next(iter(self._kept)))[1]

    def of(self, path: str) -> pa.Table | None:
        with self._keeping:
            kept = self._kept.pop(path, None)
            if kept is None:
                return None
            self._kept[path] = kept
            return kept[0]

    def forget(self, paths: Iterable[str]) -> None:
        with self._keeping:
            for path in paths:
                _, size = self._kept.pop(path, (None, 0))
                self._bytes -= size


_recent = _Recent()


def keep(path: str, rows: pa.Table) -> None:
    """Remember the rows of a new data file as it has them, where they are few bytes."""
    size = rows.nbytes
    if size <= _MOST_OF_A_FILE:
        _recent.keep(path, rows.combine_chunks(), size)


def forget(paths: Iterable[str]) -> None:
    """Forget the rows of data files that their tables don't have any more."""
    _recent.forget(paths)


def of(path: str) -> pa.Table | None:
    """Return the rows of a data file; None where they aren't known."""
    return _recent.of(path)
