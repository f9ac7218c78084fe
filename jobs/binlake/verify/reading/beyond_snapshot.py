"""The server's rows that snapshots don't copy (``snapshot_where``): the lake has those that changed since.

Which these are the log alone knew. So the lake's rows are read first, and of the server's rows beyond a snapshot those
count whose keys the lake has. One that the lake doesn't have is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.row_checksums import Checksums, Flags, Words

LOST_BEYOND = "rows of it that no snapshot copies (snapshot_where) can't be distinguished from lost ones"


@dataclass(frozen=True)
class LakeKeys:
    """The keys of some of the lake's rows: both halves of their checksums, in the order of the first halves."""

    first: Words
    second: Words

    @classmethod
    def of(cls, parts: Iterable[Checksums]) -> Self:
        """Return the keys with these checksums."""
        some = list(parts)
        first = np.concatenate([np.empty(0, np.uint64), *(part.first for part in some)])
        second = np.concatenate([np.empty(0, np.uint64), *(part.second for part in some)])
        order = np.argsort(first)
        return cls(first[order], second[order])

    def hold(self, keys: Checksums) -> Flags:
        """Return which of some keys are among them."""
        if not len(self.first):
            return np.zeros(len(keys.first), np.bool_)
        places = np.minimum(np.searchsorted(self.first, keys.first), len(self.first) - 1)
        held: Flags = (self.first[places] == keys.first) & (self.second[places] == keys.second)
        return held

    def rows_of(self, rows: pa.RecordBatch, compared: ComparedColumns) -> pa.RecordBatch:
        """Return the rows whose keys are among them."""
        return rows.filter(pa.array(self.hold(compared.keys_or_rows(rows))))
