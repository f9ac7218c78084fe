"""The cell of its table to which a row belongs: it depends on the key alone, so that both sides agree.

A chunk is a range of the values of the key's first column, where their order is the same on the server and in the lake;
else, and without a key, a share of the checksums of the keys (of whole rows). A cell is a sixteenth of a chunk by the
key's checksum: few rows need be looked at where one of them differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.delta.key_order import KeyOrder, Values, order_of
from binlake.kernels.row_kernels import Numbers
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.table import Column, TableSchema
from binlake.snapshot.bounds import Bound, Edge
from binlake.verify.reading.row_checksums import Checksums

ROWS_PER_CHUNK = 100_000
CELLS = 16
"""Cells of a chunk."""


def range_column(schema: TableSchema) -> tuple[Column, KeyOrder] | None:
    """Return the column that chunks are ranges of, with its order; None where the two sides order it differently."""
    if not schema.key:
        return None
    column = schema.column(schema.key[0])
    if column.mask is not None:
        return None
    column = column.shown
    order = order_of(column)
    if order is None or order.dtype is object or datatypes.is_text(column) or column.type in ("time", "year"):
        return None
    return column, order


@dataclass(frozen=True)
class KeyCells:
    """The chunks of a table.

    column, order: the column of whose values chunks are ranges; None where they are shares. edges: the least value of
    each chunk but the first, ascending. shares: the number of chunks, where they are no ranges.
    """

    column: Column | None = None
    order: KeyOrder | None = None
    edges: Values | None = None
    shares: int = 1

    @property
    def chunks(self) -> int:
        """Return the number of chunks."""
        return self.shares if self.edges is None else len(self.edges) + 1

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return self.chunks * CELLS

    @property
    def can_be_chosen(self) -> bool:
        """Return whether some of the chunks can be read alone. Invalid dates are NULL in the lake, in the first chunk,
        and lie among the others on the server."""
        return self.edges is not None and self.order is not None and not pa.types.is_temporal(self.order.arrow)

    def numbers(self, rows: pa.RecordBatch, place: int, keys: Checksums) -> Numbers:
        """Return the cell of each row. place: where the rows have the key's first column. keys: of their keys."""
        within = (keys.first % np.uint64(CELLS)).astype(np.int64)
        if self.edges is None:
            return (keys.second % np.uint64(self.shares)).astype(np.int64) * CELLS + within
        return self.ranges(rows.column(place)) * CELLS + within

    def ranges(self, values: pa.Array) -> Numbers:
        """Return the chunk of each value; a NULL, which the lake has for an invalid date, is in the first."""
        assert self.order is not None
        assert self.edges is not None
        if not values.null_count:
            return np.searchsorted(self.edges, self.order.plain(values), side="right").astype(np.int64)
        numbers = np.zeros(len(values), np.int64)
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        numbers[valid] = np.searchsorted(self.edges, self.order.plain(values.drop_null()), side="right")
        return numbers

    def bounds(self) -> list[tuple[Bound | None, Bound | None]]:
        """Return the bounds of each chunk that is a range, ascending."""
        assert self.column is not None
        assert self.edges is not None
        inner = [(Edge(self.column.name, _literal(self.column, edge)),) for edge in self.edges.tolist()]
        return list(pairwise([None, *inner, None]))


def _literal(column: Column, value: int) -> str:
    """Return a value of ``key_order`` as a literal of the server's SQL."""
    arrow = datatypes.arrow_type(column)
    if pa.types.is_integer(arrow):
        return str(value)
    if pa.types.is_decimal(arrow):
        return f"{Decimal(value).scaleb(-arrow.scale):f}"
    moment = pa.scalar(value, pa.int32() if pa.types.is_date(arrow) else pa.int64()).cast(arrow).as_py()
    if isinstance(moment, datetime):
        return f"TIMESTAMP'{moment.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
    assert isinstance(moment, date)
    return f"DATE'{moment.isoformat()}'"


@dataclass(frozen=True)
class Measured:
    """Rows with their cells, the checksums of their keys, and those of the whole rows."""

    rows: pa.RecordBatch
    cells: Numbers
    keys: Checksums
    checksums: Checksums

    def of_cells(self, wanted: NDArray[np.bool_]) -> Measured:
        """Return the rows of wanted cells. wanted: a flag for each cell."""
        places = np.flatnonzero(wanted[self.cells])
        rows = self.rows.take(pa.array(places))
        return Measured(rows, self.cells[places], self.keys.at(places), self.checksums.at(places))


