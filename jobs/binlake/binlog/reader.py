"""A slice of the binlog to mutations and statements: the state of the log between its events.

Binlog order: a transaction opens with its GTID event; row events follow their table maps; XID, COMMIT or an XA event
ends it. A table map is valid until the end of its statement, and table ids are used again after a restart.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from binlake.binlog import charsets, events, tablemap, values
from binlake.binlog.border import (
    Mutations,
    Statement,
    Stopped,
    Wanted,
    XaOutcome,
    image_type,
    staged_schema,
)
from binlake.binlog.events import ARTIFICIAL, HEADER, HEADER_SIZE, IGNORABLE, EventType, FormatDescription, Malformed
from binlake.binlog.rows import ROWS, Image, InvalidDate, RowDecoder, image_array
from binlake.binlog.tablemap import TableMap, Undecodable
from binlake.binlog.transport import Transport
from binlake.errors import CorruptEvent, PositionLost, UnsupportedEvent
from binlake.position import Slice, file_number
from binlake.schema.table import TableName

MOST_ROWS = 1 << 16
MOST_BYTES = 64 << 20
"""Of one batch: rows, and bytes of the log they took."""

InvalidDates = Literal["fail", "keep_text"]
Emitted = Mutations | Statement | Stopped | XaOutcome
_STEPPED_OVER = {
    EventType.STOP,
    EventType.ROTATE,
    EventType.INTVAR,
    EventType.RAND,
    EventType.USER_VAR,
    EventType.HEARTBEAT,
    EventType.HEARTBEAT_V2,
    EventType.IGNORABLE,
    EventType.ROWS_QUERY,
    EventType.PREVIOUS_GTIDS,
    EventType.TRANSACTION_CONTEXT,
    EventType.VIEW_CHANGE,
    EventType.ANNOTATE_ROWS,
    EventType.BINLOG_CHECKPOINT,
    EventType.MARIADB_GTID_LIST,
    EventType.BEGIN_LOAD_QUERY,
}
_END_OF_STATEMENT = 1
"""Flag of row events (STMT_END_F)."""
_NO_TABLE = 0xFFFFFF
"""Table id of the row event without rows that only ends a statement."""
_CONTROL = (b"BEGIN", b"COMMIT", b"ROLLBACK", b"SAVEPOINT", b"RELEASE", b"XA", b"START TRANSACTION")


def read(
    transport: Transport,
    part: Slice,
    wanted: Wanted,
    *,
    invalid_dates: InvalidDates = "fail",
    progress: Callable[[int], None] | None = None,
) -> Iterator[Emitted]:
    """Mutations, statements, stopped tables and XA outcomes of a slice, in the order of the log.

    wanted: tables for which it is false are stepped over. progress: called with the bytes read so far.
    Raises SourceError (PositionLost where ``part`` can't be read in full), CorruptEvent and UnsupportedEvent.
    """
    reader = _Reader(part, wanted, invalid_dates)
    for event in walk(transport, part):
        if event.kind == EventType.FORMAT_DESCRIPTION:
            reader.description = event.description
        else:
            yield from reader.handle(event)
        if progress and event.last_in_chunk:
            progress(event.offset + event.size - part.start)
    yield from reader.flush()


@dataclass(frozen=True)
class Event:
    """One event of the file; ``body`` is without header and checksum."""

    offset: int
    size: int
    kind: int
    timestamp: int
    server_id: int
    flags: int
    body: bytes = field(repr=False)
    description: FormatDescription
    last_in_chunk: bool = False


def walk(transport: Transport, part: Slice, *, headers_only: Callable[[int], bool] | None = None) -> Iterator[Event]:
    """The events of a slice, checksums proved; the first is the file's format description.

    headers_only: for kinds for which it is true the checksum isn't computed and the body is left out.
    Raises CorruptEvent, and PositionLost if the file isn't the one that the slice was planned on.
    """
    description: FormatDescription | None = None
    for chunk in transport.chunks(part):
        data, at, end = memoryview(chunk.data), 0, len(chunk.data)
        while at < end:
            offset = chunk.offset + at
            if end - at < HEADER_SIZE:
                raise _corrupt(part.file, offset, "a cut-off header")
            timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(data, at)
            if size < HEADER_SIZE or at + size > end:
                raise _corrupt(part.file, offset, f"an event of {size} bytes")
            whole = data[at : at + size]
            if description is None:
                description = _describe(bytes(whole), part, offset)
                yield Event(offset, size, kind, timestamp, server_id, flags, b"", description, True)
            else:
                if log_pos and not flags & ARTIFICIAL and log_pos != (offset + size) & 0xFFFFFFFF:
                    raise _corrupt(part.file, offset, f"the event says that it ends at {log_pos}")
                skip = headers_only is not None and headers_only(kind)
                last = at + size == end
                if skip:
                    body = b""
                else:
                    stop = size - description.checksum
                    if description.checksum and (
                        stop < HEADER_SIZE or zlib.crc32(whole[:stop]) != int.from_bytes(whole[stop:], "little")
                    ):
                        raise _corrupt(part.file, offset, "the checksum is wrong")
                    body = bytes(whole[HEADER_SIZE:stop])
                if kind != EventType.FORMAT_DESCRIPTION:
                    yield Event(offset, size, kind, timestamp, server_id, flags, body, description, last)
            at += size


def _describe(event: bytes, part: Slice, offset: int) -> FormatDescription:
    try:
        description = FormatDescription.parse(event)
    except Malformed as error:
        raise _corrupt(part.file, offset, f"format description: {error}") from None
    if description.checksum:
        stored = int.from_bytes(event[-4:], "little")
        # The server clears LOG_EVENT_BINLOG_IN_USE_F before it computes the checksum
        proved = event[:17] + bytes([event[17] & 0xFE]) + event[18:-4]
        if stored not in (zlib.crc32(proved), zlib.crc32(event[:-4])):
            raise _corrupt(part.file, offset, "the checksum of the format description is wrong")
    if part.created and description.created != part.created:
        raise PositionLost(
            f"{part.file} was made at {description.created}, the one planned on at {part.created}: "
            "its numbering began anew, or it is another server's",
            remedy="run binlake snapshot to begin anew",
        )
    return description


def _corrupt(file: str, offset: int, message: str) -> CorruptEvent:
    return CorruptEvent(
        message, file=file, offset=offset, remedy="read it again; if it stays, run binlake snapshot to begin anew"
    )


@dataclass
class _Pending:
    """Rows of one table in one shape, not yet a batch."""

    table: TableMap
    decoder: RowDecoder
    ops: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    gtids: list[str | None] = field(default_factory=list)
    xids: list[str | None] = field(default_factory=list)
    before: list[Image | None] = field(default_factory=list)
    after: list[Image | None] = field(default_factory=list)
    size: int = 0


class _Reader:
    """The state while one slice is read."""

    def __init__(self, part: Slice, wanted: Wanted, invalid_dates: InvalidDates) -> None:
        self._file = part.file
        self._number = file_number(part.file)
        self._wanted = wanted
        self._keep_text = invalid_dates == "keep_text"
        self.description: FormatDescription | None = None
        self._transaction: events.Transaction | None = None
        self._xid: str | None = None
        self._maps: dict[int, TableMap | None] = {}  # None: stepped over
        self._known: dict[bytes, TableMap] = {}
        self._pending: dict[TableName, _Pending] = {}
        self._stopped: set[TableName] = set()
        self._statements = 0
        self._row = 0

    def handle(self, event: Event) -> Iterator[Emitted]:
        """What an event of the file brings."""
        self._row = 0
        try:
            if event.kind == EventType.TRANSACTION_PAYLOAD:
                yield from self._payload(event)
            else:
                yield from self._one(event)
        except Malformed as error:
            raise _corrupt(self._file, event.offset, f"event type {event.kind}: {error}") from None
        except (UnicodeDecodeError, IndexError):
            raise _corrupt(self._file, event.offset, f"event type {event.kind} is malformed") from None

    def _payload(self, event: Event) -> Iterator[Emitted]:
        """TRANSACTION_PAYLOAD: the events of a transaction, compressed as one. They have no checksums."""
        assert self.description is not None
        data = payload(event.body)
        at = 0
        while at < len(data):
            if len(data) - at < HEADER_SIZE:
                raise Malformed("a cut-off header inside")
            timestamp, kind, server_id, size, _, flags = HEADER.unpack_from(data, at)
            if size < HEADER_SIZE or at + size > len(data):
                raise Malformed(f"an event of {size} bytes inside")
            if kind == EventType.TRANSACTION_PAYLOAD:
                raise Malformed("a payload in a payload")
            body = data[at + HEADER_SIZE : at + size]
            yield from self._one(
                Event(event.offset, event.size, kind, timestamp, server_id, flags, body, self.description)
            )
            at += size

    def _one(self, event: Event) -> Iterator[Emitted]:
        kind = event.kind
        if kind == EventType.TABLE_MAP:
            yield from self._table_map(event)
        elif kind in ROWS:
            yield from self._rows(event)
        elif kind in (EventType.GTID, EventType.ANONYMOUS_GTID):
            self._open(events.gtid_transaction(event.body, kind=kind, timestamp=event.timestamp, offset=event.offset))
        elif kind == EventType.GTID_TAGGED:
            self._open(events.tagged_transaction(event.body, timestamp=event.timestamp, offset=event.offset))
        elif kind == EventType.MARIADB_GTID:
            self._open(
                events.mariadb_transaction(
                    event.body, timestamp=event.timestamp, server_id=event.server_id, offset=event.offset
                )
            )
        elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY):
            yield from self._query(event)
        elif kind == EventType.XA_PREPARE:
            prepared = events.XaPrepare.parse(event.body)
            if prepared.one_phase:
                yield from self.flush()
                yield XaOutcome(self._file, event.offset, prepared.xid, True)
            self._xid = None
        elif kind == EventType.XID:
            self._xid = None
        elif kind == EventType.START_ENCRYPTION:
            raise UnsupportedEvent(
                "the file is encrypted from here on",
                file=self._file,
                offset=event.offset,
                remedy="read it through its server instead",
            )
        elif kind == EventType.INCIDENT:
            raise UnsupportedEvent(
                "the server lost events here (INCIDENT)",
                file=self._file,
                offset=event.offset,
                remedy="find the reason in the server's error log, then run binlake snapshot to begin anew",
            )
        elif kind not in _STEPPED_OVER and not event.flags & IGNORABLE:
            raise UnsupportedEvent(
                f"an event of the type {kind}, which isn't known",
                file=self._file,
                offset=event.offset,
                remedy="update binlake; the log beyond isn't read",
            )

    def _open(self, transaction: events.Transaction) -> None:
        self._transaction = transaction
        self._xid = transaction.xid if transaction.prepares else None
        self._maps.clear()

    # statements ----------------------------------------------------------------------------------------------------
    def _query(self, event: Event) -> Iterator[Emitted]:
        body = event.body
        if event.kind == EventType.EXECUTE_LOAD_QUERY:
            # 13 bytes about the loaded file stand before the status variables
            body = body[:13] + body[26:]
        query = events.Query.parse(body)
        raw = values.uncompressed_event(query.text) if event.kind == EventType.QUERY_COMPRESSED else query.text
        upper = raw[:64].lstrip().upper()
        word = upper.split(b" ", 1)[0].rstrip(b";\0")
        if word == b"XA":
            yield from self._xa(event, raw)
            return
        if word in _CONTROL or upper.startswith(b"START TRANSACTION"):
            return
        yield from self.flush()
        transaction = self._transaction
        yield Statement(
            file=self._file,
            offset=event.offset,
            ordinal=self._statements,
            committed_us=transaction.committed_us if transaction else event.timestamp * 1_000_000,
            gtid=transaction.gtid if transaction else None,
            database=query.database,
            sql_mode=query.sql_mode,
            text=self._text(raw, query.client_collation, event.offset),
        )
        self._statements += 1

    def _text(self, raw: bytes, collation: int, offset: int) -> str:
        name = charsets.charset(collation) if collation else "utf8mb4"
        try:
            return charsets.decoder("utf8mb4" if name in (None, "binary") else str(name))(raw)
        except UnicodeDecodeError:
            # A statement may hold literals of another character set (_latin1'…'); its keywords and names still count.
            return raw.decode("utf-8", "backslashreplace")

    def _xa(self, event: Event, raw: bytes) -> Iterator[Emitted]:
        """XA START, END, COMMIT, ROLLBACK as the servers log them: ``XA COMMIT X'6162',X'',1``."""
        _, verb, xid = (*raw.decode("ascii", "replace").split(None, 2), "", "")[:3]
        xid = normal_xid(xid)
        if verb.upper() == "START":
            self._xid = xid
        elif verb.upper() in ("COMMIT", "ROLLBACK"):
            yield from self.flush()
            yield XaOutcome(self._file, event.offset, xid, verb.upper() == "COMMIT")

    # rows ----------------------------------------------------------------------------------------------------------
    def _id_size(self) -> int:
        assert self.description is not None
        return 4 if self.description.post_header_size(EventType.TABLE_MAP, 8) == 6 else 6

    def _table_map(self, event: Event) -> Iterator[Emitted]:
        assert self.description is not None
        identity, name = tablemap.table_name(event.body, self._id_size())
        self._maps[identity] = None
        if name in self._stopped or not self._wanted(name.database, name.table):
            return
        key = event.body[self._id_size() :]
        table = self._known.get(key)
        if table is None:
            try:
                table = tablemap.parse(event.body, self._id_size(), mariadb=self.description.mariadb)
                RowDecoder(table)
            except Undecodable as error:
                yield from self._stop(name, event.offset, error)
                return
            self._known[key] = table
        self._maps[identity] = table

    def _stop(self, name: TableName, offset: int, error: Undecodable) -> Iterator[Emitted]:
        yield from self._flush_table(name)
        self._stopped.add(name)
        for identity, table in self._maps.items():
            if table is not None and table.name == name:
                self._maps[identity] = None
        yield Stopped(name, self._file, offset, error.reason, error.remedy)

    def _rows(self, event: Event) -> Iterator[Emitted]:
        size = self._id_size()
        cursor = events.Cursor(event.body)
        identity = cursor.uint(size)
        if identity == _NO_TABLE:
            return
        if identity not in self._maps:
            raise Malformed(f"rows of table id {identity} without its table map")
        table = self._maps[identity]
        if table is None:
            return
        pending = self._pending.get(table.name)
        if pending is not None and pending.table is not table and pending.table != table:
            yield from self._flush_table(table.name)
            pending = None
        if pending is None:
            pending = self._pending[table.name] = _Pending(table, RowDecoder(table))
        try:
            decoded = list(pending.decoder.rows(event.kind, event.body, size))
            if not self._keep_text:
                self._refuse_invalid(table, decoded)
        except Undecodable as error:
            yield from self._stop(table.name, event.offset, error)
            return
        transaction = self._transaction
        committed = transaction.committed_us if transaction else event.timestamp * 1_000_000
        for operation, before, after in decoded:
            pending.ops.append(operation)
            pending.offsets.append(event.offset)
            pending.rows.append(self._row)
            pending.committed.append(committed)
            pending.gtids.append(transaction.gtid if transaction else None)
            pending.xids.append(self._xid)
            pending.before.append(before)
            pending.after.append(after)
            self._row += 1
        pending.size += len(event.body)
        if len(pending.ops) >= MOST_ROWS or pending.size >= MOST_BYTES:
            yield from self._flush_table(table.name)

    def _refuse_invalid(self, table: TableMap, decoded: list[tuple[int, Image | None, Image | None]]) -> None:
        for _, *images in decoded:
            for image in images:
                for place, value in enumerate(image or ()):
                    if isinstance(value, InvalidDate):
                        column = table.fields[place].column.name
                        raise Undecodable(
                            f"column {column!r} holds a date that no calendar has",
                            "mend the row and snapshot the table anew, or set invalid_dates: keep_text in the YAML",
                        )

    # batches -------------------------------------------------------------------------------------------------------
    def flush(self) -> Iterator[Mutations]:
        """Everything pending, as batches."""
        for name in list(self._pending):
            yield from self._flush_table(name)

    def _flush_table(self, name: TableName) -> Iterator[Mutations]:
        pending = self._pending.pop(name, None)
        if pending is None or not pending.ops:
            return
        table, count = pending.table, len(pending.ops)
        image = image_type(table.columns, keep_text=self._keep_text)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(pending.ops, pa.int8()),
                pa.array([self._number] * count, pa.int64()),
                pa.array(pending.offsets, pa.int64()),
                pa.array(pending.rows, pa.int64()),
                pa.array(pending.committed, pa.int64()),
                pa.array(pending.gtids, pa.string()),
                pa.array(pending.xids, pa.string()),
                image_array(table, pending.before, image),
                image_array(table, pending.after, image),
            ],
            schema=staged_schema(table.columns, keep_text=self._keep_text),
        )
        yield Mutations(name, table.columns, table.key, self._statements, batch)


def normal_xid(text: str) -> str:
    """``X'6162',X'',1`` from the servers' spelling, in lower-case hex."""
    pieces = [piece.strip() for piece in text.split(",")]
    hexes = [piece[2:-1].lower() for piece in pieces[:2] if piece[:2].upper() == "X'" and piece.endswith("'")]
    if len(hexes) != 2 or len(pieces) < 3:
        return text
    return f"X'{hexes[0]}',X'{hexes[1]}',{pieces[2].split()[0]}"


def payload(body: bytes) -> bytes:
    """The events in a TRANSACTION_PAYLOAD ("Transaction_payload_event"): fields of (type, length, value), then the
    bytes. Raises Malformed."""
    cursor = events.Cursor(body)
    compressed_size = uncompressed_size = 0
    algorithm = 255
    while True:
        kind = cursor.packed()
        if kind == 0:
            break
        value = events.Cursor(cursor.packed_bytes())
        if kind == 1:
            compressed_size = value.packed()
        elif kind == 2:
            algorithm = value.packed()
        elif kind == 3:
            uncompressed_size = value.packed()
    data = cursor.take(compressed_size) if compressed_size else cursor.rest()
    if algorithm == 255:
        return data
    if algorithm != 0:
        raise Malformed(f"compression algorithm {algorithm}")
    try:
        result: bytes = pa.decompress(data, uncompressed_size, codec="zstd", asbytes=True)
    except (pa.ArrowException, OSError):
        raise Malformed("the compressed payload is damaged") from None
    if len(result) != uncompressed_size:
        raise Malformed(f"{len(result)} bytes decompressed, {uncompressed_size} promised")
    return result
