"""A table's history played from the server's log by mysql-replication, event by event, without the engine's code.

Statements are those of ``HistoryWalk``: their effect on columns is known from their text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pymysql.cursors import Cursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from history_player import Player
from servers import Server

Row = Mapping[str, Any]
_ADD = re.compile(r"ADD (\w+) (?:INT|BIGINT) (?:NOT NULL )?DEFAULT (\d+)")
_PLAYED = re.compile(r"Query|Xid|(Write|Update|Delete)_rows(_v1)?")
_RENAME = re.compile(r"RENAME COLUMN (\w+) TO (\w+)")


def boundary(file: str, offset: int) -> str:
    return f"{int(file.rpartition('.')[2]):06}:{offset:012}"


@dataclass
class Oracle:
    """The history of one table, and what it was at some boundaries: the server's rows, by their positions.

    events, mutations, statements: how many were played of the table's rows, and of its statements.
    """

    server: Server
    database: str
    table: str
    player: Player
    file: str
    offset: int
    at: dict[str, list[Row]] = field(default_factory=dict)
    events: int = 0
    mutations: int = 0
    statements: int = 0

    def begin(self, rows: list[dict[str, Any]]) -> None:
        """These rows are there at the snapshot's position."""
        for row in rows:
            self.player.insert(row, boundary(self.file, self.offset), 0)
        self.player.commit()

    def note(self) -> None:
        """Remember the server's rows at the log's end."""
        self.at[boundary(*self.end())] = rows_of(self.server, self.database, self.table)

    def end(self) -> tuple[str, int]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            status = "SHOW BINARY LOG STATUS" if self.server.kind == "mysql" else "SHOW MASTER STATUS"
            cursor.execute(status)
            ((file, offset, *_),) = cursor.fetchall()
        return str(file), int(offset)

    def play(self) -> None:
        """Play the log up to its end."""
        file, offsets = self.file, self._offsets(self.file, self.offset)
        for event in self._events():
            if isinstance(event, RotateEvent):
                file, offsets = event.next_binlog, self._offsets(event.next_binlog, event.position)
                continue
            place = f"{boundary(file, next(offsets))}"
            if isinstance(event, QueryEvent):
                self._statement(event.query, f"{place}:{0:09}", event.timestamp)
            elif isinstance(event, XidEvent):
                self.player.commit()
            elif event.table == self.table and event.schema == self.database:
                self.events += 1
                self.mutations += len(event.rows)
                for number, row in enumerate(event.rows):
                    self._row(event, row, f"{place}:{number:09}")
        self.player.commit()
        self.file, self.offset = self.end()

    def _events(self) -> Iterator[Any]:
        stream = BinLogStreamReader(
            connection_settings={"host": "127.0.0.1", "port": self.server.port, "user": "root", "passwd": ""},
            server_id=7790, log_file=self.file, log_pos=self.offset, resume_stream=True, blocking=False,
            only_events=[QueryEvent, RotateEvent, XidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )  # fmt: skip
        try:
            yield from stream
        finally:
            stream.close()

    def _offsets(self, file: str, start: int) -> Iterator[int]:
        """Yield where events begin, of the kinds that are played. MariaDB 11.4 and newer don't write it into the
        headers of a transaction's events."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {start}")
            yield from (int(offset) for _, offset, kind, *_ in cursor.fetchall() if _PLAYED.fullmatch(kind))

    def _row(self, event: RowsEvent, row: dict[str, Any], position: str) -> None:
        if isinstance(event, WriteRowsEvent):
            self.player.insert(row["values"], position, event.timestamp)
        elif isinstance(event, DeleteRowsEvent):
            self.player.delete(row["values"], position, event.timestamp)
        else:
            self.player.update(row["before_values"], row["after_values"], position, event.timestamp)

    def _statement(self, text: str, position: str, at: int) -> None:
        self.statements += text.upper().startswith(("TRUNCATE", "ALTER"))
        if text.upper().startswith("TRUNCATE"):
            self.player.close_all(position, at)
        if text.upper() == "COMMIT":  # of tables without transactions
            self.player.commit()
        if not text.upper().startswith("ALTER"):
            return
        if added := _ADD.search(text):
            self._change_current(lambda row: {**row, added[1]: int(added[2])})
        if renamed := _RENAME.search(text):
            old, new = renamed.groups()

            def rename(row: Row) -> Row:
                return {new if name == old else name: value for name, value in row.items()}

            self._change_current(rename)
            self.player.closed = [replace(version, row=rename(version.row)) for version in self.player.closed]

    def _change_current(self, change: Callable[[Row], Row]) -> None:
        current = self.player.current
        for key, version in current.items():
            current[key] = replace(version, row=change(version.row))


def rows_of(server: Server, database: str, table: str) -> list[Row]:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class HistoryWalk:
    """Random transactions on one table ``t``: few keys, which move, go and come back; now and then a statement.

    ddl_share: of statements among the transactions; every fifth ends all rows. events: how many of rows the log has
    from it, at least.
    """

    def __init__(self, server: Server, database: str, seed: int, keys: int, ddl_share: float) -> None:
        self.random = random.Random(seed)
        self.keys = keys
        self.ddl_share = ddl_share
        self.events = 0
        self._connection = server.connect(database=database)
        self._names = 0
        self._renamed = "v"
        self._added: list[str] = []

    def close(self) -> None:
        self._connection.close()

    def go_on(self, events: float, *, ddl: bool = True) -> None:
        """Go on until the log has so many more events of rows."""
        until = self.events + events
        with self._connection.cursor() as cursor:
            while self.events < until:
                if ddl and self.random.random() < self.ddl_share:
                    cursor.execute("TRUNCATE TABLE t" if self.random.random() < 0.2 else self._alter())
                else:
                    self._transact(cursor)

    def _transact(self, cursor: Cursor) -> None:
        cursor.execute("BEGIN")
        mutations = [self._mutation() for _ in range(self.random.choice([1, 1, 2, 5]))]
        changed = sum(cursor.execute(mutation) > 0 for mutation in mutations)
        if self.random.random() < 0.9:
            cursor.execute("COMMIT")
            self.events += changed
        else:
            cursor.execute("ROLLBACK")

    def _alter(self) -> str:
        self._names += 1
        if len(self._added) > self.random.randint(1, 6):
            return f"ALTER TABLE t DROP COLUMN {self._added.pop(0)}"
        if self.random.random() < 0.5:
            self._added.append(f"n{self._names}")
            return f"ALTER TABLE t ADD {self._added[-1]} BIGINT NOT NULL DEFAULT {self._names}"
        old, self._renamed = self._renamed, f"v{self._names}"
        return f"ALTER TABLE t RENAME COLUMN {old} TO {self._renamed}"

    def _mutation(self) -> str:
        key, other = self.random.randint(1, self.keys), self.random.randint(1, self.keys)
        text = self.random.choice(["a", "b", "c"])
        return self.random.choice(
            [
                f"INSERT IGNORE INTO t (id, part, {self._renamed}, w) VALUES ({key}, 'x', '{text}', {other})",
                f"INSERT IGNORE INTO t (id, part, {self._renamed}, w) SELECT {key} + n, 'y', '{text}', n"
                " FROM (SELECT 1 n UNION SELECT 2 UNION SELECT 3) s",
                f"UPDATE t SET {self._renamed} = '{text}', w = w + 1 WHERE id = {key}",
                f"UPDATE t SET w = {other} WHERE id BETWEEN {key} AND {key} + 4",
                f"UPDATE IGNORE t SET id = {other} WHERE id = {key} AND part = 'x'",
                f"DELETE FROM t WHERE id = {key}",
                f"REPLACE INTO t (id, part, {self._renamed}, w) VALUES ({key}, 'x', '{text}', {other})",
            ]
        )
