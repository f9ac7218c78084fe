"""How fast a verification may read the server, and for how long."""

from __future__ import annotations

import threading
import time


class Pace:
    """A limit of rows a second for all connections together. rows_per_second: None for no limit."""

    def __init__(self, rows_per_second: float | None) -> None:
        self._limit = rows_per_second
        self._free = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, rows: int) -> None:
        """Count rows that were read, and wait until as many more may be."""
        with self._lock:
            if self._limit is None:
                return
            self._free = max(self._free, time.monotonic()) + rows / self._limit
            seconds = self._free - time.monotonic()
        time.sleep(max(0.0, seconds))

    def limit(self, rows_per_second: float | None) -> None:
        """Let the rows from here on come by another limit."""
        with self._lock:
            self._limit = rows_per_second


class Budget:
    """The time that a verification may take. seconds: None for any. Several threads may use it."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._begun = False
        self._lock = threading.Lock()

    @property
    def left(self) -> float | None:
        """Return the seconds that are left; None for any number."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._ends is not None and time.monotonic() >= self._ends

    def end(self) -> bool:
        """Let no other part begin. Returns whether one might have."""
        with self._lock:
            might = not self.is_over
            self._begun, self._ends = True, min(self._ends or float("inf"), time.monotonic())
            return might

    def allows(self) -> bool:
        """Return whether another part may begin. The first may in any case, so that each run comes further."""
        with self._lock:
            is_allowed = not self._begun or not self.is_over
            self._begun = self._begun or is_allowed
            return is_allowed
