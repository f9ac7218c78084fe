"""Descriptions of single events for people: what ``binlake binlog --events`` prints.

A sync uses ``reader`` instead. Here nothing is decoded in bulk, and an event of unknown type is listed, not refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from binlake.binlog import events, payload, tablemap, uncompressed
from binlake.binlog.events import HEADER, HEADER_SIZE, ByteCursor, EventType, FormatDescription
from binlake.binlog.integrity import corrupt, describe, proved
from binlake.binlog.query_event import Query
from binlake.binlog.query_texts import charset_of, statement_text
from binlake.binlog.transport import Transport
from binlake.errors import Malformed
from binlake.gtid import GtidPosition, GtidSet
from binlake.position import Slice
from binlake.schema.types import packed_values

Detail = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of a file.

    offset, size: bytes; the offset of an event inside a compressed transaction is the payload's. kind: the type's
    number. name: the type's name; None if it isn't known. created: timestamp of its header, seconds. detail: what its
    body says, in values that JSON can hold. flags: names of its header's flags, see events.HEADER_FLAGS; unknown ones
    as numbers.
    """

    file: str
    offset: int
    size: int
    kind: int
    name: str | None
    created: int
    server_id: int
    inside_payload: bool = False
    detail: Detail = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def list_events(transport: Transport, part: Slice) -> Iterator[Event]:
    """Yield the events of a slice in the order of the log; those of a compressed transaction follow their payload.

    Every checksum is verified. Raises SourceError and BinlogError.
    """
    lister: _Lister | None = None
    for chunk in transport.chunks(part):
        if lister is None:
            lister = _Lister(part.file, describe(bytes(chunk), part, chunk.offset))
            if chunk.offset < part.start:
                continue
        at = 0
        while at < chunk.size:
            size = int.from_bytes(chunk.data[at + 9 : at + 13].tobytes(), "little")
            yield from lister.event(chunk.data[at : at + size].tobytes(), chunk.offset + at)
            at += size


class _Lister:
    """Describer of events, with what later descriptions need of earlier events."""

    def __init__(self, file: str, description: FormatDescription) -> None:
        self._file = file
        self._description = description
        self._tables: dict[int, str] = {}

    def event(self, event: bytes, offset: int) -> Iterator[Event]:
        kind = event[4]
        body = event[HEADER_SIZE:]
        if kind != EventType.FORMAT_DESCRIPTION:  # proved when the file was opened
            body = proved(event, self._description, self._file, offset)
        yield self._described(event, body, offset, inside=False)
        if kind == EventType.TRANSACTION_PAYLOAD:
            yield from self._inside(body, offset)

    def _inside(self, body: bytes, offset: int) -> Iterator[Event]:
        try:
            data = payload.uncompressed(body)
        except Malformed as error:
            raise corrupt(self._file, offset, str(error)) from None
        at = 0
        while at + HEADER_SIZE <= len(data):
            size = int.from_bytes(data[at + 9 : at + 13], "little")
            if not HEADER_SIZE <= size <= len(data) - at:
                raise corrupt(self._file, offset, "an event in the payload whose size can't be")
            event = data[at : at + size]
            yield self._described(event, event[HEADER_SIZE:], offset, inside=True)
            at += size

    def _described(self, event: bytes, body: bytes, offset: int, *, inside: bool) -> Event:
        created, kind, server_id, size, _, flags = HEADER.unpack_from(event)
        name = EventType(kind).name if kind in _KINDS else None
        try:
            detail = self._detail(kind, body, event)
        except (Malformed, ValueError, IndexError) as error:
            raise corrupt(self._file, offset, f"event type {kind}: {error}") from None
        if kind == EventType.FORMAT_DESCRIPTION:
            flags &= ~events.IN_USE  # a server sends the event without it
        named = _names(flags, events.HEADER_FLAGS)
        return Event(self._file, offset, size, kind, name, created, server_id, inside, detail, named)

    def _detail(self, kind: int, body: bytes, event: bytes) -> Detail:
        if kind == EventType.FORMAT_DESCRIPTION:
            checksum = "CRC32" if self._description.checksum else "NONE"
            return {"server_version": self._description.server_version, "checksum": checksum}
        if kind in (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID):
            return self._transaction(kind, body, event)
        if kind == EventType.TABLE_MAP:
            return self._table_map(body)
        if kind in _ROWS:
            identity = int.from_bytes(body[: self._id_size], "little")
            flags = _names(int.from_bytes(body[self._id_size : self._id_size + 2], "little"), events.ROW_FLAGS)
            of = {"operation": _ROWS[kind], "table": self._tables.get(identity), "table_id": identity}
            return {**of, "flags": list(flags)}
        describer = _DESCRIBERS.get(kind)
        return describer(body) if describer else {}

    @property
    def _id_size(self) -> int:
        return 4 if self._description.post_header_size(EventType.TABLE_MAP, 8) == 6 else 6

    def _transaction(self, kind: int, body: bytes, event: bytes) -> Detail:
        created, _, server_id, *_ = HEADER.unpack_from(event)
        if kind == EventType.GTID_TAGGED:
            transaction = events.tagged_transaction(body, timestamp=created, offset=0)
        elif kind == EventType.MARIADB_GTID:
            transaction = events.mariadb_transaction(body, timestamp=created, server_id=server_id, offset=0)
        else:
            transaction = events.gtid_transaction(body, kind=kind, timestamp=created, offset=0)
        detail: Detail = {"gtid": transaction.gtid, "committed_us": transaction.committed_us}
        return {**detail, "xid": transaction.xid} if transaction.xid else detail

    def _table_map(self, body: bytes) -> Detail:
        identity, name, _ = tablemap.table_name(body, self._id_size)
        self._tables[identity] = str(name)
        detail: Detail = {"table": str(name), "table_id": identity}
        try:
            table = tablemap.parse(body, self._id_size, mariadb=self._description.mariadb)
        except tablemap.Undecodable as error:
            return {**detail, "undecodable": error.reason}
        columns = {column.name: column.type for column in table.columns}
        return {**detail, "columns": columns, "key": list(table.key)}


