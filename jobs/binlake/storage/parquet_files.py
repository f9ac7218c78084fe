"""Parquet files in every kind of storage: staged files are read, and data files of tables are read and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from binlake.errors import StagingError
from binlake.storage import files
from binlake.storage.column_encodings import settings_for
from binlake.storage.kinds import storage_of
from binlake.storage.protocol import Storage

_ROWS = 1 << 20
_FEW_ROWS = 4096
_COMBINED = 16 << 20
"""Bytes of batches that are put together: many small pieces of memory take half as much again."""
_ROW_GROUP = 64 << 20
"""Bytes of memory whose rows make a row group."""
_FEWEST_PIECEMEAL = 1 << 20
"""Bytes of rows whose file is written to a disk a page at a time: to gather it in memory costs a tenth of the
writing."""
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def without_views(rows: _Rows) -> _Rows:
    """Return rows of a data file with texts and bytes as all of Arrow's functions take them.

    deltalake's UPDATE and MERGE write files whose Arrow schema asks for views, which can't be filtered or joined.
    """
    if not any(kind in _VIEWS for kind in rows.schema.types):
        return rows
    fields = [field.with_type(_VIEWS.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields, rows.schema.metadata))


@contextmanager
def _staged(path: str) -> Iterator[pq.ParquetFile]:
    """Open a staged file. Raises StagingError when it, or any part of it, can't be read."""
    try:
        with files.opened(path) as source:
            yield pq.ParquetFile(source)
    except (OSError, pa.ArrowException) as error:
        raise StagingError(f"can't read {path}: {error}", remedy=files.STAGED_ANEW) from error


