"""A submitted job ends with the process that submitted it, also where that is killed outright.

Who submits holds a lock on a file; the kernel gives it back when the process is gone, whatever ended it. The job waits
for the lock in a thread of its own: when it gets it, nobody waits for the job any more. Nothing of this is asked by
the engine: a job may be killed anywhere.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from contextlib import suppress
from typing import IO

LOCK_FILE = "BINLAKE_SUBMITTER_LOCK"
"""The variable that names the file to a job; without it the job lives by itself."""
_GRACE, _LOOK_AGAIN = 10.0, 0.1
"""Seconds that the JVM has to remove its files, and between two looks."""


def hold(path: str) -> IO[str] | None:
    """Who submits: take the lock, for as long as the file that it gives is open; None where the file system has no
    locks: then the job lives by itself."""
    file = open(path, "w")  # noqa: SIM115  # kept open; neither the job nor its JVM inherits it
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        file.close()
        return None
    return file


def end_with_submitter() -> None:
    """The job: end, and the JVM that runs it, once the submitter is gone."""
    if path := os.environ.get(LOCK_FILE):
        threading.Thread(target=_wait, args=(path,), name="submitter", daemon=True).start()


def _wait(path: str) -> None:
    with suppress(FileNotFoundError), open(path) as file:  # removed: whoever held it is gone, too
        fcntl.flock(file, fcntl.LOCK_SH)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit's JVM started this process
        _end(os.getppid())
    os._exit(128 + signal.SIGTERM)


def _end(jvm: int) -> None:
    deadline = time.monotonic() + _GRACE
    with suppress(ProcessLookupError):
        os.kill(jvm, signal.SIGTERM)
        while time.monotonic() < deadline and os.getppid() == jvm:
            time.sleep(_LOOK_AGAIN)
        if os.getppid() == jvm:
            os.kill(jvm, signal.SIGKILL)
