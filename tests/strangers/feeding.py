"""Feeds a test file's steps to a server: errors are ignored, tables are kept.

Each file lives in a database of its own, which is in the place of ``test``. Where a DROP TABLE would leave it
empty, the file continues in a fresh one instead (by the seed), so that what it made can be compared; the last ones of a
file are never dropped.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from servers import Server
from strangers.harmful import bare, reason_to_skip
from strangers.script import Block, Connect, Count, Disconnect, Exit, Let, Source, Statement, Step, Switch, steps_of
from strangers.suites import Suite, read

STATEMENT_SECONDS = 5
FILE_SECONDS = 20.0
MOST_STATEMENTS = 1500
MOST_ROWS = 100_000
"""That a file may write: it ends behind the statement that writes more. Temporary tables count too."""
SLOW_SECONDS = 0.2
"""Quicker statements don't write that many."""
MOST_TABLES = 80
"""That a file may have at a time: it ends behind the statement that makes more."""
MOST_TURNS = 100
"""Of a loop."""
DEEPEST = 5
"""Includes inside includes."""
MOST_DATABASES = 12
"""That one file goes through: each costs its tables' commits."""
KEPT = 0.7
"""The share of the DROP TABLEs that would empty the database and aren't run."""
DEFAULT = "default"
_REPLICAS = re.compile(r"slave|replica|server_?[2-9]|node_[2-9]|sub\d", re.IGNORECASE)
_GONE = (2006, 2013, 2055)
_QUOTED = re.compile(r"('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|/\*.*?\*/)", re.DOTALL)
_QUALIFIED = re.compile(r"(?<![\w`.@$-])`?test`?(?=\s*\.\s*[`\w*])", re.IGNORECASE)
_NAMED = re.compile(r"(\b(?:use|database|schema)\s+(?:if\s+(?:not\s+)?exists\s+)?)`?test`?(?![\w`$])", re.IGNORECASE)
_CREATE = re.compile(r"create\b", re.IGNORECASE)
_DROP_TABLES = re.compile(r"drop\s+tables?\s+(?:if\s+exists\s+)?(.+)", re.IGNORECASE | re.DOTALL)
_FUNCTION = re.compile(
    r"create\b.*?\bfunction\s+(?:if\s+not\s+exists\s+)?(?:`?\w+`?\.)?`?(\w+)", re.IGNORECASE | re.DOTALL
)
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_VALUE = re.compile(r"query_get_value\s*\((.*),\s*([\w()*`]+)\s*,\s*(\d+)\s*\)", re.DOTALL | re.IGNORECASE)
_COMPARED = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)", re.DOTALL)


@dataclass(frozen=True)
class Fed:
    """A statement as it went to the server, and over which connection. failed: how the server refused it."""

    connection: str
    text: str
    failed: str = ""


class ServerGone(Exception):
    """The server ended while it ran a statement."""


class Finished(Exception):
    """A file is at its end, or its time is over."""


@dataclass
class Connections:
    """The connections of one file, by name; as root, whatever account the file wanted."""

    server: Server
    open: dict[str, pymysql.Connection[Any]] = field(default_factory=dict)

    def run(self, name: str, text: str, database: str) -> list[tuple[bytes | None, ...]]:
        """Every result is read, the first one is given. Raises pymysql's errors, ServerGone."""
        connection = self.open.get(name)
        if connection is None:
            connection = self.open[name] = self._opened(database)
        try:
            return _query(connection, text)
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
            if error.args[0] in _GONE or not connection.open:
                self._lost(name, text)
            raise
        except pymysql.err.MySQLError:
            raise
        except Exception:  # an answer that pymysql can't read: what follows on this connection means nothing
            self._lost(name, text)
            raise

    def _opened(self, database: str) -> pymysql.Connection[Any]:
        connection = self.server.connect(
            read_timeout=STATEMENT_SECONDS, client_flag=CLIENT.MULTI_STATEMENTS, conv={}, use_unicode=False
        )
        connection.encoding = "latin1"  # any byte can be read with it
        with suppress(pymysql.err.MySQLError):
            connection.query(f"USE `{database}`")
        return connection

    def _lost(self, name: str, text: str) -> None:
        """What a lost connection still does is ended."""
        connection = self.open.pop(name)
        if connection._sock is not None:  # type: ignore[attr-defined]
            connection._force_close()  # type: ignore[attr-defined]
        try:
            self.server.execute(f"KILL {connection.thread_id()}")
        except pymysql.err.OperationalError as error:
            if error.args[0] in (2002, 2003, *_GONE):
                raise ServerGone(text) from error
        except pymysql.err.MySQLError:
            pass  # it has ended by itself

    def rest(self) -> None:
        """No transaction and no lock is held by any."""
        for connection in self.open.values():
            with suppress(Exception):
                connection.query("COMMIT")
            with suppress(Exception):
                connection.query("UNLOCK TABLES")

    def close(self, *names: str) -> None:
        for name in names or tuple(self.open):
            if connection := self.open.pop(name, None):
                with suppress(pymysql.err.Error):
                    connection.close()


