"""The sessions of a server that a lock would wait for.

To see the statements of others the account needs PROCESS on MariaDB, and on MySQL SELECT on performance_schema's
``metadata_locks`` and ``threads``, which show exactly who holds what. With less it sees less, and a lock's own time
limit is all that protects the server's users. A statement's text isn't repeated: it holds values of rows.

On MySQL, FLUSH TABLES WITH READ LOCK waits for each statement that uses a table, a SELECT included, while all writes
wait behind it (manual 15.7.8.3). On MariaDB it waits for writes alone, and for backup stages held elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from binlake.errors import AccessDenied, SourceError
from binlake.schema.table import TableName
from binlake.source.processes import QueriedServer, processes

LONG = 1
"""Seconds from which on a statement is waited for without trying a lock."""

_WAITING = "Waiting for "
_MOST_NAMED = 3
_MOST_READ = 50
_WORD = re.compile(r"(?:\s++|/\*.*?\*/|--[^\n]*+\n|#[^\n]*+\n|\()*+([A-Za-z]+)", re.DOTALL)
"""Matches the blanks and comments before a statement's first word, and the word. It never backtracks, as the text may
be hostile."""
_READS = {"SELECT", "SHOW", "WITH", "EXPLAIN", "DESCRIBE", "DESC", "ANALYZE", "CHECK", "VALUES", "TABLE"}
"""First words of statements that MariaDB's read lock doesn't wait for."""
_KEEP_WRITERS_AWAY = "'SHARED_NO_WRITE', 'SHARED_READ_ONLY', 'SHARED_NO_READ_WRITE', 'EXCLUSIVE'"
_MYSQL_COLUMNS = """
    SELECT t.PROCESSLIST_ID AS id, t.PROCESSLIST_USER AS user, t.PROCESSLIST_HOST AS host,
        t.PROCESSLIST_TIME AS seconds, t.PROCESSLIST_COMMAND AS command, LEFT(t.PROCESSLIST_INFO, 200) AS info,
        m.OBJECT_SCHEMA AS schema_name, m.OBJECT_NAME AS object_name
    FROM performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID"""
_MYSQL_LOCKS = f"""{_MYSQL_COLUMNS}
    WHERE m.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID()
        AND t.NAME NOT LIKE 'thread/sql/slave%%' AND t.NAME NOT LIKE 'thread/sql/replica%%' AND """
_BLOCKS_FLUSH = f"""(
        m.OBJECT_TYPE = 'TABLE' AND m.OBJECT_SCHEMA <> 'performance_schema' AND (
            (t.PROCESSLIST_COMMAND <> 'Sleep' AND t.PROCESSLIST_TIME >= {LONG})
            OR (t.PROCESSLIST_COMMAND = 'Sleep' AND m.LOCK_TYPE IN ({_KEEP_WRITERS_AWAY}))
            OR m.LOCK_DURATION = 'EXPLICIT')
        OR m.OBJECT_TYPE IN ('GLOBAL', 'COMMIT') AND m.LOCK_TYPE = 'INTENTION_EXCLUSIVE'
            AND t.PROCESSLIST_TIME >= {LONG})"""
"""Statements at work on tables; LOCK TABLES (a session that sleeps keeps tables open by it); HANDLER … OPEN; writes."""
_BLOCKS_TABLES = f"""
        m.OBJECT_TYPE = 'TABLE' AND t.PROCESSLIST_TIME >= {LONG}
        AND m.LOCK_TYPE IN ('SHARED_WRITE', 'SHARED_WRITE_LOW_PRIO', 'SHARED_UPGRADABLE', 'SHARED_NO_WRITE',
            'SHARED_NO_READ_WRITE', 'EXCLUSIVE')"""
"""Open transactions that wrote to a table, DDL, and LOCK TABLES … WRITE."""
_MYSQL_WAITING = f"""{_MYSQL_COLUMNS}
    WHERE m.LOCK_STATUS = 'PENDING' AND m.OBJECT_TYPE = 'TABLE' AND t.PROCESSLIST_ID <> CONNECTION_ID()
        AND m.LOCK_TYPE IN ({_KEEP_WRITERS_AWAY})"""
_CHANGING = "SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"
_MOST_SEARCHED = 20_000
"""Characters of a statement that are searched for the name of a table."""
_WAITS_FOR_TABLE = "Waiting for table metadata lock"


@dataclass(frozen=True)
class LockHolder:
    """A session that holds what a lock waits for. seconds: since its statement began, or since it became idle.

    statement: the statement's first word; None where the session runs none. waits: the thing that the session itself
    waits for; empty if it doesn't wait.
    """

    connection: int
    account: str
    seconds: int
    statement: str | None
    tables: tuple[str, ...] = ()
    waits: str = ""

    def __str__(self) -> str:
        doing = f"{self.statement} for {self.seconds} s" if self.statement else f"idle for {self.seconds} s"
        tables = f" with {', '.join(self.tables[:_MOST_NAMED])}" if self.tables else ""
        waits = f", and waits for {self.waits}" if self.waits else ""
        return f"connection {self.connection} of {self.account} ({doing}{tables}{waits})"


def named(holders: Sequence[LockHolder]) -> str:
    """Return the sessions as text, the longest first; what can't be seen is said, too."""
    if not holders:
        return (
            "a session that the account can't see, or that runs no statement (LOCK TABLES … WRITE, an open transaction,"
            " a backup)"
        )
    first = sorted(holders, key=lambda holder: -holder.seconds)
    more = f" and {len(first) - _MOST_NAMED} more" if len(first) > _MOST_NAMED else ""
    return "; ".join(map(str, first[:_MOST_NAMED])) + more


