"""A pool of memory for column buffers, reused once Arrow has released it, because fresh pages are expensive."""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict

import numpy as np
import numpy.typing as npt

SMALLEST = 64 << 10
"""Size in bytes of the smallest pooled buffer; smaller ones are allocated by numpy."""
MOST_KEPT = 128 << 20
"""The most bytes that are kept for reuse."""


class BufferPool:
    """Buffers by size, for all threads: taking and returning one is a single, atomic operation of a list."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    @property
    def kept(self) -> int:
        """Return how many bytes are kept for reuse."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Return an uninitialized array of at least ``size`` bytes. It goes back when all its views are gone."""
        if size < SMALLEST:
            return np.empty(size, np.uint8)
        rounded = (
            1 << (size - 1).bit_length()
        )  # few sizes, so that one fits that is free; what isn't used costs nothing
        try:
            memory = self._free[rounded].pop()
        except IndexError:
            # Private: Linux gives huge pages to shared memory, which is mmap's default, only where it is configured to.
            memory = mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
        # Views of the array keep the array alive: its memory isn't another array's.
        array = np.frombuffer(memory, np.uint8)
        weakref.finalize(array, self._give, memory, rounded).atexit = False
        return array

    def release(self) -> None:
        """Give what waits back to the system: nothing is read for a while."""
        for free in list(self._free.values()):
            free.clear()

    def _give(self, memory: mmap.mmap, size: int) -> None:
        if self.kept + size <= MOST_KEPT:
            self._free[size].append(memory)


pool = BufferPool()
