"""Rows of both sides paired by key: which are missing in the lake, extra there, or changed, and in which columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.kernels.row_kernels import Numbers
from binlake.verify.reading.key_cells import ComparedColumns, Measured
from binlake.verify.result import ROW_HASH, DifferingRow

MOST_LOOKED_AT = 200_000
"""The most rows of a side that are held to find the differing ones, but for those of one cell."""
Checksum = tuple[int, int]
"""A checksum, as two numbers of 64 bits."""


@dataclass
class Collected:
    """The rows of one side that are looked at. Each is known by its place; rows: with the columns compared."""

    rows: pa.Table
    keys: list[Checksum]
    checksums: list[Checksum]

    @classmethod
    def of(cls, compared: ComparedColumns, parts: Sequence[Measured]) -> Collected:
        """Return the rows of all parts together, with the checksums of their keys and of whole rows."""
        rows = pa.Table.from_batches([part.rows for part in parts], compared.arrow)
        keys = [pair for part in parts for pair in part.keys.pairs().tolist()]
        return cls(rows, keys, [pair for part in parts for pair in part.checksums.pairs().tolist()])


@dataclass(frozen=True)
class RowDifference:
    """One key, or one row without a key, whose rows differ.

    ours: the place of the server's row; None where it has none, or of a row without a key that is in both. theirs: the
    places of the lake's rows that aren't the server's. count: how many rows are missing or extra.
    """

    kind: str
    ours: int | None
    theirs: tuple[int, ...]
    count: int = 1


def differences(ours: Collected, theirs: Collected, *, keyed: bool) -> Iterator[RowDifference]:
    """Yield what differs: missing and changed rows in the server's order, then the extra ones in the lake's."""
    missing = _surplus(ours, theirs)
    extra = _surplus(theirs, ours)
    for key, places in missing.items():
        there = extra.pop(key, None) if keyed else None
        if there is not None:
            yield RowDifference("changed", places[0], tuple(there))
        else:
            yield RowDifference("missing", places[0], (), len(places))
    for places in extra.values():
        yield RowDifference("extra", None, tuple(places), len(places))


def _surplus(rows: Collected, others: Collected) -> dict[Checksum, list[int]]:
    """Return the places, by key, of the rows that ``others`` doesn't have, or has less often."""
    left = Counter(others.checksums)
    surplus: defaultdict[Checksum, list[int]] = defaultdict(list)
    for place, (key, checksum) in enumerate(zip(rows.keys, rows.checksums, strict=True)):
        if left[checksum] > 0:
            left[checksum] -= 1
        else:
            surplus[key].append(place)
    return dict(surplus)


@dataclass
class Shown:
    """Differences of a table as messages show them, the first ``most``."""

    compared: ComparedColumns
    most: int
    rows: list[DifferingRow] = field(default_factory=list)

    def add(self, ours: Collected, theirs: Collected, differing: Iterable[RowDifference]) -> None:
        """Add differences of some collected rows."""
        chosen = [difference for difference, _ in zip(differing, range(self.most - len(self.rows)), strict=False)]
        changed = [difference for difference in chosen if difference.kind == "changed"]
        columns = iter(changed_columns(self.compared, ours, theirs, changed))
        for difference in chosen:
            row = self._row(difference, ours, theirs)
            self.rows.append(replace(row, columns=next(columns)) if difference.kind == "changed" else row)

    def _row(self, difference: RowDifference, ours: Collected, theirs: Collected) -> DifferingRow:
        side, place = (ours, difference.ours) if difference.ours is not None else (theirs, difference.theirs[0])
        assert place is not None
        if self.compared.schema.key:
            (row,) = side.rows.slice(place, 1).combine_chunks().to_batches()
            key: Any = self.compared.shown(row, 0)
        else:
            key = ((ROW_HASH, "{:016x}{:016x}".format(*side.checksums[place])),)
        return DifferingRow(difference.kind, key, difference.count)  # type: ignore[arg-type]


def changed_columns(
    compared: ComparedColumns, ours: Collected, theirs: Collected, changed: Sequence[RowDifference]
) -> list[tuple[str, ...]]:
    """Return the columns that differ in each changed row; with several rows in the lake, those of the first."""
    if not changed:
        return []
    pairs = [
        _batch(ours.rows, [difference.ours for difference in changed]),
        _batch(theirs.rows, [difference.theirs[0] for difference in changed]),
    ]
    return compared.differing(*pairs)


def _batch(rows: pa.Table, places: Sequence[int | None]) -> pa.RecordBatch:
    taken = rows.take(pa.array(np.array(places, np.int64))).combine_chunks()
    (batch,) = taken.to_batches()
    return batch


def held_together(cells: Numbers, ours: Numbers, theirs: Numbers) -> Iterator[Numbers]:
    """Divide cells into groups whose rows may be held at once; a group has one cell at least."""
    group: list[int] = []
    rows = 0
    for cell in cells.tolist():
        more = max(int(ours[cell]), int(theirs[cell]))
        if group and rows + more > MOST_LOOKED_AT:
            yield np.array(group, np.int64)
            group, rows = [], 0
        group.append(cell)
        rows += more
    if group:
        yield np.array(group, np.int64)
