"""A slice of a server's log through mysql-replication: its events, and what it left out.

The package drops what it doesn't know and what it was told to filter without a word. Here each event's place is held
against the end of the one before it, so that nothing is missed unseen.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP
from pymysqlreplication import BinLogStreamReader, event, row_event

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, stands_in_no_file
from binlake.errors import BinlakeError, ConnectionFailed
from binlake.position import FIRST_OFFSET, Slice
from binlake.schema.table import TableName
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.misread import NEVER_READ, WITHOUT_ROWS
from binlake.source.connection import Endpoint, connect
from binlake.source.dump import STALLED, translate

_WRAP = 1 << 32
"""The command has 32 bits for where to begin."""
_SEND_ANNOTATE_ROWS = 2
_KIND_AT = 5
"""Of an event's packet: a byte for OK, then four of its timestamp."""
_WITH_CHECKSUM = 23
"""Bytes that the package takes off an event's size where it thinks that checksums are on."""
_ALL = [
    kind
    for module in (event, row_event)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, event.BinLogEvent)
]
"""By default it leaves some out."""
_KINDS = frozenset(map(int, EventType))
_OPERATIONS: dict[type, int] = {
    row_event.WriteRowsEvent: INSERT,
    row_event.UpdateRowsEvent: UPDATE,
    row_event.PartialUpdateRowsEvent: UPDATE,
    row_event.DeleteRowsEvent: DELETE,
}

Image = dict[str, Any]
"""The package's values by column."""


@dataclass(frozen=True)
class Seen:
    """An event that the package gave. event: its own object; offset: bytes."""

    file: str
    offset: int
    event: Any

    @property
    def size(self) -> int:
        return int(self.event.packet.event_size)

    @property
    def kind(self) -> int:
        return int(self.event.event_type)

    @property
    def is_known(self) -> bool:
        return not isinstance(self.event, event.NotImplementedEvent)

    def unread(self, why: str) -> Unread:
        return Unread(self.file, self.offset, self.offset + self.size, why)


@dataclass(frozen=True)
class Unread:
    """Part of a file, first <= offset < stop (bytes), that the package left out. why: without any value.

    has_rows: False where it is known to hold neither rows nor statements.
    """

    file: str
    first: int
    stop: int
    why: str
    has_rows: bool = True


@dataclass(frozen=True)
class Rows:
    """A row event. rows: before and after each; columns: the package's own descriptions."""

    file: str
    offset: int
    name: TableName
    op: int
    columns: tuple[Any, ...]
    key: tuple[str, ...]
    rows: list[tuple[Image | None, Image | None]]


def events(endpoint: Endpoint, server_id: int, part: Slice) -> Generator[Seen | Unread]:
    """All of a slice, in its order and without gaps. Raises SourceError."""
    at = max(part.start, FIRST_OFFSET)
    if at >= part.stop:
        return
    if at >= _WRAP:
        yield Unread(part.file, at, part.stop, "behind 4 GiB of a file, where it can't begin")
        return
    connections = _Connections(endpoint, part.file, at)
    stream = _open(connections, server_id, part.file, at)
    try:
        yield from _events(stream, connections, part, at)
    except pymysql.err.MySQLError as error:
        raise translate(error, endpoint, part) from None
    except OSError as error:
        raise connections.broken(type(error).__name__) from None
    finally:
        stream.close()


def _events(stream: BinLogStreamReader, connections: _Connections, part: Slice, at: int) -> Iterator[Seen | Unread]:
    failed: list[tuple[int, str]] = []
    while at < part.stop:
        try:
            found = stream.fetchone()
        except (BinlakeError, pymysql.err.MySQLError, OSError):
            raise
        except Exception as error:  # whatever its parser trips over; the next packet is read all the same
            failed.append((connections.kind, type(error).__name__))
            continue
        if found is None and not failed:
            raise connections.broken("the server ended the stream")
        if found is None or _left(found, part.file):
            break
        if wrong := _checksum_unseen(found):
            yield Unread(part.file, at, part.stop, wrong)
            return
        if _is_made_up(found):
            continue
        start, end = connections.place
        if start >= part.stop:
            break
        if start > at:
            yield _gap(part.file, at, start, failed)
        failed, at = [], end
        yield Seen(part.file, start, found)
    if at < part.stop:
        yield _gap(part.file, at, part.stop, failed)


def _gap(file: str, first: int, stop: int, failed: list[tuple[int, str]]) -> Unread:
    """failed: kinds of events, and of the errors they raised, whose messages may hold values."""
    if not failed:
        return Unread(file, first, stop, "dropped without a word")
    named = " and ".join(sorted({f"{kind_name(kind)} events, where it fails ({error})" for kind, error in failed}))
    return Unread(file, first, stop, f"in {named}", any(kind not in WITHOUT_ROWS for kind, _ in failed))


