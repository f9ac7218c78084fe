"""The Spark session of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from binlake.errors import UsageError
from binlake.lake import settings


def build(
    name: str,
    *,
    master: str | None = None,
    tasks: int | None = None,
    short_lived: bool = False,
    more: Mapping[str, str] | None = None,
    lake: str = "",
) -> SparkSession:
    """A session with the project's settings; under spark-submit its master and launch settings stand.

    short_lived: the JVM ends before optimised code would pay.
    tasks: how many must run at once, where no master is given; those that wait for a server need no core of their own.
    more: settings beyond the project's. lake: its root. Raises UsageError when the jars aren't there.
    """
    if not any(settings.JARS.glob("delta-spark*.jar")):
        raise UsageError(f"no Spark jars in {settings.JARS}", remedy="run binlake setup")
    settings.refuse_missing_jars(lake)
    # Spark's context takes the workers' Python from here alone: spark.pyspark.python is spark-submit's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit
        builder = builder.master(master or os.environ.get("SPARK_MASTER") or _on_this_machine(tasks))
        builder = builder.config("spark.default.parallelism", str(os.cpu_count() or 2)) if tasks else builder
        for key, value in settings.launch_settings(short_lived=short_lived).items():
            builder = builder.config(key, value)
    for key, value in {**settings.session_settings(os.cpu_count() or 2), **(more or {})}.items():
        if value:
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", str(max(2, session.sparkContext.defaultParallelism)))
    _keep_rows_out_of_logs(session)
    return session


def stop_active() -> None:
    """End the process's session, if it has one: some settings are those of its first alone."""
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()


def _on_this_machine(tasks: int | None) -> str:
    return f"local[{max(tasks, os.cpu_count() or 1)}]" if tasks else "local[*]"


def of_this_thread(session: SparkSession) -> SparkSession:
    """A session of a thread's own, with the application's settings.

    Delta and the parser of expressions ask for the thread's active session; PySpark makes none but the first active.
    """
    own: SparkSession = session.newSession()
    jvm: Any = session.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own._jsparkSession)
    return own


def _keep_rows_out_of_logs(session: SparkSession) -> None:
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for logger in settings.LOGGERS_THAT_QUOTE_ROWS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
