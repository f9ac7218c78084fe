"""Encoding of rows to row events, column by column: the inverse of the kernels and of ``binlog.finishers``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa

from binlake.binlog.border import Mutations
from binlake.errors import StagingError
from binlake.schema.datatypes import REGISTRY
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of
from binlake.schema.types.log_form import ColumnBytes, Field, prefixed


class RowImages:
    """The rows of a staged batch as in row events: null bitmap and values, before and after.

    fields: those of ``table_map_bytes.fields_of``, in the order of ``mutations.columns``. Raises StagingError, which
    names the column but not the value.
    """

    def __init__(self, mutations: Mutations, fields: Sequence[Field], invalid: InvalidValues) -> None:
        batch = mutations.batch
        self.op: list[int] = batch.column("op").to_pylist()
        self.before = _images(mutations, batch.column("before"), fields, invalid)
        self.after = _images(mutations, batch.column("after"), fields, invalid)


def _images(
    mutations: Mutations, image: pa.StructArray, fields: Sequence[Field], invalid: InvalidValues
) -> ColumnBytes:
    rows = len(image)
    if image.null_count == rows:
        return [None] * rows
    arrays = image.flatten()
    by_column: list[ColumnBytes] = []
    absent = np.zeros((rows, len(fields)), np.uint8)
    place = -1
    for column, array in zip(columns_of(mutations.columns, invalid), arrays, strict=True):
        try:
            if column.is_side:
                encoded = _beside(fields[place], array, column.holds)
                by_column[place] = [a if b is None else b for a, b in zip(by_column[place], encoded, strict=True)]
            else:
                place += 1
                by_column.append(REGISTRY[fields[place].column.type].log.encode(fields[place])(array))
        except (ValueError, LookupError, OverflowError) as error:
            why = type(error).__name__  # a UnicodeError's text holds the value
            raise StagingError(
                f"{mutations.name}: a value of {column.name!r} can't be written into a binlog ({why})",
                remedy="exclude the table from the feed, or fix the value on the server",
            ) from None
    for at, values in enumerate(by_column):
        absent[:, at] = [value is None for value in values]
    nulls = np.packbits(absent, axis=1, bitorder="little").tobytes()
    size = (len(fields) + 7) // 8
    present = image.is_valid().to_pylist()
    filled = [[value or b"" for value in values] for values in by_column]
    joined = map(b"".join, zip(*filled, strict=True)) if filled else repeat(b"")
    return [
        nulls[row * size : row * size + size] + data if has else None
        for row, (has, data) in enumerate(zip(present, joined, strict=False))
    ]


def _beside(field: Field, array: pa.Array, holds: str) -> ColumnBytes:
    """Encode the values that no Delta type holds, from their side column (see schema.lake_columns)."""
    if holds == "bytes":
        return prefixed(array.to_pylist(), field.size)
    dates = REGISTRY[field.column.type].log.invalid
    assert dates is not None
    return [None if text is None else dates.bytes_of(field, text) for text in array.to_pylist()]
