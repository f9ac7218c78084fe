"""Delta's statistics of a data file, gathered while its rows are written or from its footer: by them readers skip
files.

As by Delta's own writer, there are bounds of whole numbers in any column, and of decimals, dates, times and texts in
the first columns. A missing bound is allowed: then the file is read. Source: Delta's protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

INDEXED = 32
"""How many of the first columns have bounds (``delta.dataSkippingNumIndexedCols``)."""
_CHARACTERS = 32
"""Characters of a text's bound."""
_DIGITS = 38
"""Digits of a decimal in the lake, at most."""
_HIGHEST = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)
_ENCODED = json.JSONEncoder(ensure_ascii=False).encode
"""``json.dumps`` makes an encoder for each value that it is asked for."""


class Statistics:
    """Counts and bounds of the rows that were added, which have one schema."""

    def __init__(self) -> None:
        self._rows = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._nulls: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch | pa.Table, ascending: Sequence[str] = ()) -> None:
        """Count rows, and widen the bounds by them. ascending: columns of ascending values without NULLs."""
        self._rows += rows.num_rows
        for number, (name, column) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
            self._nulls[name] += column.null_count
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if not (_is_whole(kind) or (number < INDEXED and _is_bounded(kind))):
                continue
            if name in ascending and rows.num_rows:
                low, high = _in_python(column[0]), _in_python(column[-1])
            else:
                low, high = map(_in_python, pc.min_max(_values_of(column)).values())
            if low is not None:
                self._widen(name, low, high)

    @classmethod
    def of_footer(cls, footer: pq.FileMetaData) -> Statistics:
        """Return those of a whole file by the statistics of its row groups. A column has no bounds and no count of
        NULLs where one of its row groups has none, as with texts of kilobytes, and no bounds where it is a list."""
        read = cls()
        read._rows = footer.num_rows
        leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
        places = {leaf.path: place for place, leaf in enumerate(leaves) if not leaf.max_repetition_level}
        for number, column in enumerate(footer.schema.to_arrow_schema()):
            if column.name in places:
                bounded = _is_bounded(column.type) or pa.types.is_floating(column.type)
                wanted = _is_whole(column.type) or (number < INDEXED and bounded)
                read._add_footer(footer, column.name, places[column.name], bounded=wanted)
        return read

    def _add_footer(self, footer: pq.FileMetaData, name: str, place: int, *, bounded: bool) -> None:
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        known = [(group.num_rows, group.column(place).statistics) for group in groups]
        if any(chunk is None or not chunk.has_null_count for _, chunk in known):
            return
        self._nulls[name] = sum(chunk.null_count for _, chunk in known)
        with_values = [chunk for rows, chunk in known if chunk.null_count < rows]
        if bounded and all(chunk.has_min_max for chunk in with_values):
            for chunk in with_values:
                self._widen(name, chunk.min, chunk.max)

    def _widen(self, name: str, low: Any, high: Any) -> None:
        known = self._bounds.get(name, (low, high))
        self._bounds[name] = min(known[0], low), max(known[1], high)

    @property
    def rows(self) -> int:
        """Return the number of rows added so far."""
        return self._rows

    def text(self) -> str:
        """Return the statistics as Delta's JSON."""
        lowest = {name: _lower_bound(low) for name, (low, _) in self._bounds.items()}
        highest = {name: _upper_bound(high) for name, (_, high) in self._bounds.items()}
        return _object(
            {
                "numRecords": str(self._rows),
                "minValues": _object(lowest),
                "maxValues": _object({name: bound for name, bound in highest.items() if bound is not None}),
                "nullCount": _json(self._nulls),
            }
        )


def without_tight_bounds(text: str) -> str:
    """Return the statistics of a file that gets a deletion vector: the bounds still hold, but needn't be those of a row
    that is there."""
    return _json({**json.loads(text, parse_float=Decimal), "tightBounds": False})


def _json(value: Any) -> str:
    """Return JSON, where no decimal becomes a float.

    A decimal has no exponent, with which deltalake reads none; a float may have a large one. Characters beyond ASCII
    aren't escaped: deltalake reads the escapes of those from U+20000 on as others, whose bounds would hide rows.
    arrow-json puts the halves of a surrogate pair together by OR where they must be added.
    """
    if isinstance(value, Mapping):
        return _object({name: _json(member) for name, member in value.items()})
    if isinstance(value, Decimal):
        return f"{value:f}" if abs(value.adjusted()) <= _DIGITS else str(value)
    return _ENCODED(value)


def _object(members: Mapping[str, str]) -> str:
    """Return a JSON object of members that are JSON already."""
    return "{" + ", ".join(f"{_json(name)}: {value}" for name, value in members.items()) + "}"


def _in_python(bound: pa.Scalar) -> Any:
    """Return a bound's value. pyarrow would import pandas for an instant, to ask for its time zone, which is UTC."""
    if pa.types.is_timestamp(bound.type) and bound.type.tz and bound.is_valid:
        moment: datetime = bound.cast(pa.timestamp(bound.type.unit)).as_py()
        return moment.replace(tzinfo=UTC)
    return bound.as_py()


def _values_of(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column, of a dictionary array each of its values once."""
    return column.unique().cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def _is_bounded(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_date(kind) or of.is_timestamp(kind) or of.is_string(kind) or of.is_decimal(kind))


def _lower_bound(bound: Any) -> str:
    """Return a lower bound as JSON: times are cut to milliseconds, texts to their first characters."""
    if isinstance(bound, str):
        return _json(bound[:_CHARACTERS])
    if isinstance(bound, datetime):
        cut = bound.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return json.dumps(cut + ("Z" if bound.tzinfo else ""))
    if isinstance(bound, date):
        return json.dumps(bound.isoformat())
    return f"{bound:f}" if isinstance(bound, Decimal) else str(bound)


def _upper_bound(bound: Any) -> str | None:
    """Return an upper bound as JSON, which is above what was cut off; None where there is none."""
    if isinstance(bound, str) and len(bound) > _CHARACTERS:
        return None if bound[_CHARACTERS] == _HIGHEST else _json(bound[:_CHARACTERS] + _HIGHEST)
    if isinstance(bound, datetime) and bound.microsecond % 1000:
        return None if datetime.max - bound.replace(tzinfo=None) < _MILLISECOND else _lower_bound(bound + _MILLISECOND)
    return _lower_bound(bound)
