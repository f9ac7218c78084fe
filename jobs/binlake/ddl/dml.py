"""The tables that a statement may change which was logged as text instead of row images.

Sources: MySQL manual 15.2 Data Manipulation Statements; MariaDB Knowledge Base, Data Manipulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.lexer import Cursor
from binlake.schema.table import TableName


@dataclass(frozen=True)
class ChangedTables:
    """The tables that a statement may change.

    may_concern_any: it may change others than ``tables``, too, by a routine that it calls.
    """

    tables: tuple[TableName, ...]
    may_concern_any: bool = False


def changed_tables(cursor: Cursor) -> ChangedTables | None:
    """Return the tables that a DML statement may change; None if it isn't DML.

    UPDATE and DELETE of several tables count as changing all of them, also those that they only read. Raises
    UnfollowedStatement if the tables can't be determined.
    """
    if cursor.accept("WITH"):
        while not (cursor.at_end or cursor.at_any("UPDATE", "DELETE", "SELECT", "INSERT", "REPLACE")):
            cursor.skip_parentheses() if cursor.at("(") else cursor.next()
    verb = cursor.token.key
    if verb in ("CALL", "DO", "SELECT", "EXECUTE", "IMPORT", "HANDLER"):
        return ChangedTables((), may_concern_any=True)
    if verb in ("INSERT", "REPLACE"):
        cursor.next()
        while cursor.accept_any("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"):
            pass
        return ChangedTables((cursor.table_name(),))
    if verb == "LOAD" and cursor.peek().key in ("DATA", "XML"):
        cursor.skip_to("INTO")
        cursor.expect("INTO", "TABLE")
        return ChangedTables((cursor.table_name(),))
    if verb in ("UPDATE", "DELETE"):
        cursor.next()
        return ChangedTables(_update_or_delete(cursor, verb))
    return None


def _update_or_delete(cursor: Cursor, verb: str) -> tuple[TableName, ...]:
    while cursor.accept_any("LOW_PRIORITY", "QUICK", "IGNORE"):
        pass
    if verb == "DELETE":
        if not cursor.at("FROM"):  # DELETE aliases FROM tables
            cursor.skip_to("FROM")
        elif _has_using(cursor):  # DELETE FROM aliases USING tables
            cursor.skip_to("USING")
        cursor.next()
    return _table_references(cursor, ("SET", "WHERE", "ORDER", "LIMIT", "RETURNING"))


def _has_using(cursor: Cursor) -> bool:
    """Return whether a DELETE has the form ``DELETE FROM a, b.* USING …``; a join's USING (…) doesn't count."""
    ahead = 1
    while cursor.peek(ahead).is_name or cursor.peek(ahead).key in (",", ".", "*"):
        if cursor.peek(ahead).key == "USING":
            return cursor.peek(ahead + 1).key != "("
        ahead += 1
    return False


def _table_references(cursor: Cursor, ends: tuple[str, ...]) -> tuple[TableName, ...]:
    """Read the joined tables up to one of these words; those of subqueries are only read and don't count."""
    names: list[TableName] = []
    expects_table = True
    while not (cursor.at_end or cursor.at_any(*ends)):
        if expects_table and cursor.at("(") and cursor.peek().key not in ("SELECT", "WITH", "VALUES", "TABLE"):
            cursor.next()
        elif cursor.at("("):
            cursor.skip_parentheses()
            expects_table = False
        elif expects_table and cursor.accept("LATERAL"):
            continue
        elif expects_table:
            names.append(cursor.table_name())
            expects_table = False
        else:
            expects_table = cursor.next().key in (",", "JOIN", "STRAIGHT_JOIN")
    if not names:
        raise cursor.not_understood("a table expected")
    return tuple(dict.fromkeys(names))
