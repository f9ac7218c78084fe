"""Connections whose read views are all at one position."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from binlake.errors import SourceError
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.source.endpoint import Endpoint
from binlake.source.locks import LockMode
from binlake.source.read_lock import MOST_SECONDS, Held, Say, flush_or_tables, read_lock
from binlake.source.read_replica import ReadPlace, own_place
from binlake.source.server import Source
from binlake.verify.cluster.by_executors import ByExecutors
from binlake.verify.view_session import SAVEPOINT, STATEMENT_TIMEOUT, set_session

LOOKING = 2
"""Number of views that are kept for reading differing rows."""

T = TypeVar("T")


class ViewPool:
    """A pool of read views, each with a thread of its own."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._free: SimpleQueue[Source] = SimpleQueue()
        for source in sources:
            self._free.put(source)
        self._sources = sources
        self._closing = threading.Lock()
        self._executor = ThreadPoolExecutor(len(sources))

    def submit(self, task: Callable[[Source], T]) -> Future[T]:
        """Run ``task`` on the next free view."""

        def work() -> T:
            source = self._free.get()
            try:
                return task(source)
            finally:
                # Releases the tables' metadata locks, so that an ALTER needn't wait. MariaDB keeps them until the
                # transaction ends.
                with suppress(SourceError):
                    source.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
                self._free.put(source)

        return self._executor.submit(work)

    def close_after(self, futures: Sequence[Future[Any]]) -> None:
        """End the transactions, and so release the metadata locks, as soon as ``futures`` are done."""

        def work() -> None:
            wait(futures)
            self.close()

        threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """End the transactions. Several threads may call it."""
        self._executor.shutdown(cancel_futures=True)
        with self._closing:
            for source in self._sources:
                source.close()


@dataclass(frozen=True)
class LockedTables:
    """Tables whose engines have no read views: they stay locked until they are read. read: reads them."""

    names: Sequence[TableName] = ()
    read: Callable[[Source], None] = lambda view: None


@dataclass(frozen=True)
class LockBounds:
    """limit: seconds for which a writer may wait for the lock. say: is called with whom the lock waits for."""

    limit: float = MOST_SECONDS
    say: Say = lambda text: None


def _sessions(stack: ExitStack, endpoint: Endpoint, count: int) -> list[Source]:
    """Open connections to read rows by; the stack closes them."""
    sources = [stack.enter_context(Source.open(endpoint, read_timeout=STATEMENT_TIMEOUT)) for _ in range(count)]
    for source in sources:
        set_session(source)
    return sources


class ReadViews:
    """Read-only transactions at ``position``: many for reading all rows, a few for looking at differing rows later.

    lock_ms: the longest that a writer may have waited for the lock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tables: Sequence[TableName],
        *,
        count: int,
        under_lock: Callable[[Source], None],
        locked: LockedTables = LockedTables(),
        place: ReadPlace = own_place,
        elsewhere: ByExecutors | None = None,
        bounds: LockBounds = LockBounds(),
    ) -> None:
        """Open the transactions, ``count`` of them for reading all rows. elsewhere: opens others under the same lock.

        under_lock: reads with a connection, in a moment, what has no read view (sequences). locked: tables that are
        locked for longer, alone. place: reads where the server is. Raises AccessDenied if the account may neither flush
        nor lock, Busy if the lock can't be had, and what ``place`` raises.
        """
        self._endpoint = endpoint
        with ExitStack() as stack:
            sources = _sessions(stack, endpoint, count + LOOKING)
            self._ids = [source.connection_id for source in sources]
            control = stack.enter_context(Source.open(endpoint))
            if elsewhere:
                stack.callback(elsewhere.close)
                elsewhere.come(stack.enter_context(Source.open(endpoint)), self._ids)

            def open_views(kept: ExitStack) -> tuple[Callable[[], Position], Held]:
                for source in sources:
                    source.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                    source.execute(f"SAVEPOINT {SAVEPOINT}")
                if elsewhere:
                    elsewhere.open(bounds.limit / 2)
                under_lock(sources[0])
                lock = read_lock(control, "tables", locked.names, limit=bounds.limit, patience=0, without_limit=True)
                return place(control), kept.enter_context(lock) if locked.names else Held("none", 0)

            with ExitStack() as kept:

                def locked_while(mode: LockMode, patience: float) -> tuple[Held, tuple[Callable[[], Position], Held]]:
                    with read_lock(
                        control, mode, tables, limit=bounds.limit, patience=patience, say=bounds.say
                    ) as held:
                        opened = open_views(kept)
                    return held, opened

                held, (position, kept_lock) = flush_or_tables(tables, locked_while, bounds.say)
                if locked.names:
                    bounds.say(f"writes to {', '.join(map(str, locked.names))} wait until they are read: no read views")
                    kept_lock.keep_alive_during(lambda: locked.read(sources[0]))
            self.lock_ms = round(held.ms)
            self.position = position()
            control.close()
            if elsewhere:
                elsewhere.watch()
            stack.pop_all()
        self._elsewhere = elsewhere
        self.reading = ViewPool(sources[:count])
        self.looking = ViewPool(sources[count:])

    def __enter__(self) -> ReadViews:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._kill()
        if self._elsewhere:
            self._elsewhere.close()
        self.reading.close()
        self.looking.close()

    def _kill(self) -> None:
        """Kill the connections: the server would continue the queries otherwise."""
        with suppress(SourceError), Source.open(self._endpoint) as control:
            for connection in (*self._ids, *(self._elsewhere.connections if self._elsewhere else ())):
                with suppress(SourceError):
                    control.execute(f"KILL {connection}")
