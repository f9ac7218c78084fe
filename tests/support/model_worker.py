"""Workers of the protocol's model: processes, as far as the engine can tell, of which one runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from binlake.lease.holder import Machine


class Killed(BaseException):
    """The worker's process is gone: whatever it still tries comes to nothing."""


class Waiting(Exception):
    """Nothing happens before the lock is free."""


class Schedule:
    """All workers, and the one that runs now: None while the test itself does."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.running: Worker | None = None

    def start(self, host: str, job: str, work: Callable[[], object]) -> Worker:
        """Return a new worker, which stands before its first access."""
        worker = Worker(self, len(self.workers) + 1, host, job, work)
        self.workers.append(worker)
        return worker

    def reach(self, point: str) -> None:
        """Let the running worker stop or die here."""
        if self.running:
            self.running.reach(point)

    def stopping_at(self, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that reaches the point, and then does what ``call`` does."""

        def reached(*arguments: Any, **options: Any) -> Any:
            self.reach(point)
            return call(*arguments, **options)

        return reached

    # what the engine asks of the operating system --------------------------------------------------------------------
    def getpid(self) -> int:
        return self.running.pid if self.running else 0

    def machine(self) -> Machine:
        return Machine(self.running.host if self.running else "", "boot", 1)

    def start_of(self, pid: int) -> int:
        """Return the start time of a process; 0 where there is none of this number."""
        alive = any(worker.pid == pid and not worker.dead and not worker.ended for worker in self.workers)
        return pid if alive else 0


class Worker:
    """A process that does one job."""

    def __init__(self, schedule: Schedule, pid: int, host: str, job: str, work: Callable[[], object]) -> None:
        self.pid = pid
        self.host = host
        self.job = job
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None
        self.until = ""
        self.renew: Callable[[], None] | None = None
        self._schedule = schedule
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.dead:
                self._work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self._stopped.release()

    def run(self, until: str = "") -> None:
        """Go on up to a point, or to the end; called by the test."""
        self.until = until
        before, self._schedule.running = self._schedule.running, self
        self._go.release()
        self._stopped.acquire()
        self._schedule.running = before

    def reach(self, point: str) -> None:
        """Stop here if the test said so; called by the worker."""
        if not self.dead and point == self.until:
            self._stopped.release()
            self._go.acquire()
        if self.dead:
            raise Killed

    def kill(self) -> None:
        self.dead = True
        self.run()
        self._thread.join()


class RenewingThread:
    """The thread that renews a lease: it runs when the test says so."""

    def __init__(self, schedule: Schedule, target: Callable[[], None]) -> None:
        self._worker = schedule.running
        self._target = target

    def start(self) -> None:
        if self._worker:
            self._worker.renew = self._target

    def join(self) -> None:
        if self._worker:
            self._worker.renew = None


class RenewingEvent:
    """Ends every second wait early, so that a lease is renewed once between two of them."""

    def __init__(self) -> None:
        self._set = False
        self._waits = 0

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float) -> bool:
        self._waits += 1
        return self._set or self._waits % 2 == 0


class Lock:
    """A lock that refuses who would wait: a worker that sleeps with it would stop its renewing thread for ever."""

    def __init__(self) -> None:
        self._taken = False

    def __enter__(self) -> None:
        if self._taken:
            raise Waiting
        self._taken = True

    def __exit__(self, *error: object) -> None:
        self._taken = False


def submit_at_once(pool: object, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Do what a thread pool is given in the caller's thread: a pool's threads would not be the test's."""
    future: Future[Any] = Future()
    try:
        future.set_result(work(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future
