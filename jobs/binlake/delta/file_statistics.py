"""Delta's statistics of a data file, gathered as its rows pass: by them readers leave out files without opening them.

Bounds are told of whole numbers in any column, and of decimals, dates, moments and texts in the first columns, as
Delta's own writer tells them; a bound that can't be told is left out, which keeps the file. (Delta's protocol,
"Per-file Statistics".)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

INDEXED = 32
"""Columns of which Delta looks at bounds (``delta.dataSkippingNumIndexedCols``)."""
_CHARACTERS = 32
"""Of a text's bound."""
_HIGHEST = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)


class Statistics:
    """Of the batches that were added, which have one schema."""

    def __init__(self) -> None:
        self._rows = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._nulls: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        self._rows += rows.num_rows
        for number, (name, column) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
            self._nulls[name] += column.null_count
            if not (_is_whole(column.type) or (number < INDEXED and _is_bounded(column.type))):
                continue
            found = pc.min_max(column).as_py()
            if found["min"] is not None:
                known = self._bounds.get(name, (found["min"], found["max"]))
                self._bounds[name] = min(known[0], found["min"]), max(known[1], found["max"])

    @property
    def rows(self) -> int:
        return self._rows

    def text(self) -> str:
        """As JSON."""
        lowest = {name: _told(one) for name, (one, _) in self._bounds.items()}
        highest = {name: _told_highest(one) for name, (_, one) in self._bounds.items()}
        return _object(
            {
                "numRecords": str(self._rows),
                "minValues": _object(lowest),
                "maxValues": _object({name: one for name, one in highest.items() if one is not None}),
                "nullCount": json.dumps(self._nulls),
            }
        )


def _object(members: Mapping[str, str]) -> str:
    """Of members that are JSON: no float stands for a decimal."""
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in members.items()) + "}"


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def _is_bounded(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_date(kind) or of.is_timestamp(kind) or of.is_string(kind) or of.is_decimal(kind))


def _told(bound: Any) -> str:
    """A lower bound as JSON: moments are cut to milliseconds, texts to their first characters."""
    if isinstance(bound, str):
        return json.dumps(bound[:_CHARACTERS])
    if isinstance(bound, datetime):
        cut = bound.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return json.dumps(cut + ("Z" if bound.tzinfo else ""))
    if isinstance(bound, date):
        return json.dumps(bound.isoformat())
    return f"{bound:f}" if isinstance(bound, Decimal) else str(bound)


def _told_highest(bound: Any) -> str | None:
    """An upper bound as JSON, which isn't below what was cut off."""
    if isinstance(bound, str) and len(bound) > _CHARACTERS:
        return None if bound[_CHARACTERS] == _HIGHEST else json.dumps(bound[:_CHARACTERS] + _HIGHEST)
    if isinstance(bound, datetime) and bound.microsecond % 1000:
        return None if datetime.max - bound.replace(tzinfo=None) < _MILLISECOND else _told(bound + _MILLISECOND)
    return _told(bound)
