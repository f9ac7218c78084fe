"""Writer of a binlog file, from its magic number to its ROTATE: whole transactions, in order, each with its GTID.

Rows are given as images (row_bytes.RowImages); consecutive rows of one table and one operation share an event. Each row
event has its table map before it and ends a statement, because it isn't known which rows one statement changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from binlake.binlog.border import DELETE, INSERT, UPDATE, Statement
from binlake.binlog.events import IGNORABLE, MAGIC, EventType
from binlake.binlog_writer import event_bytes
from binlake.binlog_writer.event_bytes import GtidEvent, Stamp
from binlake.binlog_writer.packed_numbers import packed_integer
from binlake.ddl import statements
from binlake.position import Flavour

EVENT_BYTES = 1 << 20
"""Bytes of rows after which a new event begins; a larger row has an event of its own."""
_WITHOUT_USE = 0x08
"""Header flag LOG_EVENT_SUPPRESS_USE_F: the statement needs no default database, which may not exist yet."""
_STATEMENT_END, _NO_FOREIGN_KEY_CHECKS = 1, 2
_KINDS: dict[Flavour, dict[int, EventType]] = {
    "mysql": {INSERT: EventType.WRITE_ROWS, UPDATE: EventType.UPDATE_ROWS, DELETE: EventType.DELETE_ROWS},
    "mariadb": {INSERT: EventType.WRITE_ROWS_V1, UPDATE: EventType.UPDATE_ROWS_V1, DELETE: EventType.DELETE_ROWS_V1},
}


@dataclass(frozen=True)
class Head:
    """The commit time of a transaction (µs since 1970 UTC), and its GTID, if it has one."""

    committed_us: int
    gtid: str | None = None


@dataclass(frozen=True)
class RowEvent:
    """Rows of one table and one operation.

    op: as staged. table_map: the body of its table map, with the table's id. width: number of columns. images: before,
    after or both of each row, in turn. unchecked: the session had foreign_key_checks = 0."""

    op: int
    table_map: bytes
    width: int
    images: Sequence[bytes]
    unchecked: bool = False


@dataclass
class FileEnd:
    """The end of a file, between two transactions. transactions: how many it has. last_us: the last commit's time."""

    offset: int
    transactions: int
    last_us: int


