"""Where in the lake a batch's keys can lie: staged keys beside the key ranges of the table's data files. Needs no JVM.

Delta keeps the least and greatest value of each column of a data file. A key outside the ranges of all files isn't in
the lake, whatever the log may say of it: rows under new keys that ascend are appended without a look at the others, and
the rows that changed are looked for in their own files alone. Rows that a deletion vector hides only narrow a range.
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

from binlake.batch.manifest import StagedFile
from binlake.delta.key_order import KeyOrder, Values, order_of
from binlake.schema.datatypes import arrow_type
from binlake.schema.table import Column, TableSchema
from binlake.storage import parquet_files

MOST_RANGES = 32
"""Ranges in one condition: beyond it the nearest are taken together."""
_COMPARED = 5_000_000
"""Staged rows whose keys are held at once."""
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""A column's name in the files, where column mapping gave it another one."""
_WHOLE_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint")

KeyRange = tuple[Any, Any]
"""Least and greatest key in it, as ``key_order`` has the column's values."""


@dataclass(frozen=True)
class Spans:
    """Of each data file the least and greatest of some values of a column; ``found`` where there is one."""

    low: Values
    high: Values
    found: NDArray[np.bool_]

    def of(self, keys: Values, within: Spans) -> Spans:
        """With the sorted ``keys`` inside the files' bounds ``within``."""
        if not keys.size:
            return self
        first = np.searchsorted(keys, within.low, side="left")
        behind = np.searchsorted(keys, within.high, side="right")
        here = behind > first
        low = np.where(here, keys[np.minimum(first, len(keys) - 1)], self.low)
        high = np.where(here, keys[np.maximum(behind, 1) - 1], self.high)
        both = here & self.found
        return Spans(
            np.where(both, np.minimum(low, self.low), low),
            np.where(both, np.maximum(high, self.high), high),
            here | self.found,
        )


def ranges_to_search(
    log: DeltaTable, schema: TableSchema, staged: Sequence[StagedFile]
) -> tuple[Mapping[str, KeyRange], ...] | None:
    """Ranges, by key column, outside of which no staged key is in the table: none where the keys are all new.

    None where the files tell nothing: of columns that have no order here, or no statistics. Old and new keys count.
    Raises StagingError.
    """
    added = pa.table(log.get_add_actions())
    if not added.num_rows:
        return ()
    found = bounds_of(log, added, schema)
    bounds = {name: one for name, one in found.items() if one is not None}
    if not bounds:
        return None
    spans = {name: Spans(one.low, one.high, np.zeros(added.num_rows, np.bool_)) for name, one in bounds.items()}
    orders = {column.name: order for column, order in _ordered(schema)}
    for file in staged:
        for rows in _keys(file, tuple(bounds)):
            spans = {name: span.of(_distinct(rows, name, orders[name]), bounds[name]) for name, span in spans.items()}
    return _together(spans)


def bounds_of(log: DeltaTable, added: pa.Table, schema: TableSchema) -> dict[str, Spans | None]:
    """Of each key column that has an order here, the bounds of the data files ``added``; None without statistics."""
    stored = physical_names(log)
    empty = pc.fill_null(pc.equal(added["num_records"], 0), False).to_numpy()
    return {
        column.name: _bounds(added, order, stored.get(column.name, ""), empty) for column, order in _ordered(schema)
    }


def physical_names(log: DeltaTable) -> dict[str, str]:
    """Of the lake's columns those in its data files and statistics."""
    return {field.name: str(field.metadata.get(PHYSICAL_NAME, field.name)) for field in log.schema().fields}


def sort_order(schema: TableSchema) -> tuple[str, ...]:
    """The key's columns, first those whose bounds tell where a key can lie."""
    ordered = tuple(column.name for column, _ in _ordered(schema))
    return ordered + tuple(name for name in schema.key if name not in ordered)


def is_of_numbers(schema: TableSchema) -> bool:
    """Whether the key's columns are all whole numbers."""
    return bool(schema.key) and all(schema.column(name).type in _WHOLE_NUMBERS for name in schema.key)


def each_once(schema: TableSchema, staged: Sequence[StagedFile]) -> bool:
    """Whether no key occurs twice in the staged rows, so that each is the last word on its row.

    Said of few rows alone, and of keys that are equal where their bytes are. Raises StagingError.
    """
    if sum(file.rows for file in staged) > _COMPARED:
        return False
    if any(pa.types.is_floating(arrow_type(schema.column(name))) for name in schema.key):
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
    return [column for name in schema.key if (column := schema.column(name)).type in _WHOLE_NUMBERS]


def _ordered(schema: TableSchema) -> list[tuple[Column, KeyOrder]]:
    """Columns of the key that have an order here."""
    columns = map(schema.column, schema.key)
    return [(column, order) for column in columns if (order := order_of(column)) is not None]


def _bounds(added: pa.Table, order: KeyOrder, stored: str, empty: NDArray[np.bool_]) -> Spans | None:
    """Of the data files, of which one without statistics may hold any value. None where no file has some."""
    told = (_statistics(added, "min", stored), _statistics(added, "max", stored))
    if told[0] is None or told[1] is None:
        return None
    low, high = order.bounds(told[0], -1), order.bounds(told[1], 1)
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
    """A column of staged rows' images: null where there is no image."""
    images = rows[image]
    return pc.struct_field(images, [images.type.get_field_index(name)])


def _distinct(rows: pa.Table, name: str, order: KeyOrder) -> Values:
    images = [pc.drop_null(image_column(rows, image, name)).combine_chunks() for image in ("before", "after")]
    return order.distinct(pa.concat_arrays(images))


def _together(spans: Mapping[str, Spans]) -> tuple[Mapping[str, KeyRange], ...]:
    """Of the files in which a key can lie by all columns; those that overlap, and of many the nearest, become one."""
    touched = np.logical_and.reduce([span.found for span in spans.values()])
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
    """Where in ascending ranges a new group begins: at the widest gaps."""
    reached = np.maximum.accumulate(high)
    apart = (low[1:] > reached[:-1]).astype(np.bool_)
    placed = _placed(np.concatenate([low[1:], reached[:-1]]))
    gaps = np.where(apart, np.maximum(placed[: len(apart)] - placed[len(apart) :], 0), -1)
    widest = np.argsort(-gaps, kind="stable")[: MOST_RANGES - 1]
    return np.concatenate([[0], np.sort(widest[gaps[widest] >= 0]) + 1]).astype(np.intp)


def _placed(values: Values) -> NDArray[np.float64]:
    """About where on a line they lie."""
    if not values.size or not isinstance(values[0], str):
        return values.astype(np.float64)
    ends = (min(values), max(values))
    shared = next((place for place, pair in enumerate(zip(*ends, strict=False)) if pair[0] != pair[1]), len(ends[0]))
    heads = [value[shared : shared + 8].encode()[:8].ljust(8, b"\0") for value in values]
    return np.array([int.from_bytes(head) for head in heads], np.float64)
