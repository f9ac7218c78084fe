"""Which data files of a table are worth writing anew, chosen by its Delta log alone: needs no JVM.

Each batch adds small files, and a MERGE writes the rows it touched into as many files as Spark has partitions, each
spread over all keys of the batch: small files cost reads, wide ones wear file skipping out (delta/key_ranges.py).

    small     neighbours by key are put together up to the target size; never over a whole file that lies between
    marked    a file of which much is deleted by its deletion vector is written without that
    overlap   where more files than a limit hold the same stretch of keys, the widest of them are sorted by the key into
              files that follow each other. What is narrow already stays: the cost follows the change, not the table
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from binlake.delta import key_ranges
from binlake.schema.table import TableSchema

FEWEST = 4
"""Small files that are worth a rewrite."""
_MARKED = 0.2
"""Share of a file's rows that are deleted."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class TableFile:
    """low, high: of its key columns of which bounds are told, in the key's order; empty where nothing is known.

    bytes: of the file. deleted: rows that its deletion vector hides.
    """

    path: str
    bytes: int
    rows: int
    low: Key = ()
    high: Key = ()
    deleted: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Data files whose rows are written anew, sorted by the key, as ``into`` files."""

    files: tuple[TableFile, ...]
    into: int

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def low(self) -> Key:
        return min(file.low for file in self.files)

    @property
    def high(self) -> Key:
        return max(file.high for file in self.files)


_Stretch = TableFile | Rewrite


def data_files(log: DeltaTable, schema: TableSchema) -> list[TableFile]:
    """The table's files at its version. Files without statistics of the key are taken to hold any."""
    added = pa.table(log.get_add_actions())
    bounds = [one for one in key_ranges.bounds_of(log, added, schema).values() if one is not None]
    lows = list(zip(*(one.low.tolist() for one in bounds), strict=True)) or [()] * added.num_rows
    highs = list(zip(*(one.high.tolist() for one in bounds), strict=True)) or [()] * added.num_rows
    deleted = deleted_rows(log)
    return [
        TableFile(path, size, rows or 0, low, high, deleted[_name(path)])
        for path, size, rows, low, high in zip(
            added["path"].to_pylist(), added["size_bytes"].to_pylist(), added["num_records"].to_pylist(),
            lows, highs, strict=True,
        )
    ]  # fmt: skip


def deleted_rows(log: DeltaTable) -> Counter[str]:
    """Rows that deletion vectors hide, by the file's name."""
    found: Counter[str] = Counter()
    for batch in pa.RecordBatchReader.from_stream(log.deletion_vectors()):
        for path, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            found[_name(path)] = kept.values.false_count
    return found


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def rewrites(files: Sequence[TableFile], *, target: int, overlap: int | None) -> list[Rewrite]:
    """What to write anew, in groups that share no file.

    target: bytes of a whole file. overlap: files that may hold one stretch of keys, None: any number.
    """
    small = [file for file in files if file.bytes < target / 2]
    whole = [file for file in files if file.bytes >= target / 2]
    packed = _packed(small, whole, target)
    taken = {file.path for one in packed for file in one.files}
    marked = [Rewrite((file,), 1) for file in files if file.path not in taken and _is_marked(file)]
    taken |= {file.path for one in marked for file in one.files}
    chosen = packed + marked
    if overlap is None or not files or not files[0].low:
        return chosen
    stretches: list[_Stretch] = [*chosen, *(file for file in files if file.path not in taken)]
    if _depth(stretches) <= overlap + 2 * (len(files[0].low) - 1):  # by its columns' bounds a file reaches further
        return chosen
    wide = _widest(stretches)
    apart = tuple(file for one in wide for file in (one.files if isinstance(one, Rewrite) else (one,)))
    sorted_anew = Rewrite(apart, max(1, round(sum(file.bytes for file in apart) / target)))
    return [one for one in chosen if one not in wide] + [sorted_anew]


def _is_marked(file: TableFile) -> bool:
    return file.deleted > 0 and file.deleted >= _MARKED * file.rows


def _packed(small: Sequence[TableFile], whole: Sequence[TableFile], target: int) -> list[Rewrite]:
    """Neighbours among the small files, together up to the target size."""
    between = _Between(whole)
    bins: list[list[TableFile]] = []
    room = 0
    reached: Key = ()
    for file in sorted(small, key=lambda file: (file.low, file.high)):
        if not bins or file.bytes > room or between.holds_any(reached, file.low):
            bins.append([])
            room, reached = target, file.high
        bins[-1].append(file)
        room -= file.bytes
        reached = max(reached, file.high)
    return [Rewrite(tuple(one), 1) for one in bins if len(one) >= FEWEST or any(map(_is_marked, one))]


class _Between:
    """Whether a whole file lies in a gap of keys."""

    def __init__(self, whole: Sequence[TableFile]) -> None:
        ordered = sorted((file.low, file.high) for file in whole)
        self._lows = [low for low, _ in ordered]
        self._highs = [high for _, high in ordered]

    def holds_any(self, behind: Key, before: Key) -> bool:
        first, last = bisect_right(self._lows, behind), bisect_left(self._lows, before)
        return any(high < before for high in self._highs[first:last])


def _depth(stretches: Sequence[_Stretch]) -> int:
    """How many hold one key, at most."""
    lows, highs = sorted(one.low for one in stretches), sorted(one.high for one in stretches)
    return max(number + 1 - bisect_left(highs, low) for number, low in enumerate(lows))


def _widest(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """All but a row of narrow ones, as long as can be, that don't overlap."""
    lows, highs = sorted(one.low for one in stretches), sorted(one.high for one in stretches)

    def width(one: _Stretch) -> tuple[int, int]:
        return bisect_right(lows, one.high) - bisect_left(highs, one.low), -one.bytes

    row: list[tuple[Key, Key]] = []
    wide: list[_Stretch] = []
    for one in sorted(stretches, key=width):
        place = bisect_left(row, (one.low, one.high))
        meets = place > 0 and row[place - 1][1] >= one.low
        if meets or (place < len(row) and row[place][0] <= one.high):
            wide.append(one)
        else:
            row.insert(place, (one.low, one.high))
    return wide