def _query(connection: pymysql.Connection[Any], text: str) -> list[tuple[bytes | None, ...]]:
    connection.query(text.encode("utf-8", "surrogateescape"))  # type: ignore[arg-type]  # bytes go as they stand
    rows = list(connection._result.rows or ())  # type: ignore[attr-defined]
    while connection._result.has_next:  # type: ignore[attr-defined]
        connection.next_result()  # type: ignore[attr-defined]
    return rows


class Feeder:
    """One file, fed statement by statement; ``databases`` are those it lives in, one after the other."""

    def __init__(self, server: Server, suite: Suite, path: Path, database: str, seed: int) -> None:
        self.server, self.suite, self.path = server, suite, path
        self.random = random.Random(seed)
        self.databases = [database]
        self.connections = Connections(server)
        self.fed: list[Fed] = []
        self._first = database
        self._current = DEFAULT
        self._variables: dict[str, str] = {"engine": "InnoDB", "default_engine": "InnoDB", "engine_type": "InnoDB"}
        self._functions: set[str] = set()
        self._end = time.monotonic() + FILE_SECONDS
        self._written = _rows_written(server)

    @property
    def database(self) -> str:
        return self.databases[-1]

    def statements(self) -> Iterator[Fed]:
        """Runs the file; each statement is given once the server answered. Raises ServerGone."""
        yield self._run(f"CREATE DATABASE `{self.database}`")
        yield self._run(f"USE `{self.database}`")
        with suppress(Finished):
            yield from self._steps(steps_of(read(self.path)), self.path.parent, DEEPEST)

    def _steps(self, steps: tuple[Step, ...], folder: Path, depth: int) -> Iterator[Fed]:
        for step in steps:
            began = time.monotonic()
            if began > self._end or len(self.fed) > MOST_STATEMENTS:
                raise Finished
            match step:
                case Statement(text, evaluated):
                    yield from self._statement(self._filled(text) if evaluated else text)
                    slow = time.monotonic() - began > SLOW_SECONDS
                    if slow and _rows_written(self.server) - self._written > MOST_ROWS:
                        raise Finished
                    if _CREATE.match(text) and self._tables() > MOST_TABLES:
                        raise Finished
                case Let(name, value):
                    self._variables[name] = self._value(value)
                case Count(name, by):
                    self._variables[name] = str(_number(self._variables.get(name, "")) + by)
                case Source(name):
                    path = self.suite.included(self._filled(name), folder)
                    if path and depth:
                        yield from self._steps(steps_of(read(path)), path.parent, depth - 1)
                case Connect(name, database):
                    self._current = self._filled(name)
                    if database and database.lower() != "test":
                        yield self._run(f"USE `{database}`")
                case Switch(name):
                    self._current = self._filled(name)
                case Disconnect(name):
                    self.connections.close(self._filled(name))
                case Exit():
                    raise Finished
                case Block(loops, condition, inner):
                    yield from self._block(loops, condition, inner, folder, depth)

    def _block(self, loops: bool, condition: str, inner: tuple[Step, ...], folder: Path, depth: int) -> Iterator[Fed]:
        for _ in range(MOST_TURNS if loops else 1):
            if not self._holds(condition):
                break
            yield from self._steps(inner, folder, depth)

    def _statement(self, text: str) -> Iterator[Fed]:
        if _REPLICAS.match(self._current) or reason_to_skip(text, self._functions):
            return
        text = self._own(text)
        if call := _FUNCTION.match(bare(text)):
            self._functions.add(call[1].lower())
        if (dropped := _DROP_TABLES.match(bare(text))) and self._would_empty(dropped[1]):
            yield from self._go_on_elsewhere()
        else:
            yield self._run(text)

    def _run(self, text: str) -> Fed:
        failed = ""
        try:
            self.connections.run(self._current, text, self.database)
        except ServerGone:
            raise
        except Exception as error:
            failed = str(error)
        self.fed.append(Fed(self._current, text, failed))
        return self.fed[-1]

    # -- databases --------------------------------------------------------------------------------------

    def _own(self, text: str) -> str:
        """The file's own database where it says ``test``; strings and comments stay as they are."""
        if "test" not in text.lower():
            return text
        parts = _QUOTED.split(text)
        for number in range(0, len(parts), 2):
            part = _QUALIFIED.sub(f"`{self.database}`", parts[number])
            parts[number] = _NAMED.sub(rf"\g<1>`{self.database}`", part)
        return "".join(parts)

    def _would_empty(self, names: str) -> bool:
        """Whether a DROP TABLE takes the last tables of the file's own database, and the seed wants them kept."""
        dropped = {name.strip("` \n\t;").lower() for name in re.split(r"[,.\s]+", names)}
        here = self._asked("SELECT DATABASE()")
        if here != self.database or len(self.databases) >= MOST_DATABASES:
            return False
        there = self.server.execute(
            f"SELECT LOWER(table_name) FROM information_schema.tables"
            f" WHERE table_schema = '{self.database}' AND table_type <> 'VIEW'"
        )
        return bool(there) and {name for (name,) in there} <= dropped and self.random.random() < KEPT

    def _tables(self) -> int:
        """In all databases that the file lives in."""
        ours = ", ".join(f"'{database}'" for database in self.databases)
        counted = f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ({ours})"
        return int(self.server.execute(counted)[0][0])

    def _go_on_elsewhere(self) -> Iterator[Fed]:
        left = self.database
        self.databases.append(f"{self._first}_{len(self.databases) + 1}")
        current = self._current
        yield self._run(f"CREATE DATABASE `{self.database}`")
        for name in tuple(self.connections.open):
            self._current = name
            if self._asked("SELECT DATABASE()") == left:
                yield self._run(f"USE `{self.database}`")
        self._current = current

    # -- variables --------------------------------------------------------------------------------------

    def _asked(self, query: str, row: int = 0, column: int | None = None) -> str:
        """A row's values with tabs between them, as mysqltest's backticks give them; '' where there is none."""
        if _REPLICAS.match(self._current):
            return ""
        try:
            rows = self.connections.run(self._current, query, self.database)
        except ServerGone:
            raise
        except Exception:
            return ""
        if row >= len(rows):
            return ""
        values = rows[row] if column is None else rows[row][column : column + 1]
        return "\t".join("NULL" if v is None else bytes(v).decode("utf-8", "surrogateescape") for v in values)

    def _filled(self, text: str) -> str:
        return _VARIABLE.sub(lambda variable: self._variables.get(variable[1], ""), text)

    def _value(self, text: str) -> str:
        text = self._filled(text)
        if len(text) > 1 and text[0] == text[-1] == "`":
            return self._own_asked(text[1:-1])
        if value := _VALUE.match(text):
            return self._column(value[1].strip().strip("\"'"), value[2], int(value[3]) - 1)
        return text

    def _own_asked(self, query: str) -> str:
        return "" if _slow(query) else self._asked(self._own(query))

    def _column(self, query: str, name: str, row: int) -> str:
        if _slow(query):
            return ""
        self._asked(self._own(query), row)
        connection = self.connections.open.get(self._current)
        fields = [] if connection is None or connection._result is None else connection._result.fields or []  # type: ignore[attr-defined]
        names = [described.name.lower() for described in fields]
        return self._asked(self._own(query), row, names.index(name.lower())) if name.lower() in names else ""

    def _holds(self, condition: str) -> bool:
        condition = condition.strip()
        if condition.startswith("!"):
            return not self._holds(condition[1:])
        if not condition.startswith("`") and (compared := _COMPARED.fullmatch(condition)):
            return _compared(self._value(compared[1]), compared[2], self._value(compared[3].strip("'\"")))
        value = self._value(condition).strip()
        return value not in ("", "0")

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing that the file began continues."""
        self.connections.rest()
        self.connections.close()
        end_prepared(self.server)


def end_prepared(server: Server) -> None:
    """Prepared XA transactions are rolled back; those of connections that just closed take a moment to be had."""
    end = time.monotonic() + STATEMENT_SECONDS
    with server.connect(conv={}, use_unicode=False) as connection:
        connection.encoding = "latin1"
        while (prepared := _query(connection, "XA RECOVER")) and time.monotonic() < end:
            for format_id, global_length, _, data in prepared:
                name, middle = bytes(data or b""), int(global_length or 0)
                with suppress(pymysql.err.MySQLError):
                    xid = f"X'{name[:middle].hex()}',X'{name[middle:].hex()}',{int(format_id or 0)}"
                    connection.query(f"XA ROLLBACK {xid}")
            time.sleep(0.05)


def _rows_written(server: Server) -> int:
    """By all sessions, since the server began."""
    written = ("Handler_write", "Handler_update", "Handler_delete")
    return sum(int(value) for _, value in server.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN {written}"))


def _slow(query: str) -> bool:
    return bool(re.search(r"sleep|get_lock|wait_for|master_pos_wait|benchmark", query, re.IGNORECASE))


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"-?\d+", text.strip()) else 0


def _compared(left: str, operator: str, right: str) -> bool:
    if operator in ("==", "!="):
        return (left.strip("'\"") == right) == (operator == "==")
    a, b = _number(left), _number(right)
    return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator]
