"""Handling of Ctrl-C at any time: it prints one line and exits with the code that shells use.

This module imports quickly.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130
"""The exit code of shells: 128 plus the signal's number."""
SAID = "binlake: interrupted; run again to continue, nothing is lost\n"

GRACE, MOST = 2.5, 4.0
"""Seconds that a step has after the end was asked for: then it is interrupted, and then the process ends."""
_ENDING = (signal.SIGTERM, signal.SIGINT)

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
    """Return whether an interrupt came, whatever became of the KeyboardInterrupt."""
    return bool(_caught)


@contextmanager
def without_waiting() -> Iterator[None]:
    """Let a KeyboardInterrupt end the process once what is inside has cleaned up: threads that are at work can't be
    stopped, and aren't waited for."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        _end(signal.SIGINT, None)


class Ending:
    """The wish that a long-lived process ends, which comes by SIGTERM or Ctrl-C, and interrupts its waiting."""

    def __init__(self) -> None:
        self.asked = False
        self.is_pause = False
        """It is asked for as the process is paused, not ended for good."""
        self._is_over = False
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def listen(self) -> None:
        """Take SIGTERM and SIGINT for the wish from here on. They interrupt a step that still runs, as long as ``over``
        isn't called."""
        heard, telling = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(telling, False)
        for number in _ENDING:
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGUSR2, _raise)
        # The main thread runs handlers once its present call returns; the descriptor is written to at once.
        signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(heard,), name="ending", daemon=True).start()

    def ask(self, *, is_pause: bool = False) -> None:
        """Let the process end. A signal's handler may call it: it takes no lock."""
        self.is_pause, self.asked = is_pause, True
        os.write(self._writing, b"!")

    def wait(self, seconds: float) -> None:
        """Return once the end is asked for, or after some seconds."""
        if seconds > 0 and not self.asked:
            select.select([self._reading], [], [], seconds)

    def over(self) -> None:
        """Stop interrupting: the step that was at work has ended."""
        self._is_over = True

    def _listen(self, heard: int) -> None:
        while os.read(heard, 1)[0] not in _ENDING:
            continue
        self.ask()
        time.sleep(GRACE)
        if not self._is_over:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        time.sleep(MOST - GRACE)
        os._exit(0)  # a library may swallow the interrupt, or wait behind it


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, SAID.encode())
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    _caught.append(number)
    raise KeyboardInterrupt
