"""Which rows of a staged file were rolled back."""

from __future__ import annotations

import time

import numpy as np

from binlake.planner.manifest import StagedFile
from binlake.planner.rolled_back_rows import is_void
from binlake.schema.table import TableName


def staged(void: list[tuple[int, int, int, int]]) -> StagedFile:
    name = TableName("d", "t")
    return StagedFile(
        "p", name, (), (), 0, 0, 1, 0, 0, (1, 4, 0), (1, 9, 0), 1, "", {}, void=tuple(void)
    )  # fmt: skip


def test_rows_within_any_of_the_ranges_are_void() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        offset, row = random.integers(0, 12, 40), random.integers(0, 3, 40)
        bounds = [sorted(zip(random.integers(0, 12, 2), random.integers(0, 3, 2), strict=True)) for _ in range(4)]
        void = [(int(a), int(b), int(c), int(d)) for (a, b), (c, d) in bounds]
        expected = [any((a, b) <= (o, r) < (c, d) for a, b, c, d in void) for o, r in zip(offset, row, strict=True)]
        assert is_void(staged(void), offset, row).tolist() == expected


def test_many_savepoints_take_no_longer_each() -> None:
    count = 100_000
    offset = np.arange(2 * count)
    began = time.process_time()
    void = is_void(staged([(2 * n, 0, 2 * n + 1, 0) for n in range(count)]), offset, np.zeros_like(offset))
    assert time.process_time() - began < 5
    assert void.tolist() == [True, False] * count
