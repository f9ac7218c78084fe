"""Gaps of a server's log: databases whose changes it doesn't write there."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.errors import snapshot_again
from binlake.schema.table import TableName


@dataclass(frozen=True)
class LogGap:
    """A reason why changes are missing from the log, and what to do about it.

    databases: the databases whose changes are missing, None for any; except those in ``but``. is_certain: False if
    changes may be missing.
    """

    reason: str
    remedy: str
    databases: frozenset[str] | None = None
    but: frozenset[str] = frozenset()
    is_certain: bool = True

    def concerns(self, database: str) -> bool:
        """Return whether changes of a database are missing, or may be."""
        return (self.databases is None or database in self.databases) and database not in self.but

    def missed(self, database: str) -> str:
        """Return what the tables of a database missed, and why."""
        return f"changes in {database} aren't in the log: {self.reason}"

    def then(self, name: TableName) -> str:
        """Return what to do about a table that stopped."""
        return f"{self.remedy}; then {snapshot_again(name)}"
