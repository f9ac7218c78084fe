"""Rows of XA transactions, and the outcomes to which they belong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.planner.steps import XaCommit

_Numbers = NDArray[np.int64]


def outcomes_of(commits: Sequence[XaCommit], xid: pa.Array, file: _Numbers, offset: _Numbers) -> _Numbers:
    """Return for each row the place in ``commits`` of the XA transaction that it belongs to; -1 for none.

    xid, file, offset: of the rows. The bounds of transactions with one id don't overlap. Rows and bounds are sorted
    together once, however many transactions there are.
    """
    names = pa.array(sorted({commit.xid for commit in commits}), pa.string())
    of_rows, of_commits = (
        pc.fill_null(pc.index_in(values, names), -1).to_numpy(zero_copy_only=False).astype(np.int64)
        for values in (xid.cast(pa.string()), pa.array([commit.xid for commit in commits], pa.string()))
    )
    begins = np.array([(commit.file, commit.after) for commit in commits], np.int64).reshape(-1, 2)
    prepared = np.array([commit.prepared for commit in commits], np.int64)
    codes, files = np.concatenate([of_commits, of_rows]), np.concatenate([begins[:, 0], file])
    offsets = np.concatenate([begins[:, 1], offset])
    is_begin = np.arange(len(codes)) < len(commits)
    order = np.lexsort((is_begin, offsets, files, codes))  # a row at a bound lies before it
    newest = np.maximum.accumulate(np.where(is_begin[order], np.arange(len(order)), -1))
    before = np.where(newest < 0, -1, order[newest])
    same = (codes[before] == codes[order]) & (files[before] == files[order]) & (before >= 0)
    known = same & (offsets[order] <= prepared[np.where(same, before, 0)]) if len(commits) else same
    outcomes = np.full(len(order), -1, np.int64)
    outcomes[order] = np.where(known, before, -1)
    return outcomes[len(commits) :]
