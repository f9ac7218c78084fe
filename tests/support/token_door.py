"""A server that takes tokens: a proxy that asks for them over TLS by mysql_clear_password, before a real server."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pymysql
from pymysql.constants import CLIENT

_OFFERED = (
    CLIENT.LONG_PASSWORD | CLIENT.FOUND_ROWS | CLIENT.LONG_FLAG | CLIENT.CONNECT_WITH_DB | CLIENT.PROTOCOL_41
    | CLIENT.SSL | CLIENT.TRANSACTIONS | CLIENT.SECURE_CONNECTION | CLIENT.MULTI_STATEMENTS | CLIENT.MULTI_RESULTS
    | CLIENT.PLUGIN_AUTH | CLIENT.CONNECT_ATTRS | CLIENT.PLUGIN_AUTH_LENENC_CLIENT_DATA
)  # fmt: skip
"""What the connection to the real server has, too: behind the handshake bytes are forwarded as they are."""
_UTF8MB4 = 255
_SALT = b"12345678"
DENIED = 1045


class TokenDoor:
    """Listens on ``self.port``. takes: whether a user's token is a good one now. tokens: those that it took."""

    def __init__(self, port: int, files: tuple[Path, Path], takes: Callable[[str, str], bool]) -> None:
        self.tokens: list[str] = []
        self._target, self._takes = port, takes
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*files)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._over = False
        with self._connected() as connection:
            self._version = connection.get_server_info().encode()

    def __enter__(self) -> TokenDoor:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._listener.close()

    def _connected(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self._target, user="root", charset="utf8mb4", autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )  # fmt: skip

    def _accept(self) -> None:
        while not self._over:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError):
            _send(client, 0, self._greeting())
            _receive(client)  # what TLS is asked for by
            with self._context.wrap_socket(client, server_side=True) as secure:
                user = _receive(secure)[32:].partition(b"\0")[0].decode()
                _send(secure, 3, b"\xfemysql_clear_password\0")
                token = _receive(secure).rstrip(b"\0").decode()
                if not self._takes(user, token):
                    said = f"Access denied for user '{user}'@'localhost' (using password: YES)"
                    _send(secure, 5, b"\xff" + struct.pack("<H", DENIED) + b"#28000" + said.encode())
                    return
                self.tokens.append(token)
                with self._connected() as server:
                    _send(secure, 5, b"\0\0\0\x02\0\0\0")
                    _forward(secure, server._sock)

    def _greeting(self) -> bytes:
        low, high = _OFFERED & 0xFFFF, _OFFERED >> 16
        head = b"\x0a" + self._version + b"\0" + struct.pack("<I", 1) + _SALT + b"\0"
        rest = struct.pack("<HBHHB", low, _UTF8MB4, 2, high, 21) + bytes(10) + b"123456789012\0"
        whole: bytes = head + rest + b"mysql_native_password\0"
        return whole


def _send(stream: socket.socket, number: int, body: bytes) -> None:
    stream.sendall(struct.pack("<I", len(body))[:3] + bytes([number]) + body)


def _receive(stream: socket.socket) -> bytes:
    head = _exactly(stream, 4)
    return _exactly(stream, int.from_bytes(head[:3], "little"))


def _exactly(stream: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = stream.recv(size - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read


def _forward(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Forward both ways, until either side hangs up."""
    server.settimeout(None)

    def to_client() -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _hang_up(client)

    back = threading.Thread(target=to_client, daemon=True)
    back.start()
    with suppress(OSError):
        while data := client.recv(1 << 16):
            server.sendall(data)
    _hang_up(server)
    back.join()


def _hang_up(stream: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(stream, socket.SHUT_RDWR)


def is_signed_for_rds(token: str, secret: str, *, host: str, user: str, region: str) -> bool:
    """Whether a token is what Amazon describes ("Authenticating with IAM", "Signature Version 4"), and of now."""
    parts = urlsplit(f"https://{token}")
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    signature = query.pop("X-Amz-Signature")
    at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if (parts.netloc, query["Action"], query["DBUser"]) != (host, "connect", user):
        return False
    if not 0 <= (datetime.now(UTC) - at).total_seconds() + 1 <= int(query["X-Amz-Expires"]):
        return False
    day, scope = f"{at:%Y%m%d}", f"{at:%Y%m%d}/{region}/rds-db/aws4_request"
    canonical = "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    request = f"GET\n/\n{canonical}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{hashed}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, "rds-db", "aws4_request", to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(key.hex(), signature)
