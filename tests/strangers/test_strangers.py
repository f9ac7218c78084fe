"""Whatever a server's own test suite does, the lake equals the server, or the table says why it is stopped.

The same sample each time, so that a change is judged by what it did: `make soak` draws others.
``BINLAKE_STRANGERS_SEED`` takes another, ``BINLAKE_STRANGERS_SECONDS`` a server (default 20) says how far. What
stopped or was snapshotted again is printed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers import Kind

RUN = Path(__file__).with_name("run.py")
SECONDS = float(os.environ.get("BINLAKE_STRANGERS_SECONDS", "20"))
SEED = int(os.environ.get("BINLAKE_STRANGERS_SEED") or 496352)
HEAP = "4g"
"""Of a process of its own: what strangers do to Java's memory is no other test's."""


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.usefixtures("new_server", "new_spark")
@pytest.mark.parametrize("kind", [pytest.param("mysql", marks=pytest.mark.soak), "mariadb"])
def test_the_lake_equals_the_server_or_says_why_it_stands_still(kind: Kind) -> None:
    command = [sys.executable, str(RUN), kind, str(SECONDS / 60), str(SEED), "sampled"]
    environment = {**os.environ, "BINLAKE_DRIVER_MEMORY": HEAP}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ran:
        try:
            output, errors = ran.communicate(timeout=SECONDS + 800)
        except subprocess.TimeoutExpired:
            os.killpg(ran.pid, signal.SIGKILL)
            raise
    print(output)
    assert ran.returncode == 0, f"BINLAKE_STRANGERS_SEED={SEED}\n{output}\n{errors[-4000:]}"
    assert "'equal': " in output
