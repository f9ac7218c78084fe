"""``binlake relay``: serve both protocols on one port, chosen by a connection's first bytes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import stat
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from binlake import config as configuration
from binlake.errors import BinlakeError, UsageError
from binlake.kernels import heap
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.relay.connections import Connection, Connections
from binlake.relay.core import Relay, state_path
from binlake.relay.reading import RecordedBatches
from binlake.relay.tcp import BinaryProtocol
from binlake.report import Report
from binlake.store.metadata import metadata_of

if TYPE_CHECKING:
    import uvicorn

_MONITOR_HOST = "127.0.0.1"
"""The monitoring page's own port asks for no secret, so this machine alone reaches it."""
_METHOD = 3
LEAST_SECRET = 16
"""Bytes of the shortest secret."""
_THREADS = 4


class FirstBytes(asyncio.Protocol):
    """Protocol that chooses by a connection's first bytes.

    HTTP begins with a method of at least three capitals, the binary protocol with a small number.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or close it where there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection = self._served.connections.open(transport)
        if self._connection is None:
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        if self._connection:
            self._connection.gone()

    def data_received(self, data: bytes) -> None:
        """Collect bytes until they show the protocol, then hand connection and bytes to it."""
        if self._connection is None or self._transport is None or self._transport.is_closing():
            return
        self._first += data
        if len(self._first) < _METHOD:
            return
        method = self._first[:_METHOD]
        speaks_http = method.isalpha() and method.isupper()
        make = self._served.http if speaks_http else self._served.binary
        protocol = make(self._connection)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._first)


class FirstOfMonitor(FirstBytes):
    """Protocol of a connection to the monitoring page's own port, which speaks HTTP alone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection and hand it to HTTP, or close it where there are too many."""
        assert isinstance(transport, asyncio.Transport)
        connection = self._served.monitor_connections.open(transport)
        if connection is None:
            transport.close()
            return
        protocol = self._served.monitor(connection)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class Served:
    """Makers of both protocols. connections, monitor_connections: those that are open, of each port."""

    def __init__(self, relay: Relay, secret: bytes, admin_secret: bytes | None) -> None:
        from uvicorn.server import ServerState

        from binlake.relay.http_routes import application, monitor_application

        self._relay, self._secret = relay, secret
        self.connections, self.monitor_connections = Connections(), Connections()
        self.executor = ThreadPoolExecutor(_THREADS, "relay")
        self._clients = _http_config(application(relay, secret, admin_secret))
        self._monitor = _http_config(monitor_application(relay))
        self._state = ServerState()

    def binary(self, connection: Connection) -> asyncio.Protocol:
        """Make the binary protocol of a connection."""
        return BinaryProtocol(self._relay, self._secret, self.executor, connection)

    def http(self, connection: Connection) -> asyncio.Protocol:
        """Make the protocol of the clients' HTTP interface for a connection."""
        return self._http(self._clients, connection)

    def monitor(self, connection: Connection) -> asyncio.Protocol:
        """Make the protocol of the monitoring page for a connection."""
        return self._http(self._monitor, connection)

    def _http(self, config: uvicorn.Config, connection: Connection) -> asyncio.Protocol:
        from binlake.relay.http_routes import CONNECTION

        kind: Any = config.http_protocol_class
        made = kind(config=config, server_state=self._state, app_state={CONNECTION: connection})
        lost: Callable[[Exception | None], None] = made.connection_lost

        def counted(error: Exception | None) -> None:
            connection.gone()
            lost(error)

        made.connection_lost = counted
        protocol: asyncio.Protocol = made
        return protocol


