"""Rows of the DDL history: a statement, what the lake made of it, and the table's shapes before and after."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.table import TableName

FOLLOWED, ASKED, STOPPED, IGNORED = "followed", "resnapshot asked", "stopped", "ignored"
"""The effects of a statement on the lake, as the DDL history has them."""
NOT_APPLIED = "not applied"
"""The same, where a statement changed the server's table and not the lake's, which is stopped or is at a later
position."""
BEFORE_SNAPSHOT = "before the snapshot"
"""The reason why a statement wasn't applied that the table's snapshot has behind it already."""
WAITS = "waits"
"""The effect of a statement at which a table waits for somebody's answer."""


@dataclass(frozen=True)
class NotedStatement:
    """A row of the DDL history: what became of one table at a statement.

    before, after: the server's shapes of the table, JSON. held: what is asked about it where the table waits for an
    answer, JSON of HeldChange.
    """

    batch: int
    file: str
    offset: int
    position: str
    gtid: str | None
    committed_us: int
    database: str
    default_database: str | None
    sql_mode: int | None
    statement: str
    kind: str
    table: str
    table_id: str | None
    action: str
    reason: str | None
    before: str | None
    after: str | None
    held: str | None

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return TableName(self.database, self.table)

    @property
    def place(self) -> tuple[int, str, int]:
        """Return what the rows of one statement have in common: its batch, and its place in the log."""
        return self.batch, self.file, self.offset
