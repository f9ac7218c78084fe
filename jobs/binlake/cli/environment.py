"""``binlake init`` and ``binlake setup``: a new source's YAML, and what this environment needs."""

from __future__ import annotations

import argparse
import getpass
import shlex
import sys
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from binlake.cli.checks import print_checks
from binlake.cli.sessions import report_of, session_of
from binlake.errors import UsageError
from binlake.names import shell_quote


def init(arguments: argparse.Namespace) -> None:
    """Write a new source's YAML after asking the server, and run the preflight on it."""
    from binlake.cli import new_source
    from binlake.doctor.preflight import preflight
    from binlake.source.connection import endpoint_of
    from binlake.storage.connection_text import variable_of

    uri = arguments.connection or _ask("Server (mysql://user@host:3306/): ")
    endpoint = endpoint_of(uri)
    if not (endpoint.password or endpoint.token) and sys.stdin.isatty():
        endpoint = replace(endpoint, password=getpass.getpass(f"Password of {endpoint.user}: "))
    name = arguments.name or arguments.file.stem
    asked = new_source.SourceAsked(name, tuple(arguments.tables), arguments.lake, arguments.schedule)
    draft = new_source.draft(arguments.file, endpoint, asked)
    draft.write()
    config = draft.config
    variable = variable_of(config.source.connection)
    print(f"{arguments.file} is written; now\n")
    print(f"  export {variable}={shell_quote(without_password(uri))}")
    for command in ("doctor", "snapshot", "sync"):
        print(f"  binlake {command} --config {shlex.quote(str(arguments.file))}")
    print()
    print_checks(preflight(config, endpoint, session=session_of("doctor", config, report_of(arguments))))


def without_password(uri: str) -> str:
    """Return a server's URI with the word PASSWORD in its place, and all else as it was written."""
    parts = urlsplit(uri)
    account, _, place = parts.netloc.rpartition("@")
    where = f"{account.partition(':')[0]}:PASSWORD@{place}"
    return urlunsplit(parts._replace(netloc=where, path=parts.path or "/"))


def _ask(question: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(
            "nobody is there to be asked for the server", remedy="give --connection mysql://user@host:3306/"
        )
    return input(question)


def setup(arguments: argparse.Namespace) -> None:
    """Fetch or make what this environment needs: jars, compiled kernels and, unless left out, the archive of
    classes."""
    from binlake.setup.installation import set_up

    set_up(report_of(arguments), arguments.jars, archive=not arguments.no_archive, stores=arguments.stores)
