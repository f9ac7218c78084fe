"""Rows of small data files that this process wrote lately, and some columns of larger ones, such as the key.

Who follows a source changes the same tables every second: what a batch writes, the next one reads to write it anew, or
looks into it for its keys. A data file never changes, so its rows are those that were written. What is known of a file
is dropped when others need the room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

_MOST_OF_A_FILE, _MOST = 512_000, 32_000_000
"""Bytes of memory, of a file's rows and of all."""


@dataclass(frozen=True)
class _Known:
    """Rows of a file. is_whole: with all of its columns. size: bytes of memory."""

    rows: pa.Table
    is_whole: bool
    size: int


class _Recent:
    """What is known of files by their paths, the ones used last at the end."""

    def __init__(self) -> None:
        self._kept: dict[str, _Known] = {}
        self._bytes = 0
        self._keeping = threading.Lock()

    def keep(self, path: str, known: _Known) -> None:
        with self._keeping:
            self._drop(path)
            self._kept[path] = known
            self._bytes += known.size
            while self._bytes > _MOST:
                self._drop(next(iter(self._kept)))

    def of(self, path: str) -> _Known | None:
        with self._keeping:
            known = self._kept.pop(path, None)
            if known is not None:
                self._kept[path] = known
            return known

    def forget(self, paths: Iterable[str]) -> None:
        with self._keeping:
            for path in paths:
                self._drop(path)

    def _drop(self, path: str) -> None:
        known = self._kept.pop(path, None)
        self._bytes -= known.size if known else 0


_recent = _Recent()


def keep(path: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Remember the rows of a new data file as it has them, of many bytes those of the key's columns."""
    is_whole = rows.nbytes <= _MOST_OF_A_FILE
    _keep(path, rows if is_whole else rows.select(key), is_whole=is_whole)


def keep_columns(path: str, rows: pa.Table) -> None:
    """Remember some columns of a data file, all of whose rows these are, unless it is known by now."""
    if _recent.of(path) is None:
        _keep(path, rows, is_whole=False)


def _keep(path: str, rows: pa.Table, *, is_whole: bool) -> None:
    size = rows.nbytes
    if size <= _MOST_OF_A_FILE:
        _recent.keep(path, _Known(rows.combine_chunks(), is_whole, size))


def forget(paths: Iterable[str]) -> None:
    """Forget the rows of data files that their tables don't have any more."""
    _recent.forget(paths)


def of(path: str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Return the rows of a data file; None where they aren't known. columns: those that are asked for, by default all.

    Of a file that is known as a whole all columns are returned, without those that it lacks.
    """
    known = _recent.of(path)
    if known is None:
        return None
    has_all = columns is not None and set(columns) <= set(known.rows.column_names)
    return known.rows if known.is_whole or has_all else None