def _names(flags: int, names: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names of the bits that are set, and those without a name as numbers."""
    bits = (1 << number for number in range(flags.bit_length()) if flags >> number & 1)
    return tuple(names.get(bit, f"{bit:#x}") for bit in bits)


def _query(body: bytes) -> Detail:
    query = Query.parse(body)
    return _statement(query, query.text)


def _compressed_query(body: bytes) -> Detail:
    query = Query.parse(body)
    return _statement(query, uncompressed.uncompressed_event(query.text))


def _statement(query: Query, text: bytes) -> Detail:
    """Describe a statement: thread, seconds that it took, the server's number of its error; what else was logged."""
    detail: Detail = {"thread": query.thread, "seconds": query.seconds, "error": query.error}
    detail |= {"sql_mode": query.sql_mode} if query.sql_mode else {}
    detail |= {"time_zone": query.time_zone} if query.time_zone else {}
    return {"database": query.database, **detail, "statement": statement_text(text, query.client_collation)}


def _rotate(body: bytes) -> Detail:
    file, offset = events.rotate_target(body)
    return {"file": file, "offset": offset}


def _payload(body: bytes) -> Detail:
    return {"bytes": len(body)}


def _xa_prepare(body: bytes) -> Detail:
    prepared = events.XaPrepare.parse(body)
    return {"xid": prepared.xid, "one_phase": prepared.one_phase}


def _incident(body: bytes) -> Detail:
    cursor = ByteCursor(body)
    return {"incident": cursor.uint(2), "message": cursor.take(cursor.uint(1)).decode("utf-8", "replace")}


_UNSIGNED = 1


def _user_variable(body: bytes) -> Detail:
    """Describe USER_VAR. Layout: MySQL's User_var_event, statement_events.h."""
    cursor = ByteCursor(body)
    detail: Detail = {"variable": cursor.take(cursor.uint(4)).decode("utf-8", "replace")}
    if cursor.uint(1):
        return {**detail, "value": None}
    kind, collation, raw = cursor.uint(1), cursor.uint(4), cursor.take(cursor.uint(4))
    is_unsigned = bool(cursor.left and cursor.uint(1) & _UNSIGNED)
    return {**detail, **_variable_value(kind, collation, raw, is_unsigned=is_unsigned)}


def _variable_value(kind: int, collation: int, raw: bytes, *, is_unsigned: bool) -> Detail:
    """Return type and value of a user variable; the value's bytes, in hexadecimal digits, where it is no text.

    kind: of MySQL's Item_result: 0 text, 1 double, 2 integer, 4 decimal.
    """
    if kind == 0 and charset_of(collation) != "binary":
        return {"type": "text", "charset": charset_of(collation), "value": statement_text(raw, collation)}
    if kind == 1 and len(raw) == 8:
        return {"type": "double", "value": struct.unpack("<d", raw)[0]}
    if kind == 2:
        return {"type": "integer", "value": int.from_bytes(raw, "little", signed=not is_unsigned)}
    if kind == 4 and len(raw) > 2:
        return {"type": "decimal", "value": str(_decimal(raw[2:], raw[0], raw[1]))}
    return {"type": "binary", "hex": raw.hex()}


def _decimal(packed: bytes, precision: int, scale: int) -> Decimal:
    """Return a packed DECIMAL's value: nine digits in four bytes, the others in as few as hold them; the first bit is
    the sign's, and all bits of a negative number are turned over."""
    if len(packed) < packed_values.decimal_size(precision, scale):
        raise Malformed("a decimal that ends too early")
    negative = not packed[0] & 0x80
    turned = bytes(byte ^ 0xFF for byte in packed) if negative else packed
    cursor = ByteCursor(bytes([turned[0] ^ 0x80]) + turned[1:])
    whole, fraction = precision - scale, scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (fraction // 9), fraction % 9]
    digits = "".join(
        f"{int.from_bytes(cursor.take(packed_values.decimal_size(size, 0)), 'big'):0{size}d}" for size in sizes if size
    )
    return Decimal(f"{'-' if negative else ''}{digits or '0'}").scaleb(-scale)


def _random(body: bytes) -> Detail:
    cursor = ByteCursor(body)
    return {"seeds": [cursor.uint(8), cursor.uint(8)]}


def _integer_variable(body: bytes) -> Detail:
    cursor = ByteCursor(body)
    name = {1: "LAST_INSERT_ID", 2: "INSERT_ID"}.get(cursor.uint(1), "?")
    return {"variable": name, "value": cursor.uint(8)}


_DESCRIBERS: dict[int, Callable[[bytes], Detail]] = {
    EventType.QUERY: _query,
    EventType.QUERY_COMPRESSED: _compressed_query,
    EventType.ROTATE: _rotate,
    EventType.XID: lambda body: {"xid": int.from_bytes(body[:8], "little")},
    EventType.XA_PREPARE: _xa_prepare,
    EventType.PREVIOUS_GTIDS: lambda body: {"gtids": str(GtidSet.decode(body))},
    EventType.MARIADB_GTID_LIST: lambda body: {"gtids": str(GtidPosition.decode(body))},
    EventType.ROWS_QUERY: lambda body: {"statement": body[1:].decode("utf-8", "backslashreplace")},
    EventType.ANNOTATE_ROWS: lambda body: {"statement": body.decode("utf-8", "backslashreplace")},
    EventType.TRANSACTION_PAYLOAD: _payload,
    EventType.INCIDENT: _incident,
    EventType.USER_VAR: _user_variable,
    EventType.INTVAR: _integer_variable,
    EventType.RAND: _random,
    EventType.BINLOG_CHECKPOINT: lambda body: {"file": body[4:].decode("utf-8", "replace")},
}
_KINDS = {int(kind) for kind in EventType}
_ROWS: dict[int, str] = {
    int(kind): kind.name.partition("_ROWS")[0].lower()
    for kind in EventType
    if "_ROWS" in kind.name and kind not in (EventType.ANNOTATE_ROWS,)
}
"""Operations by event type: WRITE_ROWS_V1 → write, PARTIAL_UPDATE_ROWS → partial_update …"""
