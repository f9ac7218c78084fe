"""Turns of threads that merge a few rows each.

Python runs one thread at a time, and a thread that comes back from Arrow waits for the one that runs. Four threads that
merge fifty small tables take a half more CPU than one, and no less time. So small tables are merged one after the
other, each by its thread, which gives its turn up before work that lets the others run: much of it in Arrow, or by
Spark. Where a store lets its threads wait, all of them run at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUICK_BYTES = 1_000_000
"""Bytes of Parquet files that are read and written in some ten milliseconds."""
_WAITING = 3.0
"""How many times the CPU time of its turns a store's waiting makes them last."""
_own = threading.local()


class Turns:
    """The turns of one batch's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = self._cpu_seconds = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for this thread's turn, which lasts until the end or until ``leave``."""
        self._lock.acquire()
        if self._seconds > _WAITING * self._cpu_seconds:
            self._lock.release()
            yield
            return
        _own.turns, began, began_cpu = self, time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            if getattr(_own, "turns", None) is self:
                self._seconds += time.monotonic() - began
                self._cpu_seconds += time.thread_time() - began_cpu
                leave()


def leave() -> None:
    """Give this thread's turn up, where it has one."""
    turns: Turns | None = getattr(_own, "turns", None)
    if turns is not None:
        _own.turns = None
        turns._lock.release()
