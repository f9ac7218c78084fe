"""``binlake.binlog.open``: the binlog for programs that want events or Arrow without a lake.

log = binlake.binlog.open("mysql://replica:secret@db.example:3306/", start="binlog.000042:4")
for batch in log.batches("shop", "orders"):
    ...                                     # a pyarrow.RecordBatch, columns as binlake.binlog.border tells

for event in binlake.binlog.open("file:///archive").events():
    print(event.file, event.offset, event.name, event.detail)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from binlake import gtid
from binlake.binlog.border import Item, Mutations, RolledBack, SliceSummary, Stopped, Wanted
from binlake.binlog.listing import Event, list_events
from binlake.binlog.locate import Place, between, outside
from binlake.binlog.reader import read
from binlake.binlog.transport import Transport
from binlake.errors import TableError, UsageError
from binlake.position import FIRST_OFFSET, Slice, file_number
from binlake.schema.invalid import KEEP_DATES, InvalidValues
from binlake.source.connection import endpoint_of
from binlake.source.log import Log, Origin, folder_of, opened

_PLACE = re.compile(r"(?P<file>[^:/]+\.\d+)(?::(?P<offset>\d+))?\Z")

_BY_PLACE = "begin at a place of the log instead: FILE:OFFSET"


@dataclass(frozen=True)
class OpenLog:
    """A fixed range of a log: each reading gives the same slices, whatever is appended to the log."""

    transport: Transport
    slices: tuple[Slice, ...]

    @property
    def size(self) -> int:
        """Return the range's size in bytes."""
        return sum(part.size for part in self.slices)

    def events(self) -> Iterator[Event]:
        """Yield every event with a description. Raises SourceError and BinlogError."""
        for part in self.slices:
            yield from list_events(self.transport, part)

    def mutations(self, wanted: Wanted | None = None, invalid: InvalidValues = KEEP_DATES) -> Iterator[Item]:
        """Yield mutations as record batches, statements, stopped tables and XA events, in the order that border tells.

        wanted: (database, table) → whether to decode its rows; by default all. Raises SourceError and BinlogError.
        """
        for part in self.slices:
            for item in read(self.transport, part, wanted or _all, invalid=invalid):
                if not isinstance(item, SliceSummary):
                    yield item

    def batches(self, database: str, table: str) -> Iterator[pa.RecordBatch]:
        """Yield one table's mutations (columns as in ``border``); a new shape begins a new batch.

        Raises TableError if its events can't be decoded or were rolled back, SourceError and BinlogError.
        """
        last: tuple[str, int] | None = None
        for item in self.mutations(lambda schema, name: (schema, name) == (database, table)):
            if isinstance(item, Stopped):
                raise TableError(f"{database}.{table}: {item.file}:{item.offset}: {item.reason}", remedy=item.remedy)
            if isinstance(item, RolledBack) and last is not None and last >= (item.file, item.first[0]):
                raise TableError(
                    f"{database}.{table}: {item.file}:{item.last[0]}: rows that were given were rolled back",
                    remedy="read mutations(), which says which rows",
                )
            if isinstance(item, Mutations):
                last = self._file_of(item.batch), item.batch.column("offset")[-1].as_py()
                yield item.batch

    def _file_of(self, batch: pa.RecordBatch) -> str:
        number = batch.column("file")[0].as_py()
        return next(part.file for part in self.slices if file_number(part.file) == number)


def _all(database: str, table: str) -> bool:
    return True


def open(  # noqa: A001  # its users write binlog.open
    uri: str, start: str | None = None, stop: str | None = None, *, server_id: int = 0
) -> OpenLog:
    """Open a server's log (``mysql://user:password@host:port/``) or files (``file:///folder``, ``file:///a/binlog.000042``).

    start: ``FILE:OFFSET``, ``FILE``, or a GTID set as the server writes it, whose transactions aren't read; by default
    the log's beginning. stop: ``FILE:OFFSET`` or ``FILE`` (up to its beginning); by default the present end. server_id:
    the id of the replica that reads; by default it is no replica. Raises UsageError, SourceError and BinlogError.
    """
    with opened(_origin(uri)) as log:
        transport = log.transport(server_id)
        return OpenLog(transport, _slices(log, transport, start, stop))


def _origin(uri: str) -> Origin:
    return folder_of(uri) or endpoint_of(uri)


def _slices(log: Log, transport: Transport, start: str | None, stop: str | None) -> tuple[Slice, ...]:
    files = log.binary_logs()
    end = _place(stop, FIRST_OFFSET) if stop else log.head()[:2]
    if end is None:
        raise UsageError(f"{stop!r} is no place in a log", remedy="write FILE:OFFSET, such as binlog.000042:157")
    begin = _place(start, FIRST_OFFSET) if start else (files[0][0], FIRST_OFFSET)
    for place in (begin, end):
        if place is not None:
            _check_place(place, files)
    if begin and (file_number(begin[0]), begin[1]) > (file_number(end[0]), end[1]):
        raise UsageError(f"the start {begin[0]}:{begin[1]} lies behind the stop {end[0]}:{end[1]}", remedy="swap them")
    if begin is None:
        return outside(transport, files, gtid.parse(start or "", log.flavour), end, remedy=_BY_PLACE)
    return between(transport, files, begin, end)


def _place(text: str, default: int) -> Place | None:
    match = _PLACE.match(text)
    return (match["file"], max(int(match["offset"] or 0), default)) if match else None


def _check_place(place: Place, files: tuple[tuple[str, int], ...]) -> None:
    """Check that a file exists and has the offset. Raises UsageError."""
    size = dict(files).get(place[0])
    if size is None:
        raise UsageError(
            f"the log has no {place[0]}", remedy=f"it has {files[0][0]} to {files[-1][0]}" if files else "it is empty"
        )
    if place[1] > size:
        raise UsageError(f"{place[0]}:{place[1]} lies past the end", remedy=f"the file has {size} bytes")
