"""Peers that prove nothing lock nobody out of the relay, and hold no connection for long."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from binlake.errors import UsageError
from binlake.relay import connections, tcp
from binlake.relay.connections import Connections, Limits
from binlake.relay.http_frame import LEAST_SECRET, read_secret
from own_relay import SECRET, served
from relay_client import AUTHENTICATE, RelayClient, fnv1a, text

HALF = b"POST /clients HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{"


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "UNPROVED_SECONDS", 1.0)
    monkeypatch.setattr(tcp, "STARTED_SECONDS", 1.0)
    with served(tmp_path) as (port, made):
        made.connections = Connections(Limits(all=12, unproved=6))
        yield port


def registered(port: int, name: str) -> int:
    """The status of a registration over HTTP."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        body = json.dumps({"name": name})
        headers = {"Authorization": f"Bearer {SECRET.decode()}", "Content-Type": "application/json"}
        connection.request("POST", "/clients", body, headers)
        return connection.getresponse().status


@pytest.mark.parametrize(
    "sent", [b"", b"\x02", HALF, HALF[:20]], ids=["silent", "a byte", "half a body", "half a head"]
)
def test_held_connections_lock_nobody_out(port: int, sent: bytes) -> None:
    with ExitStack() as held, RelayClient(port) as steady:
        assert steady.authenticate("steady", SECRET) == 0
        for _ in range(40):
            peer = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            peer.sendall(sent)
        assert registered(port, "web") == 200
        with RelayClient(port) as late:
            assert late.authenticate("late", SECRET) == 0
        assert steady.ping() == 0


def trickle(peer: socket.socket, data: bytes) -> None:
    """Send a byte at a time. Raises ConnectionError once the connection is closed."""
    peer.settimeout(0.1)
    for byte in data:
        peer.sendall(bytes([byte]))
        with suppress(TimeoutError):
            if peer.recv(4096) == b"":
                raise ConnectionResetError


@pytest.mark.parametrize("first", [b"\x02", HALF, b"GET /ping HTTP/1.1\r\n"], ids=["binary", "body", "head"])
def test_a_byte_now_and_then_keeps_no_connection_open(port: int, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(first)
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            trickle(peer, b"a" * 100)
        assert time.monotonic() < began + 5


def test_a_known_client_s_packet_has_a_deadline_and_its_silence_has_none(port: int) -> None:
    with RelayClient(port) as client:
        assert client.authenticate("slow", SECRET) == 0
        time.sleep(1.5)
        assert client.ping() == 0
        login = client.packet(AUTHENTICATE, struct.pack("<QII", fnv1a(SECRET), 0, 0) + text("slow"))
        with pytest.raises(ConnectionError):
            trickle(client.socket, login[:40])


def test_a_wrong_secret_proves_nothing(port: int) -> None:
    with RelayClient(port) as stranger:
        assert stranger.authenticate("stranger", b"another secret of theirs") != 0
        stranger.socket.settimeout(5)
        assert stranger.socket.recv(1) == b""


def test_clients_that_proved_who_they_are_fill_all_places(port: int) -> None:
    with ExitStack() as open_clients:
        for number in range(12):
            client = open_clients.enter_context(RelayClient(port))
            assert client.authenticate(f"client {number}", SECRET) == 0
        with RelayClient(port) as one_more, pytest.raises(ConnectionError):
            one_more.ping()


def test_many_at_once_are_served(port: int) -> None:
    states: list[int] = []
    threads = [threading.Thread(target=lambda: states.append(registered(port, "same"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert states == [200] * 4


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(mode)
    with pytest.raises(UsageError, match="every account may") as caught:
        read_secret(str(path))
    assert f"chmod 600 {path}" in caught.value.remedy
    path.chmod(0o640)
    assert read_secret(str(path)) == SECRET


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    for secret in (b"", b"a" * (LEAST_SECRET - 1)):
        path.write_bytes(secret + b"\nmore that doesn't count")
        with pytest.raises(UsageError, match=f"{len(secret)} bytes"):
            read_secret(str(path))
