"""A run in a process of its own that stops at a named point, as one does that the system puts to sleep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mirror import SHORT_LIVED, Mirror
from servers import die_with_parent

STOPPED = Path(__file__).with_name("stopped.py")
SECONDS = 300


class Frozen:
    """A process of its own that runs the command line, frozen at a point until it is woken."""

    def __init__(self, mirror: Mirror, folder: Path) -> None:
        self._mirror = mirror
        self._folder = folder
        variables = {"AIRFLOW_CONN_TESTS": mirror.server.uri(), "SPARK_MASTER": "local[2]"}
        self._log = open(folder / "log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, str(STOPPED), str(folder)],
            env={**os.environ, **SHORT_LIVED, **variables},
            stdout=self._log,
            stderr=self._log,
            preexec_fn=die_with_parent,
        )
        self._wait()

    def _wait(self) -> None:
        """Until it stops itself."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
            if pid and os.WIFSTOPPED(status):
                return
            assert not pid, f"it ended: {(self._folder / 'log').read_text()}"
            time.sleep(0.02)
        raise AssertionError("it neither stopped nor ended")

    def run(self, point: str, *arguments: str) -> None:
        """Frozen at the point, holding the lease."""
        self._done.unlink(missing_ok=True)
        command = [point, [arguments[0], "--config", str(self._mirror.write_yaml()), *arguments[1:]]]
        (self._folder / "next").write_text(json.dumps(command))
        self.process.send_signal(signal.SIGCONT)
        self._wait()
        assert not self._done.exists(), f"it came to its end: {self._done.read_text()}"

    def wake(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        self.process.send_signal(signal.SIGCONT)
        self._wait()
        code, said = json.loads(self._done.read_text())
        return code, said

    @property
    def _done(self) -> Path:
        return self._folder / "done"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
