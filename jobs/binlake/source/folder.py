"""A folder of binlog files as a source instead of a server: an archive, or what ``mysqlbinlog --raw`` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """The place of binlog files: a folder, with or without the server's index file, or one file.

    lower_case_names: the files' server has lower_case_table_names=1.
    """

    path: Path
    lower_case_names: bool = False

    @property
    def address(self) -> str:
        """Return the path, as messages name the source."""
        return str(self.path)
