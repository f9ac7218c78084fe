"""Logs and feeds on the console, and the relay. Each is imported as it is asked for: some packages are optional."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from binlake.cli.step_commands import parse_until
from binlake.errors import TableError

if TYPE_CHECKING:
    from binlake.cli.logview import Readable


def _opened(arguments: argparse.Namespace) -> Readable:
    """The log by the reader that was asked for."""
    if arguments.reader == "binlake":
        from binlake.source import openlog

        return openlog.open(arguments.uri, arguments.start, arguments.stop)
    from binlake.second_opinion import opinion_listing

    return opinion_listing.open(arguments.uri, arguments.start, arguments.stop)


def binlog(arguments: argparse.Namespace) -> None:
    from binlake.cli import logview

    log = _opened(arguments)
    if arguments.events:
        logview.show_events(log, arguments.format, sys.stdout)
        return
    folder = Path(arguments.output) if arguments.output else None
    stopped = logview.show_mutations(log, arguments.table, arguments.format, sys.stdout, folder)
    if stopped:
        tables = ", ".join(sorted({str(table.name) for table in stopped}))
        raise TableError(f"{tables} can't be decoded from some event on", remedy=stopped[0].remedy)


def feed(arguments: argparse.Namespace) -> None:
    from binlake.cli import feed_commands

    feed_commands.feed(arguments, parse_until(arguments.until))


def tail(arguments: argparse.Namespace) -> None:
    from binlake.cli import feed_commands

    feed_commands.tail(arguments)


def relay(arguments: argparse.Namespace) -> None:
    from binlake.relay import serve

    serve.relay(arguments)


def console_consumer(arguments: argparse.Namespace) -> None:
    from binlake.cli import feed_commands

    feed_commands.console_consumer(arguments)
