"""A Delta table's rows at one version, read from its data files without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from binlake.delta import data_rows, opened_tables, plain_tables
from binlake.delta.data_rows import FileRows
from binlake.delta.delta_schema import FEATURES, delta_type
from binlake.delta.key_order import Values
from binlake.schema.table import TableSchema
from binlake.verify.key_cells import ROWS_PER_CHUNK, ComparedColumns, KeyCells, cut_by_values, range_column, shares_of

_SAMPLES = 10
"""Sampled values of the key's first column for each chunk."""


class Unreadable(Exception):
    """Rows can't be compared by reading them; the text says why."""


class LakeRows:
    """A Delta table at its current version, or at a given one. Raises what deltalake raises, OSError and
    ArrowException."""

    def __init__(self, path: str, version: int | None = None) -> None:
        self.path = path
        self.log: DeltaTable = opened_tables.opened(path, version)
        self.version = int(self.log.version())
        self._types = {field["name"]: field["type"] for field in plain_tables.fields_of(self.log)}

    def refuse_unknown(self) -> None:
        """Raise Unreadable where only Delta's own code can read the table."""
        protocol, metadata = self.log.protocol(), self.log.metadata()
        if unknown := {*(protocol.reader_features or ())} - FEATURES:
            raise Unreadable(f"the table has {', '.join(sorted(unknown))}")
        if metadata.partition_columns:
            raise Unreadable("the table has partitions")

    def structure(self, compared: ComparedColumns) -> str:
        """Return how columns and types differ from the expected ones; empty if they don't. Kept columns are ignored."""
        schema = compared.schema
        sides = [column for column in compared.columns if column.is_side and column.name in self._types]
        values = [column for column in compared.columns if not column.is_side]
        expected = {column.name: column.delta for column in (*sides, *values)}
        there = self._types.keys() - {column.name for column in schema.kept}
        wrong = [
            f"{name} is {_written(self._types.get(name))}, should be {expected.get(name, 'absent')}"
            for name in [*expected, *sorted(there - expected.keys())]
            if name not in expected or self._types.get(name) != delta_type(expected[name])
        ]
        return "; ".join(wrong)

    def cells(self, schema: TableSchema, rows: int) -> KeyCells:
        """Return the table's chunks. rows: about how many the server has."""
        cut = range_column(schema)
        if cut is None:
            return KeyCells(shares=shares_of(rows))
        column, order = cut
        if rows < 2 * ROWS_PER_CHUNK or column.name not in self._types:
            return KeyCells(column, order, np.empty(0, order.dtype))
        samples: list[Values] = []
        left = np.empty(0, order.dtype)
        step = ROWS_PER_CHUNK // _SAMPLES
        fields = [pa.field(column.name, order.arrow)]
        for file in data_rows.of_files(self.log, self.path, fields, self._paths()):
            read = [order.plain(rows.column(0).drop_null()) for rows, _ in file.numbered()]
            values = np.sort(np.concatenate([left, *read]))
            samples.append(values[step - 1 :: step])
            left = values[len(values) // step * step :]
        return cut_by_values(samples, column, order, _SAMPLES)

    def files(self, compared: ComparedColumns) -> Iterator[FileRows]:
        """Yield the data files, with the columns compared. A side column that the table doesn't have is NULL."""
        mirrored = {column.name for column in compared.columns if not column.is_side}
        there = [
            column.name in self._types and not (column.is_side and column.name in mirrored)
            for column in compared.columns
        ]
        fields = [field for field, exists in zip(compared.arrow, there, strict=True) if exists]
        for file in data_rows.of_files(self.log, self.path, fields, self._paths()):
            yield FileRows(file.path, partial(self._compared, file, compared.arrow, there))

    @staticmethod
    def _compared(
        file: FileRows, schema: pa.Schema, there: Sequence[bool]
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        for rows, numbers in file.numbered():
            columns = iter(rows.columns)
            arrays = [
                next(columns) if exists else pa.nulls(rows.num_rows, field.type)
                for field, exists in zip(schema, there, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema), numbers

    def _paths(self) -> list[str]:
        paths: list[str] = sorted(pa.table(self.log.get_add_actions())["path"].to_pylist())
        return paths


_WRITTEN = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", None: "missing"}


def _written(kind: Any) -> str:
    """Return a type of Delta's schema as Spark SQL writes it."""
    if isinstance(kind, dict):
        return f"{kind['type']} of {kind.get('elementType')}".upper()
    return _WRITTEN.get(kind) or str(kind).upper()
