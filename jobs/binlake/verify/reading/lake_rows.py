"""A Delta table's rows at one version, read from its data files without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray

from binlake.delta import data_rows, key_ranges, opened_tables, plain_tables
from binlake.delta.claimed_statistics import WrongFiles
from binlake.delta.data_rows import Counts, FileRows
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_schema import FEATURES, WIDENING, delta_type
from binlake.delta.key_order import Values
from binlake.kernels.row_kernels import Numbers
from binlake.schema.lake_columns import own_columns
from binlake.schema.table import TableSchema
from binlake.verify.reading.key_cells import (
    ROWS_PER_CHUNK,
    ComparedColumns,
    KeyCells,
    cut_by_values,
    range_column,
    shares_of,
)
from binlake.verify.reading.row_checksums import Flags

_MOST_TIMES = 1.5
"""How often each row may be read, on average, by reading the chunks of a table group by group."""
_SAMPLES = 10
"""Sampled values of the key's first column for each chunk."""


class Unreadable(Exception):
    """Rows can't be compared by reading them; the text says why."""


@dataclass(frozen=True)
class Reach:
    """The chunks that a table's data files reach: from ``first`` to ``last``, of each path. rows: of each file.

    can_choose: whether some of the chunks can be read alone.
    """

    paths: tuple[str, ...]
    rows: Numbers
    first: Numbers
    last: Numbers
    can_choose: bool

    def _touching(self, wanted: Flags) -> Flags:
        behind = np.concatenate([[0], np.cumsum(wanted)])
        touching: Flags = behind[self.last + 1] > behind[self.first]
        return touching

    def holding(self, wanted: Flags) -> list[str]:
        """Return the files that may hold rows of wanted chunks."""
        return [path for path, touches in zip(self.paths, self._touching(wanted).tolist(), strict=True) if touches]

    def together(self, wanted: Flags, count: int) -> list[Flags]:
        """Divide wanted chunks into groups of neighbours, ``count`` in each; more in each, or all of them, where files
        reach so many chunks that far more rows would be read so."""
        if not wanted.any():
            return []
        numbers = np.flatnonzero(wanted)
        most = _MOST_TIMES * int(self.rows[self._touching(wanted)].sum())
        while self.can_choose and count < len(numbers):
            groups = [_flags(len(wanted), numbers[at : at + count]) for at in range(0, len(numbers), count)]
            if sum(int(self.rows[self._touching(group)].sum()) for group in groups) < most:
                return groups
            count *= 2
        return [wanted]


def _flags(count: int, numbers: Numbers) -> Flags:
    flags: Flags = np.zeros(count, np.bool_)
    flags[numbers] = True
    return flags


class LakeRows:
    """A Delta table at its current version, or at a given one. left_out: add actions of files that aren't read. Raises
    what deltalake raises, OSError and ArrowException."""

    def __init__(self, path: str, version: int | None = None, left_out: Sequence[DeltaAction] = ()) -> None:
        self.path = path
        self.left_out = left_out
        self.log: DeltaTable = opened_tables.opened(path, version)
        self.version = int(self.log.version())
        self._types = {field["name"]: field["type"] for field in plain_tables.fields_of(self.log)}
        self.wrong: WrongFiles = {}
        """The files, of those that ``files`` read, whose statistics in the log are wrong."""

    def refuse_unknown(self) -> None:
        """Raise Unreadable where only Delta's own code can read the table."""
        protocol, metadata = self.log.protocol(), self.log.metadata()
        if unknown := {*(protocol.reader_features or ())} - FEATURES - {WIDENING}:
            raise Unreadable(f"the table has {', '.join(sorted(unknown))}")
        if metadata.partition_columns:
            raise Unreadable("the table has partitions")

    def structure(self, compared: ComparedColumns) -> str:
        """Return how columns and types differ from the expected ones; empty if they don't. Kept columns are ignored."""
        schema = compared.schema
        sides = [column for column in compared.columns if column.is_side and column.name in self._types]
        values = [column for column in compared.columns if not column.is_side]
        expected = {column.name: column.delta for column in (*sides, *values, *own_columns(schema))}
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

    def reach(self, schema: TableSchema, cells: KeyCells) -> Reach:
        """Return which chunks the data files reach by their statistics."""
        added = self._added()
        paths, rows = added["path"].to_pylist(), np.array(added["num_records"].fill_null(0).to_pylist(), np.int64)
        every = np.zeros(len(paths), np.int64), np.full(len(paths), cells.chunks - 1)
        if not cells.can_be_chosen or not paths:
            return Reach(tuple(paths), rows, *every, can_choose=False)
        assert cells.edges is not None
        spans = key_ranges.bounds_of(self.log, added, schema).get(schema.key[0])
        if spans is None:
            return Reach(tuple(paths), rows, *every, can_choose=True)
        first, last = (np.searchsorted(cells.edges, ends, "right") for ends in (spans.low, spans.high))
        impossible = spans.low > spans.high  # as of a file that is said to be empty: it is read with any chunk
        first, last = np.where(impossible, 0, first), np.where(impossible, cells.chunks - 1, last)
        return Reach(tuple(paths), rows, first, last, can_choose=True)

    def files(
        self, compared: ComparedColumns, paths: Sequence[str] | None = None, counts: Counts | None = None
    ) -> Iterator[FileRows]:
        """Yield the data files, or those at some paths, with the columns compared. A side column that the table doesn't
        have is NULL.

        counts: which rows; those that the server has by default.
        """
        mirrored = {column.name for column in compared.columns if not column.is_side}
        there = [
            column.name in self._types and not (column.is_side and column.name in mirrored)
            for column in compared.columns
        ]
        fields = [field for field, exists in zip(compared.arrow, there, strict=True) if exists]
        counts = counts or data_rows.counting(compared.schema)
        chosen = self._paths() if paths is None else paths
        for file in data_rows.of_files(self.log, self.path, fields, chosen, counts, self.wrong):
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
        paths: list[str] = sorted(self._added()["path"].to_pylist())
        return paths

    def _added(self) -> pa.Table:
        """Return deltalake's add actions of the files that are read."""
        added = pa.table(self.log.get_add_actions())
        gone = pa.array([add["path"] for add in self.left_out], pa.string())
        return added.filter(pc.invert(pc.is_in(added["path"], gone))) if self.left_out else added


_WRITTEN = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", None: "missing"}


def _written(kind: Any) -> str:
    """Return a type of Delta's schema as Spark SQL writes it."""
    if isinstance(kind, dict):
        return f"{kind['type']} of {kind.get('elementType')}".upper()
    return _WRITTEN.get(kind) or str(kind).upper()