class _Connections:
    """What the package connects by: ours, with our deadlines and TLS.

    kind, place: type of the event that came last, and the bytes of the file that it takes (start, end). They are
    counted, for MariaDB 11.4 and newer write no end into the headers of a transaction's events.
    """

    def __init__(self, endpoint: Endpoint, file: str, start: int) -> None:
        self.kind = 0
        self.place = (start, start)
        self._endpoint, self._file, self._start = endpoint, file, start
        self._left = 2  # the stream's, and one for questions; it would connect anew, for ever, to a server that is gone

    def __call__(self, **options: Any) -> Any:
        if not self._left:
            raise self.broken("the connection broke")
        self._left -= 1
        chosen = {name: options[name] for name in ("cursorclass",) if name in options}
        session: Any = connect(self._endpoint, read_timeout=STALLED, program_name="binlake", **chosen)
        self._watch(session)
        if "MariaDB" in session.get_server_info():
            _ask_for_annotations(session)
        return session

    def _watch(self, session: Any) -> None:
        read = session._read_packet

        def reading(*arguments: Any) -> Any:
            packet = read(*arguments)
            self._note(packet.get_all_data())
            return packet

        session._read_packet = reading

    def _note(self, packet: bytes) -> None:
        self.kind = packet[_KIND_AT] if len(packet) > _KIND_AT else 0
        if len(packet) <= HEADER_SIZE:
            return
        _, kind, _, size, end, flags = HEADER.unpack_from(packet, 1)
        if size == len(packet) - 1 and not stands_in_no_file(kind, end, flags):
            self.place = (self.place[1], self.place[1] + size)

    def broken(self, why: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self._endpoint.address}: {why} while {PACKAGE} read {self._file} from {self._start} on",
            remedy="check that the server runs and isn't being stopped, then run again",
        )


def _open(connections: _Connections, server_id: int, file: str, start: int) -> BinLogStreamReader:
    return BinLogStreamReader(
        connection_settings={},
        pymysql_wrapper=connections,
        server_id=server_id,
        slave_uuid=str(uuid.uuid4()),  # a server ends the dump of an elder replica that has the same
        log_file=file,
        log_pos=start,
        resume_stream=True,
        blocking=False,
        only_events=_ALL,
        filter_non_implemented_events=False,
        enable_logging=False,
    )


def _ask_for_annotations(session: Any) -> None:
    """MariaDB keeps ANNOTATE_ROWS back unless it is asked; what is kept back can't be told from what is dropped.

    The package asks only where it follows GTIDs. Layout: 4 bytes of the packet's head, COM_BINLOG_DUMP, 4 of the
    offset, 2 of flags (MariaDB's "COM_BINLOG_DUMP").
    """
    write = session._write_bytes

    def asking(data: bytes) -> None:
        if data[4] == COM_BINLOG_DUMP:
            data = data[:9] + bytes([data[9] | _SEND_ANNOTATE_ROWS]) + data[10:]
        write(data)

    session._write_bytes = asking


def _left(found: Any, file: str) -> bool:
    """Whether the next file begins."""
    return isinstance(found, event.RotateEvent) and _is_made_up(found) and found.next_binlog != file


def _is_made_up(found: Any) -> bool:
    """For the connection: not in the file."""
    return stands_in_no_file(found.event_type, found.packet.log_pos, found.packet.flags)


def _checksum_unseen(found: Any) -> str:
    """It looks for checksums by the server's setting of today, and cuts files of another one short; empty if right."""
    if not isinstance(found, event.FormatDescriptionEvent):
        return ""
    thought = found.packet.event_size - found.event_size == _WITH_CHECKSUM
    if thought == bool(found.checksum_algorithm):
        return ""
    return "in a file written under another binlog_checksum than the server has now"


def kind_name(kind: int) -> str:
    """An event's type for people."""
    return EventType(kind).name if kind in _KINDS else f"type {kind}"


def table_of(seen: Seen) -> TableName | None:
    """The table of a row event; None for any other event."""
    return TableName(seen.event.schema, seen.event.table) if type(seen.event) in _OPERATIONS else None


def rows_of(seen: Seen) -> Rows | Unread:
    """Decodes a row event; Unread where that can't be trusted."""
    found = seen.event
    table = found.table_map[found.table_id]
    if why := _not_understood(table.columns):
        return seen.unread(why)
    try:
        rows = found.rows
    except Exception as error:  # its parser's, of any kind
        return seen.unread(f"where it fails ({type(error).__name__})")
    key = table.primary_key
    return Rows(
        seen.file,
        seen.offset,
        TableName(found.schema, found.table),
        _OPERATIONS[type(found)],
        tuple(table.columns),
        (key,) if isinstance(key, str) and key else tuple(key),
        [_images(type(found), row) for row in rows],
    )


def _not_understood(columns: list[Any]) -> str:
    for column in columns:
        if column.type in NEVER_READ:
            return f"of a table with a column of the type {NEVER_READ[column.type]}, which it doesn't know"
    if any(column.name is None for column in columns):
        return "of a table whose description it can't read"
    return ""


def _images(kind: type, row: dict[str, Image]) -> tuple[Image | None, Image | None]:
    if _OPERATIONS[kind] == UPDATE:
        return row["before_values"], row["after_values"]
    return (None, row["values"]) if _OPERATIONS[kind] == INSERT else (row["values"], None)
