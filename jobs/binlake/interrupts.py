"""Ctrl-C, whenever it comes: one line, and the exit code of shells.

Nothing here takes time to import.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_CODE = 130
"""As shells tell it: 128 and the signal's number."""
SAID = "binlake: interrupted; run again to go on, nothing is lost\n"

_caught: list[int] = []


def end_at_once() -> bool:
    """While modules are imported nothing is at work, and what an extension module makes of a KeyboardInterrupt can be
    any error: an interrupt ends the process where it stands. Gives False where the caller ignores it (nohup)."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _end)
    return True


def raise_from_here_on() -> None:
    """As Python does by itself, but known afterwards."""
    signal.signal(signal.SIGINT, _raise)


def was_raised() -> bool:
    """Whether an interrupt came, whatever became of the KeyboardInterrupt."""
    return bool(_caught)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, SAID.encode())
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    _caught.append(number)
    raise KeyboardInterrupt
