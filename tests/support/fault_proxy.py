"""A network that fails: a TCP proxy on this machine that spoils what a server sends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

_PIECE = 1 << 14
"""Bytes forwarded at once."""


class FaultProxy:
    """Forwards to ``port`` what reaches ``self.port``; both are on loopback. Faults may be changed at any moment.

    cut_after: bytes from the server, of each connection, after which it is cut. stall_after: the same, after which
    nothing goes either way any more while the connection stays open. delay: seconds before each piece from the server.
    """

    def __init__(self, port: int) -> None:
        self.cut_after: int | None = None
        self.stall_after: int | None = None
        self.delay = 0.0
        self.connections: list[int] = []
        """Bytes that the server has sent, connection by connection."""
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> FaultProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for connection in self._sockets:
            _hang_up(connection)
        for thread in self._threads:
            thread.join()

    def forward_to(self, port: int) -> None:
        """Forward what connects from now on to another server."""
        self._target = port

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 10)
            except OSError:  # it is down
                _hang_up(client)
                continue
            server.settimeout(None)
            self._sockets += [client, server]
            number = len(self.connections)
            self.connections.append(0)
            self._start(self._to_server, client, server, number)
            self._start(self._to_client, server, client, number)

    def _to_server(self, client: socket.socket, server: socket.socket, number: int) -> None:
        with suppress(OSError):
            while data := client.recv(_PIECE):
                self._wait_while_stalled(number)
                server.sendall(data)
        _hang_up(client, server)

    def _to_client(self, server: socket.socket, client: socket.socket, number: int) -> None:
        with suppress(OSError):
            while data := server.recv(_PIECE):
                self._over.wait(self.delay)
                while data:
                    self._wait_while_stalled(number)
                    piece = data[: min(self._left(number, self.stall_after), self._left(number, self.cut_after))]
                    if not piece:
                        raise ConnectionAbortedError
                    client.sendall(piece)
                    self.connections[number] += len(piece)
                    data = data[len(piece) :]
        _hang_up(client, server)

    def _left(self, number: int, most: int | None) -> int:
        """How many more bytes may go before a fault."""
        return _PIECE if most is None else max(0, most - self.connections[number])

    def _wait_while_stalled(self, number: int) -> None:
        while not self._left(number, self.stall_after):
            if self._over.wait(0.02):
                raise ConnectionAbortedError


def _hang_up(*sockets: socket.socket) -> None:
    for connection in sockets:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            connection.close()


class DeafListener:
    """A port that answers no attempt to connect: its queue is full, and nobody takes from it."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._queued: list[socket.socket] = []

    def __enter__(self) -> DeafListener:
        for _ in range(4):
            attempt = socket.socket()
            attempt.setblocking(False)
            attempt.connect_ex(("127.0.0.1", self.port))
            self._queued.append(attempt)
        time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (*self._queued, self._listener):
            connection.close()
