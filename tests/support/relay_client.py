"""A client of the relay's binary protocol, written from the protocol's description alone."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType

VERSION = 0x00010020
PING, AUTHENTICATE, ADD_FILTER, POLL, POLLV2 = 1, 2, 3, 4, 5


def fnv1a(secret: bytes) -> int:
    value = 14695981039346656037
    for byte in secret:
        value = ((value ^ byte) * 1099511628211) % 2**64
    return value


def text(value: str) -> bytes:
    data = value.encode() + b"\0"
    return struct.pack("<I", len(data)) + data


@dataclass(frozen=True)
class Column:
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Event:
    type: int
    position: int
    queue_size: int
    schema: str
    table: str
    columns: tuple[Column, ...]

    @property
    def values(self) -> dict[str, tuple[str, str]]:
        return {column.name: (column.before, column.after) for column in self.columns}


class RelayClient:
    """On one connection. id_first: the reply to AUTHENTICATE is read as described, or as the original's clients do."""

    def __init__(self, port: int, *, version: int = VERSION, id_first: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.id = self.token = 0
        self.version, self.id_first = version, id_first

    def __enter__(self) -> RelayClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def packet(self, command: int, payload: bytes = b"") -> bytes:
        fields = (command, 0, len(payload), self.version, self.id, self.token)
        checksum = (sum(fields) + sum(payload)) % 2**32
        return struct.pack("<HHIIIIIII", *fields, checksum, 0, 0) + payload

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the relay closed the connection")
            data += piece
        return data

    def reply(self) -> tuple[int, bytes]:
        result, size, checksum = struct.unpack("<BII", self.receive(9))
        payload = self.receive(size)
        assert checksum == (result + size + sum(payload)) % 2**32
        return result, payload

    def command(self, command: int, payload: bytes = b"") -> tuple[int, bytes]:
        self.socket.sendall(self.packet(command, payload))
        return self.reply()

    def ping(self) -> int:
        return self.command(PING)[0]

    def authenticate(self, name: str, secret: bytes) -> int:
        result, payload = self.command(AUTHENTICATE, struct.pack("<QII", fnv1a(secret), 0, 0) + text(name))
        if result == 0 and self.id_first:
            self.id, self.token = struct.unpack_from("<II", payload)
        elif result == 0:
            self.token, self.id = struct.unpack("<8xII", payload)
        return result

    def add_filter(self, operations: int, schema: str, table: str, *, discard: int = 0, limit: int = 0) -> int:
        payload = struct.pack("<BBI", operations, discard, limit) + text(schema) + text(table)
        return self.command(ADD_FILTER, payload)[0]

    def poll(self, payload: bytes = b"", command: int = POLL) -> Event | int:
        """An event, or the result without one. payload: what old clients send along. command: POLLV2 by others."""
        result, data = self.command(command, payload)
        return event_of(data, numbered=command == POLLV2) if result == 0 else result

    def poll_all(self) -> list[Event]:
        events: list[Event] = []
        while isinstance(event := self.poll(), Event):
            events.append(event)
        return events


def event_of(data: bytes, *, numbered: bool = False) -> Event:
    """numbered: a number stands before the names, and the relay's behind the queue's size."""
    kind, position, queue_size = struct.unpack_from("<BQI", data)
    at = 17 if numbered else 13

    def name() -> str:
        nonlocal at
        at += 4 if numbered else 0
        return string()

    def string() -> str:
        nonlocal at
        (size,) = struct.unpack_from("<I", data, at)
        piece = data[at + 4 : at + 4 + size]
        at += 4 + size
        assert piece.endswith(b"\0")
        return piece[:-1].decode()

    schema, table = name(), name()
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    columns = tuple(Column(name(), string(), string()) for _ in range(count))
    assert at == len(data)
    return Event(kind, position, queue_size, schema, table, columns)
