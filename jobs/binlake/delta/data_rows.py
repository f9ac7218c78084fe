"""A Delta table's rows at a version, in an order that is the same each time, so that a reader can continue anywhere.

The order is that of the data files' paths, and of the rows in a file. Rows that deletion vectors hide are counted, too.
deltalake's own reader reads files side by side, in no order. And which rows were added, hidden or taken away since a
version, by the table's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from numpy.typing import NDArray
from pyroaring import BitMap64

from binlake.delta import deletion_vectors, log_files, plain_tables
from binlake.delta.claimed_statistics import ClaimedStatistics, WrongFiles
from binlake.delta.delta_actions import Commit
from binlake.delta.delta_schema import is_widened
from binlake.delta.key_ranges import physical_names
from binlake.errors import LakeError, LeftToSpark, StagingError
from binlake.schema.lake_columns import DELETED
from binlake.schema.table import TableSchema
from binlake.storage import files
from binlake.storage.parquet_files import without_views

_MOST_ROWS, _MOST_BYTES = 1 << 14, 32 << 20
"""How much is read at a time."""


Counts = Literal["all", "live", "deleted"]
"""The rows that count in a mirror in which deleted ones stay; in any other all do."""


TouchedRows = dict[str, BitMap64 | None]
"""The numbers of rows by the path of their data file; None for all rows of a file."""


def counting(schema: TableSchema) -> Counts:
    """Return which rows of a table's mirror the server has."""
    return "live" if schema.soft_delete else "all"


def read(
    table: DeltaTable, table_path: str, fields: Sequence[pa.Field], passed: int, counts: Counts = "all"
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Read a table's rows behind the first ``passed``, some at a time, each with the number of rows that are passed
    then.

    fields: the columns wanted, with their types; a column that a file is older than is NULL there. counts: which rows
    are returned; all are numbered. Raises OSError, ArrowException, DeltaError, and KeyError for a column that the table
    doesn't have at its version.
    """
    stored = physical_names(table)
    paths = sorted(pa.table(table.get_add_actions())["path"].to_pylist())
    kept = _kept(table, table_path, paths)
    marks = _Marks(counts, stored)
    begins = 0
    for path in paths:
        with files.opened(f"{table_path}/{path}") as source:
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            names = marks.read_with([stored[field.name] for field in fields])
            for rows, first in _of_file(file, names, max(0, passed - begins)):
                there = kept.get(path.rpartition("/")[2])
                shown = rows if there is None else rows.filter(_shown(there, first, rows.num_rows))
                shown, _ = marks.counting(shown)
                yield _as_wanted(shown, fields, stored), begins + first + rows.num_rows
            begins += file.metadata.num_rows


@dataclass(frozen=True)
class FileRows:
    """A data file, below its table's folder, and a function that reads the rows that count, some at a time, with the
    number of each in the file. The functions of several files may run side by side."""

    path: str
    numbered: Callable[[], Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]]


def of_files(
    table: DeltaTable,
    table_path: str,
    fields: Sequence[pa.Field],
    paths: Sequence[str],
    counts: Counts = "all",
    wrong: WrongFiles | None = None,
) -> Iterator[FileRows]:
    """Yield some data files of a table. wrong: takes the files whose statistics their rows contradict, once they are
    read to their ends. fields, counts, errors: as of ``read``."""
    stored = physical_names(table)
    kept = _kept(table, table_path, paths)
    marks = _Marks(counts, stored)
    claimed = None if wrong is None else ClaimedStatistics(table, kept.keys(), wrong)

    def rows_of(path: str) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        there = kept.get(path.rpartition("/")[2])
        with files.opened(f"{table_path}/{path}") as source:
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            claims = claimed.of(path) if claimed else None
            columns = marks.read_with([stored[field.name] for field in fields])
            columns = list(dict.fromkeys([*columns, *(claims.columns if claims else ())]))
            for rows, first in _of_file(file, columns, 0):
                numbers = np.arange(first, first + rows.num_rows)
                if there is not None:
                    shown = _shown(there, first, rows.num_rows)
                    rows, numbers = rows.filter(shown), numbers[shown.to_numpy(zero_copy_only=False)]
                if claims:
                    claims.add(rows)
                rows, counted = marks.counting(rows)
                yield _as_wanted(rows, fields, stored), numbers if counted is None else numbers[counted]
            if claimed and claims:
                claimed.end(claims, file.metadata.num_rows)

    for path in paths:
        yield FileRows(path, partial(rows_of, path))


def _shown(there: pa.BooleanArray, first: int, count: int) -> pa.BooleanArray:
    """Return which of so many rows from the ``first`` on remain. there: of a file's first rows; the others remain."""
    part = there.slice(first, count)
    return part if len(part) == count else pa.concat_arrays([part, pa.repeat(pa.scalar(True), count - len(part))])


def without(rows: pa.Table, gone: BitMap64) -> pa.Table:
    """Return the rows of a data file without those with these numbers."""
    return rows.filter(_staying(rows.num_rows, gone)) if gone else rows


def _staying(count: int, gone: BitMap64) -> pa.BooleanArray:
    """Return which rows of a data file stay. count: of all its rows. gone: numbers of rows."""
    stay = np.ones(count, np.bool_)
    stay[np.fromiter(gone, np.int64, len(gone))] = False
    return pa.array(stay)


def of_numbers(
    table: DeltaTable, table_path: str, fields: Sequence[pa.Field], path: str, numbers: Iterable[int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a data file by their numbers, ascending; with None all rows. They needn't be there at the log's
    version. fields, errors: as of ``read``."""
    stored = physical_names(table)
    columns = [stored[field.name] for field in fields]
    wanted = None if numbers is None else np.fromiter(numbers, np.int64)
    with files.opened(f"{table_path}/{path}") as source:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        for rows, first in _of_file(file, columns, 0):
            if wanted is not None:
                there = wanted[slice(*np.searchsorted(wanted, [first, first + rows.num_rows]))]
                rows = rows.take(pa.array(there - first))
            yield _as_wanted(rows, fields, stored)


class _Marks:
    """The marks of deleted rows, by which rows are chosen. stored: names in data files by the table's."""

    def __init__(self, counts: Counts, stored: Mapping[str, str]) -> None:
        self._wanted = counts == "deleted"
        self._name = None if counts == "all" else stored[DELETED]

    def read_with(self, names: Sequence[str]) -> list[str]:
        """Return names of columns, and with them that of the marks where they are asked for."""
        return [*names] if self._name is None else [*names, self._name]

    def counting(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.bool_] | None]:
        """Return the rows that count, and which of the rows these are; None for all."""
        if self._name is None:
            return rows, None
        counted = pc.equal(rows.column(self._name), self._wanted)
        return rows.filter(counted), counted.to_numpy(zero_copy_only=False)


def _kept(table: DeltaTable, table_path: str, paths: Sequence[str]) -> dict[str, pa.BooleanArray]:
    """Return which rows of a file remain, by its name, for files with deletion vectors; at least of those at some
    paths."""
    if is_widened(table):
        return _kept_by_vectors(table, table_path, paths)
    try:
        return {
            path.rpartition("/")[2]: there.values
            for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())
            for path, there in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True)
        }
    except DeltaError:  # also where statistics count fewer rows than a vector hides, or another file's vector is gone
        return _kept_by_vectors(table, table_path, paths)


