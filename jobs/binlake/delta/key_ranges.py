"""The data files that can have a batch's keys: staged keys compared with the files' key ranges.

Delta keeps the least and greatest value of each column of a data file. A key outside the ranges of all files isn't in
the lake, whatever the binlog says of it: rows with new, ascending keys are appended without reading the others, and
changed rows are searched in the files alone that may hold them. Rows that a deletion vector hides can only make a range
wider than it is. Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray

from binlake.delta.key_order import KeyOrder, Values, order_of
from binlake.planner.manifest import StagedFile
from binlake.schema.datatypes import arrow_type
from binlake.schema.table import Column, TableSchema
from binlake.storage import parquet_files

MOST_RANGES = 32
"""Ranges in one condition; of more, the nearest are merged."""
_COMPARED = 5_000_000
"""Most staged rows whose keys are held in memory."""
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""Key, in a column's metadata, of its name in data files under column mapping."""
_WHOLE_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint")

KeyRange = tuple[Any, Any]
"""Least and greatest key in it, as ``key_order`` has the column's values."""


@dataclass(frozen=True)
class Spans:
    """The least and greatest of some values of a column in each data file; ``present`` has a flag for each file that
    has one."""

    low: Values
    high: Values
    present: NDArray[np.bool_]

    def of(self, keys: Values, within: Spans) -> Spans:
        """Return these spans with the sorted ``keys`` that lie inside the files' bounds ``within``."""
        if not keys.size:
            return self
        first = np.searchsorted(keys, within.low, side="left")
        behind = np.searchsorted(keys, within.high, side="right")
        here = behind > first
        low = np.where(here, keys[np.minimum(first, len(keys) - 1)], self.low)
        high = np.where(here, keys[np.maximum(behind, 1) - 1], self.high)
        both = here & self.present
        return Spans(
            np.where(both, np.minimum(low, self.low), low),
            np.where(both, np.maximum(high, self.high), high),
            here | self.present,
        )


def ranges_to_search(
    table: DeltaTable, schema: TableSchema, staged: Sequence[StagedFile]
) -> tuple[Mapping[str, KeyRange], ...] | None:
    """Return ranges, by key column, outside of which no staged key is in the table: none where the keys are all new.

    Old and new keys of updated rows count. Returns None where the files have no statistics of the key's columns, or
    these no order here. Raises StagingError.
    """
    added = pa.table(table.get_add_actions())
    if not added.num_rows:
        return ()
    bounds = {name: spans for name, spans in bounds_of(table, added, schema).items() if spans is not None}
    if not bounds:
        return None
    spans = {name: Spans(bound.low, bound.high, np.zeros(added.num_rows, np.bool_)) for name, bound in bounds.items()}
    orders = {column.name: order for column, order in _ordered(schema)}
    for file in staged:
        for rows in _keys(file, tuple(bounds)):
            spans = {name: span.of(_distinct(rows, name, orders[name]), bounds[name]) for name, span in spans.items()}
    return _together(spans)


def may_hold(table: DeltaTable, added: pa.Table, schema: TableSchema, keys: pa.Table) -> NDArray[np.bool_]:
    """Return which of the data files ``added`` may hold one of the keys by their statistics. keys: as the lake has
    them."""
    touched = np.ones(added.num_rows, np.bool_)
    if not added.num_rows:
        return touched
    bounds, orders = bounds_of(table, added, schema), {column.name: order for column, order in _ordered(schema)}
    for name, within in bounds.items():
        if within is not None:
            none = Spans(within.low, within.high, np.zeros(added.num_rows, np.bool_))
            values = pc.drop_null(keys[name].combine_chunks())
            touched &= none.of(np.sort(orders[name].plain(values)), within).present
    return touched


def bounds_of(table: DeltaTable, added: pa.Table, schema: TableSchema) -> dict[str, Spans | None]:
    """Return the bounds of the data files ``added`` for each key column that has an order here; None without
    statistics."""
    stored = physical_names(table)
    empty = pc.fill_null(pc.equal(added["num_records"], 0), False).to_numpy()
    return {
        column.name: _bounds(added, order, stored.get(column.name, ""), empty) for column, order in _ordered(schema)
    }


def physical_names(table: DeltaTable) -> dict[str, str]:
    """Return the name in data files and statistics of each column, by its name in the lake."""
    return {field.name: str(field.metadata.get(PHYSICAL_NAME, field.name)) for field in table.schema().fields}


def sort_order(schema: TableSchema) -> tuple[str, ...]:
    """Return the key's columns, those whose bounds show where a key can lie first."""
    ordered = tuple(column.name for column, _ in _ordered(schema))
    return ordered + tuple(name for name in schema.key if name not in ordered)


def is_of_numbers(schema: TableSchema) -> bool:
    """Return whether the key's columns are all whole numbers."""
    return bool(schema.key) and all(schema.shown(name).type in _WHOLE_NUMBERS for name in schema.key)


