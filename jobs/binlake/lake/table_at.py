"""A table of the lake at one Delta version, opened without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.delta import opened_tables
from binlake.errors import LakeError, UsageError
from binlake.names import folder, shown
from binlake.schema.table import TableName
from binlake.storage import storage_errors, stores

_GONE = re.compile(r"No files in log segment|LogSegment end version|No table metadata or protocol|not found|NotFound")
_FEATURE = re.compile(r"[Uu]nsupported.*feature|[Ff]eature.*(?:not supported|unsupported)", re.DOTALL)
GONE_REMEDY = (
    "ask for a newer batch: binlake versions --config FILE lists those that can be read; a batch that is pinned keeps "
    "its files"
)
"""The remedy for a version whose files the upkeep has removed."""


@dataclass(frozen=True)
class TableAt:
    """A table, the folder of its Delta table, and the Delta version at which it is read."""

    name: TableName
    path: str
    version: int

    @classmethod
    def of(cls, root: str, name: TableName, version: int, beside: str = "") -> Self:
        """Return a table of the source whose folder is ``root``. beside: the folder beside it of a table that several
        sources fill."""
        is_plain = stores.is_hdfs(root)
        place = f"{root.rpartition('/')[0]}/{folder(beside, plain=is_plain)}" if beside else root
        folders = (folder(part, plain=is_plain) for part in (name.database, name.table))
        return cls(name, "/".join((place, *folders)), version)

    def opened(self) -> DeltaTable:
        """Open the table at its version. Raises LakeError."""
        try:
            return opened_tables.opened(self.path, self.version)
        except (DeltaError, OSError) as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> LakeError:
        """Return the LakeError for an error of deltalake's: files that are gone, a feature that it can't read, or the
        storage's own."""
        text = str(error)
        if _FEATURE.search(text):
            return LakeError(
                f"{self.name} has a feature that is read by Spark alone: {storage_errors.cause_of(error)}",
                remedy="read it by Spark: see binlake help analysts",
            )
        if _GONE.search(text):
            return LakeError(
                f"{self.name}: files of its Delta version {self.version} are gone: {storage_errors.cause_of(error)}",
                remedy=GONE_REMEDY,
            )
        return storage_errors.failed(f"can't read {self.name} at its Delta version {self.version}", error)


def unknown_table(text: str, known: Iterable[str]) -> UsageError:
    """Return the error for a table that isn't in a version, with the name that may be meant.

    text: as it was written. known: the tables' names as ``database.table``.
    """
    names = sorted(known)
    close = get_close_matches(text, names, n=1, cutoff=0.5) or [
        name for name in names if name.partition(".")[2].casefold() == text.rpartition(".")[2].casefold()
    ]
    meant = f"; did you mean {shown(close[0])}?" if close else ""
    listed = ", ".join(map(shown, names[:_MOST_LISTED])) + (", …" if len(names) > _MOST_LISTED else "")
    return UsageError(f"there is no table {text}{meant}", remedy=f"this version of the lake has {listed or 'no table'}")


_MOST_LISTED = 20
