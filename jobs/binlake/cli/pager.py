"""The pager that shows a query's rows at the prompt: PAGER, else less where it is installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

_LESS = {"LESS": "FSX", "LESSSECURE": "1"}
"""Rows that fit on the screen are printed, long lines aren't wrapped. Nothing else can be begun from the pager, so that
who may only query can do no more."""


def command() -> list[str]:
    """Return the pager's command; empty where there is none."""
    words = shlex.split(os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else []


@contextmanager
def opened(words: list[str]) -> Iterator[IO[bytes]]:
    """Open a pager, and wait until it is left. Writing ends if the user leaves the pager before all is written."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, env={**_LESS, **os.environ, "LESSSECURE": "1"})
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for a pager. Ctrl-C is its own meanwhile."""
    while True:
        with suppress(KeyboardInterrupt):
            process.wait()
            return
