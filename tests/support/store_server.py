"""A server of objects of the tests' own: a process that listens on loopback until its ``with`` block ends."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import servers

START_SECONDS = 60


class StoreServer(ABC):
    """A server that isn't started yet. name: for messages. folder: in which it runs. port: on which it listens."""

    def __init__(self, name: str, program: Path, folder: Path) -> None:
        self._name, self._program = name, program
        self.folder = folder
        self.port = servers.free_port()

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return the command that starts it."""

    @abstractmethod
    def _account(self) -> Mapping[str, str]:
        """Return the variables of its environment that name its account."""

    def __enter__(self) -> Self:
        if not self._program.is_file():
            raise AssertionError(f"no {self._program}: run docker/local/setup.sh tests")
        self._process = subprocess.Popen(
            self._command(),
            cwd=self.folder,
            env={**os.environ, **self._account()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=servers.die_with_parent,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self._process.poll() is None, f"the {self._name} server ended"
                assert time.monotonic() < deadline, f"the {self._name} server doesn't answer"
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