def each_once(schema: TableSchema, staged: Sequence[StagedFile]) -> bool:
    """Return whether no key occurs twice in the staged rows, so that each row is its key's newest.

    Only few rows are looked at, and keys that are equal where their bytes are; else it returns False. Raises
    StagingError.
    """
    if sum(file.rows for file in staged) > _COMPARED:
        return False
    if any(pa.types.is_floating(arrow_type(schema.shown(name))) for name in schema.key):
        return False
    parts: list[pa.Table] = []
    for file in staged:
        for rows in _keys(file, schema.key):
            changed, came = pc.is_valid(rows["before"]), pc.is_valid(rows["after"])
            columns = {}
            for name in schema.key:
                before, after = (image_column(rows, image, name) for image in ("before", "after"))
                moved = pc.and_(pc.and_(changed, came), pc.fill_null(pc.not_equal(before, after), True))
                if pc.any(moved).as_py():
                    return False
                columns[name] = pc.if_else(came, after, before)
            parts.append(pa.table(columns))
    keys = pa.concat_tables(parts)
    return bool(keys.group_by(list(schema.key)).aggregate([]).num_rows == keys.num_rows)


def _numbers(schema: TableSchema) -> list[Column]:
    return [column for name in schema.key if (column := schema.shown(name)).type in _WHOLE_NUMBERS]


def _ordered(schema: TableSchema) -> list[tuple[Column, KeyOrder]]:
    """Return the key's columns that have an order here, each with it."""
    columns = map(schema.shown, schema.key)
    return [(column, order) for column in columns if (order := order_of(column)) is not None]


def _bounds(added: pa.Table, order: KeyOrder, stored: str, empty: NDArray[np.bool_]) -> Spans | None:
    """Return the bounds of data files, where one without statistics may hold any value; None where no file has
    statistics."""
    least, greatest = _statistics(added, "min", stored), _statistics(added, "max", stored)
    if least is None or greatest is None:
        return None
    low, high = order.bounds(least, -1), order.bounds(greatest, 1)
    if low is None or high is None:
        return None
    low[empty], high[empty] = order.highest, order.lowest
    return Spans(low, high, ~empty)


def _statistics(added: pa.Table, end: str, stored: str) -> pa.Array | None:
    values = added[end].combine_chunks() if end in added.column_names else pa.nulls(0)
    index = values.type.get_field_index(stored) if pa.types.is_struct(values.type) else -1
    return pc.struct_field(values, [index]) if index >= 0 else None


def _keys(file: StagedFile, key: Sequence[str]) -> Iterator[pa.Table]:
    return parquet_files.staged_columns(file.path, [f"{image}.{name}" for image in ("before", "after") for name in key])


def image_column(rows: pa.Table, image: str, name: str) -> pa.ChunkedArray:
    """Return a column of staged rows' images, null where there is no image."""
    images = rows[image]
    return pc.struct_field(images, [images.type.get_field_index(name)])


def _distinct(rows: pa.Table, name: str, order: KeyOrder) -> Values:
    images = [pc.drop_null(image_column(rows, image, name)).combine_chunks() for image in ("before", "after")]
    return order.distinct(pa.concat_arrays(images))


def _together(spans: Mapping[str, Spans]) -> tuple[Mapping[str, KeyRange], ...]:
    """Return the ranges of the files in which a key can lie by all columns; those that overlap, and the nearest of
    many, become one range."""
    touched = np.logical_and.reduce([span.present for span in spans.values()])
    if not touched.any():
        return ()
    lows = {name: span.low[touched] for name, span in spans.items()}
    highs = {name: span.high[touched] for name, span in spans.items()}
    leading = max(lows, key=lambda name: len(np.unique(lows[name])))
    order = np.argsort(lows[leading], kind="stable")
    starts = _cuts(lows[leading][order], highs[leading][order])
    least = {name: np.minimum.reduceat(low[order], starts) for name, low in lows.items()}
    greatest = {name: np.maximum.reduceat(high[order], starts) for name, high in highs.items()}
    return tuple(
        {name: (least[name][number], greatest[name][number]) for name in spans} for number in range(len(starts))
    )


def _cuts(low: Values, high: Values) -> NDArray[np.intp]:
    """Return where a new group begins in ascending ranges: at the widest gaps."""
    reached = np.maximum.accumulate(high)
    has_gap = (low[1:] > reached[:-1]).astype(np.bool_)
    placed = _placed(np.concatenate([low[1:], reached[:-1]]))
    gaps = np.where(has_gap, np.maximum(placed[: len(has_gap)] - placed[len(has_gap) :], 0), -1)
    widest = np.argsort(-gaps, kind="stable")[: MOST_RANGES - 1]
    return np.concatenate([[0], np.sort(widest[gaps[widest] >= 0]) + 1]).astype(np.intp)


def _placed(values: Values) -> NDArray[np.float64]:
    """Return roughly where values lie on a line."""
    if not values.size or not isinstance(values[0], str):
        return values.astype(np.float64)
    ends = (min(values), max(values))
    shared = next((place for place, pair in enumerate(zip(*ends, strict=False)) if pair[0] != pair[1]), len(ends[0]))
    heads = [value[shared : shared + 8].encode()[:8].ljust(8, b"\0") for value in values]
    return np.array([int.from_bytes(head) for head in heads], np.float64)
