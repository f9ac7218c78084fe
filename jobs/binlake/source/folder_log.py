"""The log of a folder of binlog files."""

from __future__ import annotations

import time
from collections import Counter
from functools import cached_property
from pathlib import Path

from binlake.binlog.events import FormatDescription
from binlake.binlog.integrity import describe_file
from binlake.binlog.locate import executed_before, last_complete
from binlake.binlog.transport import FileTransport
from binlake.errors import ConfigurationError, UsageError
from binlake.position import FIRST_OFFSET, Flavour, Slice, file_number
from binlake.source.folder import Folder


class FolderLog:
    """A source's log that consists of files. It never writes.

    Files don't name their server. The timestamps of their format description events and the boundaries of their
    transactions prove that they are the right ones.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files = _listed(folder.path)
        if not self._files:
            raise ConfigurationError(
                f"{folder.path} holds no binlog file", remedy="files are named as the server names them: binlog.000042"
            )

    @cached_property
    def _description(self) -> FormatDescription:
        return describe_file(self.transport(), self._files[0])

    @property
    def flavour(self) -> Flavour:
        """Return the flavour of the server that wrote the first file."""
        return "mariadb" if self._description.mariadb else "mysql"

    @property
    def server_identity(self) -> str:
        """Return the server identity for positions of a lake that begins with this folder."""
        return f"{self.flavour}-{self._description.server_id}-files"

    @property
    def lower_case_names(self) -> bool:
        """Return whether databases and tables are stored in lower case, however statements write them."""
        return self._folder.lower_case_names

    @property
    def version_text(self) -> str:
        """Return the version of the server that wrote the first file."""
        return self._description.server_version

    def is_of(self, server: str) -> bool:
        """Return whether this may be the log of that server."""
        return server.startswith("mariadb-") == (self.flavour == "mariadb")

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        """Return (file, size in bytes), oldest first. The last one's size ends with its last whole transaction."""
        sizes = [(name, self.transport().file(name).stat().st_size) for name in self._files[:-1]]
        return (*sizes, self._end[:2])

    def head(self) -> tuple[str, int, str]:
        """Return the end of the log: (file, offset in bytes, GTID set)."""
        return self._end

    @cached_property
    def _end(self) -> tuple[str, int, str]:
        transport, last = self.transport(), self._files[-1]
        size = transport.whole_events(last)
        end, gtids = last_complete(transport, Slice(last, FIRST_OFFSET, size, 0, whole=False))
        return last, end, str(executed_before(transport, last, size).adding(gtids))

    def executed_unlogged(self) -> str:
        """Return an empty set: files don't have transactions that were executed and not logged."""
        return ""

    def now(self) -> int:
        """Return this machine's clock, microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    def transport(self, server_id: int = 0, name: str = "") -> FileTransport:
        """Return a reader of the files. The arguments, which are a replica's, aren't used."""
        return FileTransport(self._folder.path)

    def close(self) -> None:
        """Do nothing: no file is held open."""


def _listed(path: Path) -> tuple[str, ...]:
    """Return the files' names in the order of the log: those of the index file, else all that end in a number."""
    if path.is_file():
        return (path.name,)
    if not path.is_dir():
        raise ConfigurationError(
            f"there is no {path}", remedy="name a folder of binlog files that this machine (and Spark's) can read"
        )
    indexes = sorted(path.glob("*.index"))
    if len(indexes) == 1:
        lines = indexes[0].read_text(encoding="utf-8").splitlines()
        return tuple(line.replace("\\", "/").rpartition("/")[2] for line in lines if line.strip())
    names = [entry.name for entry in path.iterdir() if entry.is_file() and _is_numbered(entry.name)]
    stems = Counter(name.rpartition(".")[0] for name in names)
    if len(stems) > 1:
        raise ConfigurationError(
            f"{path} holds files of several logs: {', '.join(sorted(stems))}",
            remedy="give each log a folder of its own, or the folder an index file",
        )
    return tuple(sorted(names, key=file_number))


def _is_numbered(name: str) -> bool:
    try:
        return file_number(name) >= 0
    except UsageError:
        return False
