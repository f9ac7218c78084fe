"""``binlake.binlog.open``: the binlog for programs that want events or Arrow without a lake.

log = binlake.binlog.open("mysql://replica:secret@db.example:3306/", start="binlog.000042:4")
for batch in log.batches("shop", "orders"):
    ...                                     # a pyarrow.RecordBatch; columns: see binlake.binlog.border

for event in binlake.binlog.open("file:///archive").events():
    print(event.file, event.offset, event.name, event.detail)

with binlake.binlog.open("mysql://replica:secret@db.example:3306/", follow=True) as log:
    while event := log.next_event():        # it waits
        print(log.position(), event.name)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, overload

import pyarrow as pa

from binlake import gtid
from binlake.binlog.border import Item, Mutations, RolledBack, SliceSummary, Stopped, Wanted
from binlake.binlog.content_handlers import Handlers, events_through, items_through
from binlake.binlog.listing import Event, list_events
from binlake.binlog.locate import Place, between, outside, place_named
from binlake.binlog.reader import read
from binlake.binlog.transport import Transport
from binlake.errors import TableError, UsageError
from binlake.position import FIRST_OFFSET, Slice, file_number
from binlake.schema.invalid import KEEP_DATES, InvalidValues
from binlake.source.connection import endpoint_of
from binlake.source.followed_log import FollowedLog
from binlake.source.log import Log, Origin, folder_of, opened

_BY_PLACE = "begin at a place of the log instead: FILE:OFFSET"


@dataclass(frozen=True)
class OpenLog:
    """A fixed range of a log: each reading gives the same slices, whatever is appended to the log. handlers: what
    passes through them is given."""

    transport: Transport
    slices: tuple[Slice, ...]
    handlers: Handlers = ()

    @property
    def size(self) -> int:
        """Return the range's size in bytes."""
        return sum(part.size for part in self.slices)

    def events(self) -> Iterator[Event]:
        """Yield every event with a description. Raises SourceError and BinlogError."""
        listed = (event for part in self.slices for event in list_events(self.transport, part))
        return events_through(self.handlers, listed)

    def mutations(self, wanted: Wanted | None = None, invalid: InvalidValues = KEEP_DATES) -> Iterator[Item]:
        """Yield mutations as record batches, statements, stopped tables and XA events, in the order that border
        describes.

        wanted: (database, table) → whether to decode its rows; by default all. Raises SourceError and
        BinlogError.
        """
        return items_through(self.handlers, self._items(wanted or _all, invalid))

    def _items(self, wanted: Wanted, invalid: InvalidValues) -> Iterator[Item]:
        for part in self.slices:
            for item in read(self.transport, part, wanted, invalid=invalid):
                if not isinstance(item, SliceSummary):
                    yield item

    def batches(self, database: str, table: str) -> Iterator[pa.RecordBatch]:
        """Yield one table's mutations (columns as in ``border``); a new shape begins a new batch.

        Raises TableError if its events can't be decoded or were rolled back, SourceError and BinlogError.
        """
        given = (-1, -1, -1)
        back: list[RolledBack] = []  # it may come before the rows that it concerns
        for item in self.mutations(lambda schema, name: (schema, name) == (database, table)):
            if isinstance(item, Stopped):
                raise TableError(f"{database}.{table}: {item.file}:{item.offset}: {item.reason}", remedy=item.remedy)
            if isinstance(item, RolledBack):
                back.append(item)
                if given >= (file_number(item.file), *item.first):
                    raise _rolled_back(database, table, item)
            if isinstance(item, Mutations):
                for rows in back:
                    if _are_among(item.batch, rows):
                        raise _rolled_back(database, table, rows)
                file, offset, row = (item.batch.column(name)[-1].as_py() for name in ("file", "offset", "row"))
                given = file, offset, row
                back = [rows for rows in back if (file_number(rows.file), *rows.last) > given]
                yield item.batch


