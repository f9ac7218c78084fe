"""What a stranger in a server's place gets of the password: a proof that it is known, never the password."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1

from binlake.doctor.server_checks import proof_of_server
from binlake.errors import BinlakeError, ConfigurationError
from binlake.source.authentication import CACHED, HASHED, SHA256
from binlake.source.connection import connect, parse_airflow_connection
from binlake.source.endpoint import Endpoint

PASSWORD = "s3cret of tests"
SALT = b"12345678901234567890"
NETWORK = "0.0.0.0"
"""An address that leads to this machine, and isn't known to."""
_CAPABILITIES = 0x00_0F_A2_05 | 0x00_08_00_00
"""LONG_PASSWORD, LONG_FLAG, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH; no TLS."""


class Impostor:
    """A server that asks for the password, and keeps what it was sent. greeting: the plugin that it begins with."""

    def __init__(self, greeting: str, plugin: str) -> None:
        self.sent = b""
        self._greeting, self._plugin = greeting, plugin
        self._key = rsa.generate_private_key(65537, 2048)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def serve(self) -> None:
        peer, _ = self._listening.accept()
        with peer:
            peer.settimeout(5)
            low, high = struct.pack("<I", _CAPABILITIES)[:2], struct.pack("<I", _CAPABILITIES)[2:]
            salt = SALT[:8] + b"\0" + low + b"\x2d\x02\x00" + high + b"\x15" + bytes(10) + SALT[8:] + b"\0"
            greeting = b"\x0a9.7.0\0" + struct.pack("<I", 7) + salt + self._greeting.encode() + b"\0"
            self._exchange(peer, 0, greeting)
            number = 2
            if self._plugin != self._greeting:
                data = b"\x03Password: " if self._plugin == "dialog" else SALT + b"\0"
                number = self._exchange(peer, number, b"\xfe" + self._plugin.encode() + b"\0" + data)
            if self._plugin == CACHED:
                number = self._exchange(peer, number, b"\x01\x04")
            if self._plugin in (CACHED, SHA256):
                form = serialization.PublicFormat.SubjectPublicKeyInfo
                key = self._key.public_key().public_bytes(serialization.Encoding.PEM, form)
                self._exchange(peer, number, b"\x01" + key)

    def _exchange(self, peer: socket.socket, number: int, packet: bytes) -> int:
        peer.sendall(struct.pack("<I", len(packet))[:3] + bytes([number]) + packet)
        answer = peer.recv(1 << 16)
        self.sent += answer
        return number + 2

    def knows(self, password: str) -> bool:
        """Return whether the password is in what was sent, in clear or under this server's key."""
        if password.encode() in self.sent:
            return True
        oaep = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)
        try:
            plain = self._key.decrypt(self.sent[-256:], oaep)
        except ValueError:
            return False
        return bytes(byte ^ SALT[at % 20] for at, byte in enumerate(plain)) == password.encode() + b"\0"

    def close(self) -> None:
        self._listening.close()


@contextmanager
def asking(greeting: str, plugin: str) -> Iterator[Impostor]:
    impostor = Impostor(greeting, plugin)

    def serve() -> None:
        with suppress(OSError):  # the client goes, as it should
            impostor.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield impostor
        thread.join(10)
    finally:
        impostor.close()


ASKED = [
    *((HASHED, plugin) for plugin in ("mysql_clear_password", "dialog", SHA256, CACHED)), (SHA256, SHA256),
    (CACHED, CACHED),
]  # fmt: skip


@pytest.mark.parametrize(("greeting", "plugin"), ASKED)
def test_a_server_that_nothing_proves_does_not_get_the_password(greeting: str, plugin: str) -> None:
    with asking(greeting, plugin) as impostor, pytest.raises(BinlakeError) as caught:
        connect(Endpoint(NETWORK, impostor.port, "u", PASSWORD))
    assert impostor.sent
    assert not impostor.knows(PASSWORD)
    if greeting != SHA256:  # which was answered as if another plugin had been asked for
        assert plugin in str(caught.value)
        assert "ssl.ca" in caught.value.remedy
        assert "allow_cleartext" in caught.value.remedy


@pytest.mark.parametrize(("greeting", "plugin"), ASKED)
@pytest.mark.parametrize("allowed", ["this machine", "by its owner"])
def test_a_server_on_this_machine_or_that_may_gets_it(greeting: str, plugin: str, allowed: str) -> None:
    host = "127.0.0.1" if allowed == "this machine" else NETWORK
    with asking(greeting, plugin) as impostor, pytest.raises(BinlakeError):  # it hangs up
        connect(Endpoint(host, impostor.port, "u", PASSWORD, allow_cleartext=allowed == "by its owner"))
    assert impostor.knows(PASSWORD)


def test_the_connection_s_extra_can_allow_it() -> None:
    assert parse_airflow_connection("mysql://u:p@h/?allow_cleartext=true", name="X").sends_password
    assert not parse_airflow_connection("mysql://u:p@h/?allow_cleartext=false", name="X").sends_password
    with pytest.raises(ConfigurationError, match="allow_cleartext"):
        parse_airflow_connection("mysql://u:p@h/?allow_cleartext=yes", name="X")


@pytest.mark.parametrize(
    ("host", "tls", "proved"),
    [
        ("127.0.0.1", (), True),
        ("::1", (), True),
        ("localhost", (), True),
        ("localhost.example", (), False),
        ("10.0.0.7", (), False),
        ("10.0.0.7", (("ca", "/ca.pem"),), True),
        ("10.0.0.7", (("ca", "/ca.pem"), ("verify_mode", "none")), False),
    ],
)
def test_doctor_warns_of_a_network_without_verified_tls(
    host: str, tls: tuple[tuple[str, str], ...], proved: bool
) -> None:
    endpoint = Endpoint(host, 3306, "u", "p", tls)
    assert endpoint.sends_password is proved
    warnings = list(proof_of_server(endpoint))
    assert [check.ok for check in warnings] == ([] if proved else ["warn"])
    assert all("ssl.ca" in check.remedy for check in warnings)