class BinlogWriter:
    """Writer of a file to ``out``, a seekable stream. end: the file's present end."""

    def __init__(self, out: BinaryIO, flavour: Flavour, *, server_id: int, end: FileEnd) -> None:
        """Continue an existing file after ``end``."""
        self._out, self._flavour, self._server_id = out, flavour, server_id
        self.end = end
        self._opening: tuple[int, GtidEvent] | None = None
        self._open = Stamp(end.last_us, server_id)

    @classmethod
    def begun(
        cls, out: BinaryIO, flavour: Flavour, *, server_id: int, created_us: int, previous_gtids: str = ""
    ) -> BinlogWriter:
        """Begin a new file. created_us: its first transaction's time, so that the same content gives the same bytes."""
        made = cls(out, flavour, server_id=server_id, end=FileEnd(out.write(MAGIC), 0, created_us))
        made._event(EventType.FORMAT_DESCRIPTION, event_bytes.format_description(flavour), made._open)
        kind, body = event_bytes.previous_gtids(previous_gtids, flavour)
        made._event(kind, body, made._open, flags=IGNORABLE if kind is EventType.PREVIOUS_GTIDS else 0)
        return made

    def transaction(self, head: Head, rows: Iterable[RowEvent]) -> None:
        """Write a transaction with its BEGIN and commit."""
        self.begin(head)
        for event in rows:
            self.rows(event)
        self.commit()

    def begin(self, head: Head) -> None:
        """Begin a transaction of row events."""
        self._start(head, only_rows=True)
        if self._flavour == "mysql" or head.gtid is None:
            self._event(EventType.QUERY, event_bytes.begin(), self._open, _WITHOUT_USE)

    def rows(self, event: RowEvent) -> None:
        """Write rows of the open transaction, as one event or several."""
        for kind, body in self._row_events(event):
            self._event(kind, body, self._open)

    def commit(self) -> None:
        """End the open transaction by XID_EVENT."""
        self._event(EventType.XID, struct.pack("<Q", self.end.transactions), self._open)
        self._finish()

    def statement(self, head: Head, statement: Statement) -> None:
        """Write a statement that is a transaction by itself: DDL."""
        self._start(head, only_rows=False)
        began_us = head.committed_us if statement.session.began is None else statement.session.began * 1_000_000
        parsed = statements.parse(
            statement.text, database=statement.database, sql_mode=statement.sql_mode, flavour=self._flavour
        )
        flags = _WITHOUT_USE if parsed.kind.endswith(" DATABASE") else 0
        body = event_bytes.statement(statement, self._flavour, self.end.transactions)
        self._event(EventType.QUERY, body, replace(self._open, committed_us=began_us), flags)
        self._finish()

    def close(self, next_file: str) -> None:
        """End the file with the name of the next. The stream stays open."""
        self._event(EventType.ROTATE, event_bytes.rotate(next_file), Stamp(self.end.last_us, self._server_id))

    def _start(self, head: Head, *, only_rows: bool) -> None:
        self.end.transactions += 1
        self.end.last_us = head.committed_us
        server_id = self._server_id
        if self._flavour == "mariadb" and head.gtid:
            server_id = int(head.gtid.split("-")[1])
        self._open = Stamp(head.committed_us, server_id)
        if self._flavour == "mysql":
            self._opening = self.end.offset, GtidEvent(head.gtid, self._open, self.end.transactions, only_rows)
            self._event(*self._opening[1].encoded(0), self._open)
        elif head.gtid:
            body = event_bytes.mariadb_gtid(head.gtid, statement=not only_rows)
            self._event(EventType.MARIADB_GTID, body, self._open)

    def _finish(self) -> None:
        """Write MySQL's GTID event again, at the end of its transaction, whose length it holds."""
        if self._opening is None:
            return
        offset, opening = self._opening
        kind, body = opening.encoded(self.end.offset - offset)
        self._out.seek(offset)
        self._out.write(event_bytes.event(kind, self._open, body, offset))
        self._out.seek(self.end.offset)
        self._opening = None

    def _row_events(self, event: RowEvent) -> Iterable[tuple[EventType, bytes]]:
        kind = _KINDS[self._flavour][event.op]
        flags = _STATEMENT_END | (_NO_FOREIGN_KEY_CHECKS if event.unchecked else 0)
        head = event.table_map[:6] + struct.pack("<H", flags)
        if self._flavour == "mysql":
            head += struct.pack("<H", 2)  # no extra data behind these two bytes themselves
        all_columns = ((1 << event.width) - 1).to_bytes((event.width + 7) // 8, "little")
        head += packed_integer(event.width) + all_columns * (2 if event.op == UPDATE else 1)
        for images in _cut(event.images, 2 if event.op == UPDATE else 1):
            yield EventType.TABLE_MAP, event.table_map
            yield kind, head + b"".join(images)

    def _event(self, kind: EventType, body: bytes, stamp: Stamp, flags: int = 0) -> None:
        self.end.offset += self._out.write(event_bytes.event(kind, stamp, body, self.end.offset, flags))


def _cut(images: Sequence[bytes], step: int) -> Iterable[Sequence[bytes]]:
    """Yield the images in portions of whole rows, of about EVENT_BYTES each."""
    start = size = 0
    for at in range(0, len(images), step):
        row = sum(map(len, images[at : at + step]))
        if size and size + row > EVENT_BYTES:
            yield images[start:at]
            start, size = at, 0
        size += row
    if start < len(images):
        yield images[start:]
