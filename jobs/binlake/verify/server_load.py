"""How busy the server is: a verification begins to read nothing while more of its threads run than may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from binlake.source.endpoint import Endpoint
from binlake.source.giving_way import WaitingDdl
from binlake.source.server import Source
from binlake.verify.pace import Budget

_LOOKED_EVERY = 1.0
"""Seconds for which what the server said is taken for true."""


@dataclass(frozen=True)
class OtherReaders:
    """Connections of other processes that read for the same verification: by the server's numbers of some, and the
    user-level locks that others hold."""

    connections: tuple[int, ...]
    locks: tuple[str, ...]

    def running(self, source: Source) -> int:
        """Return how many of them run a query at this moment. Raises SourceError."""
        asked = ", ".join(f"IS_USED_LOCK(%s) AS l{number}" for number in range(len(self.locks)))
        holders = source.query(f"SELECT {asked}", self.locks)[0].values() if self.locks else ()
        ours = {*self.connections, *holders}
        # Without a grant it shows the account's own threads, as these are.
        return sum(row["Id"] in ours and row["Command"] != "Sleep" for row in source.query("SHOW PROCESSLIST"))


class TimeIsUp(Exception):
    """The time of a verification was up before the server was less busy."""


class ServerLoad:
    """The server's running threads but those that read for this verification.

    most: above so many nothing begins to be read; None for any. budget: how long it may take. say: is called with a
    text on a pause. Several threads may use it.
    """

    def __init__(self, endpoint: Endpoint, most: int | None, budget: Budget, say: Callable[[str], None]) -> None:
        self.endpoint = endpoint
        self._most = most
        self._budget = budget
        self._say = say
        self.others: OtherReaders | None = None
        """The connections that read for this verification in other processes."""
        self.ddl: WaitingDdl | None = None
        """Watches for DDL that waits for the tables."""
        self._source: Source | None = None
        self._reading = self._others = 0
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections by which it asks."""
        with self._lock:
            if self._source:
                self._source.close()
        if self.ddl:
            self.ddl.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wait until the server isn't too busy, then count as reading. Raises SourceError, and TimeIsUp, also where
        DDL waits for a table: on MariaDB a view keeps its locks until its transaction ends."""
        self._give_way()
        paused = False
        while self._is_busy():
            if self._budget.is_over:
                raise TimeIsUp
            if not paused:
                self._say(f"paused while more than {self._most} threads run on the server: {self._others} do")
            paused = True
            time.sleep(_LOOKED_EVERY)
        with self._lock:
            self._reading += 1
        try:
            yield
        finally:
            with self._lock:
                self._reading -= 1

    def _give_way(self) -> None:
        if self.ddl and (waiting := self.ddl.longest()):
            if self._budget.end():
                self._say(f"the verification gives way to {waiting}, which waits for a table: the next one continues")
            raise TimeIsUp

    def _is_busy(self) -> bool:
        if self._most is None:
            return False
        with self._lock:
            if time.monotonic() - self._looked >= _LOOKED_EVERY:
                self._source = self._source or Source.open(self.endpoint)
                (row,) = self._source.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")
                ours = self._reading + (self.others.running(self._source) if self.others else 0)
                self._others = max(0, int(row["Value"]) - 1 - ours)  # the one that answers runs, too
                self._looked = time.monotonic()
            return self._others > self._most
