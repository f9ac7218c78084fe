"""A lock that stops writes for a moment, never longer than a limit that the server itself keeps.

A request for a lock makes writers wait from the moment at which it is queued. On MySQL a FLUSH TABLES WITH READ LOCK
that fails with error 1205 while it waits for a table even keeps the global lock. So:

    look      no request is made while a session is seen that it would wait for (lock_waits)
    request   by a connection of its own, which waits for half the limit at most; after each failure UNLOCK TABLES
    hold      until the views are open; at the limit another connection of ours ends the one that holds the lock
    again     after a pause that grows, a few times; then LockBlocked names who was in the way

If this process or its host freezes, the server ends the idle connection, and with it the lock, a second after the
limit (``wait_timeout``).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from pymysql.constants import ER

from binlake.errors import AccessDenied, SourceError
from binlake.schema.table import TableName
from binlake.source import error_numbers, lock_waits, prepared_xa
from binlake.source.lock_waits import LockHolder
from binlake.source.locks import Busy, LockMode, stay_prepared
from binlake.source.server import Source, error_code

MOST_SECONDS = 2.0
"""Seconds for which writes may wait, unless the YAML says otherwise (snapshot.max_writes_stopped)."""
PATIENCE = 120.0
"""Seconds for which the lock is tried, and prepared transactions are waited for."""
BRIEF_PATIENCE = 30.0
"""The same where there is another way."""

_SAID_AFTER = 5.0
"""Seconds of waiting after which the blocking sessions are named."""
_TRIES = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_KEPT_ALIVE = 0.5
"""Seconds between two statements that keep the connection from being idle."""

Say = Callable[[str], None]
T = TypeVar("T")


class LockBlocked(Busy):
    """Other sessions block the lock. holders: those that the account can see."""

    def __init__(self, message: str, remedy: str, holders: Sequence[LockHolder] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.holders = tuple(holders)


@dataclass
class Held:
    """A lock while it is held.

    mode: the mode that was possible. ms: the longest time for which a writer may have waited, from a request to the
    answer of UNLOCK TABLES, failed tries included; known once the lock is released.
    """

    mode: LockMode
    ms: float
    _keep_alive: Callable[[], None] = field(default=lambda: None, repr=False)

    def keep_alive_during(self, work: Callable[[], object]) -> None:
        """Run ``work``, which may take longer than the limit, and keep the lock meanwhile. Raises what ``work`` raises,
        and SourceError where the lock is lost."""
        with ThreadPoolExecutor(1, thread_name_prefix="under lock") as pool:
            working = pool.submit(work)
            while wait([working], _KEPT_ALIVE).not_done:
                self._keep_alive()
            working.result()


@contextmanager
def read_lock(
    source: Source,
    mode: LockMode,
    names: Sequence[TableName],
    *,
    limit: float = MOST_SECONDS,
    patience: float = PATIENCE,
    without_limit: bool = False,
    say: Say = lambda text: None,
) -> Iterator[Held]:
    """Stop writes (to ``names`` only, in mode ``tables``) while no prepared transaction exists; then let them continue.

    source: asks the server, and may be used while the lock is held, which another connection holds. limit: seconds for
    which a writer may wait. patience: seconds for which the lock is tried. without_limit: holds it for longer, as
    tables need that have no read views; only a request for it is limited then. say: is called after some seconds with a
    text that names the sessions. Prepared transactions are waited for without the lock, and looked for again under it.
    Raises AccessDenied, LockBlocked, StaysPrepared, and Busy where the limit ended the lock: whatever was read under it
    is worth nothing then.
    """
    deadline = time.monotonic() + patience
    with _Locker(source, names, limit, say) as locker:
        while True:
            if xids := prepared_xa.wait_until_ended(source, max(0.0, deadline - time.monotonic()), say=say):
                raise stay_prepared(source, xids)
            held = locker.acquire(mode, deadline)
            try:
                xids = prepared_xa.prepared_xids(source)
                if not xids:
                    if without_limit:
                        locker.lift_limit()
                    yield held
            except BaseException:
                with suppress(SourceError):  # the first failure is the one that is raised
                    locker.release()
                raise
            else:
                locker.release()
            finally:
                held.ms = locker.longest_ms
            if not xids:
                return
            if time.monotonic() > deadline:
                raise stay_prepared(source, xids)


def flush_or_tables(names: Sequence[TableName], work: Callable[[LockMode, float], T], say: Say) -> T:
    """Run ``work`` under a lock of the server, or of these tables where another statement keeps the server from being
    locked. work: called with the mode and the patience of the lock, which it takes. Raises what ``work`` raises."""
    try:
        return work("flush", BRIEF_PATIENCE)
    except LockBlocked as error:
        if not names:
            raise
        say(f"{error.message}; the tables are locked instead")
    return work("tables", PATIENCE)


class _Locker:
    """The connection that holds the lock, and another that ends it at the limit."""

    def __init__(self, source: Source, names: Sequence[TableName], limit: float, say: Say) -> None:
        self._source, self._names, self._limit, self._say = source, names, limit, say
        self._timer: threading.Timer | None = None
        self._since = 0.0
        self._began = time.monotonic()
        self.longest_ms = 0.0

    def __enter__(self) -> _Locker:
        self._connection = self._source.another()
        try:
            self._ender = self._source.another()
        except BaseException:
            self._connection.close()
            raise
        self._number = self._connection.connection_id
        waits = max(1, math.floor(self._limit / 2))  # whole seconds; the timer ends it sooner where they are too many
        idle = math.ceil(self._limit) + 1
        self._connection.execute(f"SET SESSION lock_wait_timeout = {waits}, SESSION wait_timeout = {idle}")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_timer()
        self._connection.close()
        self._ender.close()

    def acquire(self, mode: LockMode, deadline: float) -> Held:
        """Acquire the lock. Returns the mode that was possible, for the account may lack the grant to flush."""
        pause, tries, holders = _FIRST_PAUSE, 0, list[LockHolder]()
        while True:
            holders = self._in_the_way(mode)
            if not holders:
                try:
                    self._request(mode)
                    return Held(mode, self.longest_ms, self._keep_alive)
                except AccessDenied as error:
                    if mode == "flush":
                        mode = "tables"
                        continue
                    raise AccessDenied(
                        f"the snapshot may lock neither the server nor its tables: {error.message}",
                        remedy="GRANT RELOAD ON *.*, or LOCK TABLES and SELECT on the databases, to the account",
                    ) from error
                except SourceError as error:
                    if mode == "flush" and error_code(error) == ER.OPTION_PREVENTS_STATEMENT:
                        mode = "tables"  # as a service's server says that it allows nobody to flush
                        continue
                    if error_code(error) not in (ER.LOCK_WAIT_TIMEOUT, *error_numbers.KILLED):
                        raise
                tries += 1
                holders = self._in_the_way(mode) or lock_waits.suspects(self._source)
            if tries >= _TRIES or time.monotonic() + pause > deadline:
                raise self._blocked(mode, holders)
            if time.monotonic() - self._began > _SAID_AFTER:
                self._say(f"the read lock waits for {lock_waits.named(holders)}")
            time.sleep(pause)  # the writers that queued behind a request go first
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _in_the_way(self, mode: LockMode) -> list[LockHolder]:
        if mode == "flush":
            return lock_waits.flush_holders(self._source)
        return lock_waits.table_holders(self._source, self._names)

    def _request(self, mode: LockMode) -> None:
        listed = ", ".join(f"{name.quoted} READ" for name in self._names)
        self._since = time.monotonic()
        self._start_timer("QUERY", self._limit / 2)
        try:
            self._connection.execute("FLUSH TABLES WITH READ LOCK" if mode == "flush" else f"LOCK TABLES {listed}")
        except BaseException:
            self._stop_timer()
            self._unlock()
            raise
        self._stop_timer()
        self._start_timer("CONNECTION", self._limit - (time.monotonic() - self._since))

    def lift_limit(self) -> None:
        self._stop_timer()

    def release(self) -> None:
        """Let writes continue. Raises Busy where the lock was gone before."""
        self._stop_timer()
        try:
            self._unlock()
        except SourceError as error:
            raise Busy(
                f"the read lock was released after {self._limit:g} s, before all read views were open",
                remedy="run again when the server is less busy, or let writes wait for longer: "
                "snapshot.max_writes_stopped in the YAML",
            ) from error

    def _unlock(self) -> None:
        try:
            self._connection.execute("UNLOCK TABLES")
        finally:
            self.longest_ms = max(self.longest_ms, (time.monotonic() - self._since) * 1000)

    def _keep_alive(self) -> None:
        self._connection.execute("DO 0")

    def _start_timer(self, what: str, seconds: float) -> None:
        self._timer = threading.Timer(max(0.0, seconds), self._end, [what])
        self._timer.daemon = True
        self._timer.start()

    def _end(self, what: str) -> None:
        with suppress(SourceError):  # it has ended by itself
            self._ender.execute(f"KILL {what} {self._number}")

    def _stop_timer(self) -> None:
        """Cancel the timer; one that is at work is waited for, so that it can't end the next statement."""
        if self._timer:
            self._timer.cancel()
            self._timer.join()
            self._timer = None

    def _blocked(self, mode: LockMode, holders: Sequence[LockHolder]) -> LockBlocked:
        what = "on the server" if mode == "flush" else "on its tables"
        return LockBlocked(
            f"the read lock {what} can't be had without writes waiting for more than {self._limit:g} s: in its way is"
            f" {lock_waits.named(holders)}",
            remedy="run again when that statement or transaction has ended (SHOW PROCESSLIST shows it),"
            " or take the snapshot without a lock: --lock none",
            holders=holders,
        )