def staged_columns(path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read some columns of a staged file, a part of its rows at a time. Raises StagingError."""
    with _staged(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            yield pa.Table.from_batches([batch])


def staged_batches(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Read a staged file, so many of its rows at a time. Raises StagingError."""
    with _staged(path) as file:
        yield from file.iter_batches(rows, use_threads=False)


def staged_groups_backwards(path: str, columns: list[str]) -> Iterator[pa.Table]:
    """Read a staged file's row groups, the last first. columns: those of structs as ``struct.column``. Raises
    StagingError."""
    with _staged(path) as file:
        for group in reversed(range(file.num_row_groups)):
            yield file.read_row_group(group, columns, use_threads=False)


def read_within(
    path: str,
    max_bytes: int,
    columns: Sequence[str] | None = None,
    *,
    narrow: bool = False,
    repeating: Sequence[str] = (),
    storage: Storage | None = None,
) -> pa.Table | None:
    """Read a whole Parquet file, or those of some columns that it has, in this thread.

    Return None where the rows take more than ``max_bytes`` bytes of memory, which those of a small file with equal
    texts may. narrow: a row has a few bytes, so that many are read before they are counted. repeating: columns of texts
    that are returned as dictionary arrays. storage: that the path lies in, where the caller has it. Raises OSError and
    ArrowException.
    """
    tables: list[pa.Table] = []
    room = max_bytes
    for part in read_parts(path, columns, narrow=narrow, repeating=repeating, storage=storage):
        room -= part.nbytes
        if room < 0:
            return None
        tables.append(part)
    return pa.concat_tables(tables)


def read_parts(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    narrow: bool = False,
    repeating: Sequence[str] = (),
    storage: Storage | None = None,
    share: tuple[int, int] = (0, 1),
) -> Iterator[pa.Table]:
    """Read a Parquet file, or those of some columns that it has, in this thread, some 16 MiB of memory at a time.

    Yields at least one table, which may have no row. narrow, repeating, storage: see ``read_within``. share: the
    number of a share, and of how many: each has other row groups. Raises OSError and ArrowException.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    with files.opened(path, storage) as source:
        file = pq.ParquetFile(source, read_dictionary=list(repeating))
        schema = file.schema_arrow
        chosen = [name for name in schema.names if columns is None or name in columns]
        if file.metadata.num_rows <= _FEW_ROWS and share == (0, 1):
            yield without_views(file.read(chosen, use_threads=False))
            return
        groups = list(range(file.num_row_groups))[share[0] :: share[1]]
        for batch in file.iter_batches(_ROWS if narrow else _FEW_ROWS, groups, columns=chosen, use_threads=False):
            waiting.append(without_views(batch))
            size += waiting[-1].nbytes
            if size > _COMBINED:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, size = [], 0
        empty = without_views(pa.schema([schema.field(name) for name in chosen]).empty_table())
        yield pa.Table.from_batches(waiting, empty.schema)


def read_rows(
    path: str, places: NDArray[np.int64], columns: Sequence[str], *, storage: Storage | None = None
) -> pa.Table:
    """Read the rows of a Parquet file with these ascending numbers, those of the columns that it has. storage: see
    ``read_within``. Raises OSError and ArrowException."""
    parts: list[pa.Table] = []
    with files.opened(path, storage) as source:
        file = pq.ParquetFile(source)
        chosen = [name for name in file.schema_arrow.names if name in columns]
        begins = 0
        for number in range(file.num_row_groups):
            ends = begins + file.metadata.row_group(number).num_rows
            here = places[np.searchsorted(places, begins) : np.searchsorted(places, ends)]
            if here.size:
                group = without_views(file.read_row_group(number, chosen, use_threads=False))
                parts.append(group.take(pa.array(here - begins)))
            begins = ends
        empty = without_views(pa.schema([file.schema_arrow.field(name) for name in chosen]).empty_table())
        return pa.concat_tables([empty, *parts])


def write_data_file(path: str, rows: pa.Table, repeating: Sequence[str] | None = None) -> int:
    """Write a data file of a table, and return its bytes. Raises OSError.

    repeating: names of the columns for whose values a dictionary is tried, None for all. Where they are given, the file
    has no statistics of its own, which cost a fifth of its writing: Delta's log has those of all its rows.
    """
    if rows.nbytes > _ROW_GROUP:
        return _write_groups(path, rows)
    settings = settings_for(rows, repeating)
    if rows.nbytes > _FEWEST_PIECEMEAL and "://" not in path:
        with storage_of(path).open_new(path) as stream:
            _write(rows, stream, settings, with_statistics=repeating is None)
            return int(stream.tell())
    sink = pa.BufferOutputStream()
    _write(rows, sink, settings, with_statistics=repeating is None)
    data = sink.getvalue()
    files.write_bytes(path, data)
    return int(data.size)


def _write(rows: pa.Table, sink: pa.NativeFile, settings: dict[str, Any], *, with_statistics: bool) -> None:
    with _writer(sink, rows.schema, settings, with_statistics=with_statistics) as writer:
        writer.write_table(rows)


def _writer(
    sink: pa.NativeFile, schema: pa.Schema, settings: dict[str, Any], *, with_statistics: bool = True
) -> pq.ParquetWriter:
    """Return a writer of data files, which have the schema's metadata, also where they don't have the schema."""
    writer = pq.ParquetWriter(sink, schema, write_statistics=with_statistics, **settings)
    if not settings["store_schema"] and schema.metadata:
        writer.add_key_value_metadata(schema.metadata)
    return writer


def _write_groups(path: str, rows: pa.Table) -> int:
    """Write one row group after the other, so that no more than one is held beside the rows; return the file's
    bytes."""
    sink = DataFileSink(path, rows.schema)
    try:
        for batch in rows.to_batches():
            sink.write(batch)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


class DataFileSink:
    """A data file of a table, written row group by row group; the first one decides how the columns are encoded. Raises
    OSError."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._stream = storage_of(path).open_new(path)
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._size = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows; a row group is written once enough bytes have gathered. Raises OSError."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        if self._writer is None:
            self._writer = _writer(self._stream, self._schema, settings_for(rows))
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> int:
        """Finish the file and return its bytes; a second call does nothing else."""
        if not self._stream.closed:
            try:
                self._flush()
                assert self._writer is not None
                self._writer.close()
                self._size = self._stream.tell()
            finally:
                self._stream.close()
        return self._size

    def abandon(self) -> None:
        """Close the file, which isn't complete."""
        if not self._stream.closed:
            if self._writer is not None:
                self._writer.is_open = False  # else it writes its end when it is collected
            self._stream.close()
