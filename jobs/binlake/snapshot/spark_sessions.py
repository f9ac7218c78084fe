"""Spark's sessions for the copies and commits of a snapshot; Spark is started where one of them is first needed."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from binlake.errors import UsageError
from binlake.spark import settings
from binlake.spark.starting import SessionFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.session import OwnSessions


class SparkSessions:
    """session: gives the application's session."""

    def __init__(self, session: SessionFactory) -> None:
        self._session = session
        self._lock = Lock()
        self._for_copies: OwnSessions | None = None
        self._for_commits: OwnSessions | None = None

    def started(self, why: str) -> SparkSession:
        """Return the application's session. Raises UsageError if Spark may retry or speculate: such a task would open a
        later view under an old position."""
        session = self._session(why)
        conf = session.sparkContext.getConf()
        local = settings.is_local(str(session.sparkContext.master))
        if not local and conf.get("spark.task.maxFailures", "4") != "1":
            raise UsageError(
                "spark.task.maxFailures isn't 1", remedy="submit the job with --conf spark.task.maxFailures=1"
            )
        if conf.get("spark.speculation", "false") == "true":
            raise UsageError("spark.speculation is on", remedy="submit the job with --conf spark.speculation=false")
        return session

    def for_copies(self, why: str) -> OwnSessions:
        """Return sessions with binlake's SQL functions."""
        from binlake.spark import functions
        from binlake.spark.session import OwnSessions

        with self._lock:
            if self._for_copies is None:
                self._for_copies = OwnSessions(self.started(why), functions.register)
            return self._for_copies

    def for_commits(self, why: str) -> OwnSessions:
        """Return sessions each of whose users may set Delta's options."""
        from binlake.spark.session import OwnSessions

        with self._lock:
            if self._for_commits is None:
                self._for_commits = OwnSessions(self.started(why))
            return self._for_commits
