"""A source's log, on a server or in a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from binlake.config import PipelineConfig, SourceConfig
from binlake.errors import ConfigurationError, UsageError
from binlake.position import Flavour
from binlake.source.connection import REPLICA_FILE, from_environment
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.server import Source

if TYPE_CHECKING:
    from binlake.binlog.transport import Transport

Origin = Endpoint | Folder
"""The place of a source."""


class Log(Protocol):
    """A log, as planning needs it. ``Source`` and ``FolderLog`` implement it."""

    @property
    def flavour(self) -> Flavour:
        """Return the flavour of the server that wrote the log."""
        ...

    @property
    def server_identity(self) -> str:
        """Return the ``server`` of positions in this log."""
        ...

    @property
    def lower_case_names(self) -> bool:
        """Return whether databases and tables are stored in lower case, however statements write them."""
        ...

    def is_of(self, server: str) -> bool:
        """Return whether positions of that server may be looked up here."""
        ...

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        """Return (file, size in bytes) of the remaining files, oldest first."""
        ...

    def head(self) -> tuple[str, int, str]:
        """Return the end of the log, between two transactions: (file, offset in bytes, GTID set)."""
        ...

    def executed_unlogged(self) -> str:
        """Return GTIDs of executed transactions that the log lacks (MySQL) or may lack (MariaDB)."""
        ...

    def now(self) -> int:
        """Return its clock, microseconds since 1970 UTC."""
        ...

    def transport(self, server_id: int = 0, name: str = ...) -> Transport:
        """Return a new reader. On a server it is a replica with that server_id and name; with server_id 0, none."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


def open_log(origin: Origin) -> Log:
    """Open a log, which the caller closes. Raises SourceError and ConfigurationError."""
    if isinstance(origin, Folder):
        from binlake.source.folder_log import FolderLog  # not needed for a server

        return FolderLog(origin)
    return Source.open(origin)


def open_to_follow(origin: Origin) -> Log:
    """Open a log for several batches: connections to a server stay open between them. Raises as ``open_log``."""
    if isinstance(origin, Folder):
        return open_log(origin)
    from binlake.source.kept_log import KeptSource

    return KeptSource.open(origin)


@contextmanager
def opened(origin: Origin | Log) -> Iterator[Log]:
    """Open a log for the length of a with statement; an open one stays so. Raises SourceError and
    ConfigurationError."""
    if not isinstance(origin, Endpoint | Folder):
        yield origin
        return
    log = open_log(origin)
    try:
        yield log
    finally:
        log.close()


def readers(log: Log, source: SourceConfig) -> list[Transport]:
    """Return the readers of a batch. They work in parallel, each as a replica; only one batch at a time uses them."""
    return [log.transport(source.replica_id(reader), source.replica_name) for reader in range(source.server_ids)]


def server_of(origin: Origin, what: str) -> Endpoint:
    """Return the server's endpoint, for what only a server can do. Raises UsageError for files."""
    if isinstance(origin, Folder):
        raise UsageError(
            f"{what} needs a server, and this source is a folder of files", remedy="run it on the server's own pipeline"
        )
    return origin


def origin(source: SourceConfig) -> Origin:
    """Return what ``source.connection`` of the YAML names: files by their URI, a server by its connection's id.

    Raises ConfigurationError.
    """
    return folder_of(source.connection) or allowed(from_environment(source.connection), source)


def replica(config: PipelineConfig) -> Endpoint | None:
    """Return the server that ``verify.connection`` of the YAML names; None without one. Raises ConfigurationError."""
    connection = config.verify.connection
    return allowed(from_environment(connection, REPLICA_FILE), config.source) if connection else None


def allowed(where: Endpoint, source: SourceConfig) -> Endpoint:
    """Return the endpoint with what the YAML allows of its password."""
    return replace(where, allow_cleartext=True) if source.allow_cleartext else where


def folder_of(connection: str) -> Folder | None:
    """Return the folder or file that a ``file://`` URI names; None for anything else. Raises ConfigurationError."""
    parts = urlsplit(connection)
    if parts.scheme != "file":
        return None
    if parts.query not in ("", "lower_case_table_names=0", "lower_case_table_names=1"):
        raise ConfigurationError(
            f"?{parts.query} says nothing of a folder",
            remedy="write ?lower_case_table_names=1 for files of a server that has this setting, or take it away",
        )
    return Folder(Path(unquote(parts.path)), lower_case_names=parts.query.endswith("=1"))
