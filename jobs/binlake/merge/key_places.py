"""The places of keys among the rows of a data file.

Larger files are written in the order of a key that is one whole number, and so are those of snapshots and of the
upkeep. In such a file a few keys are found by halves, where a comparison with each of its rows would cost as much as
the batch itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.merge import arrow_mutations

_FEW, _MOST_BYTES = 4096, 32_000_000
"""Rows that are compared one by one as quickly, and bytes of memory up to which rows are put in order, by a copy."""


def in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of a new data file, of some thousands in the order of a key that is one whole number."""
    is_of_number = len(key) == 1 and pa.types.is_integer(rows[key[0]].type)
    is_worth_it = rows.num_rows > _FEW and rows.nbytes <= _MOST_BYTES
    return arrow_mutations.in_order(rows, key) if is_of_number and is_worth_it else rows


def among(values: pa.ChunkedArray, wanted: pa.Array) -> NDArray[np.uint64]:
    """Return the places of the values that are among the wanted ones; of NULLs none. Both are of one type."""
    ascending = _ascends(values) if len(values) > _FEW else None
    if ascending is None:
        return np.flatnonzero(pc.is_in(values, value_set=wanted, skip_nulls=True)).astype(np.uint64)
    sought = wanted.drop_null().to_numpy()
    places = np.minimum(np.searchsorted(ascending, sought), len(ascending) - 1)
    there: NDArray[np.uint64] = places[ascending[places] == sought].astype(np.uint64)
    return there


def _ascends(values: pa.ChunkedArray) -> NDArray[np.integer] | None:
    """Return values that are whole numbers, each greater than the one before; None for others."""
    if not pa.types.is_integer(values.type) or values.null_count:
        return None
    numbers: NDArray[np.integer] = values.combine_chunks().to_numpy()
    return numbers if (numbers[1:] > numbers[:-1]).all() else None
