"""Rows of staged files that the server rolled back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binlake.planner.manifest import StagedFile

_Numbers = NDArray[np.int64]


def is_void(file: StagedFile, offset: _Numbers, row: _Numbers) -> NDArray[np.bool_]:
    """Return which rows of a staged file were rolled back. offset, row: their places."""
    void = np.array(file.void, np.int64).reshape(-1, 4)
    number = np.full(len(void), file.first[0])
    return are_void(np.column_stack([number, void]), np.full(len(offset), file.first[0]), offset, row)


def are_void(void: _Numbers, file: _Numbers, offset: _Numbers, row: _Numbers) -> NDArray[np.bool_]:
    """Return which rows lie in any of the ranges that were rolled back.

    void: (file number, first offset, first row, last offset, last row) of each range, without its last row. Rows and
    the ends of the ranges are sorted together once, however many savepoints a transaction has.
    """
    if len(void) and len(offset):  # of several files, a part of the rows meets few ranges
        met = (void[:, 0] >= file.min()) & (void[:, 0] <= file.max())
        void = void[met & (void[:, 1] <= offset.max()) & (void[:, 3] >= offset.min())]
    files = np.concatenate([void[:, 0], void[:, 0], file])
    offsets = np.concatenate([void[:, 1], void[:, 3], offset])
    rows = np.concatenate([void[:, 2], void[:, 4], row])
    change = np.repeat(np.array([1, -1, 0]), [len(void), len(void), len(offset)])
    order = np.lexsort((change == 0, rows, offsets, files))  # at one place a row comes behind the ends
    inside = np.empty(len(order), np.bool_)
    inside[order] = np.cumsum(change[order]) > 0
    return inside[2 * len(void) :]
