"""Where in the lake a batch's keys can lie: staged keys beside the key ranges of the table's data files. Needs no JVM.

Delta keeps the least and greatest value of each column of a data file. A key outside the ranges of all files isn't in
the lake, whatever the log may say of it: rows under new keys that ascend are appended without a look at the others, and
the rows that changed are looked for in their own files alone. Rows that a deletion vector hides only narrow a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray

from binlake.batch.manifest import StagedFile
from binlake.schema.datatypes import arrow_type
from binlake.schema.table import Column, TableSchema
from binlake.state import files

MOST_RANGES = 32
"""Ranges in one condition: beyond it the nearest are taken together."""
_COMPARED = 5_000_000
"""Staged rows whose keys are held at once."""
_EXACT_DOUBLES, _SATURATED = 2**53, 2**63 - 1
"""deltalake, with which somebody may have compacted the table, writes statistics of decimals as doubles between the
limits of 64 signed bits."""
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""A column's name in the files, where column mapping gave it another one."""
_WHOLE_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint")

KeyRange = tuple[int, int]
_Values = NDArray[np.int64] | NDArray[np.uint64]


@dataclass(frozen=True)
class Spans:
    """Of each data file the least and greatest of some values of a column; ``found`` where there is one."""

    low: _Values
    high: _Values
    found: NDArray[np.bool_]

    def of(self, keys: _Values, within: Spans) -> Spans:
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

    None where the files tell nothing: of columns that aren't whole numbers, or have no statistics. Old and new keys
    count. Raises StagingError.
    """
    added = pa.table(log.get_add_actions())
    if not added.num_rows:
        return ()
    found = bounds_of(log, added, schema)
    bounds = {name: one for name, one in found.items() if one is not None}
    if not bounds:
        return None
    spans = {name: Spans(one.low, one.high, np.zeros(added.num_rows, np.bool_)) for name, one in bounds.items()}
    for file in staged:
        for rows in _keys(file, tuple(bounds)):
            spans = {name: span.of(_distinct(rows, schema.column(name)), bounds[name]) for name, span in spans.items()}
    return _together(spans)


def bounds_of(log: DeltaTable, added: pa.Table, schema: TableSchema) -> dict[str, Spans | None]:
    """Of each key column that is a whole number, the bounds of the data files ``added``; None without statistics."""
    stored = {field.name: str(field.metadata.get(PHYSICAL_NAME, field.name)) for field in log.schema().fields}
    return {column.name: _bounds(added, column, stored.get(column.name, "")) for column in _numbers(schema)}


def sort_order(schema: TableSchema) -> tuple[str, ...]:
    """The key's columns, first those whose bounds tell where a key can lie."""
    numbers = tuple(column.name for column in _numbers(schema))
    return numbers + tuple(name for name in schema.key if name not in numbers)


def is_of_numbers(schema: TableSchema) -> bool:
    """Whether the bounds of its columns tell all of the key's order."""
    return bool(schema.key) and len(_numbers(schema)) == len(schema.key)


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


def _is_big(column: Column) -> bool:
    """BIGINT UNSIGNED, which Delta has as DECIMAL(20,0)."""
    return bool(pa.types.is_decimal(arrow_type(column)))


def _plain(values: pa.Array, column: Column) -> _Values:
    found: _Values = values.cast(pa.uint64() if _is_big(column) else pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _bounds(added: pa.Table, column: Column, stored: str) -> Spans | None:
    """Of the data files, of which one without statistics may hold any value. None where no file has some."""
    low, high = (_statistics(added, end, stored) for end in ("min", "max"))
    if low is None or high is None:
        return None
    limits = np.iinfo(np.uint64 if _is_big(column) else np.int64)
    if _is_big(column):
        low = [None if one is None else max(one - _margin(one), 0) for one in low]
        high = [None if one is None or one >= _SATURATED else one + _margin(one) for one in high]
    empty = pc.fill_null(pc.equal(added["num_records"], 0), False).to_numpy()
    lows = np.array([limits.min if one is None else one for one in low], limits.dtype)
    highs = np.array([limits.max if one is None else one for one in high], limits.dtype)
    return Spans(np.where(empty, limits.max, lows), np.where(empty, limits.min, highs), ~empty)


def _statistics(added: pa.Table, end: str, stored: str) -> list[int | None] | None:
    values = added[end].combine_chunks() if end in added.column_names else pa.nulls(0)
    index = values.type.get_field_index(stored) if pa.types.is_struct(values.type) else -1
    if index < 0:
        return None
    return [None if one is None else int(one) for one in pc.struct_field(values, [index]).to_pylist()]


def _margin(bound: int) -> int:
    return bound >> 51 if bound >= _EXACT_DOUBLES else 0


def _keys(file: StagedFile, key: Sequence[str]) -> Iterator[pa.Table]:
    return files.parquet_columns(file.path, [f"{image}.{name}" for image in ("before", "after") for name in key])


def image_column(rows: pa.Table, image: str, name: str) -> pa.ChunkedArray:
    """A column of staged rows' images: null where there is no image."""
    images = rows[image]
    return pc.struct_field(images, [images.type.get_field_index(name)])


def _distinct(rows: pa.Table, column: Column) -> _Values:
    images = [pc.drop_null(image_column(rows, image, column.name)).combine_chunks() for image in ("before", "after")]
    return np.unique(np.concatenate([_plain(image, column) for image in images]))


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
        {name: (int(least[name][number]), int(greatest[name][number])) for name in spans}
        for number in range(len(starts))
    )


def _cuts(low: _Values, high: _Values) -> NDArray[np.intp]:
    """Where in ascending ranges a new group begins: at the widest gaps."""
    reached = np.maximum.accumulate(high)
    gaps = np.where(low[1:] > reached[:-1], low[1:].astype(np.float64) - reached[:-1].astype(np.float64), -1)
    widest = np.argsort(-gaps, kind="stable")[: MOST_RANGES - 1]
    return np.concatenate([[0], np.sort(widest[gaps[widest] >= 0]) + 1]).astype(np.intp)
