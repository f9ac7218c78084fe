"""Which tables a statement may change that was logged as text instead of row images.

Sources: MySQL manual 15.2 Data Manipulation Statements; MariaDB Knowledge Base, Data Manipulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.lexer import Cursor
from binlake.schema.table import TableName


@dataclass(frozen=True)
class ChangedTables:
    """tables: all that may be changed; may_concern_any: also others, by a routine that is called."""

    tables: tuple[TableName, ...]
    may_concern_any: bool = False


def changed_tables(cursor: Cursor) -> ChangedTables | None:
    """None where the statement isn't DML. Raises UnfollowedStatement where its tables can't be found.

    Of UPDATE and DELETE over several tables all count, also those that are only read.
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
    """``DELETE FROM a, b.* USING …``: only names stand before USING, unlike the USING (…) of a join."""
    ahead = 1
    while cursor.peek(ahead).is_name or cursor.peek(ahead).key in (",", ".", "*"):
        if cursor.peek(ahead).key == "USING":
            return cursor.peek(ahead + 1).key != "("
        ahead += 1
    return False


def _table_references(cursor: Cursor, ends: tuple[str, ...]) -> tuple[TableName, ...]:
    """Tables joined up to one of these words; those of subqueries are only read and don't count."""
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
