"""The Spark session of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from binlake.config import SparkConfig
from binlake.kernels.cores import available_cores
from binlake.spark import cluster, settings, starting
from binlake.storage import stores


def build(
    name: str,
    *,
    spark: SparkConfig | None = None,
    master: str | None = None,
    tasks: int | None = None,
    short_lived: bool = False,
    more: Mapping[str, str] | None = None,
    lake: str = "",
) -> SparkSession:
    """Build a session with the project's settings, and what the executors of a cluster need. Under spark-submit its
    master and settings are kept.

    spark: of the YAML; the variables SPARK_MASTER and PYSPARK_PYTHON go before it. short_lived: the JVM ends before
    optimised code would pay. tasks: how many must run at once, where no master is given; those that wait for a server
    need no core of their own. more: settings beyond these. lake: its root. Raises UsageError where the jars lack,
    ConfigurationError and SetupFailed, see settings.check and cluster.ready.
    """
    settings.refuse_missing_jars(lake)
    given = settings.launch_settings(spark, short_lived=short_lived, lake=lake)
    cores = available_cores()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        submitted = _submitted()
        settings.check(submitted)
        where = submitted.get("spark.master", "")
        given = {key: value for key, value in given.items() if key not in submitted}
    else:
        submitted = {}
        where = master or settings.master_given(spark) or _on_this_machine(tasks)
        given["spark.master"] = where
    # Spark's context takes the workers' Python from here alone: spark.pyspark.python is spark-submit's.
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    wanted = {**settings.session_settings(cores, where, lake), **given, **(more or {})}
    if tasks and settings.is_local(where):
        wanted.setdefault("spark.default.parallelism", str(cores))
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    builder_settings = {
        key: value
        for key, value in {**wanted, **settings.FIXED}.items()
        if value and (key not in submitted or key in settings.FIXED)
    }
    for key, value in builder_settings.items():
        builder = builder.config(key, value)
    starting.start({"spark.app.name": name, **builder_settings})
    session = builder.getOrCreate()
    _keep_rows_out_of_logs(session)
    tell_store(session.sparkContext, lake)
    if not settings.is_local(where):
        cluster.ship(session.sparkContext, lake)
        cluster.ready(session.sparkContext, lake)
    for key, value in settings.sizes(session.sparkContext.defaultParallelism).items():
        if key not in given and key not in submitted:
            session.conf.set(key, value)
    return session


def lives(built: SparkSession) -> bool:
    """Return whether a session can be worked with: its JVM runs, and nobody ended its application, as a cluster may.

    Under spark-submit the process ends with its JVM.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    try:
        context = built.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def stop_active() -> None:
    """End the process's session, if it has one: some settings are fixed by its first session."""
    # The active one is a thread's own, and a merge makes it in the thread that needs it first.
    if (made := SparkSession._instantiatedSession) is not None:
        try:
            made.stop()
        except (Py4JError, OSError):  # its JVM died; a second stop asks it no more
            made.sparkContext.stop()
            SparkSession._instantiatedSession = SparkSession._activeSession = None


def end() -> None:
    """End the process's session and its JVM, so that a later session starts another. Both may have ended already."""
    gateway = SparkContext._gateway
    stop_active()
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(OSError):
        gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait()


def _submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _on_this_machine(tasks: int | None) -> str:
    return f"local[{max(tasks, available_cores())}]" if tasks else "local[*]"


def of_this_thread(session: SparkSession) -> SparkSession:
    """Return a session of this thread's own, with the application's settings.

    Delta and the parser of expressions ask for the thread's active session; PySpark makes none but the first active.
    """
    own: SparkSession = session.newSession()
    for key in settings.sizes(1):  # a new session has the context's values, set before the cluster was known
        own.conf.set(key, str(session.conf.get(key)))
    _activate(own)
    return own


def _activate(own: SparkSession) -> None:
    jvm: Any = own.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own._jsparkSession)


class OwnSessions:
    """Sessions that threads take by turns, for a new one costs more than a small table.

    made: what else each gets once.
    """

    def __init__(self, session: SparkSession, made: Callable[[SparkSession], None] = lambda own: None) -> None:
        self._session = session
        self._made = made
        self._idle: SimpleQueue[SparkSession] = SimpleQueue()

    @property
    def context(self) -> SparkContext:
        """Return the context that all these sessions share."""
        return self._session.sparkContext

    @contextmanager
    def lend(self) -> Iterator[SparkSession]:
        """Lend a session, which is the thread's active one and nobody else's meanwhile."""
        try:
            own = self._idle.get_nowait()
            _activate(own)
        except Empty:
            own = of_this_thread(self._session)
            self._made(own)
        try:
            yield own
        finally:
            self._idle.put(own)


def tell_store(context: SparkContext, lake: str) -> None:
    """Tell executors where the store is, and the account that Hadoop doesn't find itself.

    Both go with each task, so that they are in no setting that Spark shows or logs. This is done for a session that was
    there before, too.
    """
    if stores.store_of(lake) is None:
        return
    stores.check(lake)
    store = stores.at(lake)
    java_context: Any = context._jsc
    of_hadoop = {key.removeprefix("spark.hadoop."): value for key, value in store.spark_settings().items()}
    for key, value in {**of_hadoop, **store.hadoop_account()}.items():
        if value and not key.startswith("spark."):
            java_context.hadoopConfiguration().set(key, value)
    context.environment |= store.variables()


def _keep_rows_out_of_logs(session: SparkSession) -> None:
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for logger in settings.LOGGERS_THAT_QUOTE_ROWS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
