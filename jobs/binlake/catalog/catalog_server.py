"""``binlake catalog``: serve the catalog until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal

from binlake import config as configuration
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.errors import UsageError
from binlake.kernels import heap
from binlake.relay.connections import Connections
from binlake.relay.http_frame import HttpConnection, HttpServer, close, listening, port_of, refuse_missing_packages
from binlake.report import Report

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def catalog(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError."""
    refuse_missing_packages()
    if arguments.host not in LOOPBACK:
        raise UsageError(
            f"the catalog asks nobody who he is, so it listens on this machine alone, not on {arguments.host}",
            remedy="leave --host out, and let a proxy that asks for it reach the port",
        )
    sources = [PublishedSource.of(configuration.load(path)) for path in arguments.config]
    heap.return_freed_memory()
    from binlake.catalog.catalog_routes import catalog_application

    server = HttpServer(catalog_application(Warehouses(sources)))
    asyncio.run(_serve(server, arguments.host, arguments.port, Report(quiet=arguments.quiet)))


async def _serve(server: HttpServer, host: str, port: int, report: Report) -> None:
    connections, done = Connections(), asyncio.Event()
    listener = await listening(lambda: HttpConnection(server, connections), host, port)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, done.set)
        report.say(f"the catalog listens on http://{host}:{port_of(listener)}")
        await done.wait()
    finally:
        close([listener])
