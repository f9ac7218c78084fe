"""Rows of small data files that this process wrote lately, and some columns of larger ones, such as the key.

Who follows a source changes the same tables every second: what a batch writes, the next one reads to write it anew, or
looks into it for its keys. A data file never changes, so its rows are those that were written. What is known of a file
is dropped when others need the room: of any file, as batches use the same ones in the same order, so that the oldest is
needed soonest.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

_MOST_ROWS, _MOST_COLUMNS, _MOST = 256_000, 1_000_000, 32_000_000
"""Bytes of memory, of a file's rows, of some of its columns and of all."""


@dataclass(frozen=True)
class _Known:
    """Rows of a file. schema: of the rows as the file has them; here whole numbers may take fewer bytes. is_whole: with
    all of its columns. size: bytes of memory."""

    rows: pa.Table
    schema: pa.Schema
    is_whole: bool

    @property
    def size(self) -> int:
        return int(self.rows.nbytes)

    def has(self, columns: Sequence[str] | None) -> bool:
        """Tell whether these columns are known, or all with None."""
        return self.is_whole or (columns is not None and set(columns) <= set(self.schema.names))


class _Recent:
    """What is known of files by their paths."""

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
                self._drop(random.choice(tuple(self._kept)))

    def of(self, path: str) -> _Known | None:
        with self._keeping:
            return self._kept.get(path)

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
    if rows.nbytes <= _MOST_ROWS:
        _recent.keep(path, _Known(rows.combine_chunks(), rows.schema, is_whole=True))
    else:
        _keep_columns(path, rows.select(key))


def keep_columns(path: str, rows: pa.Table) -> None:
    """Remember some columns of a data file, all of whose rows these are, unless it is known by now."""
    if _recent.of(path) is None:
        _keep_columns(path, rows)


def _keep_columns(path: str, rows: pa.Table) -> None:
    if rows.nbytes > 2 * _MOST_COLUMNS:
        return  # too many with half of the bytes, too
    kept = pa.table({name: _narrow(rows[name]) for name in rows.column_names})
    if kept.nbytes <= _MOST_COLUMNS:
        _recent.keep(path, _Known(kept.combine_chunks(), rows.schema, is_whole=False))


def _narrow(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whole numbers of 8 bytes with 4 each, where these are enough."""
    if values.type == pa.int64():
        with suppress(pa.ArrowInvalid):
            return values.cast(pa.int32())
    return values


def forget(paths: Iterable[str]) -> None:
    """Forget the rows of data files that their tables don't have any more."""
    _recent.forget(paths)


def of(path: str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Return the rows of a data file; None where they aren't known. columns: those that are asked for, by default all.

    Of a file that is known as a whole all columns are returned, without those that it lacks.
    """
    known = _recent.of(path)
    return known.rows.cast(known.schema) if known and known.has(columns) else None


def has(path: str, columns: Sequence[str]) -> bool:
    """Tell whether ``of`` returns these columns."""
    known = _recent.of(path)
    return known is not None and known.has(columns)
