"""Rows of metadata that are read without a query engine, from data files that are small.

A data file never changes, so the rows of those that this process wrote or read lately stay in memory. The statistics in
the log say which files may have a row that is asked for: of a batch's number that is one, mostly, or none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Schema

from binlake.metadata.plain_conditions import comparisons
from binlake.storage import files

if TYPE_CHECKING:
    from binlake.metadata.known_files import KnownFiles, MetadataFile

Row = dict[str, Any]
_MOST_BYTES, _MOST_ROWS, _MOST_FILES = 128 << 10, 500, 40
"""Bytes and rows of a data file, and files of one answer, above which the query engine is quicker."""
_MOST_KEPT = 2_000
"""Rows that stay in memory, of all tables: a row takes some two kilobytes."""


class ChosenRows(NamedTuple):
    """A data file with rows that meet a condition, and its other rows. The rows are shared: nobody may change them."""

    file: MetadataFile
    meeting: list[Row]
    others: list[Row]


_Place = tuple[int, str, str]
"""The process, the table's path and the file's."""
_kept: dict[_Place, list[Row]] = {}
_keeping = threading.Lock()


def meeting(location: str, known: KnownFiles, schema: Schema, condition: str | None) -> list[ChosenRows] | None:
    """Return the data files with rows that meet a condition; None where a query engine has to look for them.

    Raises OSError, and ArrowException where a file is damaged.
    """
    wanted = comparisons(condition) if condition else ()
    if wanted is None or not all(comparison.fits(schema) for comparison in wanted):
        return None
    asked = [
        file
        for file in known.files.values()
        if all(comparison.may_hold(file.least, file.most) for comparison in wanted)
    ]
    if len(asked) > _MOST_FILES or not all(map(_is_small, asked)):
        return None
    result = []
    for file in asked:
        sides: tuple[list[Row], list[Row]] = [], []
        for row in _rows(location, file.path, schema):
            sides[all(comparison.is_met(row) for comparison in wanted)].append(row)
        if sides[True]:
            result.append(ChosenRows(file, sides[True], sides[False]))
    return result


def _is_small(file: MetadataFile) -> bool:
    return file.size <= _MOST_BYTES and file.rows is not None and file.rows <= _MOST_ROWS


def keep(location: str, path: str, rows: list[Row]) -> None:
    """Remember the rows of a data file; of more than may stay the oldest go."""
    with _keeping:
        _kept[os.getpid(), location, path] = rows
        surplus = sum(map(len, _kept.values())) - _MOST_KEPT
        while surplus > 0:
            surplus -= len(_kept.pop(next(iter(_kept))))


def forget(location: str, paths: Iterable[str]) -> None:
    """Forget the rows of data files that were replaced."""
    with _keeping:
        for path in paths:
            _kept.pop((os.getpid(), location, path), None)


def _rows(location: str, path: str, schema: Schema) -> Sequence[Row]:
    with _keeping:
        rows = _kept.get((os.getpid(), location, path))
    if rows is None:
        import pyarrow.parquet as pq  # where it isn't imported, nothing is asked here

        with files.opened(f"{location}/{path}") as source:
            lacking = dict.fromkeys(schema.names)  # of a file that an older binlake wrote
            rows = [{**lacking, **row} for row in pq.ParquetFile(source).read(use_threads=False).to_pylist()]
        keep(location, path, rows)
    return rows
