"""The Spark session of a command, a job or a task: started when a step first asks for it, and its reason is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class SessionOnDemand:
    """A session factory that builds one session, whichever thread asks first.

    name: of the application. The options are those of ``session.build``; more and short_lived are asked when the
    session is built. replaces_active: the process's session ends first, because some settings are fixed by its first.
    """

    name: str
    config: PipelineConfig
    report: Report
    tasks: int | None = None
    master: str | None = None
    more: Callable[[], Mapping[str, str]] = dict
    short_lived: Callable[[], bool] = lambda: False
    replaces_active: bool = False
    _built: SparkSession | None = field(default=None, init=False)
    _idle_since: float | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __call__(self, why: str) -> SparkSession:
        """Return the session; build it where there is none, or where it ended by itself. why: said in the run's log."""
        with self._lock:
            died = self._built is not None and not self._lives(self._built)
            if died:
                self._built = None
            if self._built is None:
                self.report.say(f"{'Spark ended by itself, and' if died else 'Spark'} is needed: {why}")
                self._built = self._build()
            self._idle_since = None
            return self._built

    def rest(self, seconds: float) -> None:
        """Note that nothing uses the session now. It ends, with its JVM, in a call that comes this many seconds after
        the first one without a use between them."""
        with self._lock:
            if self._built is None:
                return
            if self._idle_since is None:
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since >= seconds:
                from binlake.spark import session

                self._built = None
                session.end()
                self.report.say(f"Spark ended: nothing needed it for {seconds:,.0f} s")

    @staticmethod
    def _lives(built: SparkSession) -> bool:
        """Return whether the session can be worked with; what is left of one that died is ended."""
        from binlake.spark import session

        if not (lives := session.lives(built)):
            session.end()
        return lives

    def _build(self) -> SparkSession:
        from binlake.spark import session

        if self.replaces_active:
            session.stop_active()
        return session.build(
            self.name,
            spark=self.config.spark,
            master=self.master,
            tasks=self.tasks,
            short_lived=self.short_lived(),
            more=self.more(),
            lake=self.config.root,
        )
