"""Handling of Ctrl-C at any time: it prints one line and exits with the code that shells use.

This module imports quickly.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_CODE = 130
"""The exit code of shells: 128 plus the signal's number."""
SAID = "binlake: interrupted; run again to go on, nothing is lost\n"

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


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, SAID.encode())
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    _caught.append(number)
    raise KeyboardInterrupt
