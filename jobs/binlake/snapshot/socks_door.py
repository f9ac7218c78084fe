"""A server behind a tunnel, for Spark's JDBC in the driver: a SOCKS proxy on loopback that leads to this server alone.

Java connects to an address, where the process has a channel. As a proxy and not as a forwarded port, so that the server
keeps its name, by which its certificate is verified.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from binlake.caches import once
from binlake.source.tunnel import Tunnel

_VERSION, _CONNECT = 5, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_DONE, _NOT_ALLOWED = b"\0", b"\2"
_PIECE = 1 << 18
"""Bytes forwarded at once."""


def options(tunnel: Tunnel, host: str, port: int) -> dict[str, str]:
    """Return Connector/J's options that lead through a tunnel to the server."""
    return {
        "socksProxyHost": "127.0.0.1",
        "socksProxyPort": str(_listening(tunnel, host, port)),
        "socksProxyRemoteDns": "true",
    }


@once
def _listening(tunnel: Tunnel, host: str, port: int) -> int:
    """Begin to listen for as long as this process lives, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, tunnel, host, port), daemon=True).start()

    threading.Thread(target=accept, name="socks door", daemon=True).start()
    bound: int = listener.getsockname()[1]
    return bound


def _serve(client: socket.socket, tunnel: Tunnel, host: str, port: int) -> None:
    """Lead one connection to the server; hang up where it asks for another one, or the tunnel doesn't lead there."""
    with client, suppress(OSError, EOFError, ValueError):
        if _wanted(client) != (host.strip("[]").lower(), port):
            client.sendall(bytes([_VERSION]) + _NOT_ALLOWED + b"\0\1" + bytes(6))
            return
        channel = tunnel.opened(host, port)
        try:
            client.sendall(bytes([_VERSION]) + _DONE + b"\0\1" + bytes(6))
            first = channel.socket.recv(_PIECE)
            channel.answered()
            client.sendall(first)
            if first:
                _forward(client, channel.socket)
        finally:
            channel.close()


def _wanted(client: socket.socket) -> tuple[str, int]:
    """Return the host and port that a client asks for (RFC 1928)."""
    version, methods = _exactly(client, 2)
    _exactly(client, methods)
    client.sendall(bytes([_VERSION, 0]))  # no authentication: the server asks for its own
    version, command, _, kind = _exactly(client, 4)
    if (version, command) != (_VERSION, _CONNECT):
        raise ValueError("no SOCKS 5")
    if kind == _NAME:
        host = _exactly(client, _exactly(client, 1)[0]).decode("ascii").lower()
    elif kind == _IPV4:
        host = socket.inet_ntop(socket.AF_INET, _exactly(client, 4))
    else:
        host = socket.inet_ntop(socket.AF_INET6, _exactly(client, 16))
    (port,) = struct.unpack(">H", _exactly(client, 2))
    return host.strip("[]"), port


def _exactly(stream: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = stream.recv(size - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read


def _forward(client: socket.socket, server: socket.socket) -> None:
    """Forward both ways until either side hangs up."""

    def forwarded(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                target.sendall(data)
        for stream in (source, target):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=forwarded, args=(server, client), daemon=True)
    back.start()
    forwarded(client, server)
    back.join()
