"""Handling of Ctrl-C at any time: it prints one line and exits with the code that shells use.

This module imports quickly.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType

EXIT_CODE = 130
"""The exit code of shells: 128 plus the signal's number."""
SAID = "binlake: interrupted; run again to go on, nothing is lost\n"

GRACE, MOST = 3.0, 4.5
"""Seconds that a step has after the end was asked for: then it is interrupted, and then the process ends."""

_caught: list[int] = []


def end_at_once() -> bool:
    """Let an interrupt end the process at once, while modules are imported. Returns False if it is ignored (nohup).

    No work can be lost then, and an extension module may turn a KeyboardInterrupt into any error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _end)
    return True


def raise_from_here_on() -> None:
    """Let an interrupt raise KeyboardInterrupt, as Python does by itself, and remember that it came."""
    signal.signal(signal.SIGINT, _raise)


def was_raised() -> bool:
    """Tell whether an interrupt came, whatever became of the KeyboardInterrupt."""
    return bool(_caught)


class Ending:
    """The wish that a long-lived process ends, which comes by SIGTERM or Ctrl-C, and interrupts its waiting."""

    def __init__(self) -> None:
        self.asked = False
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def listen(self) -> None:
        """Take SIGTERM and SIGINT for the wish from here on; a step that goes on for longer is interrupted."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def ask(self) -> None:
        """Let the process end. A signal's handler may call it: it takes no lock."""
        self.asked = True
        os.write(self._writing, b"!")

    def wait(self, seconds: float) -> None:
        """Return once the end is asked for, or after some seconds."""
        if seconds > 0 and not self.asked:
            select.select([self._reading], [], [], seconds)

    def over(self) -> None:
        """Interrupt nothing any more: what was at work has ended."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            return
        self.ask()
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        last = threading.Timer(MOST, os._exit, (0,))  # a library may swallow the interrupt, or wait behind it
        last.daemon = True
        last.start()


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, SAID.encode())
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    _caught.append(number)
    raise KeyboardInterrupt
