"""A submitted job ends with the process that submitted it, even if that is killed.

The submitter holds a lock on a file, which the kernel releases when the process ends, for any reason. The job waits
for the lock in a thread: once it gets the lock, the submitter is gone, and the job ends itself. The engine doesn't
depend on this: a job may be killed anywhere.
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
"""The environment variable that names the file to a job; without it the job doesn't depend on a submitter."""
_GRACE, _LOOK_AGAIN = 10.0, 0.1
"""Seconds that the JVM has to remove its files, and between two checks."""


def hold(path: str) -> IO[str] | None:
    """Take the lock as submitter; return the open file that holds it. None if the file system has no locks: then the
    job doesn't depend on the submitter."""
    file = open(path, "w")  # noqa: SIM115  # kept open; neither the job nor its JVM inherits it
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        file.close()
        return None
    return file


def end_with_submitter() -> None:
    """Have the job and its JVM end once the submitter is gone."""
    if path := os.environ.get(LOCK_FILE):
        threading.Thread(target=_wait, args=(path,), name="submitter", daemon=True).start()


def _wait(path: str) -> None:
    with suppress(FileNotFoundError), open(path) as file:  # removed: the submitter is gone, too
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
