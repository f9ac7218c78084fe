"""Apicurio's schema registry in memory: a real one, by whose rules a schema is compatible or isn't."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import peers
from real_debezium import SHORT_LIVED
from servers import die_with_parent, free_port

NAME = "apicurio"
START_SECONDS = 90


class ApicurioRegistry:
    """In a process of its own, up within seconds. Its log is in ``folder``. Raises PeerMissing where it can't be had.

    It is Confluent's API by others: their own registry's words and ids it doesn't prove, nor who is let in.
    """

    def __init__(self, folder: Path) -> None:
        (self._program,) = (peers.built(NAME) / "target" / "app").glob("*-runner.jar")
        self._log = folder / "apicurio.log"
        port = free_port()
        self._settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": port}
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def __enter__(self) -> ApicurioRegistry:
        properties = [f"-D{name}={value}" for name, value in self._settings.items()]
        command = ["java", *SHORT_LIVED, *properties, "-jar", str(self._program)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_up():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the registry doesn't answer"
            time.sleep(0.2)
        return self

    def _is_up(self) -> bool:
        try:
            return bool(self.get("subjects") == [])
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def get(self, *path: str | int) -> Any:
        """What it answers to a plain GET."""
        address = f"{self.url}/{'/'.join(quote(str(part), safe='') for part in path)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)
