"""Differences between server and lake: chunks compared by sums, then the rows of differing chunks by hashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from binlake.verify.hashing.hashes import Chunks, ChunkSum
from binlake.verify.hashing.server_side import KeyedHash
from binlake.verify.result import MOST_ROWS, ROW_HASH, DifferingRow

MOST_FETCHED = 100_000
"""The most rows whose keys are fetched from each side to find the differing ones."""

_NONE = ChunkSum(0, 0)


def total(parts: Iterable[Chunks]) -> Chunks:
    """Return a table's chunks, summed up over its parts."""
    counts: defaultdict[int, int] = defaultdict(int)
    sums: defaultdict[int, int] = defaultdict(int)
    for part in parts:
        for number, chunk in part.items():
            counts[number] += chunk.rows
            sums[number] += chunk.total
    return {number: ChunkSum(counts[number], sums[number]) for number in counts}


def rows(chunks: Chunks) -> int:
    """Return the number of rows of all chunks."""
    return sum(chunk.rows for chunk in chunks.values())


def differing(source: Chunks, lake: Chunks) -> list[int]:
    """Return the numbers of the chunks that differ, in ascending order."""
    return sorted(number for number in source.keys() | lake.keys() if source.get(number) != lake.get(number))


def to_look_into(numbers: Sequence[int], source: Chunks, lake: Chunks) -> list[int]:
    """Return the first differing chunks, at least one, whose rows don't exceed ``MOST_FETCHED``."""
    chosen: list[int] = []
    fetched = 0
    for number in numbers:
        fetched += max(source.get(number, _NONE).rows, lake.get(number, _NONE).rows)
        if chosen and fetched > MOST_FETCHED:
            break
        chosen.append(number)
    return chosen


def differing_rows(
    source: Sequence[KeyedHash], lake: Sequence[KeyedHash], key: Sequence[str]
) -> dict[str, DifferingRow]:
    """Return the first differing rows by the key's text; by the row's hash if the table has no key."""
    if not key:
        return _differing_without_key(source, lake)
    ours, theirs = Counter(source), Counter(lake)
    missing = {row.key: row for row in ours - theirs}
    extra = _surplus(theirs, ours)
    differences: dict[str, DifferingRow] = {}
    for text in [*missing, *(text for text in extra if text not in missing)]:
        if len(differences) == MOST_ROWS:
            break
        row = missing.get(text) or extra[text][0]
        shown = tuple(zip(key, row.shown, strict=True))
        if text in missing and text in extra:
            differences[text] = DifferingRow("changed", shown)
        elif text in missing:
            differences[text] = DifferingRow("missing", shown)
        else:
            differences[text] = DifferingRow("extra", shown, count=extra[text][1])
    return differences


def _surplus(theirs: Counter[KeyedHash], ours: Counter[KeyedHash]) -> dict[str, tuple[KeyedHash, int]]:
    """Return the rows that only ``theirs`` has, or has more often, by key, with the excess count."""
    surplus: dict[str, tuple[KeyedHash, int]] = {}
    for row, count in (theirs - ours).items():
        _, known = surplus.get(row.key, (row, 0))
        surplus[row.key] = (row, known + count)
    return surplus


def _differing_without_key(source: Sequence[KeyedHash], lake: Sequence[KeyedHash]) -> dict[str, DifferingRow]:
    ours, theirs = Counter(row.row_hash for row in source), Counter(row.row_hash for row in lake)
    differences: dict[str, DifferingRow] = {}
    for row_hash, count in (ours - theirs).items():
        differences[row_hash] = DifferingRow("missing", ((ROW_HASH, row_hash),), count)
    for row_hash, count in (theirs - ours).items():
        differences[row_hash] = DifferingRow("extra", ((ROW_HASH, row_hash),), count)
    return dict(list(differences.items())[:MOST_ROWS])


def name_columns(
    differences: dict[str, DifferingRow],
    columns: Sequence[str],
    source: Mapping[str, Sequence[str]],
    lake: Mapping[str, Sequence[str]],
) -> tuple[DifferingRow, ...]:
    """Return the rows with the differing columns set on the changed ones. source, lake: the columns' texts by key."""
    named: list[DifferingRow] = []
    for key, row in differences.items():
        if row.kind == "changed" and key in source and key in lake:
            pairs = zip(columns, source[key], lake[key], strict=True)
            row = replace(row, columns=tuple(name for name, ours, theirs in pairs if ours != theirs))
        named.append(row)
    return tuple(named)
