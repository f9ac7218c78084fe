"""``binlake binlog --reader mysql-replication``: a server's log in the forms of binlake's own reader.

The package gives no more than the times of events' headers, in whole seconds, and no XA ids of rows.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysqlreplication import event as package_events
from pymysqlreplication.row_event import RowsEvent, TableMapEvent

from binlake.binlog.border import Item, Mutations, Statement, Stopped, Wanted
from binlake.binlog.listing import Event
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import UnsupportedEvent, UsageError
from binlake.position import Slice, file_number
from binlake.schema.datatypes import BY_WIRE
from binlake.schema.invalid import FAIL
from binlake.schema.table import BYTES, Column, TableName
from binlake.schema.types.log_form import Wire
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.border_values import plain
from binlake.second_opinion.misread import WITHOUT_ROWS
from binlake.second_opinion.stream import Image, Rows, Seen, Unread, events, kind_name, rows_of, table_of
from binlake.source import openlog
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.log import folder_of

_REMEDY = "read it without --reader: binlake's own reads it"


@dataclass(frozen=True)
class PackageLog:
    """A fixed range of a server's log. It is read to its end; then an error says what the package left out, if any."""

    endpoint: Endpoint
    server_id: int
    slices: tuple[Slice, ...]

    def events(self) -> Iterator[Event]:
        """Yield every event that the package returns, with its own description.

        Raises SourceError, at last UnsupportedEvent.
        """
        unread: list[Unread] = []
        for part in self._parts():
            if isinstance(part, Unread):
                unread.append(part)
            else:
                yield _event(part)
        _refuse_unread(unread)

    def mutations(self, wanted: Wanted | None = None) -> Iterator[Item]:
        """Yield rows and statements. A table stops at an event that the package can't read.

        Raises SourceError, at last UnsupportedEvent.
        """
        unread: list[Unread] = []
        stopped: set[TableName | None] = set()
        reader = _Mutations(wanted)
        for part in self._parts():
            if isinstance(part, Unread):
                unread += [part] if part.has_rows else []
            elif not part.is_known and part.kind not in WITHOUT_ROWS:
                unread.append(part.unread(f"in events that it doesn't know ({kind_name(part.kind)})"))
            elif (name := table_of(part)) is None or name not in stopped:
                for item in reader.of(part):
                    if isinstance(item, Stopped):
                        stopped.add(name)
                    yield item
        _refuse_unread(unread)

    def _parts(self) -> Iterator[Seen | Unread]:
        for part in self.slices:
            yield from events(self.endpoint, self.server_id, part)


def _refuse_unread(unread: list[Unread]) -> None:
    if unread:
        first = unread[0]
        more = f", and {len(unread) - 1} other parts of the log" if len(unread) > 1 else ""
        said = f"{PACKAGE} left out what is here {first.why}{more}"
        raise UnsupportedEvent(said, file=first.file, offset=first.first, remedy=_REMEDY)


def open(uri: str, start: str | None = None, stop: str | None = None) -> PackageLog:  # noqa: A001  # as binlog.open
    """Open a server's log as ``binlog.open`` does. Raises UsageError for files."""
    if folder_of(uri):
        raise UsageError(
            f"{PACKAGE} reads from servers alone",
            remedy="give the server that wrote these files, or one started on a copy of them; or leave --reader away",
        )
    opened = openlog.open(uri, start, stop)
    assert isinstance(opened.transport, ServerTransport)
    return PackageLog(opened.transport.endpoint, opened.transport.server_id, opened.slices)


# events --------------------------------------------------------------------------------------------------------------


def _event(seen: Seen) -> Event:
    event = seen.event
    name = kind_name(seen.kind) if seen.is_known else None
    return Event(
        seen.file,
        seen.offset,
        seen.size,
        seen.kind,
        name,
        event.timestamp,
        event.packet.server_id,
        detail=_detail(event, name or ""),
    )


def _detail(event: Any, name: str) -> dict[str, Any]:
    if isinstance(event, RowsEvent):
        words = {"operation": name.partition("_ROWS")[0].lower()}
        return {**words, "table": f"{event.schema}.{event.table}", "table_id": event.table_id}
    if isinstance(event, TableMapEvent):
        columns = {str(column.name): _package_column(column).type for column in event.columns}
        return {"table": f"{event.schema}.{event.table}", "table_id": event.table_id, "columns": columns}
    if isinstance(event, package_events.QueryEvent):
        return {"database": _decoded_text(event.schema), "statement": event.query}
    if isinstance(event, package_events.GtidEvent | package_events.MariadbGtidEvent):
        return {"gtid": event.gtid}
    if isinstance(event, package_events.XidEvent):
        return {"xid": event.xid}
    if isinstance(event, package_events.RotateEvent):
        return {"file": event.next_binlog, "offset": event.position}
    if isinstance(event, package_events.RowsQueryLogEvent):
        return {"statement": event.query}
    if isinstance(event, package_events.MariadbAnnotateRowsEvent):
        return {"statement": _decoded_text(event.sql_statement)}
    return {}


