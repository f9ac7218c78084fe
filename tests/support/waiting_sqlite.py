"""Connect arguments for Airflow commands that write to its SQLite database beside a running scheduler.

A savepoint outside a transaction begins one that reads first. SQLite refuses its first write at once, "database is
locked", when somebody else wrote in between: no timeout helps there. One that begins as a writer waits for its turn.
"""

from __future__ import annotations

import sqlite3
from typing import Any


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = ()) -> _Cursor:
        if sql.startswith("SAVEPOINT") and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class _Connection(sqlite3.Connection):
    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)


CONNECT_ARGS = {"timeout": 60, "factory": _Connection}
