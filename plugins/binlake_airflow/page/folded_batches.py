"""Batches of a source that is followed, as one line for those between two other events of a day: a follower records
thousands a day, among which a stop or a decision would be lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from binlake.config.units import DAY_US
from binlake.records import runs
from binlake.records.runs import RunHead, noting
from binlake.store.metadata import Metadata

DENSE_US = 60_000_000
"""Microseconds between batches below which somebody follows the log, whatever the YAML says."""
SYNCS = "kind = 'sync'"


@dataclass(frozen=True)
class Batches:
    """Batches that were recorded one after the other. first_us, last_us: when the first of them was, and the last.
    batch: the last one. count: how many they are, and rows: that they changed; None where only some of their rows
    count."""

    first_us: int
    last_us: int
    batch: int
    count: int | None
    rows: int | None


def are_dense(newest: Sequence[RunHead], wanted: int) -> bool:
    """Return whether batches come so often that they would fill a page of ``wanted`` events with little else."""
    return len(newest) >= wanted > 1 and newest[0].ended_us - newest[-1].ended_us < wanted * DENSE_US


def folded(metadata: Metadata, since_us: int, until_us: int, cuts: Iterable[int], table: str | None) -> list[Batches]:
    """Return the batches that were recorded from a time on and before another, in groups that end with each day, in
    UTC, and at each cut.

    cuts: times of other events. table: only batches that changed it; their numbers aren't known, as old ones are kept
    put together.
    """
    where = f"{SYNCS} AND ended_us >= {since_us} AND ended_us < {until_us}"
    where = f"{where} AND {noting(table)}" if table else where
    columns = metadata.read_columns("runs", ("ended_us", "batch", "mutations"), where=where).to_pydict()
    recorded = sorted(zip(columns["ended_us"], columns["batch"], columns["mutations"], strict=True))
    if not recorded:
        return []
    before = runs.newest(metadata, 1, before_us=recorded[0][0], where=SYNCS)
    numbers = [batch for _, batch, _ in recorded]
    last = {batch: number for batch, number in zip(numbers, [_batch(before), *numbers], strict=False)}
    ordered_cuts = sorted(cuts)
    groups = groupby(recorded, lambda row: (row[0] // DAY_US, bisect_left(ordered_cuts, row[0])))
    return [_batches(list(group), last, counts=table is None) for _, group in groups]


def _batch(before: Sequence[RunHead]) -> int | None:
    return before[0].batch if before else None


def _batches(group: Sequence[tuple[int, int, int]], last: dict[int, int | None], *, counts: bool) -> Batches:
    """Return a group as one. last: the batch before each, by number: a row may stand for all behind that."""
    (first_us, first, _), (last_us, batch, _) = group[0], group[-1]
    before = last[first]
    count = batch - (first - 1 if before is None else before)
    return Batches(first_us, last_us, batch, *((count, sum(rows for *_, rows in group)) if counts else (None, None)))
