"""Servers that the tests of a run share."""

from __future__ import annotations

from contextlib import ExitStack

from servers import RELEASES, Kind, Server


class SharedServers:
    """One server of each kind and release, started when a test first asks for it."""

    def __init__(self, life: ExitStack) -> None:
        self._life = life
        self._running: dict[tuple[Kind, str], Server] = {}

    def of(self, kind: Kind) -> Server:
        key = kind, RELEASES[kind]
        if key not in self._running:
            self._running[key] = self._life.enter_context(Server(kind))
        return self._running[key]
