"""How fast a verification may read the server."""

from __future__ import annotations

import threading
import time


class Pace:
    """A limit of rows a second for all connections together. rows_per_second: None for no limit."""

    def __init__(self, rows_per_second: int | None) -> None:
        self._limit = rows_per_second
        self._free = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, rows: int) -> None:
        """Count rows that were read, and wait until as many more may be."""
        if self._limit is None:
            return
        with self._lock:
            self._free = max(self._free, time.monotonic()) + rows / self._limit
            seconds = self._free - time.monotonic()
        time.sleep(max(0.0, seconds))
