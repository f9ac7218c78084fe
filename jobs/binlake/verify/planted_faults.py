"""Faults planted in a copy of a table's rows: a verification must find each of them by itself.

A fault changes few rows of the copy. The expected result follows from how the fault was planted, not from a comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Literal

import pyarrow as pa

from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.row_checksums import Checksums

FaultKind = Literal[
    "flipped bit", "missing row", "twin", "swapped pair", "NULL for a value", "stale row", "wrong time zone",
    "truncated text",
]  # fmt: skip
_HOURS = timedelta(hours=2)
_DIGITS = Context(prec=100)


@dataclass(frozen=True)
class PlantedFault:
    """A copy of the rows with one fault.

    column: the server's column it is in; empty for whole rows. changed: numbers of rows whose values are others, with
    the columns concerned. missing: numbers of rows that the copy doesn't have. extra: how many rows it has too many.
    """

    kind: FaultKind
    column: str
    rows: pa.RecordBatch
    changed: dict[int, frozenset[str]]
    missing: frozenset[int] = frozenset()
    extra: int = 0


def planted(compared: ComparedColumns, rows: pa.RecordBatch) -> Iterator[PlantedFault]:
    """Yield copies of the rows with a fault of each kind that they can have, in every column that can have it.

    rows: with the columns compared, at least one, no two alike.
    """
    yield PlantedFault("missing row", "", _taken(rows, range(1, rows.num_rows)), {}, missing=frozenset({0}))
    yield PlantedFault("twin", "", _taken(rows, [0, *range(rows.num_rows)]), {}, extra=1)
    yield from _stale(compared, rows)
    for place in compared.values:
        yield from _in_column(compared, rows, place)


def _in_column(compared: ComparedColumns, rows: pa.RecordBatch, place: int) -> Iterator[PlantedFault]:
    name = compared.columns[place].source.name
    values = rows.column(place).to_pylist()
    kind = rows.column(place).type
    changes: list[tuple[FaultKind, dict[int, Any]]] = []
    row = next((row for row, value in enumerate(values) if value is not None), None)
    if row is not None:
        changes.append(("flipped bit", {row: flipped(kind, values[row])}))
        changes.append(("NULL for a value", {row: None}))
        other = _other_row(compared, rows, place, row)
        if other is not None:
            changes.append(("swapped pair", {row: values[other], other: values[row]}))
        if pa.types.is_timestamp(kind):
            changes.append(("wrong time zone", {row: _shifted(values[row])}))
    empty = next((at for at, value in enumerate(values) if value in ("", b"")), None)
    if empty is not None:
        changes.append(("NULL for a value", {empty: None}))
    long = next((at for at, value in enumerate(values) if isinstance(value, (str, bytes)) and value), None)
    if long is not None:
        changes.append(("truncated text", {long: values[long][:-1]}))
    for fault, changed in changes:
        copy = [changed.get(at, value) for at, value in enumerate(values)]
        yield PlantedFault(fault, name, _with(rows, place, copy), dict.fromkeys(changed, frozenset({name})))


def _other_row(compared: ComparedColumns, rows: pa.RecordBatch, place: int, row: int) -> int | None:
    """Return a row with which the values of a column can be swapped so that both rows change; None if there is none.
    Rows that swap their keys, or all they differ in, are the same rows."""
    if compared.columns[place].source.name in compared.schema.key:
        return None
    values = rows.column(place).to_pylist()
    others = [at for at, value in enumerate(values) if _differ(value, values[row])]
    if compared.schema.key:
        return others[0] if others else None
    rest = rows.select([number for number in range(rows.num_columns) if number != place])
    pairs = Checksums.of(rest.columns, rows.num_rows).pairs()
    return next((at for at in others if pairs[at] != pairs[row]), None)


def _stale(compared: ComparedColumns, rows: pa.RecordBatch) -> Iterator[PlantedFault]:
    """Plant a row with all values but its key's of another row, as if an update had been lost."""
    if rows.num_rows < 2:
        return
    copy, columns = rows, set()
    for place in compared.values:
        column = compared.columns[place]
        values = rows.column(place).to_pylist()
        if column.source.name not in compared.schema.key and _differ(values[0], values[1]):
            copy = _with(copy, place, [values[1], *values[1:]])
            columns.add(column.source.name)
    if columns:
        yield PlantedFault("stale row", "", copy, {0: frozenset(columns)})


def _differ(value: Any, other: Any) -> bool:
    return repr(value) != repr(other)


def _taken(rows: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    return rows.take(pa.array(list(places), pa.int64()))


def _with(rows: pa.RecordBatch, place: int, values: list[Any]) -> pa.RecordBatch:
    columns = list(rows.columns)
    columns[place] = pa.array(values, rows.schema.field(place).type)
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _shifted(moment: datetime) -> datetime:
    return moment + _HOURS if moment.year < datetime.max.year else moment - _HOURS


def flipped(kind: pa.DataType, value: Any) -> Any:
    """Return a value that differs by its last bit, or the least that its type knows."""
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_floating(kind):
        return _flipped_float(kind, value)
    if pa.types.is_list(kind):
        return [flipped(kind.value_type, value[0]), *value[1:]] if value else [0.0]
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "\x01"
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else b"\x01"
    if isinstance(value, datetime):
        return value - timedelta(microseconds=1) if value.microsecond % 2 else value + timedelta(microseconds=1)
    if isinstance(value, date):
        return value + timedelta(days=1) if value < date.max else value - timedelta(days=1)
    if isinstance(value, Decimal):
        units = int(value.scaleb(kind.scale, _DIGITS))
        return Decimal(units - 1 if units > 0 else units + 1).scaleb(-kind.scale, _DIGITS)
    return value ^ 1


def _flipped_float(kind: pa.DataType, value: float) -> float:
    value_code, bits_code = ("<f", "<I") if kind == pa.float32() else ("<d", "<Q")
    (bits,) = struct.unpack(bits_code, struct.pack(value_code, value))
    flipped_value: float = struct.unpack(value_code, struct.pack(bits_code, bits ^ 1))[0]
    return flipped_value