def flush_holders(source: QueriedServer) -> list[LockHolder]:
    """Return the sessions that FLUSH TABLES WITH READ LOCK would wait for, as far as the account may see them."""
    if source.is_mariadb:
        return [holder for holder in _running(source) if holder.statement not in _READS]
    try:
        return _of_rows(source.query(_MYSQL_LOCKS + _BLOCKS_FLUSH + f" LIMIT {_MOST_READ}", []))
    except AccessDenied:
        return _running(source)


def table_holders(source: QueriedServer, names: Collection[TableName]) -> list[LockHolder]:
    """Return the sessions that LOCK TABLES … READ would wait for. MariaDB shows none of them beforehand."""
    if source.is_mariadb or not names:
        return []
    try:
        rows = source.query(_MYSQL_LOCKS + _BLOCKS_TABLES, [])
    except AccessDenied:
        return []
    wanted = {(name.database, name.table) for name in names}
    return _of_rows([row for row in rows if (row["schema_name"], row["object_name"]) in wanted])


def waiting_ddl(source: QueriedServer, names: Collection[TableName]) -> list[LockHolder]:
    """Return the sessions whose DDL or LOCK TABLES waits for one of the tables, as far as the account may see them.

    MariaDB doesn't show for which table a statement waits: one whose text has the name is taken to wait for it.
    """
    try:
        if source.is_mariadb:
            waiting = [row for row in processes(source, _MOST_SEARCHED) if row["state"] == _WAITS_FOR_TABLE]
            return _of_rows([row for row in waiting if _names_one(str(row["info"] or ""), names)])
        rows = source.query(_MYSQL_WAITING, [])
    except SourceError:
        return []
    wanted = {(name.database, name.table) for name in names}
    return _of_rows([row for row in rows if (row["schema_name"], row["object_name"]) in wanted])


def _names_one(text: str, names: Collection[TableName]) -> bool:
    word = _WORD.match(text)
    return word is not None and word[1].upper() not in _READS and any(name.table in text for name in names)


def may_see(source: QueriedServer) -> bool:
    """Return whether the account may see the statements of others."""
    if source.is_mariadb:
        return any(re.match(r"GRANT (.*\bPROCESS\b|ALL PRIVILEGES).* ON \*\.\* TO ", text) for text in source.grants())
    try:
        source.query(_MYSQL_LOCKS + _BLOCKS_FLUSH + " LIMIT 0", [])
    except AccessDenied:
        return False
    return True


def suspects(source: QueriedServer) -> list[LockHolder]:
    """Return the sessions that may have been in a lock's way: long statements and transactions with changes.

    For naming them where the server doesn't show who holds the lock. Empty where the account may see nothing.
    """
    try:
        rows = processes(source)
    except SourceError:
        return []
    changing: set[int] = set()
    with suppress(SourceError):  # without PROCESS
        changing = {int(row["id"]) for row in source.query(_CHANGING)}
    return _of_rows([row for row in rows if _is_running(row) or int(row["id"]) in changing])


def _running(source: QueriedServer) -> list[LockHolder]:
    """Return the sessions whose statement runs for a second or longer, without those that wait for a user-level lock,
    as binlake's own do at their gates."""
    try:
        rows = processes(source)
    except SourceError:
        return []
    return _of_rows([row for row in rows if _is_running(row)])


def _is_running(row: dict[str, Any]) -> bool:
    return (
        row["command"] in ("Query", "Execute")
        and (row["seconds"] or 0) >= LONG
        and row["state"] not in ("User lock", "Waiting on empty queue")
        and row["user"] not in ("system user", "event_scheduler")
        and not str(row["state"] or "").startswith(_WAITING)
    )


def _of_rows(rows: Sequence[dict[str, Any]]) -> list[LockHolder]:
    """Return one holder for each connection, with the tables of all its rows."""
    tables: dict[int, dict[str, None]] = {}
    for row in rows:
        known = tables.setdefault(int(row["id"]), {})
        if row.get("object_name"):
            known[f"{row['schema_name']}.{row['object_name']}"] = None
    by_connection = {int(row["id"]): row for row in rows}
    return [_holder(row, tuple(tables[number])) for number, row in by_connection.items()]


def _holder(row: dict[str, Any], tables: tuple[str, ...]) -> LockHolder:
    word = next(_first_words(row["info"]), None) if row["command"] != "Sleep" else None
    account = f"{row['user']}@{str(row['host'] or '').partition(':')[0]}"
    state = str(row.get("state") or "")
    waits = state.removeprefix(_WAITING) if state.startswith(_WAITING) else ""
    return LockHolder(int(row["id"]), account, max(0, int(row["seconds"] or 0)), word, tables, waits)


def _first_words(text: str | None) -> Iterator[str]:
    if text and (match := _WORD.match(text)):
        yield match[1].upper()
    elif text:
        yield "a statement"
