"""Reading of a binlog slice: its mutations and statements.

Compiled code walks the events of a chunk (``scan``) and decodes its rows table by table (``kernels``). This module does
the rest: DDL, tables that are new or stop, XA, payloads, and the batches that are passed on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from binlake.binlog import events, payload, scan, uncompressed
from binlake.binlog.batches import Batches
from binlake.binlog.border import (
    Forming,
    Item,
    Masking,
    RolledBack,
    SliceSummary,
    Statement,
    Stopped,
    Wanted,
    XaEvent,
)
from binlake.binlog.columns import Decoded, TableDecoder
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, FormatDescription
from binlake.binlog.integrity import corrupt, describe, ends_file, foreign_gtids
from binlake.binlog.known_tables import KnownTable, KnownTables
from binlake.binlog.query_event import Query
from binlake.binlog.query_texts import charset_of, normal_xid, savepoint_name, spaced_text
from binlake.binlog.row_events import RowEvents, up_to_last_failing
from binlake.binlog.tablemap import Undecodable
from binlake.binlog.transactions import Transactions
from binlake.binlog.transport import LogChunk, Transport
from binlake.errors import (
    RESNAPSHOT,
    BinlakeError,
    BinlogError,
    ConfigurationError,
    CorruptEvent,
    Malformed,
    UnsupportedEvent,
    snapshot_again,
    unexpected,
)
from binlake.kernels import layouts
from binlake.kernels.arrays import numbers
from binlake.kernels.native import SCRATCH
from binlake.position import FIRST_OFFSET, Flavour, Slice, file_number
from binlake.schema.invalid import FAIL, InvalidValues
from binlake.schema.table import TableName

_MOST_EVENTS = 1 << 16
"""The most row events that are listed before they are decoded."""
_KEPT = 16 << 10
"""How many bytes of an undecodable event are kept."""

Emitted = Item | SliceSummary
_CONTROL = (b"BEGIN", b"COMMIT", b"RELEASE")


def read(
    transport: Transport,
    part: Slice,
    wanted: Wanted,
    *,
    invalid: InvalidValues = FAIL,
    progress: Callable[[int], None] | None = None,
    skip: frozenset[int] = frozenset(),
    masking: Masking | None = None,
    forming: Forming | None = None,
) -> Iterator[Emitted]:
    """Yield mutations, statements, stopped tables and XA events of a slice, and at last its summary (see border).

    wanted: decides which tables and columns are decoded (see border.Wanted). progress: called with the bytes read so
    far. skip: offsets of events that aren't read. masking: decides what is withheld of decoded rows; each statement is
    yielded before it is asked about what follows. forming: gives columns their names and types in the lake. Raises
    SourceError (PositionLost if ``part`` can't be read in full), CorruptEvent and UnsupportedEvent.
    """
    reader: _Reader | None = None
    for chunk in transport.chunks(part):
        if reader is None:
            description = describe(bytes(chunk), part, chunk.offset)
            reader = _Reader(part, wanted, invalid, description, skip, masking, forming)
            continue
        try:
            yield from reader.chunk(chunk)
        except BinlogError as error:
            error.raw = reader.raw(error.offset)
            raise
        except BinlakeError:
            raise
        except Exception as error:
            raise reader.unexpected(error) from error
        if progress:
            progress(chunk.offset + chunk.size - part.start)
    if reader:
        yield from reader.flush()
        yield reader.executed()


class _Reader:
    """Reader of one slice, with the state of the log between events."""

    def __init__(
        self,
        part: Slice,
        wanted: Wanted,
        invalid: InvalidValues,
        description: FormatDescription,
        skip: frozenset[int],
        masking: Masking | None = None,
        forming: Forming | None = None,
    ) -> None:
        self._skip = skip
        self._chunk: LogChunk | None = None
        self._file, self._whole = part.file, part.whole
        self._number = file_number(part.file)
        self._description = description
        self._batches = Batches()
        self._failing: dict[TableName, list[Stopped]] = {}  # since the last statement: those yielded, and the last
        # the kernels' state
        self._state = layouts.record(layouts.SCAN)
        self._scratch = np.empty(SCRATCH, np.uint8)
        self._state.scratch = self._scratch.ctypes.data
        self._state.id_size = 4 if description.post_header_size(EventType.TABLE_MAP, 8) == 6 else 6
        self._state.checksum = description.checksum
        self._rows = layouts.many(_MOST_EVENTS, layouts.ROW_EVENT)
        self._mapped = layouts.many(64, layouts.MAPPED)
        id_size = int(self._state.id_size)
        self._known = KnownTables(wanted, invalid, description, id_size, masking, forming)
        self._masks = masking is not None
        self._row_events = RowEvents(description, id_size)
        self._transactions = Transactions(self._state, mariadb=description.mariadb)
        self._transactions.open(events.Transaction(part.start, 0, None))

    # chunks --------------------------------------------------------------------------------------------------------
    def chunk(self, chunk: LogChunk) -> Iterator[Emitted]:
        """Read the events of a chunk. Yields their items, except batches that are still buffered."""
        self._chunk = chunk
        yield from self._scan(chunk.data.ctypes.data, chunk.size, chunk.offset)
        yield from self._drain()
        self._refuse_foreign()

    def _refuse_foreign(self) -> None:
        """Raise CorruptEvent where a transaction has a GTID of the other flavour, unless somebody stepped over it."""
        if not self._transactions.has_foreign:
            return
        foreign = foreign_gtids(self._chunk, mariadb=self._description.mariadb) if self._chunk else []
        places = foreign or [int(self._state.began)]
        for where in places:
            if where not in self._skip:
                raise corrupt(self._file, where, "a GTID as the other kind of server, MySQL or MariaDB, writes it")
        self._transactions.has_foreign = False

    def unexpected(self, error: Exception) -> CorruptEvent:
        """Return an unexpected error, with the place that the reader has come to."""
        where = (self._chunk.offset if self._chunk else 0) + int(self._state.at)
        raised = corrupt(self._file, where, f"the log can't be read here: {unexpected(error)}")
        raised.raw = self.raw(where)
        return raised

    def _scan(self, address: int, size: int, offset: int) -> Iterator[Emitted]:
        state = self._state
        state.at = 0
        while True:
            tables = scan.Tables(self._mapped, self._known.cache, self._known.listed)
            status = scan.scan(address, size, offset, state, self._rows, self._transactions.places, tables)
            at = int(state.at)
            where = int(state.fixed_offset) or offset + at
            if status == scan.DONE:
                return
            if where in self._skip and status not in (scan.BAD_SIZE, scan.ROWS_FULL, scan.MAPS_FULL):
                state.at += HEADER.unpack(ctypes.string_at(address + at, HEADER_SIZE))[3]
                continue
            if status == scan.ASK:
                yield from self._ask(address + at, where)
            elif status == scan.ROWS_FULL:
                yield from self._drain()
            elif status == scan.MAPS_FULL:
                self._mapped = np.concatenate([self._mapped, np.zeros_like(self._mapped)])
            else:
                raise corrupt(self._file, where, _WRONG[status])

    def _ask(self, address: int, where: int) -> Iterator[Emitted]:
        """Read an event that ``scan`` doesn't handle itself."""
        timestamp, kind, server_id, size, _, flags = HEADER.unpack(ctypes.string_at(address, HEADER_SIZE))
        body_size = size - HEADER_SIZE - int(self._state.checksum)
        try:
            if kind == EventType.TRANSACTION_PAYLOAD:
                yield from self._payload(pa.foreign_buffer(address + HEADER_SIZE, body_size), where)
                self._state.at += size
                return
            body = ctypes.string_at(address + HEADER_SIZE, body_size)
            if kind == EventType.TABLE_MAP:
                self._known.note(body, lambda: self.raw(where))
                return  # scan looks at it again
            if kind == EventType.GTID_TAGGED:
                self._transactions.open(events.tagged_transaction(body, timestamp=timestamp, offset=where), server_id)
            elif kind == EventType.MARIADB_GTID:
                begun = events.mariadb_transaction(body, timestamp=timestamp, server_id=server_id, offset=where)
                self._void = where if begun.is_void else self._void
                self._transactions.open(begun, server_id)
            elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY):
                yield from self._query(kind, body, where, timestamp, flags)
            elif kind == EventType.XA_PREPARE:
                prepared = events.XaPrepare.parse(body)
                self._state.xa = 0
                commit = self._transactions.current()
                yield XaEvent(self._file, where, prepared.xid, "prepared", *commit)
                if prepared.one_phase:
                    yield XaEvent(self._file, where, prepared.xid, "committed", *commit)
            elif kind != EventType.START_ENCRYPTION or where != FIRST_OFFSET + self._description.size:
                raise self._unsupported(kind, where)  # a server sends what follows that one in the clear
        except Malformed as error:
            raise corrupt(self._file, where, f"event type {kind}: {error}") from None
        except (UnicodeDecodeError, IndexError):
            raise corrupt(self._file, where, f"event type {kind} is malformed") from None
        except (BinlogError, ConfigurationError):  # the YAML's error isn't the log's
            raise
        except BinlakeError as error:  # as of a GTID, which has no place of its own
            raise corrupt(self._file, where, f"event type {kind}: {error.message}") from None
        except Exception as error:  # with its place, for the decision about it
            raise corrupt(self._file, where, f"event type {kind} can't be read: {unexpected(error)}") from error
        self._state.at += size

    def _unsupported(self, kind: int, where: int) -> UnsupportedEvent:
        reason, remedy = _REFUSED.get(
            kind, (f"an event of the type {kind}, which isn't known", "update binlake; the log beyond isn't read")
        )
        return UnsupportedEvent(reason, file=self._file, offset=where, remedy=remedy)

    def _payload(self, body: pa.Buffer, where: int) -> Iterator[Emitted]:
        """Read the events of a compressed transaction. They have no checksums, and all have the payload's offset."""
        state = self._state
        if state.fixed_offset:
            raise Malformed("a payload in a payload")
        at, checksum = int(state.at), int(state.checksum)
        yield from self._drain()  # so that the payload's row events are by themselves
        state.checksum, state.fixed_offset = 0, where
        self._ordinal = 0
        try:
            for buffer, used in payload.pieces(body):
                yield from self._scan(buffer.ctypes.data, used, 0)
                yield from self._drain()
        finally:
            state.at, state.checksum, state.fixed_offset = at, checksum, 0
            self._ordinal = 0

    _ordinal = 0
    """Rows counted so far in the payload."""
    _void = -1
    """Where the last transaction began whose statement didn't do what it says."""
    _savepoints: tuple[int, dict[str, tuple[int, int]]] = (-1, {})
    """The offset at which the transaction began, and (offset, row) of its savepoints by name."""

    # statements ----------------------------------------------------------------------------------------------------
    def _query(self, kind: int, body: bytes, where: int, began: int, flags: int) -> Iterator[Emitted]:
        if kind == EventType.EXECUTE_LOAD_QUERY:
            body = body[:13] + body[26:]  # thirteen bytes about the loaded file come before the status variables
        query = Query.parse(body)
        raw = uncompressed.uncompressed_event(query.text) if kind == EventType.QUERY_COMPRESSED else query.text
        upper = raw[:64].lstrip().upper()
        word = upper.split(None, 1)[0].rstrip(b";\0") if upper else b""
        if word == b"XA":
            yield from self._xa(raw, where)
            return
        if word in (b"SAVEPOINT", b"ROLLBACK"):
            yield from self._take_back(word, raw, where)
            return
        if word in _CONTROL or upper.startswith(b"START TRANSACTION") or self._void == self._state.began:
            return
        yield from self.flush()
        committed, gtid = self._transactions.current()
        flavour: Flavour = "mariadb" if self._description.mariadb else "mysql"
        yield Statement(
            file=self._file,
            offset=where,
            ordinal=self._batches.statements,
            committed_us=committed,
            gtid=gtid,
            database=query.database,
            sql_mode=query.sql_mode,
            text=spaced_text(raw, query.client_collation, query.sql_mode, flavour),
            server_charset=charset_of(query.server_collation),
            error=query.error,
            has_xid=query.has_xid,
            thread=query.thread,
            session=query.session(began, self._description),
            needs_session=bool(flags & events.THREAD_SPECIFIC),
        )
        self._batches.statements += 1
        if self._masks:
            self._known.forget_maps()

    def _take_back(self, word: bytes, raw: bytes, where: int) -> Iterator[Emitted]:
        """Follow SAVEPOINT `s`, ROLLBACK TO `s` and ROLLBACK. Yields which rows were rolled back."""
        if word == b"ROLLBACK" or self._state.fixed_offset:
            yield from self._drain()  # counts the rows of a payload
        began, here = int(self._state.began), (where, self._ordinal)
        if self._savepoints[0] != began:
            self._savepoints = began, {}
        names = self._savepoints[1]
        name = savepoint_name(raw)
        if word == b"SAVEPOINT":
            names[name] = here
            return
        whole = raw.rstrip(b"; \0").upper() == b"ROLLBACK"
        first = (began, 0) if whole else names.get(name)
        if first is None:
            raise corrupt(self._file, where, "a ROLLBACK to a savepoint that wasn't set")
        yield RolledBack(self._file, first, here)

    def _xa(self, raw: bytes, where: int) -> Iterator[Emitted]:
        """Follow XA START, END, COMMIT and ROLLBACK as the servers log them: ``XA COMMIT X'6162',X'',1``."""
        _, verb, xid = (*raw.decode("ascii", "replace").split(None, 2), "", "")[:3]
        if verb.upper() == "START":
            self._transactions.prepare(normal_xid(xid))
        elif verb.upper() in ("COMMIT", "ROLLBACK"):
            what: Literal["committed", "rolled back"] = "committed" if verb.upper() == "COMMIT" else "rolled back"
            yield XaEvent(self._file, where, normal_xid(xid), what, *self._transactions.current())

    # tables --------------------------------------------------------------------------------------------------------
    def _stop(self, name: TableName, where: int, why: Undecodable, raw: bytes) -> Iterator[Emitted]:
        stop = Stopped(name, self._file, where, why.reason, why.remedy, raw)
        stops = self._failing.setdefault(name, [])
        if not stops:
            stops.append(stop)
            yield from self._batches.flush(name)
            yield stop
        elif where > stops[-1].offset:
            stops[1:] = [stop]

    def raw(self, where: int) -> bytes:
        """Return the bytes of the event at an offset of the file, at most _KEPT; empty if it isn't in this chunk, and
        where columns are masked: the event may hold their values."""
        if (
            self._masks
            or self._chunk is None
            or not 0 <= (at := where - self._chunk.offset) <= self._chunk.size - HEADER_SIZE
        ):
            return b""
        size = HEADER.unpack(self._chunk.data[at : at + HEADER_SIZE].tobytes())[3]
        return self._chunk.data[at : min(at + min(size, _KEPT), self._chunk.size)].tobytes()

    # rows ----------------------------------------------------------------------------------------------------------
    def _drain(self) -> Iterator[Emitted]:
        """Decode the row events that ``scan`` listed. The open transaction stays open."""
        state = self._state
        count = int(state.row_events)
        if count:
            rows = self._rows[:count]
            if self._skip:
                rows = rows[~np.isin(rows["offset"], list(self._skip))]
            if state.fixed_offset:
                self._count_ordinals(rows)
            order = np.argsort(rows["known"], kind="stable")
            numbers, starts = np.unique(rows["known"][order], return_index=True)
            groups = np.split(order, starts[1:])
            for number, group in sorted(zip(numbers.tolist(), groups, strict=True), key=lambda item: int(item[1][0])):
                yield from self._table_rows(number, layouts.taken(rows, group))
            state.row_events = 0
        self._transactions.forget()
        self._row_events.forget()
        yield from self._batches.flush_excess()

    def _count_ordinals(self, rows: Any) -> None:
        """Set the ordinals of a payload's rows, which count through all its row events."""
        for number, event in enumerate(rows):
            known = self._known[int(event["known"])]
            event["ordinal"] = self._ordinal
            if known.decoder is not None:
                prepared, _ = self._row_events.prepare(known, rows[number : number + 1])
                if len(prepared):
                    images = 2 if prepared["op"][0] == 2 else 1
                    with suppress(Malformed):  # the error stops its table once the rows are decoded
                        self._ordinal += known.decoder.count(
                            int(prepared["address"][0]), int(prepared["end"][0]), images
                        )

    def _table_rows(self, number: int, rows: Any) -> Iterator[Emitted]:
        known = self._known[number]
        if known.why is not None:  # rows of a map that can't be read
            for where in rows["offset"][[0, -1]].tolist():
                yield from self._stop(known.name, where, known.why, known.raw)
        if known.decoder is None or not len(rows):
            return
        while True:
            try:
                done, stopped, batches = self._decoded(known, known.decoder, rows)
            except Exception as error:  # costs this table alone
                yield from self._undecodable(known, rows, error)
                return
            yield from self._batches.add(known.name, known.decoder, batches, known.absent)
            if stopped is not None:
                break
            if done == len(rows):
                return
            self._row_events.forget()
            rows = rows[done:]
        event, why = stopped
        where = int(rows["offset"][event])
        yield from self._stop(known.name, where, why, self._row_bytes(known, where))
        rest = rows[event + 1 :]
        failing = up_to_last_failing(len(rest), lambda first, end: self._fails(known, rest[first:end]))
        yield from self._table_rows(number, rest[max(failing - 1, 0) :])

    def _undecodable(self, known: KnownTable, rows: Any, error: Exception) -> Iterator[Emitted]:
        """Stop a table at rows whose decoding raised an unexpected error."""
        why = Undecodable(f"its rows can't be decoded: {unexpected(error)}", snapshot_again(known.name))
        for where in rows["offset"][[0, -1]].tolist():
            yield from self._stop(known.name, where, why, self._row_bytes(known, where))

    def _row_bytes(self, known: KnownTable, where: int) -> bytes:
        """Return the bytes of a row event that can't be decoded; none where something of the rows is withheld."""
        return b"" if known.decoder is None or known.decoder.withholds else self.raw(where)

    def _decoded(
        self, known: KnownTable, decoder: TableDecoder, rows: Any
    ) -> tuple[int, tuple[int, Undecodable] | None, list[pa.RecordBatch]]:
        """Decode row events of a table. Returns how many were taken, which one can't be decoded and why, and batches.

        Compressed events are taken as long as they don't become too large together.
        """
        prepared, stopped = self._row_events.prepare(known, rows)
        decoded, stop = decoder.decode(prepared)
        if stop is not None:
            stopped = stop.event, stop.why
        return len(prepared), stopped, [self._batch(part, decoder.schema) for part in decoded]

    def _fails(self, known: KnownTable, rows: Any) -> bool:
        assert known.decoder is not None
        while len(rows):
            prepared, stopped = self._row_events.prepare(known, rows)
            if stopped is not None or known.decoder.fails(prepared):
                return True
            self._row_events.forget()
            rows = rows[len(prepared) :]
        return False

    def _batch(self, decoded: Decoded, schema: pa.Schema) -> pa.RecordBatch:
        columns = [
            numbers(decoded.op, pa.int8()),
            numbers(np.full(decoded.rows, self._number, np.int64), pa.int64()),
            numbers(decoded.offset, pa.int64()),
            numbers(decoded.row, pa.int64()),
            *self._transactions.columns(decoded),
            decoded.before,
            decoded.after,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def executed(self) -> SliceSummary:
        """Return the summary of the slice."""
        executed = self._transactions.executed()
        self._refuse_foreign()
        servers = {} if self._description.mariadb else self._transactions.server_ids
        by_uuid = {prefix.partition(":")[0]: server_id for prefix, server_id in servers.items() if server_id}
        newest = self._transactions.newest_us
        is_closed = self._chunk is not None and ends_file(self._chunk)
        unchecked, of_servers = tuple(sorted(self._known.unchecked)), tuple(sorted(by_uuid.items()))
        return SliceSummary(executed, unchecked, of_servers, newest, self._whole and not is_closed)

    def flush(self) -> Iterator[Emitted]:
        """Yield everything read so far, as batches."""
        yield from self._drain()
        yield from self._batches.flush_all()
        for stops in self._failing.values():
            yield from stops[1:]
        self._failing.clear()


_WRONG = {
    scan.BAD_SIZE: "an event whose size can't be",
    scan.BAD_CHECKSUM: "the checksum is wrong",
    scan.BAD_POSITION: "the event says that it ends elsewhere",
    scan.NO_TABLE_MAP: "rows without their table map",
    scan.BAD_BODY: "an event that is too short",
}
_REFUSED = {
    int(EventType.START_ENCRYPTION): ("the file is encrypted from here on", "read it through its server instead"),
    int(EventType.INCIDENT): (
        "the server lost events here (INCIDENT)",
        f"find the reason in the server's error log, then {RESNAPSHOT}: the log isn't read beyond this event",
    ),
    int(EventType.PARTIAL_ROW_DATA): (
        "rows in pieces (PARTIAL_ROW_DATA_EVENT), as MariaDB 12.3 writes those of a large statement",
        "raise binlog_row_event_fragment_threshold on the server, then run binlake snapshot to begin again",
    ),
}
