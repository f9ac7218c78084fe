"""Turns of threads that merge a few rows each.

Python runs one thread at a time, and a thread that comes back from Arrow waits for the one that runs. Four threads that
merge fifty small tables take a half more CPU than one, and no less time. So small tables are merged one after the
other, by a thread that gives its turn up before work that lets the others run: much of it in Arrow, or by Spark. Until
then it takes the next table, too, as each thread has memory of its own: four that take turns ask the system for four
times as much, which takes as long as the merge of 10,000 rows. Where a store lets its threads wait, all of them run at
once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

QUICK_BYTES = 1_000_000
"""Bytes of Parquet files that are read and written in some ten milliseconds."""
_WAITING = 3.0
"""How many times the CPU time of its turns a store's waiting makes them last."""
_own = threading.local()
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class QuickWork(NamedTuple):
    """Quick work on an item. do: raises nothing, and lets the future have what comes of it."""

    future: Future[Any]
    do: Callable[[], object]


class Turns:
    """The turns of one batch's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: float = 0.0
        self._cpu_seconds: float = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for this thread's turn, which lasts until the end or until ``leave``."""
        self._lock.acquire()
        if self._seconds > _WAITING * self._cpu_seconds:
            self._lock.release()
            yield
            return
        _own.turns, _own.began = self, (time.monotonic(), time.thread_time())
        try:
            yield
        finally:
            if getattr(_own, "turns", None) is self:
                self._seconds, self._cpu_seconds = self._spent()
                leave()

    def take_all(self, jobs: deque[QuickWork]) -> None:
        """Take jobs and do them in this thread's turns, until all are taken. A turn lasts for all of them, unless a job
        leaves it, or the store lets threads wait."""
        while jobs:
            with self.taken():
                while jobs:
                    try:
                        job = jobs.popleft()
                    except IndexError:  # another thread took the last one
                        break
                    job.do()
                    del job  # the traceback of an error leads to this frame, too
                    if not self._lasts():
                        break

    def _lasts(self) -> bool:
        """Return whether this thread has a turn, in which no store lets it wait."""
        if getattr(_own, "turns", None) is not self:
            return False
        seconds, cpu_seconds = self._spent()
        return bool(seconds <= _WAITING * cpu_seconds)

    def _spent(self) -> tuple[float, float]:
        """Return the seconds of all turns, with those of this thread's so far, and of these the CPU seconds."""
        began, began_cpu = cast("tuple[float, float]", _own.began)
        return self._seconds + (time.monotonic() - began), self._cpu_seconds + (time.thread_time() - began_cpu)


def leave() -> None:
    """Give this thread's turn up, where it has one."""
    turns: Turns | None = getattr(_own, "turns", None)
    if turns is not None:
        _own.turns = None
        turns._lock.release()


def submitted(
    pool: ThreadPoolExecutor,
    threads: int,
    work: Callable[[_Item], _Made],
    items: Sequence[_Item],
    is_quick: Callable[[_Item], bool],
) -> list[Future[_Made]]:
    """Let a pool of so many threads work on items, and return a future for each. The quick ones take turns, behind the
    others."""
    futures: list[Future[_Made]] = []
    quick: deque[QuickWork] = deque()
    for item in items:
        if is_quick(item):
            futures.append(Future())
            quick.append(QuickWork(futures[-1], partial(_fulfil, futures[-1], work, item)))
        else:
            futures.append(pool.submit(work, item))
    in_turn = Turns()
    for _ in range(min(threads, len(quick))):
        pool.submit(in_turn.take_all, quick).add_done_callback(partial(_pass_on, quick))
    return futures


def _pass_on(jobs: deque[QuickWork], taking: Future[None]) -> None:
    """Give the error of a thread that took jobs to the futures of those that no thread took, so that nobody waits for
    them without end."""
    while (error := taking.exception()) is not None and jobs:
        try:
            future = jobs.popleft().future
        except IndexError:  # another thread took the last one
            break
        if future.set_running_or_notify_cancel():
            future.set_exception(error)


def _fulfil(future: Future[_Made], work: Callable[[_Item], _Made], item: _Item) -> None:
    """Work on an item, unless its future is cancelled; the future gets what is returned or raised."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work(item))
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future  # the error's traceback holds this frame, which would hold the error
