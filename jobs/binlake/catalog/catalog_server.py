"""``binlake catalog``: serve the catalog until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import ssl
from collections.abc import Sequence

from binlake import config as configuration
from binlake.catalog.catalog_clients import CatalogClients
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.errors import UsageError
from binlake.kernels import heap
from binlake.relay.connections import Connections
from binlake.relay.http_frame import (
    HttpConnection,
    HttpServer,
    close,
    listening,
    port_of,
    refuse_missing_packages,
    tls_of,
)
from binlake.report import Report

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def catalog(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError."""
    refuse_missing_packages()
    clients = _clients(arguments)
    tls = _tls(arguments)
    sources = [PublishedSource.of(configuration.load(path)) for path in arguments.config]
    if clients is None:
        _refuse_roles(sources)
    heap.return_freed_memory()
    from binlake.catalog.catalog_routes import catalog_application

    server = HttpServer(catalog_application(Warehouses(sources), clients))
    report = Report(quiet=arguments.quiet)
    if tls is None and arguments.host not in LOOPBACK:
        report.say("secrets and tokens are sent in clear: let a proxy encrypt, or name --tls-certificate and --tls-key")
    asyncio.run(_serve(server, arguments.host, arguments.port, tls, report))


def _clients(arguments: argparse.Namespace) -> CatalogClients | None:
    """Return who may ask; None for everybody on this machine. Raises UsageError."""
    if arguments.clients_file is not None:
        return CatalogClients.read(arguments.clients_file, math.ceil(arguments.token_lifetime))
    if arguments.host not in LOOPBACK:
        raise UsageError(
            f"without --clients-file the catalog asks nobody who he is, so it listens on this machine alone, not on "
            f"{arguments.host}",
            remedy="name a file of clients, see binlake help catalog; or leave --host out",
        )
    return None


def _refuse_roles(sources: Sequence[PublishedSource]) -> None:
    """Raise UsageError where whoever asks would get a role's credentials."""
    for source in sources:
        if source.role:
            raise UsageError(
                f"{source.name} has an iceberg.vended_role, and without --clients-file the catalog would give its "
                "credentials to everybody on this machine",
                remedy="name a file of clients, see binlake help catalog; or take vended_role out of the YAML",
            )


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS of the options; None without. Raises UsageError."""
    certificate, key = arguments.tls_certificate, arguments.tls_key
    if (certificate is None) != (key is None):
        raise UsageError("TLS needs a certificate and its key", remedy="name --tls-certificate and --tls-key")
    return None if certificate is None else tls_of(certificate, key)


async def _serve(server: HttpServer, host: str, port: int, tls: ssl.SSLContext | None, report: Report) -> None:
    connections, done = Connections(), asyncio.Event()
    listener = await listening(lambda: HttpConnection(server, connections), host, port, tls)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, done.set)
        report.say(f"the catalog listens on {'https' if tls else 'http'}://{host}:{port_of(listener)}")
        await done.wait()
    finally:
        close([listener])
