"""Whatever bytes come to the relay's port: an error reply or a closed connection, the others are served, and no memory
stays behind."""

from __future__ import annotations

import random
import resource
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from binlake.errors import FeedError
from binlake.relay.packets import Header, authentication, event, filter_fields, hash_of
from own_relay import SECRET, served
from relay_client import ADD_FILTER, AUTHENTICATE, RelayClient, event_of, fnv1a, text

MOST_GROWTH = 48 << 20
"""Bytes of this process's memory, over all the packets of a run."""


def known_packets(client: RelayClient) -> list[bytes]:
    """One of each kind, as they should be."""
    login = struct.pack("<QII", fnv1a(SECRET), 0, 0) + text("fuzz")
    wanted = struct.pack("<BBI", 7, 1, 10) + text("shop") + text("orders")
    return [
        client.packet(1), client.packet(AUTHENTICATE, login), client.packet(ADD_FILTER, wanted), client.packet(4),
        b"POST /poll HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nAuthorization: Bearer x\r\n\r\n" + b"{" * 9,
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
    ]  # fmt: skip


def spoiled(chance: random.Random, packet: bytes) -> bytes:
    data = bytearray(packet)
    for _ in range(chance.randrange(4)):
        what = chance.randrange(5)
        at = chance.randrange(max(1, len(data)))
        if what == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del data[at:]
        elif what == 2:
            data[at:at] = chance.randbytes(chance.choice((1, 40, 5000)))
        elif what == 3 and len(data) >= 8:
            data[4:8] = chance.choice((b"\xff" * 4, b"\0\0\0\x7f", b"\0\x10\0\0"))
        else:
            data += packet * chance.randrange(50)
    return bytes(data)


def thrown(port: int, data: bytes, chance: random.Random) -> None:
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        if chance.random() < 0.7:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            with suppress(TimeoutError):
                while connection.recv(65536):
                    pass


def memory() -> int:
    """Bytes, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz(folder: Path, seconds: float, seed: int) -> int:
    """Packets thrown."""
    chance = random.Random(seed)
    with served(folder) as (port, _), RelayClient(port) as steady:
        assert steady.authenticate("steady", SECRET) == 0
        packets = known_packets(steady)
        for _ in range(50):
            thrown(port, chance.choice(packets), chance)
        before, count, end = memory(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            thrown(port, spoiled(chance, chance.choice(packets)), chance)
            count += 1
            if count % 50 == 0:
                assert steady.ping() == 0
                assert steady.poll() == 0xFC
        assert memory() - before < MOST_GROWTH
    return count


def test_any_bytes_are_answered_or_refused(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 10, seed=1) > 100


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_any_bytes_for_ten_minutes(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 600, seed=int(time.time())) > 5000


def test_an_endless_payload_is_refused_unread(tmp_path: Path) -> None:
    """4 GB are announced; as much as is looked at is let go at once."""
    with served(tmp_path) as (port, _), RelayClient(port) as client:
        before = memory()
        client.socket.sendall(struct.pack("<HHIIIIIII", 4, 0, 200 << 20, client.version, 1, 1, 0, 0, 0))
        for _ in range(200):
            client.socket.sendall(bytes(1 << 20))
        assert client.reply()[0] == 0xFF  # the checksum is wrong
        assert memory() - before < MOST_GROWTH
    with served(tmp_path) as (port, _), RelayClient(port) as client:
        client.socket.sendall(struct.pack("<HHIIIIIII", 4, 0, 0xFFFFFFFF, client.version, 1, 1, 0, 0, 0))
        assert client.reply()[0] == 0xFF


def test_who_reads_no_answers_is_no_burden(tmp_path: Path) -> None:
    with served(tmp_path) as (port, _), RelayClient(port) as client, RelayClient(port) as other:
        before = memory()
        client.socket.settimeout(2)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(2000):
                client.socket.sendall(client.packet(1) * 1000)
        assert other.ping() == 0
        assert memory() - before < MOST_GROWTH


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "relay.json").write_text('{"next_id": 1, "clients": [')
    with pytest.raises(FeedError, match=r"relay\.json is damaged"), served(tmp_path):
        pass


def test_packets_are_as_described() -> None:
    """Values worked out by hand from the description."""
    assert hash_of(b"") == 0xCBF29CE484222325
    assert hash_of(b"a") == 0xAF63DC4C8601EC8C
    header = Header.parse(bytes.fromhex("0400 0000 02000000 20000100 07000000 09000000 36000100 00000000 00000000"))
    assert (header.command, header.payload_size, header.client_id, header.client_token) == (4, 2, 7, 9)
    assert header.sum == header.checksum
    assert authentication(bytes(16) + b"\x03\0\0\0ab\0") == (0, "ab")
    fields = filter_fields(b"\x03\x01\x0a\0\0\0\x02\0\0\0s\0\x02\0\0\0t\0")
    assert (fields.operations, fields.discard, fields.queue_limit, fields.database, fields.table) == (
        3,
        1,
        10,
        "s",
        "t",
    )
    made = event_of(event(2, 1 << 40, 5, ("s", "t"), [("c", b"old", None)]))
    assert (made.type, made.position, made.queue_size, made.values) == (2, 1 << 40, 5, {"c": ("old", "NULL")})
