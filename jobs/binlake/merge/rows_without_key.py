"""Mutations of a table without a key: rows are identified by all their values, byte by byte, and identical ones are
counted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from binlake.binlog.border import DELETE, INSERT
from binlake.merge.arrow_mutations import StagedMutations
from binlake.merge.lake_images import LakeImages
from binlake.merge.newest import PLACE

_COPIES = "copies "


def net_rows(mutations: StagedMutations, images: LakeImages) -> tuple[Copies, pa.Table]:
    """Return the rows that are fewer behind the mutations, and those that come, both as the lake has them.

    images: how the lake's columns are made. Raises what ``StagedMutations.newest`` does.
    """
    staged = mutations.newest()
    came, left = (
        images.rows(staged.filter(pc.not_equal(staged["op"], without)), image)
        for image, without in (("after", DELETE), ("before", INSERT))
    )
    changes = pa.concat_tables(
        rows.append_column(_COPIES, pa.repeat(pa.scalar(change, pa.int64()), rows.num_rows))
        for rows, change in ((came, 1), (left, -1))
    )
    names = [column.name for column in images.columns]
    net = changes.group_by(names, use_threads=False).aggregate([(_COPIES, "sum")])
    counts = net[f"{_COPIES}_sum"].to_numpy()
    rows = net.select(names)
    more = rows.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))
    return Copies(rows.filter(pa.array(counts < 0)), -counts[counts < 0]), more


class Copies:
    """Rows of a table of which copies go. rows: each once. counts: how many copies of each."""

    def __init__(self, rows: pa.Table, counts: np.ndarray) -> None:
        self._rows = rows
        self._left = counts.copy()

    def __bool__(self) -> bool:
        """Return whether copies are left that weren't met."""
        return bool(self._left.any())

    def met_in(self, rows: pa.Table, hidden: BitMap64) -> BitMap64:
        """Return the numbers of a data file's rows that go, and count them as met. hidden: rows that aren't there."""
        names = self._rows.column_names
        places = np.arange(rows.num_rows)
        places = np.delete(places, np.fromiter(hidden, np.int64, len(hidden)))
        numbered = [
            rows.take(pa.array(places)).append_column(PLACE, pa.array(places)),
            self._rows.append_column(PLACE, pa.array(-1 - np.arange(self._rows.num_rows))),
        ]
        groups = pa.concat_tables(numbered).group_by(names, use_threads=False).aggregate([(PLACE, "list")])
        met = BitMap64()
        for group in groups[f"{PLACE}_list"].combine_chunks():
            values = group.values.to_numpy()
            if len(values) > 1 and values.min() < 0:
                number = -1 - int(values.min())
                copies = values[values >= 0][: self._left[number]]
                self._left[number] -= len(copies)
                met |= BitMap64(copies.astype(np.uint64))
        return met
