"""The data files of a table that are worth rewriting, chosen by its Delta log alone. Needs no JVM.

Each batch adds small files, and a MERGE writes the rows it touched into as many files as Spark has partitions, each
spread over all keys of the batch. Small files cost reads, and wide ones can't be skipped (delta/key_ranges.py).

    small     neighbours by key are put together up to the target size, never over a whole file that lies between
    marked    a file much of which its deletion vector hides is written without the hidden rows
    overlap   where more files than a limit hold the same range of keys, the widest of them are sorted by the key into
              files that follow each other. Narrow files stay: the cost follows the change, not the table
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.delta import key_ranges, opened_tables
from binlake.delta.delta_actions import DeltaAction, rows_in
from binlake.delta.delta_schema import is_widened
from binlake.errors import LakeError
from binlake.schema.table import TableSchema

FEWEST = 4
"""Fewest small files that are worth a rewrite."""
FEW_BYTES = 16_000_000
"""Bytes of data files up to which those that hold changed rows are rewritten, unless they were written lately: each
deletion vector costs every reader. Also what several tables that are merged may hold in memory at once."""
_TINY_OF_MANY = 128_000
"""Bytes of a file that is always rewritten with the rows of a batch, where more bytes are looked into."""
_TINY, _PER_SECOND = 32_000, 15_000
"""Bytes of a file that is always rewritten with the rows of a batch, and the bytes that are added for each second since
it was written, where no more are looked into."""
_VERY_SMALL, _MANY, _AT_ONCE = 16_000, 16, 64
"""Bytes of a file that goes with the rows of any batch, how many of them there are then, and how many go at once.
Batches that only insert touch no file, and each leaves one."""
_MARKED = 0.2
"""Share of deleted rows from which a file is rewritten."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class TableFile:
    """A data file of a table.

    low, high: bounds of the key's columns that have some, in the key's order; empty where nothing is known. bytes: the
    file's size. deleted: rows that its deletion vector hides.
    """

    path: str
    bytes: int
    rows: int
    low: Key = ()
    high: Key = ()
    deleted: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Data files whose rows are rewritten, sorted by the key, as ``into`` files."""

    files: tuple[TableFile, ...]
    into: int

    @property
    def bytes(self) -> int:
        """Return the bytes of its files."""
        return sum(file.bytes for file in self.files)

    @property
    def low(self) -> Key:
        """Return the least key of its files."""
        return min(file.low for file in self.files)

    @property
    def high(self) -> Key:
        """Return the greatest key of its files."""
        return max(file.high for file in self.files)


_Stretch = TableFile | Rewrite


def data_files(table: DeltaTable, table_path: str, schema: TableSchema) -> list[TableFile]:
    """Return the table's files at its version. Files without statistics of the key may hold any key. Raises what
    ``deleted_rows`` does."""
    added = pa.table(table.get_add_actions())
    bounds = [spans for spans in key_ranges.bounds_of(table, added, schema).values() if spans is not None]
    lows = list(zip(*(spans.low.tolist() for spans in bounds), strict=True)) or [()] * added.num_rows
    highs = list(zip(*(spans.high.tolist() for spans in bounds), strict=True)) or [()] * added.num_rows
    deleted = deleted_rows(table, table_path)
    return [
        TableFile(path, size, rows or 0, low, high, deleted[_name(path)])
        for path, size, rows, low, high in zip(
            added["path"].to_pylist(), added["size_bytes"].to_pylist(), added["num_records"].to_pylist(),
            lows, highs, strict=True,
        )
    ]  # fmt: skip


def deleted_rows(table: DeltaTable, table_path: str) -> Counter[str]:
    """Return how many rows deletion vectors hide, by the file's name. Raises DeltaError, and LakeError where the log of
    a table with Delta's type widening can't be read here."""
    hidden: Counter[str] = Counter()
    if is_widened(table):  # deltalake refuses to read the vectors of such a table
        added = opened_tables.added(table_path, table.version(), pa.table(table.get_add_actions())["path"].to_pylist())
        if added is None:
            raise LakeError(f"{table_path}: its log is in a form that isn't read without Spark")
        for path, add in added.items():
            hidden[_name(path)] = add.hidden
        return +hidden
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            hidden[_name(path)] = kept.values.false_count
    return hidden


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def rewrites(
    files: Sequence[TableFile], *, target: int, overlap: int | None, has_vectors: bool = True
) -> list[Rewrite]:
    """Return the files to rewrite, in groups that share no file.

    target: bytes of a whole file. overlap: how many files may hold one stretch of keys; None: any number. has_vectors:
    whether deletion vectors may stay that hide few rows.
    """
    small = [file for file in files if file.bytes < target / 2]
    whole = [file for file in files if file.bytes >= target / 2]
    packed = _packed(small, whole, target, has_vectors=has_vectors)
    taken = {file.path for rewrite in packed for file in rewrite.files}
    marked = [Rewrite((file,), 1) for file in files if file.path not in taken and _is_marked(file, has_vectors)]
    taken |= {file.path for rewrite in marked for file in rewrite.files}
    chosen = packed + marked
    if overlap is None or not files or not files[0].low:
        return chosen
    stretches: list[_Stretch] = [*chosen, *(file for file in files if file.path not in taken)]
    if _depth(stretches) <= overlap + 2 * (len(files[0].low) - 1):  # by its columns' bounds a file reaches further
        return chosen
    wide = _widest(stretches)
    overlapping = tuple(file for part in wide for file in (part.files if isinstance(part, Rewrite) else (part,)))
    sorted_anew = Rewrite(overlapping, max(1, round(sum(file.bytes for file in overlapping) / target)))
    return [rewrite for rewrite in chosen if rewrite not in wide] + [sorted_anew]


def old_enough(touched: Sequence[DeltaAction], now: int) -> list[DeltaAction]:
    """Return those of some data files of few bytes that a batch, which takes rows out of them, rewrites.

    In the others rows are better marked: otherwise batches of seconds would write a whole table each time. A file isn't
    chosen where it is large for its age, so that batches of hours choose all of them. touched: add actions; where one
    doesn't say how many rows its file has, none can be marked. now: milliseconds since 1970.
    """

    def may_wait(add: DeltaAction) -> bool:
        seconds = (now - int(add["modificationTime"])) / 1000
        return int(add["size"]) > max(_TINY, seconds * _PER_SECOND) and rows_in(add) is not None

    return [add for add in touched if not may_wait(add)]


def smallest(touched: Sequence[DeltaAction], most: int) -> list[DeltaAction]:
    """Return the data files that a batch, which looks into these, best rewrites together with its own rows.

    A file isn't chosen where it is larger than all smaller ones together: a row is written again only when the bytes
    around it have doubled, and few files stay. touched: add actions. most: bytes of all that are chosen.
    """
    chosen: list[DeltaAction] = []
    size = 0
    for add in sorted(touched, key=lambda add: int(add["size"])):
        if add["size"] > max(_TINY_OF_MANY, size) or size + add["size"] > most:
            break
        chosen.append(add)
        size += add["size"]
    return chosen


def many_small(added: pa.Table) -> list[str]:
    """Return paths of a table's very small data files where there are many. added: deltalake's add actions."""
    small = added.filter(pc.less_equal(added["size_bytes"], _VERY_SMALL))["path"]
    return [] if len(small) < _MANY else list(small[:_AT_ONCE].to_pylist())


def _is_marked(file: TableFile, has_vectors: bool) -> bool:
    return file.deleted > 0 and (not has_vectors or file.deleted >= _MARKED * file.rows)


def _packed(small: Sequence[TableFile], whole: Sequence[TableFile], target: int, *, has_vectors: bool) -> list[Rewrite]:
    """Group neighbours among the small files, together up to the target size."""
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
    return [
        Rewrite(tuple(group), 1)
        for group in bins
        if len(group) >= FEWEST or any(_is_marked(file, has_vectors) for file in group)
    ]


class _Between:
    """The key ranges of whole files."""

    def __init__(self, whole: Sequence[TableFile]) -> None:
        ordered = sorted((file.low, file.high) for file in whole)
        self._lows = [low for low, _ in ordered]
        self._highs = [high for _, high in ordered]

    def holds_any(self, behind: Key, before: Key) -> bool:
        """Return whether a whole file lies in a gap of keys."""
        first, last = bisect_right(self._lows, behind), bisect_left(self._lows, before)
        return any(high < before for high in self._highs[first:last])


def _depth(stretches: Sequence[_Stretch]) -> int:
    """Return the greatest number of files that hold one key."""
    lows, highs = sorted(part.low for part in stretches), sorted(part.high for part in stretches)
    return max(number + 1 - bisect_left(highs, low) for number, low in enumerate(lows))


def _widest(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """Return the stretches beside a row of narrow ones that don't overlap; the row is as long as can be."""
    lows, highs = sorted(part.low for part in stretches), sorted(part.high for part in stretches)

    def width(part: _Stretch) -> tuple[int, int]:
        return bisect_right(lows, part.high) - bisect_left(highs, part.low), -part.bytes

    row: list[tuple[Key, Key]] = []
    wide: list[_Stretch] = []
    for part in sorted(stretches, key=width):
        place = bisect_left(row, (part.low, part.high))
        meets = place > 0 and row[place - 1][1] >= part.low
        if meets or (place < len(row) and row[place][0] <= part.high):
            wide.append(part)
        else:
            row.insert(place, (part.low, part.high))
    return wide
