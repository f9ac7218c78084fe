"""Start of Spark's JVM: the lines that every start prints are kept out of a run's log."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Protocol

from binlake.errors import SparkNeeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SessionFactory(Protocol):
    """Return the Spark session; called only when there is work for one.

    why: what needs Spark, in words for the run's log.
    """

    def __call__(self, why: str, /) -> SparkSession:
        """Return the session, which is started if needed."""


@dataclass
class SessionAsked:
    """A session factory that keeps the first reason for which it was asked: why Spark was started.

    session: gives the session. why: empty where it wasn't asked.
    """

    session: SessionFactory
    why: str = ""

    def __call__(self, why: str, /) -> SparkSession:
        """Return the session, and keep the first reason."""
        self.why = self.why or why
        return self.session(why)


def no_session(why: str) -> NoReturn:
    """Refuse to start Spark, in the place of a session factory. Raises SparkNeeded with the reason."""
    raise SparkNeeded(f"Spark is needed: {why}")


_STARTING = re.compile(
    r"Using incubator modules: jdk[.]incubator[.]vector|Using Spark's default log4j profile|WARN NativeCodeLoader:"
    r"|INFO SparkContext: (Running Spark version|OS info|Java version)|Setting (Spark|default) log level to"
    r"|To adjust logging level use|WARN Utils: (Your hostname, .* resolves to|Set SPARK_LOCAL_IP if you need)"
)


def is_worth_reading(line: str) -> bool:
    """Return whether a line isn't one that every start of Spark prints."""
    return not _STARTING.search(line)


def start(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process with Spark's settings, unless it has one; relay its standard error by the line."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    reading, writing = os.pipe()
    relaying = threading.Thread(target=_relay, args=(reading,), name="spark's errors", daemon=True)
    relaying.start()
    try:
        conf = SparkConf().setAll(list(settings.items()))
        with interrupted_afterwards():
            gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writing)
        relaying.join(1)  # why it didn't start
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Hold Ctrl-C back until the JVM is there: PySpark would remove the folder that a starting JVM writes its address
    into, and a JVM that can't write it never ends."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number, frame in heard[:1]:
        before(number, frame)


def _relay(reading: int) -> None:
    """Print the lines that are worth reading until the JVM, and the Python workers it started, are gone."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if is_worth_reading(line):
                print(line, end="", file=sys.stderr, flush=True)
