"""What parts two sides: chunks by their sums, then the rows of differing chunks by their hashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from binlake.verify.hashes import Chunks, ChunkSum
from binlake.verify.result import DifferingRow
from binlake.verify.server_side import KeyedHash

MOST_ROWS = 100
"""Differing rows that are named per table."""
MOST_FETCHED = 100_000
"""Rows whose keys are fetched to find them, from each side."""

_NONE = ChunkSum(0, 0)


def total(parts: Iterable[Chunks]) -> Chunks:
    """Chunks of a table from those of its parts."""
    counts: defaultdict[int, int] = defaultdict(int)
    sums: defaultdict[int, int] = defaultdict(int)
    for part in parts:
        for number, chunk in part.items():
            counts[number] += chunk.rows
            sums[number] += chunk.total
    return {number: ChunkSum(counts[number], sums[number]) for number in counts}


def rows(chunks: Chunks) -> int:
    return sum(chunk.rows for chunk in chunks.values())


def differing(source: Chunks, lake: Chunks) -> list[int]:
    """Numbers of the chunks that aren't the same."""
    return sorted(number for number in source.keys() | lake.keys() if source.get(number) != lake.get(number))


def to_look_into(numbers: Sequence[int], source: Chunks, lake: Chunks) -> list[int]:
    """The first differing chunks, as many as can be fetched; one at least."""
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
    """The first differing rows, by the key's text (by the row's hash in a table without a key)."""
    if not key:
        return _without_key(source, lake)
    ours, theirs = Counter(source), Counter(lake)
    missing = {row.key: row for row in ours - theirs}
    extra = _surplus(theirs, ours)
    found: dict[str, DifferingRow] = {}
    for text in [*missing, *(text for text in extra if text not in missing)]:
        if len(found) == MOST_ROWS:
            break
        row = missing.get(text) or extra[text][0]
        shown = tuple(zip(key, row.shown, strict=True))
        if text in missing and text in extra:
            found[text] = DifferingRow("changed", shown)
        elif text in missing:
            found[text] = DifferingRow("missing", shown)
        else:
            found[text] = DifferingRow("extra", shown, count=extra[text][1])
    return found


def _surplus(theirs: Counter[KeyedHash], ours: Counter[KeyedHash]) -> dict[str, tuple[KeyedHash, int]]:
    """Rows that only one side has, by key, with how many there are too many."""
    surplus: dict[str, tuple[KeyedHash, int]] = {}
    for row, count in (theirs - ours).items():
        _, known = surplus.get(row.key, (row, 0))
        surplus[row.key] = (row, known + count)
    return surplus


def _without_key(source: Sequence[KeyedHash], lake: Sequence[KeyedHash]) -> dict[str, DifferingRow]:
    ours, theirs = Counter(row.row_hash for row in source), Counter(row.row_hash for row in lake)
    found: dict[str, DifferingRow] = {}
    for row_hash, count in (ours - theirs).items():
        found[row_hash] = DifferingRow("missing", (("row hash", row_hash),), count)
    for row_hash, count in (theirs - ours).items():
        found[row_hash] = DifferingRow("extra", (("row hash", row_hash),), count)
    return dict(list(found.items())[:MOST_ROWS])


def name_columns(
    found: dict[str, DifferingRow],
    columns: Sequence[str],
    source: Mapping[str, Sequence[str]],
    lake: Mapping[str, Sequence[str]],
) -> tuple[DifferingRow, ...]:
    """Changed rows with the columns that differ; ``source`` and ``lake`` give their texts by key."""
    named: list[DifferingRow] = []
    for key, row in found.items():
        if row.kind == "changed" and key in source and key in lake:
            pairs = zip(columns, source[key], lake[key], strict=True)
            row = replace(row, columns=tuple(name for name, ours, theirs in pairs if ours != theirs))
        named.append(row)
    return tuple(named)
