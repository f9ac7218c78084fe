"""Debezium's own embedded engine on a live server, its messages as its JSON converter writes them."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import peers
from servers import Kind, Server, die_with_parent

CONNECTORS = {
    "mysql": ("debezium", "io.debezium.connector.mysql.MySqlConnector", "disabled"),
    "mariadb": ("debezium_mariadb", "io.debezium.connector.mariadb.MariaDbConnector", "disable"),
}
"""Of a server the peer whose libraries have its connector, the connector, and its word for no TLS."""
SHORT_LIVED = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
WAIT_SECONDS = 90


@dataclass(frozen=True)
class Message:
    """One message. value: None is a tombstone."""

    topic: str
    key: Any
    value: Any
    headers: dict[str, Any]


def build(kind: Kind) -> None:
    """The engine and the server's connector. Raises PeerMissing."""
    for name in ("debezium", CONNECTORS[kind][0]):
        peers.built(name)


class RealDebezium:
    """The engine, from its snapshot of a database on. Raises PeerMissing where it can't be had."""

    def __init__(self, server: Server, database: str, folder: Path, **settings: str) -> None:
        """settings: the connector's, with ``_`` for ``.``"""
        self._libraries, connector, plain = CONNECTORS[server.kind]
        build(server.kind)
        storage = "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"
        history = "io.debezium.relational.history.MemorySchemaHistory"
        properties = {
            "name": "tests", "topic.prefix": "tests", "connector.class": connector,
            "offset.storage": storage, "schema.history.internal": history, "database.hostname": "127.0.0.1",
            "database.port": str(server.port), "database.user": "root", "database.password": "",
            "database.server.id": "7300", "database.ssl.mode": plain, "database.include.list": database,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }  # fmt: skip
        self._settings, self._errors = folder / "debezium.properties", folder / "debezium.errors"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._lines: queue.Queue[bytes] = queue.Queue()

    def __enter__(self) -> RealDebezium:
        command = [*peers.java("debezium", "Messages", *SHORT_LIVED, libraries=self._libraries), str(self._settings)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, preexec_fn=die_with_parent)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def until(self, last: Callable[[Message], bool]) -> list[Message]:
        """Its next messages, with the last of them."""
        messages: list[Message] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while not (messages and last(messages[-1])):
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line, f"Debezium ended:\n{self._errors.read_text()[-3000:]}"
            if line.startswith(b'{"topic"'):
                messages.append(Message(**json.loads(line)))
        return messages

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
