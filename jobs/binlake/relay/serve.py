"""``binlake relay``: serve both protocols on one port, chosen by a connection's first bytes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from binlake import config as configuration
from binlake.errors import BinlakeError, UsageError
from binlake.kernels import heap
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.relay.connections import Connection, Connections
from binlake.relay.core import Relay, state_path
from binlake.relay.http_frame import (
    HttpConnection,
    HttpServer,
    MakeProtocol,
    close,
    listening,
    port_of,
    read_secret,
    refuse_missing_packages,
)
from binlake.relay.reading import RecordedBatches
from binlake.relay.tcp import BinaryProtocol
from binlake.report import Report
from binlake.store.metadata import metadata_of

_MONITOR_HOST = "127.0.0.1"
"""The monitoring page's own port asks for no secret, so this machine alone reaches it."""
_METHOD = 3
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


class Served:
    """Makers of both protocols. connections, monitor_connections: those that are open, of each port."""

    def __init__(self, relay: Relay, secret: bytes, admin_secret: bytes | None) -> None:
        from binlake.relay.http_routes import application, monitor_application

        self._relay, self._secret = relay, secret
        self.connections, self.monitor_connections = Connections(), Connections()
        self.executor = ThreadPoolExecutor(_THREADS, "relay")
        self._clients = HttpServer(application(relay, secret, admin_secret))
        self._monitor = HttpServer(monitor_application(relay))

    def binary(self, connection: Connection) -> asyncio.Protocol:
        """Make the binary protocol of a connection."""
        return BinaryProtocol(self._relay, self._secret, self.executor, connection)

    def http(self, connection: Connection) -> asyncio.Protocol:
        """Make the protocol of the clients' HTTP interface for a connection."""
        return self._clients.protocol(connection)

    def monitor(self) -> asyncio.Protocol:
        """Make the protocol of a connection to the monitoring page's own port."""
        return HttpConnection(self._monitor, self.monitor_connections)


def relay(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError."""
    refuse_missing_packages()
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
        servers = runner.run(_listening_on(ports, lambda: FirstBytes(served), lambda: served.monitor()))
        try:
            with feed_watermarks.held(metadata, feed_watermarks.RELAY, limits) as held:
                core = Relay(RecordedBatches(config, metadata), state_path(config), held)
                served = Served(core, secret, admin)
                runner.run(_serve(served, core, servers, ports.host, arguments.every, Report(quiet=arguments.quiet)))
        finally:
            close(servers)


@dataclass(frozen=True)
class Ports:
    """The addresses on which the relay listens. monitor: the port of the monitoring page on this machine; None without
    one."""

    host: str
    clients: int
    monitor: int | None


async def _listening_on(ports: Ports, clients: MakeProtocol, monitor: MakeProtocol) -> list[asyncio.Server]:
    """Listen on the clients' port, and on the monitoring page's. Raises UsageError."""
    servers = [await listening(clients, ports.host, ports.clients)]
    if ports.monitor is not None:
        try:
            servers.append(await listening(monitor, _MONITOR_HOST, ports.monitor))
        except UsageError:
            close(servers)
            raise
    return servers


async def _serve(
    served: Served, core: Relay, servers: Sequence[asyncio.Server], host: str, every: float, report: Report
) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    report.say(f"the relay listens on {host}:{port_of(servers[0])}")
    for monitor in servers[1:]:
        report.say(f"its page is http://{_MONITOR_HOST}:{port_of(monitor)}/")
    follower = asyncio.create_task(_follow(served, core, every, report))
    try:
        await done.wait()
    finally:
        follower.cancel()
        close(servers)
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
