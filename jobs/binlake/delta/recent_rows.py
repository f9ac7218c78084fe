"""Rows of small data files that this process wrote lately, and some columns of larger ones, such as the key.

A follower changes the same tables every second: the next batch reads the files that a batch writes, to rewrite them or
to look for its keys. A data file never changes, so its rows are those that were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from binlake.caches import Cache

_MOST_ROWS, _MOST_COLUMNS = 256_000, 1_000_000
"""Bytes of memory, of a file's rows and of some of its columns."""


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
        """Return whether these columns are known, or all with None."""
        return self.is_whole or (columns is not None and set(columns) <= set(self.schema.names))


_recent: Cache[str, _Known] = Cache("rows of data files", lambda known: known.size)


def keep(path: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Remember the rows of a new data file as it has them, of many bytes those of the key's columns."""
    if rows.nbytes <= _MOST_ROWS:
        _recent.put(path, _Known(rows.combine_chunks(), rows.schema, is_whole=True))
    else:
        _keep_columns(path, rows.select(key))


def keep_columns(path: str, rows: pa.Table) -> None:
    """Remember some columns of a data file, all of whose rows these are, unless it is known by now."""
    if _recent.get(path) is None:
        _keep_columns(path, rows)


def _keep_columns(path: str, rows: pa.Table) -> None:
    if rows.nbytes > 2 * _MOST_COLUMNS:
        return  # too many with half of the bytes, too
    kept = pa.table({name: _narrow(rows[name]) for name in rows.column_names})
    if kept.nbytes <= _MOST_COLUMNS:
        _recent.put(path, _Known(kept.combine_chunks(), rows.schema, is_whole=False))


def _narrow(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whole numbers of 8 bytes with 4 each, where these are enough."""
    if values.type == pa.int64():
        with suppress(pa.ArrowInvalid):
            return values.cast(pa.int32())
    return values


def forget(paths: Iterable[str]) -> None:
    """Forget the rows of data files that their tables don't have any more."""
    _recent.drop(paths)


def of(path: str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Return the rows of a data file; None where they aren't known. columns: those that are asked for, by default all.

    Of a file that is known as a whole all columns are returned, without those that it lacks.
    """
    known = _recent.get(path)
    return known.rows.cast(known.schema) if known and known.has(columns) else None


def has(path: str, columns: Sequence[str]) -> bool:
    """Return whether ``of`` returns these columns."""
    known = _recent.get(path)
    return known is not None and known.has(columns)
