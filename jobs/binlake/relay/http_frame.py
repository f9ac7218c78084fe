"""Parts that servers of HTTP share: connections that are counted, requests that have bounds, and secrets from files."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import stat
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from binlake.errors import UsageError
from binlake.relay.connections import Connection, Connections

if TYPE_CHECKING:
    from fastapi import Request

LEAST_SECRET = 16
"""Bytes of the shortest secret."""
MOST_BODY = 1 << 20
"""The most bytes of a request."""

CONNECTION, _PROVED = "connection", "proved"
"""Names in a request's state: its connection, and whether it has shown a secret or a key."""
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]


class BoundedRequests:
    """An ASGI application whose requests have MOST_BODY bytes at most, and are complete before their connection ends.

    A connection whose request showed a secret or a key is noted as proved.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer an HTTP request. Raises HTTPException 413 for a body of more than MOST_BODY bytes."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        state: dict[str, Any] = scope["state"]
        connection: Connection = state[CONNECTION]
        seen = 0

        async def bounded() -> _Scope:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MOST_BODY:
                from fastapi import HTTPException  # it may not be installed, and a command says so

                raise HTTPException(413, "the request is too large")
            if not message.get("more_body", False):
                connection.may_stay()
            return message

        if not _has_body(scope):
            connection.may_stay()
        try:
            await self._application(scope, bounded, send)
        finally:
            if state.get(_PROVED) and not connection.is_proved:
                connection.prove()
            connection.must_end_soon()  # unless the next request is complete by then


def _has_body(scope: _Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def note_proof(request: Request) -> None:
    """Note that a request has shown a secret or a key."""
    setattr(request.state, _PROVED, True)


def _authorization(request: Request, scheme: str) -> str:
    """Return what a request sends of a scheme of authorization, empty without."""
    given, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if given.lower() == scheme else ""


def bearer_token(request: Request) -> str:
    """Return the token that a request sends as ``Authorization: Bearer TOKEN``, empty without."""
    return _authorization(request, "bearer")


def basic_credentials(request: Request) -> tuple[bytes, bytes]:
    """Return the name and the password that a request sends, as a browser's dialog has them; both empty without."""
    try:
        name, _, password = base64.b64decode(_authorization(request, "basic"), validate=True).partition(b":")
    except ValueError:
        return b"", b""
    return name, password


class HttpServer:
    """An ASGI application that is served on connections, each by a protocol of its own."""

    def __init__(self, application: Any) -> None:
        import uvicorn
        from uvicorn.server import ServerState

        self._config = uvicorn.Config(
            BoundedRequests(application), http="h11", ws="none", lifespan="off",
            log_config=None, access_log=False, server_header=False, h11_max_incomplete_event_size=1 << 16,
        )  # fmt: skip
        self._config.load()
        self._state = ServerState()

    def protocol(self, connection: Connection) -> asyncio.Protocol:
        """Make the protocol of a connection."""
        kind: Any = self._config.http_protocol_class
        made = kind(config=self._config, server_state=self._state, app_state={CONNECTION: connection})
        lost: Callable[[Exception | None], None] = made.connection_lost

        def counted(error: Exception | None) -> None:
            connection.gone()
            lost(error)

        made.connection_lost = counted
        protocol: asyncio.Protocol = made
        return protocol


class HttpConnection(asyncio.Protocol):
    """Protocol of a connection to a port that speaks HTTP alone."""

    def __init__(self, server: HttpServer, connections: Connections) -> None:
        self._server, self._connections = server, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection and hand it to HTTP, or close it where there are too many."""
        assert isinstance(transport, asyncio.Transport)
        connection = self._connections.open(transport)
        if connection is None:
            transport.close()
            return
        protocol = self._server.protocol(connection)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def tls_of(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS of a server. certificate: a file with its chain. key: a file that others can't read, in PEM,
    without a password. Raises UsageError."""
    read_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password="")  # without one, OpenSSL asks on the terminal
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{certificate} and {key} don't make a certificate: {error}",
            remedy="name a file of the certificate and those that signed it, and its key's, in PEM, without a password",
        ) from error
    return context


MakeProtocol = Callable[[], asyncio.Protocol]


async def listening(make: MakeProtocol, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Listen on a port. Raises UsageError."""
    try:
        return await asyncio.get_running_loop().create_server(make, host, port, ssl=tls)
    except OSError as error:
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror}", remedy="choose another port") from error


def port_of(server: asyncio.Server) -> int:
    """Return the port on which a server listens."""
    return int(server.sockets[0].getsockname()[1])


def close(servers: Sequence[asyncio.Server]) -> None:
    """Listen no more."""
    for server in servers:
        server.close()


def refuse_missing_packages() -> None:
    """Raise UsageError where what serves HTTP isn't installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{error.name} isn't installed", remedy="pip install 'binlake[relay]'") from None


def read_private(path: str) -> list[bytes]:
    """Return the lines of a file that holds secrets. Raises UsageError where others may read it."""
    try:
        with open(path, "rb") as file:
            others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IRWXO
            lines = file.read(MOST_BODY).splitlines()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}", remedy="name a file that holds a secret") from error
    if others:
        raise UsageError(f"every account may read or write {path}", remedy=f"chmod 600 {path}, and choose a new secret")
    return lines


def read_secret(path: str) -> bytes:
    """Return a file's first line. Raises UsageError where others may read it, or it is too short for a secret."""
    secret = next(iter(read_private(path)), b"").strip()
    if len(secret) < LEAST_SECRET:
        raise UsageError(
            f"the secret in {path} has {len(secret)} bytes, and {LEAST_SECRET} are asked for",
            remedy="write a random one into the first line: openssl rand -hex 16",
        )
    return secret
