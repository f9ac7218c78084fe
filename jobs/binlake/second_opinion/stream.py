"""Reading a slice of a server's log with mysql-replication: its events, and the parts that it left out.

The package silently drops events that it doesn't know or filters. Here each event's place is compared with the end of
the one before it, so that every gap is noticed.
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
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, is_in_no_file
from binlake.errors import BinlakeError, ConnectionFailed
from binlake.position import FIRST_OFFSET, Slice
from binlake.schema.table import TableName
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.misread import NEVER_READ, WITHOUT_ROWS
from binlake.source.connection import connect
from binlake.source.dump import STALLED, translate
from binlake.source.endpoint import Endpoint

_WRAP = 1 << 32
"""The bound of offsets at which the package can begin: the command has 32 bits for it."""
_SEND_ANNOTATE_ROWS = 2
_KIND_AT = 5
"""Index of the type in an event's packet, after a byte for OK and four of the timestamp."""
_WITH_CHECKSUM = 23
"""Bytes that the package subtracts from an event's size if it assumes that checksums are on."""
_ALL = [
    kind
    for module in (event, row_event)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, event.BinLogEvent)
]
"""All event classes of the package; by default it leaves some out."""
_KINDS = frozenset(map(int, EventType))
_OPERATIONS: dict[type, int] = {
    row_event.WriteRowsEvent: INSERT,
    row_event.UpdateRowsEvent: UPDATE,
    row_event.PartialUpdateRowsEvent: UPDATE,
    row_event.DeleteRowsEvent: DELETE,
}

Image = dict[str, Any]
"""A row's values as the package gives them, by column."""


@dataclass(frozen=True)
class Seen:
    """An event that the package returned. event: its own object. offset: bytes."""

    file: str
    offset: int
    event: Any

    @property
    def size(self) -> int:
        """Return the event's size in bytes."""
        return int(self.event.packet.event_size)

    @property
    def kind(self) -> int:
        """Return the event's type code."""
        return int(self.event.event_type)

    @property
    def is_known(self) -> bool:
        """Return whether the package decodes events of this type."""
        return not isinstance(self.event, event.NotImplementedEvent)

    def unread(self, why: str) -> Unread:
        """Return the event as a part of the file that was left out."""
        return Unread(self.file, self.offset, self.offset + self.size, why)


@dataclass(frozen=True)
class Unread:
    """Part of a file, first <= offset < stop (bytes), that the package left out. why: a text without values.

    has_rows: False if it is known to have neither rows nor statements.
    """

    file: str
    first: int
    stop: int
    why: str
    has_rows: bool = True


@dataclass(frozen=True)
class Rows:
    """A row event. rows: before and after image of each. columns: the package's own descriptions."""

    file: str
    offset: int
    name: TableName
    op: int
    columns: tuple[Any, ...]
    key: tuple[str, ...]
    rows: list[tuple[Image | None, Image | None]]


def events(endpoint: Endpoint, server_id: int, part: Slice) -> Generator[Seen | Unread]:
    """Yield all parts of a slice, in their order and without gaps. Raises SourceError."""
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
            read = stream.fetchone()
        except (BinlakeError, pymysql.err.MySQLError, OSError):
            raise
        except Exception as error:  # whatever its parser trips over; the next packet is read all the same
            failed.append((connections.kind, type(error).__name__))
            continue
        if read is None and not failed:
            raise connections.broken("the server ended the stream")
        if read is None or _begins_next_file(read, part.file):
            break
        if wrong := _checksum_unseen(read):
            yield Unread(part.file, at, part.stop, wrong)
            return
        if _is_made_up(read):
            continue
        start, end = connections.place
        if start >= part.stop:
            break
        if start > at:
            yield _gap(part.file, at, start, failed)
        failed, at = [], end
        yield Seen(part.file, start, read)
    if at < part.stop:
        yield _gap(part.file, at, part.stop, failed)


def _gap(file: str, first: int, stop: int, failed: list[tuple[int, str]]) -> Unread:
    """Return the unread part before an event. failed: types of events and names of the errors that they raised.

    The errors' messages aren't shown, for they may have values.
    """
    if not failed:
        return Unread(file, first, stop, "dropped without a word")
    named = " and ".join(sorted({f"{kind_name(kind)} events, where it fails ({error})" for kind, error in failed}))
    return Unread(file, first, stop, f"in {named}", any(kind not in WITHOUT_ROWS for kind, _ in failed))


class _Connections:
    """The package's connections, opened with binlake's deadlines and TLS.

    kind, place: type of the last event, and its place in the file (start, end). The place is counted, because MariaDB
    11.4 and newer write no end into the headers of a transaction's events.
    """

    def __init__(self, endpoint: Endpoint, file: str, start: int) -> None:
        self.kind = 0
        self.place = (start, start)
        self._endpoint, self._file, self._start = endpoint, file, start
        self._left = 2  # the stream's, and one for questions; else it would reconnect for ever to a server that is gone

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
        if size == len(packet) - 1 and not is_in_no_file(kind, end, flags):
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
    """Make the session ask MariaDB for ANNOTATE_ROWS events; without them a gap could also be an event left out.

    The package asks for them only if it follows GTIDs. Layout: 4 bytes of the packet's head, COM_BINLOG_DUMP, 4 of the
    offset, 2 of flags (MariaDB's "COM_BINLOG_DUMP").
    """
    write = session._write_bytes

    def asking(data: bytes) -> None:
        if data[4] == COM_BINLOG_DUMP:
            data = data[:9] + bytes([data[9] | _SEND_ANNOTATE_ROWS]) + data[10:]
        write(data)

    session._write_bytes = asking


def _begins_next_file(given: Any, file: str) -> bool:
    """Return whether an event begins the next file."""
    return isinstance(given, event.RotateEvent) and _is_made_up(given) and given.next_binlog != file


def _is_made_up(given: Any) -> bool:
    """Return whether an event was made for the connection and isn't in the file."""
    return is_in_no_file(given.event_type, given.packet.log_pos, given.packet.flags)


def _checksum_unseen(given: Any) -> str:
    """Return why a file's events are misread; empty if they aren't.

    The package assumes checksums by the server's present setting, and cuts off events of files written under another.
    """
    if not isinstance(given, event.FormatDescriptionEvent):
        return ""
    thought = given.packet.event_size - given.event_size == _WITH_CHECKSUM
    if thought == bool(given.checksum_algorithm):
        return ""
    return "in a file written under another binlog_checksum than the server has now"


def kind_name(kind: int) -> str:
    """Return an event's type for messages."""
    return EventType(kind).name if kind in _KINDS else f"type {kind}"


def table_of(seen: Seen) -> TableName | None:
    """Return the table of a row event; None for any other event."""
    return TableName(seen.event.schema, seen.event.table) if type(seen.event) in _OPERATIONS else None


def rows_of(seen: Seen) -> Rows | Unread:
    """Decode a row event. Returns Unread if the package's values can't be trusted."""
    given = seen.event
    table = given.table_map[given.table_id]
    if why := _not_understood(table.columns):
        return seen.unread(why)
    try:
        rows = given.rows
    except Exception as error:  # its parser's, of any kind
        return seen.unread(f"where it fails ({type(error).__name__})")
    key = table.primary_key
    return Rows(
        seen.file,
        seen.offset,
        TableName(given.schema, given.table),
        _OPERATIONS[type(given)],
        tuple(table.columns),
        (key,) if isinstance(key, str) and key else tuple(key),
        [_images(type(given), row) for row in rows],
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
