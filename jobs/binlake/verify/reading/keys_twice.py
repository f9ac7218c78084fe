"""Keys that several rows of a partitioned table have on the server, found while verify reads its rows.

No partition knows the keys of another: EXCHANGE PARTITION … WITHOUT VALIDATION may bring a row in whose key the table
has already. The log identifies rows by their keys, so that a DELETE of one takes both from the lake.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from binlake.report import counted
from binlake.verify.reading.key_cells import ComparedColumns, Measured
from binlake.verify.reading.row_checksums import Flags, Words
from binlake.verify.reading.row_pairs import Collected
from binlake.verify.result import DifferingRow

MOST_HELD = 8_000_000
"""The most keys of a table that are held, by eight bytes each: of more, a share by chance is looked at."""


class KeysTwice:
    """Half of the checksum of each key that was read, as several threads add them."""

    def __init__(self) -> None:
        self._held: list[Words] = []
        self._count = 0
        self._looked_at = np.uint64(0)
        """Bits that are 0 in the keys that are held."""
        self._adding = threading.Lock()

    def add(self, halves: Words) -> None:
        """Add keys. Where too many are held, keep the keys of half as many values, and look at these alone."""
        with self._adding:
            self._hold([halves])
            while self._count > MOST_HELD:
                self._looked_at = self._looked_at << np.uint64(1) | np.uint64(1)
                held, self._held, self._count = self._held, [], 0
                self._hold(held)

    def _hold(self, parts: Iterable[Words]) -> None:
        for part in parts:
            some = part[part & self._looked_at == 0] if self._looked_at else part.copy()
            self._held.append(some)
            self._count += len(some)

    def twice(self) -> Words:
        """Return the halves that occur several times; mostly, not surely, those of the same key."""
        if not self._held:
            return np.empty(0, np.uint64)
        halves, counts = np.unique(np.concatenate(self._held), return_counts=True)
        repeated: Words = halves[counts > 1]
        return repeated


@dataclass(frozen=True)
class RepeatedKeys:
    """Keys of several rows. rows: the first of them. reason: how many there are, for people."""

    rows: tuple[DifferingRow, ...]
    reason: str


def rows_of(measured: Iterable[Measured], halves: Words) -> list[Measured]:
    """Return the rows whose keys have one of these halves."""
    chosen = ((part, np.isin(part.keys.first, halves)) for part in measured)
    return [_at(part, wanted) for part, wanted in chosen if wanted.any()]


def _at(part: Measured, wanted: Flags) -> Measured:
    places = np.flatnonzero(wanted)
    return Measured(part.rows.take(places), part.cells[places], part.keys.at(places), part.checksums.at(places))


def repeated_keys(compared: ComparedColumns, parts: Sequence[Measured], halves: int) -> RepeatedKeys | None:
    """Return the keys that several of some rows have; None where none has. halves: how many keys look so in all."""
    some = Collected.of(compared, parts)
    counts = {key: count for key, count in Counter(some.keys).items() if count > 1}
    if not counts:
        return None
    rows: list[DifferingRow] = []
    for key, count in counts.items():
        (row,) = some.rows.slice(some.keys.index(key), 1).combine_chunks().to_batches()
        rows.append(DifferingRow("twice", compared.shown(row, 0), count))
    return RepeatedKeys(
        tuple(rows),
        f"{counted(max(halves, len(rows)), 'key')} of several rows, which are in different partitions: a change of one "
        "is taken for the others, too",
    )
