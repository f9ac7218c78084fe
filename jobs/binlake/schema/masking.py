"""Application of masks to Arrow arrays of the lake's types: the same for the log, snapshots and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from binlake.schema import datatypes, hash_key
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of
from binlake.schema.mask import FEWEST_OF_KEY, Mask
from binlake.schema.table import INTEGERS, TEXTS, Column, TableSchema

_MOMENTS = ("datetime", "timestamp")
_FLOATS = ("float", "double")
_DATE_AND_CLOCK = 19
"""Characters of a moment without its fraction."""


def refusal(column: Column, mask: Mask, *, in_key: bool) -> str:
    """Return why a column can't have a mask; empty where it can."""
    if in_key and mask.kind != "hash":
        return "it belongs to the key, which can be hashed and not masked otherwise"
    if in_key and mask.length < FEWEST_OF_KEY:
        return f"it belongs to the key, whose hashes have {FEWEST_OF_KEY} digits at least"
    if mask.kind == "nothing":
        return ""
    entry = datatypes.entry(column)
    if mask.kind == "hash":
        made = entry.stored is not None or pa.types.is_list(entry.arrow(column))
        return f"values of {column.declared} aren't hashed; null: true leaves them out" if made else ""
    if column.type in TEXTS:
        return "" if not mask.unit else "texts are truncated to a number of characters"
    if mask.kind == "keep":
        return f"characters of {column.declared} can't be kept; take hash, truncate or null"
    is_number = column.type in (*INTEGERS, *_FLOATS) or pa.types.is_decimal(entry.arrow(column))
    if is_number:
        return "" if not mask.unit else "numbers are truncated to a number of digits"
    if column.type in (*_MOMENTS, "date"):
        if not mask.unit:
            return "dates are truncated to year, month, day or hour"
        return "a date has no hour" if column.type == "date" and mask.unit == "hour" else ""
    return f"values of {column.declared} can't be truncated; take hash or null"


def masked(values: pa.Array, column: Column) -> pa.Array:
    """Return what a column's mask makes of values of the lake's type. NULL stays NULL.

    column: as the server has it. Raises ConfigurationError for a key that this process doesn't have.
    """
    assert column.mask is not None
    return _MASKED[column.mask.kind](values, column, column.mask)


def masked_columns(
    columns: Sequence[Column], arrays: Iterable[pa.Array], rows: int, invalid: InvalidValues
) -> list[pa.Array]:
    """Return arrays of the lake's columns of some columns, side columns included.

    columns: as the server has them. arrays: those of the same columns without masks, but for columns of which nothing
    is shown.
    """
    given = iter(arrays)
    made: list[pa.Array] = []
    for column in columns:
        if column.mask is not None and column.mask.kind == "nothing":
            made.append(pa.nulls(rows, datatypes.arrow_type(column.shown)))
            continue
        own = [next(given) for _ in columns_of([replace(column, mask=None)], invalid)]
        made += own if column.mask is None else [masked(own[0], column)]
    return made


def masked_rows(rows: pa.RecordBatch, schema: TableSchema, invalid: InvalidValues) -> pa.RecordBatch:
    """Return rows with the lake's columns of a shape, given those of its columns without masks."""
    served = [schema.column(column.name) for column in schema.mirrored]
    read = [
        array
        for column, array in zip(
            columns_of([replace(column, mask=None) for column in served], invalid), rows.columns, strict=True
        )
        if not (mask := schema.masks.get(column.source.name.lower())) or mask.kind != "nothing"
    ]
    arrays = masked_columns(served, read, rows.num_rows, invalid)
    fields = [(column.name, column.arrow) for column in columns_of(schema.mirrored, invalid)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _hash(values: pa.Array, column: Column, mask: Mask) -> pa.Array:
    from binlake.schema.keyed_hashes import hashed  # it compiles, and a source without hashes needs none of it

    return hashed(_texts(values, column), hash_key.key_of(mask.key), mask.length)


def _texts(values: pa.Array, column: Column) -> pa.Array:
    """Return the texts of values, and bytes as they are."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        shown = values.cast(pa.timestamp("us")).cast(pa.string())
        digits = column.fraction and column.fraction + 1
        return pc.utf8_slice_codeunits(shown, 0, _DATE_AND_CLOCK + digits)
    return values.cast(pa.string())


def _keep(values: pa.Array, column: Column, mask: Mask) -> pa.Array:
    from binlake.schema.kept_characters import kept  # as above

    return kept(values, mask.first, mask.last, mask.fill)


def _truncate(values: pa.Array, column: Column, mask: Mask) -> pa.Array:
    kind = values.type
    if mask.unit:
        return values if mask.unit == "day" and pa.types.is_date(kind) else _floored(values, mask.unit)
    if column.type in TEXTS:
        return pc.utf8_slice_codeunits(values, 0, mask.length)
    if pa.types.is_integer(kind) and mask.length >= len(str(2 ** (kind.bit_width - 1))):
        return pc.multiply(values, pa.scalar(0, kind))
    if pa.types.is_integer(kind):
        step = pa.scalar(10**mask.length, kind)
        return pc.multiply(pc.divide(values, step), step)
    if pa.types.is_decimal(kind):
        return _truncated_decimals(values, mask.length)
    step = pa.scalar(float(10**mask.length), pa.float64())
    return pc.multiply(pc.trunc(pc.divide(values.cast(pa.float64()), step)), step).cast(kind)


def _floored(values: pa.Array, unit: str) -> pa.Array:
    return pc.floor_temporal(values, unit=unit).cast(values.type)


def _truncated_decimals(values: pa.Array, digits: int) -> pa.Array:
    kind = values.type
    if digits >= kind.precision - kind.scale:
        zeros = pa.array([0], pa.int64()).cast(pa.decimal128(19, 0)).cast(kind)[0]
        return pc.if_else(values.is_valid(), zeros, pa.scalar(None, kind))
    return pc.round(values, ndigits=-digits, round_mode="towards_zero").cast(kind)


_MASKED: Mapping[str, Callable[[pa.Array, Column, Mask], pa.Array]] = {
    "hash": _hash,
    "keep": _keep,
    "truncate": _truncate,
    "nothing": lambda values, column, mask: pa.nulls(len(values), datatypes.arrow_type(column.shown)),
}