def _decoded_text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


# rows ----------------------------------------------------------------------------------------------------------------


class _Mutations:
    """Converter of events to items of the border, with what later events need of earlier ones."""

    def __init__(self, wanted: Wanted | None) -> None:
        self._wanted = wanted or (lambda database, table: True)
        self._gtid: str | None = None
        self._statements = 0
        self._file = ""

    def of(self, seen: Seen) -> Iterator[Mutations | Statement | Stopped]:
        event = seen.event
        if seen.file != self._file:
            self._file, self._statements = seen.file, 0
        if isinstance(event, package_events.GtidEvent | package_events.MariadbGtidEvent):
            self._gtid = event.gtid
        elif not seen.is_known:  # anonymous, or with a tag
            self._gtid = None
        elif isinstance(event, package_events.QueryEvent):
            yield from self._statement(seen)
        elif (name := table_of(seen)) and self._wanted(name.database, name.table) is not False:
            yield self._rows(seen, name)

    def _statement(self, seen: Seen) -> Iterator[Statement]:
        event = seen.event
        if event.query.strip().upper() in ("BEGIN", "COMMIT"):
            return
        moment = event.timestamp * 1_000_000
        sql_mode = getattr(event, "sql_mode", 0)
        yield Statement(
            seen.file,
            seen.offset,
            self._statements,
            moment,
            self._gtid,
            _decoded_text(event.schema),
            sql_mode,
            event.query,
        )
        self._statements += 1

    def _rows(self, seen: Seen, name: TableName) -> Mutations | Stopped:
        rows = rows_of(seen)
        if isinstance(rows, Unread):
            return Stopped(name, seen.file, seen.offset, f"{PACKAGE} leaves out what is {rows.why}", _REMEDY)
        columns = tuple(map(_package_column, rows.columns))
        schema = staged_schema(columns, FAIL)
        try:
            batch = pa.RecordBatch.from_pylist(list(self._staged(rows, columns, seen.event.timestamp)), schema)
        except (pa.ArrowException, TypeError, ValueError):  # no more of it: the message holds the value
            return Stopped(name, seen.file, seen.offset, f"{PACKAGE} has values there that aren't its types'", _REMEDY)
        return Mutations(name, columns, rows.key, self._statements, batch)

    def _staged(self, rows: Rows, columns: tuple[Column, ...], created: int) -> Iterator[dict[str, Any]]:
        same: Image = {"op": rows.op, "file": file_number(rows.file), "offset": rows.offset}
        same |= {"committed_us": created * 1_000_000, "gtid": self._gtid, "xid": None}
        for number, (before, after) in enumerate(rows.rows):
            yield {**same, "row": number, "before": _image(columns, before), "after": _image(columns, after)}


def _image(columns: tuple[Column, ...], image: Image | None) -> Image | None:
    return image and {column.name: plain(column, image[column.name]) for column in columns}


_NOT_TEXTS = {**BY_WIRE, Wire.GEOMETRY: "geometry"}
_TEXTS = {Wire.VARCHAR: "varchar", Wire.VAR_STRING: "varchar", Wire.STRING: "char"}
_AS_BYTES = {"varchar": "varbinary", "char": "binary"}
_BLOBS = ("tiny", "", "medium", "long")


def _package_column(theirs: Any) -> Column:
    """Return a column as the package describes it. Text that it leaves as bytes gets a type of bytes."""
    code = theirs.type
    kind = _NOT_TEXTS.get(code) or _TEXTS.get(code) or f"type {code}"
    is_text = code == Wire.BLOB or code in _TEXTS
    if is_text:
        size = _BLOBS[theirs.length_size - 1] if code == Wire.BLOB else ""
        text = f"{size}text" if code == Wire.BLOB else kind
        raw = f"{size}blob" if code == Wire.BLOB else _AS_BYTES[kind]
        kind = text if _has_codec(theirs.character_set_name) else raw
    charset = str(theirs.collation_name or "").partition("_")[0] or None
    return Column(
        str(theirs.name),
        kind,
        unsigned=theirs.unsigned,
        length=theirs.bits if code == Wire.BIT else getattr(theirs, "max_length", None),
        precision=getattr(theirs, "precision", None),
        scale=getattr(theirs, "decimals", None),
        fraction=getattr(theirs, "fsp", 0),
        charset=None if kind in BYTES or kind == "geometry" else charset,
        values=tuple(theirs.enum_values[1:] if theirs.enum_values else theirs.set_values or ()),
    )


def _has_codec(name: str | None) -> bool:
    try:
        codecs.lookup(RowsEvent.charset_to_encoding(name) if name else "utf-8")
    except LookupError:
        return False
    return True
