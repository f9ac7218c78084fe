"""``binlake grants``: print the SQL that gives an account what binlake needs, and nothing more."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from binlake import config as configuration
from binlake.cli.help_topics import installed_text
from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.names import grant_quote

_WORD = r"[^'\"`\\@]+"
_ACCOUNT = re.compile(
    rf"(?P<quote>['\"`]?)(?P<user>{_WORD})(?P=quote)(?:@(?P<other>['\"`]?)(?P<host>{_WORD})(?P=other))?"
)
_IN_THE_FILES, _DATABASE_IN_THE_FILES = "'binlake'@'%'", "`shop`.*"


def print_grants(arguments: argparse.Namespace) -> None:
    """Print the statements for a server's administrator. Raises UsageError, ConfigurationError."""
    config = configuration.load(arguments.config) if arguments.config else None
    databases = databases_of(config) if config else _as_granted(arguments.databases)
    text = installed_text(f"sql/grants_{arguments.server}.sql")
    print(grants(text, account_of(arguments.account), databases), end="")


def account_of(text: str) -> str:
    """Return an account as SQL, of any host where the text names none. Raises UsageError."""
    match = _ACCOUNT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no account", remedy="write --for NAME or --for NAME@HOST")
    return f"'{match['user']}'@'{match['host'] or '%'}'"


def databases_of(config: PipelineConfig) -> list[str]:
    """Return what the YAML's patterns include, as GRANT names databases; ``*.*`` where a pattern needs all."""
    return _as_granted(pattern.partition(".")[0] for pattern in config.tables.include)


def _as_granted(patterns: Iterable[str]) -> list[str]:
    """Return patterns of databases as GRANT names them, each once; ``*.*`` where one needs all."""
    named = [_granted(pattern) for pattern in dict.fromkeys(patterns)]
    return ["*.*"] if "*.*" in named else named


def _granted(pattern: str) -> str:
    """Return a database's pattern as GRANT has it."""
    if "[" in pattern or not pattern.strip("*"):
        return "*.*"
    return f"{grant_quote(pattern).replace('*', '%').replace('?', '_')}.*"


def grants(text: str, account: str, databases: Iterable[str]) -> str:
    """Return the statements of sql/grants_*.sql for an account and databases; for ``shop`` without any."""
    lines: list[str] = []
    for line in text.replace(_IN_THE_FILES, account).splitlines():
        named = list(databases) if _DATABASE_IN_THE_FILES in line else []
        lines += [line.replace(_DATABASE_IN_THE_FILES, database) for database in named] or [line]
    return "\n".join(lines) + "\n"
