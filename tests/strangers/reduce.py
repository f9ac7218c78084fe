"""The fewest statements that still do it: delta debugging over a list, bounded in time.

Source: A. Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), the algorithm ddmin
without its test of subsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def reduced(items: Sequence[T], still: Callable[[list[T]], bool], seconds: float) -> list[T]:
    """A part of the items, in their order, for which ``still`` holds, as it must for all of them. When the time is over
    it is the smallest part found so far."""
    kept, parts = list(items), 2
    end = time.monotonic() + seconds
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            if time.monotonic() > end:
                return kept
            rest = kept[:start] + kept[start + size :]
            if still(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(kept))
    return kept
