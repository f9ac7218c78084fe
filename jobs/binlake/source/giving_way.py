"""Reading that gives way: DDL of others isn't kept waiting by our read views, nor what queues behind it.

A view's metadata lock keeps DDL on its table away until the rows are read. A waiting ALTER in turn keeps every later
statement on that table away, a SELECT included (manual 10.11.4 of MySQL).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from binlake.schema.table import TableName
from binlake.source import lock_waits
from binlake.source.lock_waits import LockHolder
from binlake.source.server import Source

_LOOKED_EVERY = 1.0
"""Seconds between two looks at the server."""


class WaitingDdl:
    """Watches for statements that wait for tables which are being read. limit: seconds for which they may.

    Several threads may use it; it asks by a connection of its own, which ``close`` ends.
    """

    def __init__(self, source: Source, names: Sequence[TableName], limit: float) -> None:
        self._asking, self._names, self._limit = source.another(), names, limit
        self._since: dict[int, float] = {}
        self._looked = float("-inf")
        self._longest: LockHolder | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connection by which it asks."""
        with self._lock:
            self._asking.close()

    def __enter__(self) -> WaitingDdl:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def longest(self) -> LockHolder | None:
        """Return a session that has waited for longer than the limit; None if there is none. Raises SourceError."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= _LOOKED_EVERY:
                waiting = lock_waits.waiting_ddl(self._asking, self._names)
                self._since = {w.connection: self._since.get(w.connection, now) for w in waiting}
                late = [w for w in waiting if now - self._since[w.connection] >= self._limit - _LOOKED_EVERY]
                self._looked, self._longest = now, late[0] if late else None
            return self._longest
