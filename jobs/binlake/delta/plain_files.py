"""Data files of plain tables, written from Arrow without Spark."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq

from binlake.delta.delta_actions import DataFile, DeltaAction
from binlake.delta.delta_schema import needs_column_mapping
from binlake.delta.file_statistics import Statistics, without_tight_bounds
from binlake.schema.lake_columns import LakeColumn
from binlake.storage import files, parquet_files
from binlake.versions import SPARK

_WRITTEN_BY = {"org.apache.spark.version": SPARK}
"""Without it older versions of Spark refuse days before 1582, as they can't know the calendar."""


def can_hold(columns: Sequence[LakeColumn]) -> bool:
    """Return whether a new table of these columns needs no physical names."""
    return not needs_column_mapping([column.name for column in columns])


def write(table_path: str, folder: str, rows: pa.Table) -> tuple[DataFile, ...]:
    """Write rows to a data file below ``table_path``/``folder``, and return it; none where there is no row. Raises
    OSError."""
    if not rows.num_rows:
        return ()
    files.make_readers_folder(f"{table_path}/{folder}")
    added = added_file(table_path, rows, f"{folder}/")
    return (DataFile(added["path"], added["size"], rows.num_rows, json.dumps({"add": added})),)


def added_file(
    table_path: str,
    rows: pa.Table,
    below: str = "",
    *,
    repeating: Sequence[str] | None = None,
    ascending: Sequence[str] = (),
) -> DeltaAction:
    """Write a data file, and return its add action. below: ``folder/``. repeating: see write_data_file. ascending:
    columns of ascending values without NULLs. Raises OSError."""
    name = _new_name(below)
    size = parquet_files.write_data_file(f"{table_path}/{name}", rows.replace_schema_metadata(_WRITTEN_BY), repeating)
    statistics = Statistics()
    statistics.add(rows, ascending)
    return _added(name, size, statistics)


def write_named(table_path: str, name: str, rows: pa.Table) -> tuple[int, str]:
    """Write a data file under this name, and return its bytes and statistics. Raises OSError."""
    files.make_readers_folder(f"{table_path}/{name}".rpartition("/")[0])
    size = parquet_files.write_data_file(f"{table_path}/{name}", rows.replace_schema_metadata(_WRITTEN_BY))
    statistics = Statistics()
    statistics.add(rows)
    return size, statistics.text()


def with_true_statistics(table_path: str, add: DeltaAction) -> DeltaAction:
    """Read a data file, and return its add action with the statistics of its rows; it changes no data. Raises OSError,
    ArrowException."""
    statistics = Statistics()
    with files.opened(f"{table_path}/{add['path']}") as source:
        for rows in pq.ParquetFile(source, coerce_int96_timestamp_unit="us").iter_batches(use_threads=False):
            statistics.add(parquet_files.without_views(rows))
    text = statistics.text()
    stats = without_tight_bounds(text) if add.get("deletionVector") else text
    return {**add, "partitionValues": {}, "dataChange": False, "stats": stats}


def write_batches(
    table_path: str, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, rows_per_file: int
) -> tuple[DataFile, ...]:
    """Write rows that needn't fit into memory to data files below ``table_path``/``folder``, and return these.

    folder: may be empty. rows_per_file: at most. Raises OSError.
    """
    below = f"{folder}/" if folder else ""
    written: list[DataFile] = []
    with ExitStack() as stack:
        file: _File | None = None
        for batch in _pieces(batches, rows_per_file):
            if file and file.statistics.rows + batch.num_rows > rows_per_file:
                written.append(file.end())
                file = None
            if file is None:
                files.make_readers_folder(f"{table_path}/{folder}")
                file = stack.enter_context(_File(table_path, _new_name(below), schema))
            file.add(batch)
        if file:
            written.append(file.end())
    return tuple(written)


def _pieces(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


class _File:
    """A data file that is being written."""

    def __init__(self, table_path: str, name: str, schema: pa.Schema) -> None:
        self._name = name
        self._sink = parquet_files.DataFileSink(f"{table_path}/{name}", schema.with_metadata(_WRITTEN_BY))
        self.statistics = Statistics()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *raised: object) -> None:
        self._sink.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        self._sink.write(batch)
        self.statistics.add(batch)

    def end(self) -> DataFile:
        """Finish the file, and return it."""
        added = _added(self._name, self._sink.close(), self.statistics)
        return DataFile(added["path"], added["size"], self.statistics.rows, json.dumps({"add": added}))


def _new_name(below: str) -> str:
    return f"{below}part-00000-{uuid.uuid4()}-c000.snappy.parquet"


def _added(name: str, size: int, statistics: Statistics) -> DeltaAction:
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
        "stats": statistics.text(),
    }
