"""Rows of metadata that are read without a query engine, from data files that are small or from memory.

A data file never changes, so the rows of those that this process wrote or read lately stay in memory. The statistics in
the log say which files may have a row that is asked for: of a batch's number that is one, mostly, or none. A query
engine's answers stay for as long as nobody commits to their table, which is known by the file of its newest commit: a
batch reads the lease's row twenty times, and the watermarks five times. Of a table in a store they are read each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Schema, Table
from deltalake import DeltaTable

from binlake.caches import Cache
from binlake.delta.opened_tables import CommitFile, commit_file
from binlake.storage import files
from binlake.store.plain_conditions import comparisons

if TYPE_CHECKING:
    from binlake.store.known_files import KnownFiles, MetadataFile

_Row = dict[str, Any]
_MOST_BYTES, _MOST_ROWS, _MOST_FILES = 128 << 10, 500, 40
"""Bytes and rows of a data file, and files of one answer, above which the query engine is quicker."""
_MOST_BYTES_OF_ANSWER = 1 << 20
"""Bytes of an answer of the query engine that is remembered."""


class ChosenRows(NamedTuple):
    """A data file with rows that meet a condition, and its other rows. The rows are shared: nobody may change them."""

    file: MetadataFile
    meeting: list[_Row]
    others: list[_Row]


_kept: Cache[tuple[str, str], list[_Row]] = Cache("rows of metadata", len)
"""By the table's path and the file's."""


class _Answer(NamedTuple):
    version: int
    commit: CommitFile
    rows: Table


_answers: Cache[tuple[str, Hashable], _Answer] = Cache("answers of metadata")


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
        sides: tuple[list[_Row], list[_Row]] = [], []
        for row in _rows(location, file.path, schema):
            sides[all(comparison.is_met(row) for comparison in wanted)].append(row)
        if sides[True]:
            result.append(ChosenRows(file, sides[True], sides[False]))
    return result


def _is_small(file: MetadataFile) -> bool:
    return file.size <= _MOST_BYTES and file.rows is not None and file.rows <= _MOST_ROWS


def keep(location: str, path: str, rows: list[_Row]) -> None:
    """Remember the rows of a data file."""
    _kept.put((location, path), rows)


def forget(location: str, paths: Iterable[str]) -> None:
    """Forget the rows of data files that were replaced."""
    _kept.drop((location, path) for path in paths)


def remembered(location: str, table: DeltaTable, question: Hashable, ask: Callable[[], Table]) -> Table:
    """Return the rows that ``ask`` returns, or returned for the same question at this version of the table. Raises what
    it does."""
    version = table.version()
    commit = commit_file(location, version)
    answer = _answers.get((location, question))
    if answer and (answer.version, answer.commit) == (version, commit):
        return answer.rows
    rows = ask()
    if commit is not None and rows.nbytes <= _MOST_BYTES_OF_ANSWER:
        _answers.put((location, question), _Answer(version, commit, rows))
    return rows


def _rows(location: str, path: str, schema: Schema) -> Sequence[_Row]:
    rows = _kept.get((location, path))
    if rows is None:
        import pyarrow.parquet as pq  # where it isn't imported, nothing is asked here

        with files.opened(f"{location}/{path}") as source:
            lacking = dict.fromkeys(schema.names)  # of a file that an older binlake wrote
            rows = [{**lacking, **row} for row in pq.ParquetFile(source).read(use_threads=False).to_pylist()]
        keep(location, path, rows)
    return rows
