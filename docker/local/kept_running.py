"""Programs that are kept running: one that ends is started again, and one line says so."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

SHORTEST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds from an end to the next start; they double for a program that ends again and again."""
STEADY = 60.0
"""Seconds after which a program runs well, so that its next end counts as the first one."""
STOP_SECONDS = 30.0


@dataclass
class _Program:
    """A program, and when it is to be started again where it ended: None while it runs."""

    process: subprocess.Popen[bytes]
    begun: float
    wait: float = SHORTEST_WAIT / 2
    due: float | None = None


class KeptRunning:
    """Programs by name, each the leader of a process group of its own."""

    def __init__(
        self,
        start: Callable[[str], subprocess.Popen[bytes]],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._say, self._clock = start, say, clock
        self._programs: dict[str, _Program] = {}

    def begin(self, name: str) -> None:
        """Start a program, and keep it running from now on."""
        self._programs[name] = _Program(self._start(name), self._clock())

    def ended(self) -> list[str]:
        """Return the names of programs that don't run now."""
        return [name for name, program in self._programs.items() if program.process.poll() is not None]

    def look(self) -> None:
        """Start those again that ended; each only after a wait, which its end begins."""
        for name, program in self._programs.items():
            if program.process.poll() is None:
                continue
            if program.due is None:
                self._await_start(name, program)
            elif self._clock() >= program.due:
                program.process, program.begun, program.due = self._start(name), self._clock(), None

    def _await_start(self, name: str, program: _Program) -> None:
        _signal_group(program.process, signal.SIGKILL)  # what it had started would work beside the next one
        now = self._clock()
        is_first = now - program.begun > STEADY
        program.wait = SHORTEST_WAIT if is_first else min(2 * program.wait, LONGEST_WAIT)
        program.due = now + program.wait
        self._say(f"{name} ended ({_how(program.process.returncode)}): it is started again in {program.wait:g} s")

    def stop(self) -> None:
        """End all of them, and what they started."""
        for program in self._programs.values():
            _signal_group(program.process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for program in self._programs.values():
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(max(0.1, deadline - time.monotonic()))
            _signal_group(program.process, signal.SIGKILL)
            program.process.wait()


def _signal_group(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