def _kept_by_vectors(table: DeltaTable, table_path: str, paths: Sequence[str]) -> dict[str, pa.BooleanArray]:
    """Return the same of a table with Delta's type widening, whose deletion vectors deltalake refuses to read; up to
    the last row that is hidden. Raises LakeError where they can't be read here."""
    kept: dict[str, pa.BooleanArray] = {}
    try:
        for add in plain_tables.actions_of(table, table_path, paths):
            if hidden := deletion_vectors.hidden(table_path, add):
                kept[add["path"].rpartition("/")[2]] = _staying(hidden.max() + 1, hidden)
    except LeftToSpark as reason:  # who reads rows has no other engine
        raise LakeError(f"{table_path}: its deletion vectors can't be read without Spark: {reason}") from reason
    return kept


def _of_file(file: pq.ParquetFile, columns: Sequence[str], passed: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Read the rows of a file behind the first ``passed``; each part comes with the number of its first row."""
    at = 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if at + group.num_rows <= passed:
            at += group.num_rows
            continue
        at_once = min(_MOST_ROWS, _MOST_BYTES * group.num_rows // max(1, group.total_byte_size)) or 1
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(at_once, row_groups=[number], columns=there, use_threads=False):
            rows = without_views(batch)
            behind = min(max(0, passed - at), rows.num_rows)
            if behind < rows.num_rows:
                yield rows.slice(behind), at + behind
            at += rows.num_rows


def _as_wanted(rows: pa.RecordBatch, fields: Sequence[pa.Field], stored: dict[str, str]) -> pa.RecordBatch:
    names = rows.schema.names
    columns = [
        rows.column(stored[field.name]).cast(field.type)
        if stored[field.name] in names
        else pa.nulls(rows.num_rows, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def touched_since(table_path: str, version: int, newest: int) -> TouchedRows | None:
    """Return the rows that commits behind ``version`` touched, up to ``newest``.

    Everybody's commits count. Actions that by their commit change no data (``dataChange`` is false, as of files put
    together) don't. Returns None where that isn't known, as a commit's or a deletion vector's file is gone. Raises
    OSError, LakeError.
    """
    touched: TouchedRows = {}
    try:
        for number in range(version + 1, newest + 1):
            for path, rows in _touched_by(table_path, log_files.read_commit(table_path, number)).items():
                known = touched.get(path, BitMap64())
                touched[path] = None if rows is None or known is None else known | rows
    except (StagingError, FileNotFoundError, ValueError, KeyError):
        return None
    return touched


def _touched_by(table_path: str, commit: Commit) -> TouchedRows:
    """Return the rows that one commit touched. Raises LakeError where a vector can't be read, FileNotFoundError."""
    added, removed = (
        {action.path: action.fields for action in actions if action.changes_data}
        for actions in (commit.added, commit.removed)
    )
    return {
        path: deletion_vectors.hidden(table_path, added[path]) ^ deletion_vectors.hidden(table_path, removed[path])
        if path in added and path in removed
        else None
        for path in added.keys() | removed.keys()
    }
