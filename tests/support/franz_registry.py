"""franz-go's in-memory schema registry: what somebody else took the documented HTTP API to be."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from types import TracebackType
from typing import Any
from urllib.parse import quote

import peers

NAME = "franz_registry"


class FranzRegistry:
    """In a process of its own. It checks no compatibility. Raises PeerMissing where it can't be had."""

    def __init__(self, wanted: str | None = None) -> None:
        """wanted: the one Authorization that is let in, None: any."""
        self._wanted = wanted
        self._program = peers.built(NAME) / "peer"

    def __enter__(self) -> FranzRegistry:
        wanted = [self._wanted] if self._wanted else []
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([self._program, *wanted], stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30)

    def get(self, *path: str | int) -> Any:
        """What it answers to a plain GET."""
        address = f"{self.url}/{'/'.join(quote(str(part), safe='') for part in path)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)
