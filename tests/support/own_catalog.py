"""A catalog in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from servers import die_with_parent


@contextmanager
def running(*arguments: str) -> Iterator[str]:
    """A catalog with options, by its address."""
    command = [sys.executable, "-m", "binlake.cli.command_line", "catalog", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "the catalog listens on " in said
        try:
            yield said.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