def _http_config(application: Any) -> uvicorn.Config:
    import uvicorn

    from binlake.relay.http_routes import BoundedRequests

    config = uvicorn.Config(
        BoundedRequests(application), http="h11", ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip
    config.load()
    return config


def read_secret(path: str) -> bytes:
    """Return a file's first line. Raises UsageError where others may read it, or it is too short for a secret."""
    try:
        with open(path, "rb") as file:
            others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IRWXO
            secret = file.readline().strip()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}", remedy="name a file that holds a secret") from error
    if others:
        raise UsageError(f"every account may read or write {path}", remedy=f"chmod 600 {path}, and choose a new secret")
    if len(secret) < LEAST_SECRET:
        raise UsageError(
            f"the secret in {path} has {len(secret)} bytes, and {LEAST_SECRET} are asked for",
            remedy="write a random one into the first line: openssl rand -hex 16",
        )
    return secret


def relay(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{error.name} isn't installed", remedy="pip install 'binlake[relay]'") from None
    config = configuration.load(arguments.config)
    secret = read_secret(arguments.secret_file)
    admin = None if arguments.admin_secret_file is None else read_secret(arguments.admin_secret_file)
    heap.return_freed_memory()
    metadata = metadata_of(config)
    limits = FeedLimits(arguments.keep_gb, arguments.keep_hours)
    ports = Ports(arguments.host, arguments.port, arguments.monitor_port)
    with asyncio.Runner() as runner:
        # A relay that can't listen keeps no staging. Clients that connect meanwhile are answered once the loop runs
        # again.
        servers = runner.run(_listening_on(ports, lambda: FirstBytes(served), lambda: FirstOfMonitor(served)))
        try:
            with feed_watermarks.held(metadata, feed_watermarks.RELAY, limits) as held:
                core = Relay(RecordedBatches(config, metadata), state_path(config), held)
                served = Served(core, secret, admin)
                runner.run(_serve(served, core, servers, ports.host, arguments.every, Report(quiet=arguments.quiet)))
        finally:
            _close(servers)


@dataclass(frozen=True)
class Ports:
    """Where the relay listens. monitor: the port of the monitoring page on this machine; None without one."""

    host: str
    clients: int
    monitor: int | None


MakeProtocol = Callable[[], asyncio.Protocol]


async def _listening_on(ports: Ports, clients: MakeProtocol, monitor: MakeProtocol) -> list[asyncio.Server]:
    """Listen on the clients' port, and on the monitoring page's. Raises UsageError."""
    servers = [await _listening(clients, ports.host, ports.clients)]
    if ports.monitor is not None:
        try:
            servers.append(await _listening(monitor, _MONITOR_HOST, ports.monitor))
        except UsageError:
            _close(servers)
            raise
    return servers


def _close(servers: Sequence[asyncio.Server]) -> None:
    for server in servers:
        server.close()


async def _listening(make: MakeProtocol, host: str, port: int) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(make, host, port)
    except OSError as error:
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror}", remedy="choose another port") from error


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def _serve(
    served: Served, core: Relay, servers: Sequence[asyncio.Server], host: str, every: float, report: Report
) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    report.say(f"the relay listens on {host}:{_port(servers[0])}")
    for monitor in servers[1:]:
        report.say(f"its page is http://{_MONITOR_HOST}:{_port(monitor)}/")
    follower = asyncio.create_task(_follow(served, core, every, report))
    try:
        await done.wait()
    finally:
        follower.cancel()
        _close(servers)
        with contextlib.suppress(asyncio.CancelledError):
            await follower
        served.executor.shutdown(wait=True)
        core.save()


async def _follow(served: Served, core: Relay, every: float, report: Report) -> None:
    """Count arrivals every ``every`` seconds; report an error once, and try again."""
    reported = ""
    loop = asyncio.get_running_loop()
    while True:
        try:
            await loop.run_in_executor(served.executor, core.arrive)
            await loop.run_in_executor(served.executor, core.save)
            reported = ""
        except Exception as error:  # else clients would be served, and get nothing new, without a word
            said = str(error) if isinstance(error, BinlakeError) else traceback.format_exc()
            if said != reported:
                reported = said
                report.say(reported)
        await asyncio.sleep(every)