class ComparedColumns:
    """The columns of a table that are compared, the key's first: the lake's, with a side column wherever there may be
    one."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.columns: tuple[LakeColumn, ...] = lake_columns(schema, KEEP_ALL)
        names = {column.source.name: place for place, column in enumerate(self.columns) if not column.is_side}
        self._key = [names[name] for name in schema.key]
        self._rest = [place for place in range(len(self.columns)) if place not in set(self._key)]
        self.values = tuple(names.values())
        """The places of the columns that aren't side columns."""

    @property
    def arrow(self) -> pa.Schema:
        """Return the columns as an Arrow schema."""
        return pa.schema([pa.field(column.name, column.arrow) for column in self.columns])

    def of_chunks(self, rows: pa.RecordBatch, cells: KeyCells, wanted: NDArray[np.bool_]) -> pa.RecordBatch:
        """Return the rows that are in wanted chunks, which are ranges. wanted: a flag for each chunk."""
        return rows.filter(pa.array(wanted[cells.ranges(rows.column(self._key[0]))]))

    def measured(self, rows: pa.RecordBatch, cells: KeyCells) -> Measured:
        """Return rows of these columns with their checksums. Raises LakeError."""
        keys = self._keys(rows)
        checksums = self._whole(rows, keys)
        keys = keys if self._key else checksums
        return Measured(rows, cells.numbers(rows, self._key[0] if self._key else 0, keys), keys, checksums)

    def of_cells(self, batches: Iterable[pa.RecordBatch], cells: KeyCells, wanted: NDArray[np.bool_]) -> list[Measured]:
        """Return those of some rows that are in wanted cells. wanted: a flag for each cell. Raises LakeError."""
        measured = (self.measured(rows, cells).of_cells(wanted) for rows in batches)
        return [part for part in measured if part.rows.num_rows]

    def _keys(self, rows: pa.RecordBatch) -> Checksums:
        return Checksums.of([rows.column(place) for place in self._key], rows.num_rows)

    def _whole(self, rows: pa.RecordBatch, keys: Checksums) -> Checksums:
        return keys.with_columns([rows.column(place) for place in self._rest], len(self._key))

    def keys_or_rows(self, rows: pa.RecordBatch) -> Checksums:
        """Return the checksums of the rows' keys; of the whole rows where the table has no key. Raises LakeError."""
        keys = self._keys(rows)
        return keys if self._key else self._whole(rows, keys)

    def have_keys(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows have a value in each column of the key."""
        valid = np.ones(rows.num_rows, np.bool_)
        for place in self._key:
            valid &= pc.is_valid(rows.column(place)).to_numpy(zero_copy_only=False)
        return pa.array(valid)

    def shown(self, rows: pa.RecordBatch, row: int) -> tuple[tuple[str, str], ...]:
        """Return (column, text) of a row's key, as messages show it."""
        return tuple((self.columns[place].name, _shown(rows.column(place)[row].as_py())) for place in self._key)

    def differing(self, ours: pa.RecordBatch, theirs: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return, of rows that are paired, the names of the server's columns that differ."""
        names: list[dict[str, None]] = [{} for _ in range(ours.num_rows)]
        for place, column in enumerate(self.columns):
            pairs = [Checksums.of([rows.column(place)], rows.num_rows).pairs() for rows in (ours, theirs)]
            for row in np.flatnonzero(pairs[0] != pairs[1]).tolist():
                names[row][column.source.name] = None
        return [tuple(of_row) for of_row in names]


SHOWN_CHARACTERS = 100
"""The most characters of a key's value in a message."""


def _shown(value: Any) -> str:
    """Return a key's value as messages show it."""
    if isinstance(value, bytes):
        return f"0x{value[: SHOWN_CHARACTERS // 2].hex().upper()}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)[:SHOWN_CHARACTERS]


def shares_of(rows: int) -> int:
    """Return how many chunks a table has that is cut by checksums. rows: about how many it has."""
    return max(1, rows // ROWS_PER_CHUNK)


def cut_by_values(samples: Sequence[Values], column: Column, order: KeyOrder, each: int) -> KeyCells:
    """Return chunks cut at every so many of the values sampled of the key's first column. each: samples in a chunk."""
    ordered = np.sort(np.concatenate(samples)) if samples else np.empty(0, order.dtype)
    return KeyCells(column, order, np.unique(ordered[each::each]))