def _are_among(batch: pa.RecordBatch, rows: RolledBack) -> bool:
    """Return whether rows of a batch were rolled back."""
    file, offset, row = (batch.column(name).to_numpy() for name in ("file", "offset", "row"))
    begun = (offset > rows.first[0]) | ((offset == rows.first[0]) & (row >= rows.first[1]))
    behind = (offset > rows.last[0]) | ((offset == rows.last[0]) & (row >= rows.last[1]))
    return bool(((file == file_number(rows.file)) & begun & ~behind).any())


def _rolled_back(database: str, table: str, rows: RolledBack) -> TableError:
    return TableError(
        f"{database}.{table}: {rows.file}:{rows.last[0]}: rows before it were rolled back",
        remedy="read mutations(), which says which rows",
    )


def _all(database: str, table: str) -> bool:
    return True


@overload
def open(  # noqa: A001
    uri: str,
    start: str | None = ...,
    stop: str | None = ...,
    *,
    server_id: int = ...,
    handlers: Handlers = ...,
    follow: Literal[False] = ...,
) -> OpenLog: ...


@overload
def open(  # noqa: A001
    uri: str,
    start: str | None = ...,
    *,
    server_id: int = ...,
    handlers: Handlers = ...,
    follow: Literal[True],
    every: float = ...,
) -> FollowedLog: ...


def open(  # noqa: A001  # its users write binlog.open
    uri: str,
    start: str | None = None,
    stop: str | None = None,
    *,
    server_id: int = 0,
    handlers: Handlers = (),
    follow: bool = False,
    every: float = 0.5,
) -> OpenLog | FollowedLog:
    """Open a server's log (``mysql://user:password@host:port/``) or files (``file:///folder``, ``file:///a/binlog.000042``).

    start: ``FILE:OFFSET``, ``FILE``, or a GTID set as the server writes it, whose transactions aren't read; by default
    the log's beginning. stop: ``FILE:OFFSET`` or ``FILE`` (up to its beginning); by default the present end. server_id:
    the id of the replica that reads; by default it is no replica. handlers: what the content passes through. follow:
    reading waits for what comes next, and looks for it ``every`` so many seconds. Raises UsageError, SourceError and
    BinlogError.
    """
    origin = _origin(uri)
    if follow and stop:
        raise UsageError("a log that is followed has no stop", remedy="leave out stop, or follow")
    with opened(origin) as log:
        transport = log.transport(server_id)
        slices = _slices(log, transport, start, stop)
        if not follow:
            return OpenLog(transport, slices, handlers)
        place = (slices[0].file, slices[0].start) if slices else log.head()[:2]
        ahead = tuple(part for part in slices if part.size)
        return FollowedLog(origin, ahead, place, server_id=server_id, every=every, handlers=handlers)


def _origin(uri: str) -> Origin:
    return folder_of(uri) or endpoint_of(uri)


def _slices(log: Log, transport: Transport, start: str | None, stop: str | None) -> tuple[Slice, ...]:
    end = place_named(stop) if stop else log.head()[:2]
    files = log.binary_logs()  # behind the end, so that it has the end though others write
    if end is None:
        raise UsageError(f"{stop!r} is no place in a log", remedy="write FILE:OFFSET, such as binlog.000042:157")
    begin = place_named(start) if start else (files[0][0], FIRST_OFFSET)
    for place in (begin, end):
        if place is not None:
            _check_place(place, files)
    if begin and (file_number(begin[0]), begin[1]) > (file_number(end[0]), end[1]):
        raise UsageError(f"the start {begin[0]}:{begin[1]} lies behind the stop {end[0]}:{end[1]}", remedy="swap them")
    if begin is None:
        return outside(transport, files, gtid.parse(start or "", log.flavour), end, remedy=_BY_PLACE)
    return between(transport, files, begin, end)


def _check_place(place: Place, files: tuple[tuple[str, int], ...]) -> None:
    """Check that a file exists and has the offset. Raises UsageError."""
    size = dict(files).get(place[0])
    if size is None:
        raise UsageError(
            f"the log has no {place[0]}", remedy=f"it has {files[0][0]} to {files[-1][0]}" if files else "it is empty"
        )
    if place[1] > size:
        raise UsageError(f"{place[0]}:{place[1]} lies past the end", remedy=f"the file has {size} bytes")
