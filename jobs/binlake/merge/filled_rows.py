"""The rows of a small plain table with constants in new columns, written anew without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake.delta import deletion_vectors, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.plain_files import added_file
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge.reshape import ReshapedColumn
from binlake.storage import parquet_files

MOST_FILES = 500
MOST_BYTES = 16_000_000
"""The most data files of a table, and their bytes; more is read and written by Spark, side by side."""
_UNPACKED = 8
"""Bytes in memory for each of a data file's."""


def filled(
    path: str, log: DeltaTable, fields: Sequence[dict[str, Any]], columns: Sequence[ReshapedColumn], room: int
) -> list[DeltaAction]:
    """Write all rows of a table into one data file of other columns; return the actions that put it in their place.

    fields: of Delta's schema afterwards, one for each column. room: bytes of data files up to which it is done here.
    Raises LeftToSpark, OSError.
    """
    schema = pa.schema(
        [plain_tables.stored_field(field, column.arrow) for field, column in zip(fields, columns, strict=True)]
    )
    adds = files_to_replace(path, log, room)
    parts = [_filled(rows, schema, columns) for rows in rows_of(path, adds)]
    return replacing(path, adds, pa.concat_tables(parts) if parts else schema.empty_table())


def files_to_replace(path: str, log: DeltaTable, room: int) -> list[DeltaAction]:
    """Return the add actions of all data files, where they are few and small. room: see ``filled``. Raises LeftToSpark,
    OSError."""
    there = pa.table(log.get_add_actions())
    size = sum(there["size_bytes"].to_pylist())
    if size > min(room, MOST_BYTES) or there.num_rows > MOST_FILES:
        raise LeftToSpark(f"its {there.num_rows} data files have {size / 1e6:.1f} MB")
    return plain_tables.actions_of(log, path, there["path"].to_pylist())


def rows_of(path: str, adds: Sequence[DeltaAction]) -> Iterator[pa.Table]:
    """Yield the rows of each data file that no deletion vector hides, as they are stored. Raises LeftToSpark."""
    room = MOST_BYTES * _UNPACKED
    for add in adds:
        rows = parquet_files.read_within(f"{path}/{add['path']}", room)
        if rows is None:
            raise LeftToSpark(f"its data files take more than {MOST_BYTES * _UNPACKED / 1e6:.0f} MB of memory")
        if vector := add.get("deletionVector"):
            rows = _without(rows, deletion_vectors.read(path, vector))
        room -= rows.nbytes
        yield rows


def replacing(path: str, adds: Sequence[DeltaAction], rows: pa.Table) -> list[DeltaAction]:
    """Write rows into one data file, and return the actions that put it in the place of these."""
    actions = [plain_tables.removed(add) for add in adds]
    if rows.num_rows:
        actions.append({"add": added_file(path, rows)})
        fault("data file written")
    return actions


def _filled(rows: pa.Table, schema: pa.Schema, columns: Sequence[ReshapedColumn]) -> pa.Table:
    """Return the rows of a data file under the new columns. Raises LeftToSpark."""
    arrays: list[Any] = []
    for field, column in zip(schema, columns, strict=True):
        if column.constant is not None:
            arrays.append(pa.repeat(column.constant, rows.num_rows))
        elif field.name not in rows.column_names:  # written before the column came
            arrays.append(pa.nulls(rows.num_rows, field.type))
        elif rows[field.name].type != field.type:
            raise LeftToSpark(f"column {column.name!r} has another type in a data file")
        else:
            arrays.append(rows[field.name])
    return pa.Table.from_arrays(arrays, schema=schema)


def _without(rows: pa.Table, gone: BitMap64) -> pa.Table:
    kept = np.ones(rows.num_rows, np.bool_)
    kept[np.fromiter(gone, np.int64, len(gone))] = False
    return rows.filter(pa.array(kept))
