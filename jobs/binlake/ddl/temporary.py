"""Temporary tables in the log of sessions with binlog_format = STATEMENT (on MariaDB also MIXED).

``CREATE TEMPORARY TABLE`` and ``DROP TEMPORARY TABLE`` are recognizable; statements between them look as if they
concerned the ordinary table whose name the temporary one hides.
"""

from __future__ import annotations

from dataclasses import replace

from binlake.ddl.changes import (
    AlterTable,
    Change,
    CreateLike,
    ParsedStatement,
    RenameTables,
    RowsChanged,
    TruncateTable,
    Unfollowed,
)
from binlake.position import Flavour
from binlake.schema.table import TableName

_OF_OTHER_TABLES = (
    *("CREATE TABLE", "DROP TABLE", "DROP DATABASE"),
    *("CREATE SEQUENCE", "ALTER SEQUENCE", "DROP SEQUENCE"),
)
"""Statements that never change a temporary table: CREATE and ALTER SEQUENCE ignore them, and where DROP drops them the
servers log DROP TEMPORARY."""


class TemporaryTables:
    """The temporary tables of all sessions, followed within one file of the log, and within one batch.

    Tables created in an earlier file aren't known: a file may begin with a restart of the server, after which thread
    ids are used again. Nor are those of an earlier batch. But for each statement the log says whether it used one.
    """

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._open: set[tuple[int, TableName]] = set()

    def forget(self) -> None:
        """Forget all tables, at the start of a file."""
        self._open.clear()

    def hidden(self, parsed: ParsedStatement, thread: int, *, needs_session: bool) -> ParsedStatement:
        """Return a session's statement without what it does to the session's temporary tables.

        needs_session: see border.Statement. The effect of such a statement is unknown unless one of its tables is known
        to be temporary.
        """
        if parsed.kind == "CREATE TEMPORARY TABLE":
            self._open |= {(thread, name) for name in parsed.temporary}
        elif parsed.kind == "DROP TEMPORARY TABLE":
            self._open -= {(thread, name) for name in parsed.temporary}
        names = {name for session, name in self._open if session == thread}
        if parsed.kind in _OF_OTHER_TABLES:
            return replace(parsed, changes=tuple(_unlike(change, names, needs_session) for change in parsed.changes))
        if parsed.kind == "RENAME TABLE" and self._flavour == "mysql":
            return parsed  # MySQL renames temporary tables by ALTER alone
        tables = tuple(name for name in parsed.tables if name not in names)
        if len(tables) == len(parsed.tables):
            return _doubted(parsed) if needs_session else parsed
        changes = tuple(left for change in parsed.changes if (left := self._without(change, names, thread)))
        kind = parsed.kind if tables and changes else f"{parsed.kind} of a temporary table"
        return replace(parsed, kind=kind, tables=tables, changes=changes)

    def _without(self, change: Change, names: set[TableName], thread: int) -> Change | None:
        if not isinstance(change, RenameTables):
            return None if getattr(change, "name", None) in names else change
        left: list[tuple[TableName, TableName]] = []
        for old, new in change.pairs:
            if old in names:
                names ^= {old, new}
                self._open ^= {(thread, old), (thread, new)}
            else:
                left.append((old, new))
        return replace(change, pairs=tuple(left)) if left else None


def _unlike(change: Change, names: set[TableName], needs_session: bool) -> Change:
    """Return a change as it is, but for CREATE TABLE LIKE a temporary table, or one that may be temporary."""
    if isinstance(change, CreateLike) and (needs_session or change.like in names):
        return Unfollowed(change.name, f"its columns are those of {change.like}, which is or may be a temporary table")
    return change


def _doubted(parsed: ParsedStatement) -> ParsedStatement:
    """Return a statement of which it isn't known whether it concerns tables or temporary ones of their names."""
    why = "a statement changed it, or a temporary table of its name that was made before what was read here"
    changes: list[Change] = []
    for change in parsed.changes:
        if isinstance(change, RenameTables):
            changes += [Unfollowed(name, why) for name in dict.fromkeys(name for pair in change.pairs for name in pair)]
        elif isinstance(change, AlterTable | TruncateTable | RowsChanged):
            changes.append(Unfollowed(change.name, why))
        else:
            changes.append(change)
    return replace(parsed, changes=tuple(changes))
