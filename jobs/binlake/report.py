"""What a run says while it works: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

_PLAIN_INTERVAL = 5.0
_BAR_INTERVAL = 0.1
_WIDTH = 30


class Report:
    """Lines and progress of one run, written to ``stream`` (standard error: standard output is for results)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._last = 0.0
        self._bar_shown = False
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """One line."""
        with self._lock:
            self._clear()
            print(text, file=self._stream, flush=True)

    def progress(self, what: str, done: float, total: float, detail: str = "") -> None:
        """How far ``what`` has come; cheap to call often."""
        now = time.monotonic()
        with self._lock:
            if now - self._last < (_BAR_INTERVAL if self._terminal else _PLAIN_INTERVAL):
                return
            self._last = now
            share = min(1.0, done / total) if total else 0.0
            text = f"{what} {share:4.0%} {detail}".rstrip()
            if self._terminal:
                filled = "█" * int(share * _WIDTH)
                self._clear()
                self._stream.write(f"\r{filled:░<{_WIDTH}} {text}")
                self._stream.flush()
                self._bar_shown = True
            else:
                print(text, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._bar_shown:
            self._stream.write("\r\x1b[2K")
            self._bar_shown = False
