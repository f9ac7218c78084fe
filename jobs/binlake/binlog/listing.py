"""Descriptions of single events for people: what ``binlake binlog --events`` prints.

A sync uses ``reader`` instead. Here nothing is decoded in bulk, and an event of unknown type is listed, not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from binlake.binlog import events, payload, tablemap, values
from binlake.binlog.events import HEADER, HEADER_SIZE, ByteCursor, EventType, FormatDescription, Malformed
from binlake.binlog.integrity import corrupt, describe, proved
from binlake.binlog.query_texts import statement_text
from binlake.binlog.transport import Transport
from binlake.gtid import GtidPosition, GtidSet
from binlake.position import Slice

Detail = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of a file.

    offset, size: bytes; the offset of an event inside a compressed transaction is the payload's. kind: the type's
    number. name: the type's name; None if it isn't known. created: timestamp of its header, seconds. detail: what its
    body says, in values that JSON can hold.
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
        created, kind, server_id, size, _, _ = HEADER.unpack_from(event)
        name = EventType(kind).name if kind in _KINDS else None
        try:
            detail = self._detail(kind, body, event)
        except (Malformed, ValueError, IndexError) as error:
            raise corrupt(self._file, offset, f"event type {kind}: {error}") from None
        return Event(self._file, offset, size, kind, name, created, server_id, inside, detail)

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
            return {"operation": _ROWS[kind], "table": self._tables.get(identity), "table_id": identity}
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
        identity, name = tablemap.table_name(body, self._id_size)
        self._tables[identity] = str(name)
        detail: Detail = {"table": str(name), "table_id": identity}
        try:
            table = tablemap.parse(body, self._id_size, mariadb=self._description.mariadb)
        except tablemap.Undecodable as error:
            return {**detail, "undecodable": error.reason}
        columns = {column.name: column.type for column in table.columns}
        return {**detail, "columns": columns, "key": list(table.key)}


def _query(body: bytes) -> Detail:
    query = events.Query.parse(body)
    return {"database": query.database, "statement": statement_text(query.text, query.client_collation)}


def _compressed_query(body: bytes) -> Detail:
    query = events.Query.parse(body)
    text = values.uncompressed_event(query.text)
    return {"database": query.database, "statement": statement_text(text, query.client_collation)}


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


def _user_variable(body: bytes) -> Detail:
    cursor = ByteCursor(body)
    return {"variable": cursor.take(cursor.uint(4)).decode("utf-8", "replace")}


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
    EventType.BINLOG_CHECKPOINT: lambda body: {"file": body[4:].decode("utf-8", "replace")},
}
_KINDS = {int(kind) for kind in EventType}
_ROWS: dict[int, str] = {
    int(kind): kind.name.partition("_ROWS")[0].lower()
    for kind in EventType
    if "_ROWS" in kind.name and kind not in (EventType.ANNOTATE_ROWS,)
}
"""Operations by event type: WRITE_ROWS_V1 → write, PARTIAL_UPDATE_ROWS → partial_update …"""
