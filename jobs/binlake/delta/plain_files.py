"""Data files of plain tables, written from Arrow without Spark."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from pyroaring import BitMap64

from binlake.delta.delta_actions import DataFile, DeltaAction
from binlake.delta.delta_schema import element_id, needs_column_mapping
from binlake.delta.file_statistics import Statistics, without_tight_bounds
from binlake.schema.lake_columns import LakeColumn
from binlake.storage import files, parquet_files
from binlake.versions import SPARK

_AT_ONCE = 1 << 16
"""Rows of a data file that are written at a time."""
_FIELD_ID = "PARQUET:field_id"
"""The field metadata from which pyarrow's writer of Parquet takes a column's id."""
_WRITTEN_BY = {"org.apache.spark.version": SPARK}
"""Without it older versions of Spark refuse days before 1582, as they can't know the calendar."""


def can_hold(columns: Sequence[LakeColumn]) -> bool:
    """Return whether a new table of these columns needs no physical names."""
    return not needs_column_mapping([column.name for column in columns])


def arrow_of(kind: Any) -> pa.DataType:
    """Return the type that data files have for one of Delta's schema, as its JSON has it."""
    field = {"name": "c", "type": kind, "nullable": True, "metadata": {}}
    return pa.schema(Schema.from_json(json.dumps({"type": "struct", "fields": [field]})).to_arrow()).field(0).type


def numbered_column(name: str, arrow: pa.DataType, number: int | None) -> pa.Field:
    """Return a column of data files. number: its id in them; None for none."""
    if number is None:
        return pa.field(name, arrow)
    if pa.types.is_list(arrow):
        arrow = pa.list_(arrow.value_field.with_metadata({_FIELD_ID: str(element_id(number))}))
    return pa.field(name, arrow, metadata={_FIELD_ID: str(number)})


def numbered_as_new(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a new table's data files with the ids that the table gives them (see DeltaSchema.text)."""
    return pa.schema([numbered_column(each.name, each.type, number) for number, each in enumerate(columns, 1)])


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


def written_without(table_path: str, path: str, gone: BitMap64) -> DeltaAction:
    """Write the rows of a data file to a new one, without those with these numbers; return its add action. Raises
    OSError, ArrowException."""
    with files.opened(f"{table_path}/{path}") as source:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        groups = range(file.metadata.num_row_groups)
        parts = (
            parquet_files.without_views(batch)
            for group in groups
            for batch in file.iter_batches(_AT_ONCE, row_groups=[group], use_threads=False)
        )
        first = next(parts)
        folder = path.rpartition("/")[0]
        rows = _without(itertools.chain([first], parts), gone)
        (written,) = write_batches(table_path, folder, first.schema, rows, rows_per_file=file.metadata.num_rows)
    added: DeltaAction = json.loads(written.action)["add"]
    return added


def _without(parts: Iterable[pa.RecordBatch], gone: BitMap64) -> Iterator[pa.RecordBatch]:
    start = 0
    for part in parts:
        stay = np.ones(part.num_rows, np.bool_)
        stay[[number - start for number in gone.iter_equal_or_larger(start) if number < start + part.num_rows]] = False
        yield part.filter(pa.array(stay))
        start += part.num_rows


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
