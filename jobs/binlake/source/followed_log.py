"""A log that is read on and on, as it grows: ``binlake.binlog.open(uri, follow=True)``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from binlake.binlog.border import Item, SliceSummary, Wanted
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.content_handlers import Handlers, events_through, items_through
from binlake.binlog.events import EventType
from binlake.binlog.listing import Event, list_events
from binlake.binlog.locate import Place, between, place_named
from binlake.binlog.reader import read
from binlake.binlog.transport import Transport
from binlake.errors import PositionLost, SourceError, UsageError
from binlake.position import Slice, file_number
from binlake.schema.invalid import KEEP_DATES, InvalidValues
from binlake.source.folder import Folder
from binlake.source.log import Log, Origin, open_log

_BEGINS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
"""Events with which transactions begin."""
_PORTION = 16 << 20
"""Bytes of log after which a portion ends, with the transaction."""


class FollowedLog:
    """A log whose readers wait for what comes next.

    One thread reads. Another may call ``close``, which ends the waiting. Failures (a server that is away) are raised;
    reading again continues at the same place.
    """

    def __init__(
        self,
        origin: Origin,
        slices: tuple[Slice, ...],
        place: Place,
        *,
        server_id: int,
        every: float,
        handlers: Handlers,
    ) -> None:
        """slices: what is read first; then all behind the last of them, or behind ``place`` where there is none. every:
        seconds between two looks at the log's end."""
        self._origin, self._server_id, self._every, self._handlers = origin, server_id, every, handlers
        self._first, self._place = slices, place
        self._log: Log | None = None
        self._ended: tuple[dict[str, int], Place] | None = None  # sizes of a folder's files, and the log's end then
        self._events: Iterator[Event] | None = None
        self._moved = False
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all reading. Any thread may call it."""
        self._closed.set()

    def position(self) -> str:
        """Return ``FILE:OFFSET``, the end of the last transaction that was given whole: a reader that begins there
        again misses nothing."""
        return f"{self._place[0]}:{self._place[1]}"

    def set_position(self, position: str) -> None:
        """Continue from ``FILE:OFFSET``, which lies between two transactions. Raises UsageError if it names no
        place."""
        place = place_named(position)
        if place is None:
            raise UsageError(f"{position!r} is no place in a log", remedy="write what position() returned")
        self._place, self._first, self._moved = place, (), True

    def next_event(self) -> Event | None:
        """Wait for the next event, and return it; None once the log is closed. Raises SourceError and BinlogError."""
        if self._events is None:
            self._events = self.events()
        try:
            return next(self._events, None)
        except Exception:
            self._events = None  # a generator that raised is at its end
            raise

    def events(self) -> Iterator[Event]:
        """Yield every event, as it comes. Raises SourceError and BinlogError."""
        return events_through(self._handlers, self._listed())

    def portions(self, wanted: Wanted | None = None, invalid: InvalidValues = KEEP_DATES) -> Iterator[list[Item]]:
        """Yield the items of a log's ``mutations`` as they come, in portions of whole transactions.

        ``position`` then is where the portion ends. Portions without content aren't given. Raises SourceError and
        BinlogError.
        """
        while parts := self._next():
            for part in parts:
                for piece in _pieces(self._transport, part):
                    items = read(self._transport, piece, wanted or (lambda database, table: True), invalid=invalid)
                    contents = (item for item in items if not isinstance(item, SliceSummary))
                    portion = list(items_through(self._handlers, contents))
                    self._place = piece.file, piece.stop
                    if portion:
                        yield portion
                    if self._ends():
                        break
                if self._ends():
                    break

    def _listed(self) -> Iterator[Event]:
        while parts := self._next():
            for part in parts:
                for event, place in _with_places(list_events(self._transport, part), part, self._place):
                    self._place = place
                    yield event
                    if self._ends():
                        break
                if self._ends():
                    break

    def _ends(self) -> bool:
        """Return whether what follows isn't to be read."""
        return self._moved or self._closed.is_set()

    def _next(self) -> tuple[Slice, ...]:
        """Wait until the log continues behind the present place, and return its slices; none once it is closed."""
        self._moved = False
        while not self._closed.is_set():
            try:
                parts = self._first or self._beyond()
            except SourceError:
                self._disconnect()
                raise
            self._first = ()
            if parts:
                return parts
            self._closed.wait(self._every)
        self._disconnect()
        return ()

    def _beyond(self) -> tuple[Slice, ...]:
        """Return the slices behind the present place; none where the log ends there."""
        sizes = _sizes(self._origin.path) if isinstance(self._origin, Folder) else {}
        if sizes and self._ended == (sizes, self._place):  # else the last file is read to find its last whole event
            return ()
        log = self._log = self._log or open_log(self._origin)
        file, offset, _ = log.head()
        self._ended = sizes, (file, offset)
        head, here = (file_number(file), offset), (file_number(self._place[0]), self._place[1])
        if head < here:
            raise PositionLost(
                f"the log ends at {file}:{offset}, before {self.position()}: it began again, or is another server's",
                remedy="begin at a place that it has, or after a GTID set",
            )
        parts = between(self._transport, log.binary_logs(), self._place, (file, offset)) if head > here else ()
        if isinstance(self._origin, Folder):
            self._disconnect()  # an open one stays as it was listed
        return tuple(part for part in parts if part.size)

    @property
    def _transport(self) -> Transport:
        self._log = self._log or open_log(self._origin)
        return self._log.transport(self._server_id)

    def _disconnect(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None


def _sizes(path: Path) -> dict[str, int]:
    """Return the sizes of a folder's files, or of one file, by name."""
    try:
        files = [path] if path.is_file() else [*path.iterdir()]
        return {file.name: file.stat().st_size for file in files}
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}", remedy="check the folder and its permissions") from None


def _with_places(events: Iterator[Event], part: Slice, place: Place) -> Iterator[tuple[Event, Place]]:
    """Yield each event with the end of the last transaction that is whole once it was given. place: before them."""
    before: Event | None = None
    for event in events:
        if before is not None:
            if event.kind in _BEGINS and not event.inside_payload:
                place = part.file, event.offset
            yield before, place
        before = event
    if before is not None:
        yield before, (part.file, part.stop)


def _pieces(transport: Transport, part: Slice) -> Iterator[Slice]:
    """Yield a slice in pieces of whole transactions."""
    start = part.start
    if part.size > _PORTION:
        for boundary in transaction_boundaries(transport, part):
            if boundary.end_offset - start >= _PORTION and boundary.end_offset < part.stop:
                yield Slice(part.file, start, boundary.end_offset, part.created, whole=False)
                start = boundary.end_offset
    yield Slice(part.file, start, part.stop, part.created, part.whole)
