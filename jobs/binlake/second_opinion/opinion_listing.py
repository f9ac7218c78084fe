"""``binlake binlog --reader mysql-replication``: a server's log in the forms of our own reader.

Times are those of the events' headers, in whole seconds, and rows don't tell an XA transaction: the package has no
more.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysqlreplication import event as package_events
from pymysqlreplication.row_event import RowsEvent, TableMapEvent

from binlake.binlog.border import Item, Mutations, Statement, Stopped, Wanted, staged_schema
from binlake.binlog.listing import Event
from binlake.binlog.tablemap import Wire
from binlake.errors import UnsupportedEvent, UsageError
from binlake.position import Slice, file_number
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.border_values import BYTES, plain
from binlake.second_opinion.misread import WITHOUT_ROWS
from binlake.second_opinion.stream import Image, Rows, Seen, Unread, events, kind_name, rows_of, table_of
from binlake.source import openlog
from binlake.source.connection import Endpoint
from binlake.source.dump import ServerTransport
from binlake.source.log import folder_of

_REMEDY = "read it without --reader: binlake's own reads it"


@dataclass(frozen=True)
class PackageLog:
    """A stretch of a server's log, frozen. Reading goes to its end, and then says what the package left out."""

    endpoint: Endpoint
    server_id: int
    slices: tuple[Slice, ...]

    def events(self) -> Iterator[Event]:
        """Every event that the package gives, described by it. Raises SourceError, at last UnsupportedEvent."""
        unread: list[Unread] = []
        for found in self._found():
            if isinstance(found, Unread):
                unread.append(found)
            else:
                yield _event(found)
        _check(unread)

    def mutations(self, wanted: Wanted | None = None) -> Iterator[Item]:
        """Its rows and statements; a table of which it can't read an event stops there.

        Raises SourceError, at last UnsupportedEvent.
        """
        unread: list[Unread] = []
        stopped: set[TableName | None] = set()
        reader = _Mutations(wanted)
        for found in self._found():
            if isinstance(found, Unread):
                unread += [found] if found.has_rows else []
            elif not found.is_known and found.kind not in WITHOUT_ROWS:
                unread.append(found.unread(f"in events that it doesn't know ({kind_name(found.kind)})"))
            elif (name := table_of(found)) is None or name not in stopped:
                for item in reader.of(found):
                    if isinstance(item, Stopped):
                        stopped.add(name)
                    yield item
        _check(unread)

    def _found(self) -> Iterator[Seen | Unread]:
        for part in self.slices:
            yield from events(self.endpoint, self.server_id, part)


def _check(unread: list[Unread]) -> None:
    if unread:
        first = unread[0]
        more = f", and {len(unread) - 1} other parts of the log" if len(unread) > 1 else ""
        said = f"{PACKAGE} left out what is here {first.why}{more}"
        raise UnsupportedEvent(said, file=first.file, offset=first.first, remedy=_REMEDY)


def open(uri: str, start: str | None = None, stop: str | None = None) -> PackageLog:  # noqa: A001  # as binlog.open
    """As ``binlog.open``, of servers alone. Raises UsageError for files."""
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
    found = seen.event
    name = kind_name(seen.kind) if seen.is_known else None
    return Event(
        seen.file,
        seen.offset,
        seen.size,
        seen.kind,
        name,
        found.timestamp,
        found.packet.server_id,
        detail=_detail(found, name or ""),
    )


def _detail(found: Any, name: str) -> dict[str, Any]:
    if isinstance(found, RowsEvent):
        words = {"operation": name.partition("_ROWS")[0].lower()}
        return {**words, "table": f"{found.schema}.{found.table}", "table_id": found.table_id}
    if isinstance(found, TableMapEvent):
        columns = {str(column.name): _column(column).type for column in found.columns}
        return {"table": f"{found.schema}.{found.table}", "table_id": found.table_id, "columns": columns}
    if isinstance(found, package_events.QueryEvent):
        return {"database": _text(found.schema), "statement": found.query}
    if isinstance(found, package_events.GtidEvent | package_events.MariadbGtidEvent):
        return {"gtid": found.gtid}
    if isinstance(found, package_events.XidEvent):
        return {"xid": found.xid}
    if isinstance(found, package_events.RotateEvent):
        return {"file": found.next_binlog, "offset": found.position}
    if isinstance(found, package_events.RowsQueryLogEvent):
        return {"statement": found.query}
    if isinstance(found, package_events.MariadbAnnotateRowsEvent):
        return {"statement": _text(found.sql_statement)}
    return {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


# rows ----------------------------------------------------------------------------------------------------------------


class _Mutations:
    """What an event needs of those before it to become items of the border."""

    def __init__(self, wanted: Wanted | None) -> None:
        self._wanted = wanted or (lambda database, table: True)
        self._gtid: str | None = None
        self._statements = 0
        self._file = ""

    def of(self, seen: Seen) -> Iterator[Mutations | Statement | Stopped]:
        found = seen.event
        if seen.file != self._file:
            self._file, self._statements = seen.file, 0
        if isinstance(found, package_events.GtidEvent | package_events.MariadbGtidEvent):
            self._gtid = found.gtid
        elif not seen.is_known:  # anonymous, or with a tag
            self._gtid = None
        elif isinstance(found, package_events.QueryEvent):
            yield from self._statement(seen)
        elif (name := table_of(seen)) and self._wanted(name.database, name.table) is not False:
            yield self._rows(seen, name)

    def _statement(self, seen: Seen) -> Iterator[Statement]:
        found = seen.event
        if found.query.strip().upper() in ("BEGIN", "COMMIT"):
            return
        moment = found.timestamp * 1_000_000
        sql_mode = getattr(found, "sql_mode", 0)
        yield Statement(
            seen.file, seen.offset, self._statements, moment, self._gtid, _text(found.schema), sql_mode, found.query
        )
        self._statements += 1

    def _rows(self, seen: Seen, name: TableName) -> Mutations | Stopped:
        rows = rows_of(seen)
        if isinstance(rows, Unread):
            return Stopped(name, seen.file, seen.offset, f"{PACKAGE} leaves out what is {rows.why}", _REMEDY)
        columns = tuple(map(_column, rows.columns))
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


_NUMBERS = {
    Wire.TINY: "tinyint", Wire.SHORT: "smallint", Wire.INT24: "mediumint", Wire.LONG: "int", Wire.LONGLONG: "bigint",
    Wire.FLOAT: "float", Wire.DOUBLE: "double", Wire.NEWDECIMAL: "decimal", Wire.YEAR: "year", Wire.BIT: "bit",
    Wire.DATE: "date", Wire.TIMESTAMP: "timestamp", Wire.TIMESTAMP2: "timestamp", Wire.DATETIME: "datetime",
    Wire.DATETIME2: "datetime", Wire.TIME: "time", Wire.TIME2: "time", Wire.JSON: "json", Wire.GEOMETRY: "geometry",
    Wire.ENUM: "enum", Wire.SET: "set",
}  # fmt: skip
_TEXTS = {Wire.VARCHAR: "varchar", Wire.VAR_STRING: "varchar", Wire.STRING: "char"}
_AS_BYTES = {"varchar": "varbinary", "char": "binary"}
_BLOBS = ("tiny", "", "medium", "long")


def _column(theirs: Any) -> Column:
    """A column as the package describes it; text that it leaves as bytes is declared as bytes."""
    code = theirs.type
    kind = _NUMBERS.get(code) or _TEXTS.get(code) or f"type {code}"
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
