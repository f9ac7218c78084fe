"""The rows of a small plain table, read and rewritten without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.delta import data_rows, deletion_vectors, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.plain_files import added_file
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge import casts
from binlake.merge.reshape import ReshapedColumn
from binlake.storage import parquet_files

MOST_FILES = 500
MOST_BYTES = 16_000_000
"""The most data files of a table, and their bytes; more is read and written by Spark, side by side."""
_UNPACKED = 8
"""Bytes in memory for each of a data file's."""


def filled(
    path: str, table: DeltaTable, fields: Sequence[dict[str, Any]], columns: Sequence[ReshapedColumn], room: int
) -> list[DeltaAction]:
    """Write all rows of a table into one data file of other columns and values; return the actions that put it in their
    place.

    fields: of Delta's schema afterwards, one for each column. room: bytes of data files up to which it is done here.
    Raises LeftToSpark, OSError.
    """
    schema = pa.schema(
        [plain_tables.stored_field(field, column.arrow) for field, column in zip(fields, columns, strict=True)]
    )
    adds = files_to_replace(path, table, room)
    parts = [_filled(rows, schema, columns) for rows in rows_of(path, adds)]
    return replacing(path, adds, pa.concat_tables(parts) if parts else schema.empty_table())


def files_to_replace(path: str, table: DeltaTable, room: int) -> list[DeltaAction]:
    """Return the add actions of all data files, where they are few and small. room: see ``filled``. Raises LeftToSpark,
    OSError."""
    there = pa.table(table.get_add_actions())
    size = sum(there["size_bytes"].to_pylist())
    if size > min(room, MOST_BYTES) or there.num_rows > MOST_FILES:
        raise LeftToSpark(f"its {there.num_rows} data files have {size / 1e6:.1f} MB")
    return plain_tables.actions_of(table, path, there["path"].to_pylist())


def rows_of(path: str, adds: Sequence[DeltaAction]) -> Iterator[pa.Table]:
    """Yield the rows of each data file that no deletion vector hides, as they are stored. Raises LeftToSpark."""
    room = MOST_BYTES * _UNPACKED
    for add in adds:
        rows = parquet_files.read_within(f"{path}/{add['path']}", room)
        if rows is None:
            raise LeftToSpark(f"its data files take more than {MOST_BYTES * _UNPACKED / 1e6:.0f} MB of memory")
        if vector := add.get("deletionVector"):
            rows = data_rows.without(rows, deletion_vectors.read(path, vector))
        room -= rows.nbytes
        yield rows


def replacing(path: str, adds: Sequence[DeltaAction], rows: pa.Table) -> list[DeltaAction]:
    """Write rows into one data file, and return the actions that put it in the place of these."""
    actions = [plain_tables.removed(add) for add in adds]
    if rows.num_rows:
        actions.append({"add": added_file(path, rows)})
        fault("data file written")
    return actions


def is_filled(column: ReshapedColumn) -> bool:
    """Return whether a column's values are known without Spark, where its rows are rewritten."""
    if column.value is not None and column.constant is None:
        return False
    return column.arrow_before is None or casts.is_known(column.arrow_before, column.arrow)


def _filled(rows: pa.Table, schema: pa.Schema, columns: Sequence[ReshapedColumn]) -> pa.Table:
    """Return the rows of a data file under the new columns. Raises LeftToSpark."""
    arrays = [_values(rows, field, column) for field, column in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(rows: pa.Table, field: pa.Field, column: ReshapedColumn) -> Any:
    """Return a column of a data file as it is under the new columns. Raises LeftToSpark."""
    if column.origin is None or field.name not in rows.column_names:  # else written before the column came
        return pa.nulls(rows.num_rows, field.type) if column.constant is None else pa.repeat(column.constant, len(rows))
    values = rows[field.name]
    if values.type != (column.arrow_before or field.type):
        raise LeftToSpark(f"column {column.name!r} has another type in a data file")
    if values.type != field.type:
        values = casts.cast(values, field.type)
    if column.constant is not None:
        values = pc.fill_null(values, column.constant)
    return pc.binary_join_element_wise(values, column.suffix, "") if column.suffix else values


def together(table: DeltaTable, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of data files with the columns that the table has. Raises LeftToSpark."""
    declared = pa.schema(table.schema().to_arrow())
    fields = []
    for field in plain_tables.fields_of(table):
        name = plain_tables.stored_field(field, pa.null()).name
        kinds = {part.schema.field(name).type for part in parts if name in part.column_names}
        kind = kinds.pop() if kinds else declared.field(field["name"]).type
        if kinds or (pa.types.is_timestamp(kind) and kind.unit != "us"):
            raise LeftToSpark(f"column {field['name']!r} isn't stored in one type as it is written here")
        fields.append(plain_tables.stored_field(field, kind))
    schema = pa.schema(fields)
    return pa.concat_tables([schema.empty_table(), *(_with_columns(part, schema) for part in parts)])


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
