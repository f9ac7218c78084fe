"""A source's log, wherever it is: on a server or in a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from binlake.binlog.transport import Transport
from binlake.config import SourceConfig
from binlake.errors import ConfigurationError, UsageError
from binlake.position import Flavour
from binlake.source.connection import Endpoint, from_environment
from binlake.source.folder import Folder, FolderLog
from binlake.source.server import Source

Origin = Endpoint | Folder
"""Where a source is."""


class Log(Protocol):
    """What planning asks; ``Source`` and ``FolderLog`` answer."""

    @property
    def flavour(self) -> Flavour: ...

    @property
    def server_identity(self) -> str:
        """The ``server`` of positions in this log."""
        ...

    @property
    def lower_case_names(self) -> bool:
        """Whether databases and tables are stored in lower case, however statements write them."""
        ...

    def is_of(self, server: str) -> bool:
        """Whether positions of that server may be looked up here."""
        ...

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        """(file, size in bytes) of what is left, oldest first."""
        ...

    def head(self) -> tuple[str, int, str]:
        """End of the log, between two transactions: (file, offset in bytes, GTID set)."""
        ...

    def executed_unlogged(self) -> str:
        """GTIDs of transactions that were executed and whose log isn't there (MySQL), or needn't be (MariaDB)."""
        ...

    def now(self) -> int:
        """Its clock, microseconds since 1970 UTC."""
        ...

    def transport(self, server_id: int = 0, name: str = ...) -> Transport:
        """A reader of its own: for a server it's a replica of that server_id and name, or none, beside all others."""
        ...

    def close(self) -> None: ...


@contextmanager
def opened(origin: Origin) -> Iterator[Log]:
    """The log for a while. Raises SourceError and ConfigurationError."""
    log: Log = FolderLog(origin) if isinstance(origin, Folder) else Source.open(origin)
    try:
        yield log
    finally:
        log.close()


def readers(log: Log, source: SourceConfig) -> list[Transport]:
    """Of a batch: they work side by side, each as a replica of its own, and one batch at a time has them."""
    return [log.transport(source.replica_id(reader), source.replica_name) for reader in range(source.server_ids)]


def server_of(origin: Origin, what: str) -> Endpoint:
    """For what only a server can do; raises UsageError for files."""
    if isinstance(origin, Folder):
        raise UsageError(
            f"{what} needs a server, and this source is a folder of files", remedy="run it on the server's own pipeline"
        )
    return origin


def origin(connection: str) -> Origin:
    """What ``source.connection`` of the YAML names: files by their URI, a server by its connection's id.

    Raises ConfigurationError.
    """
    return folder_of(connection) or from_environment(connection)


def folder_of(connection: str) -> Folder | None:
    """The folder or file that a ``file://`` URI names; None for anything else. Raises ConfigurationError."""
    parts = urlsplit(connection)
    if parts.scheme != "file":
        return None
    if parts.query not in ("", "lower_case_table_names=0", "lower_case_table_names=1"):
        raise ConfigurationError(
            f"?{parts.query} says nothing of a folder",
            remedy="write ?lower_case_table_names=1 for files of a server that has this setting, or take it away",
        )
    return Folder(Path(unquote(parts.path)), lower_case_names=parts.query.endswith("=1"))
