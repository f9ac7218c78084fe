"""The newest part of a log, within bounds, for a second opinion."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.locate import Place, between
from binlake.binlog.transport import Transport
from binlake.position import FIRST_OFFSET, Slice
from binlake.source.log import Log


@dataclass(frozen=True)
class Bounds:
    """The most that is read: bytes of log, rows of included tables, and seconds for the package to find and read them.

    The package reads some ten thousand rows a second.
    """

    bytes: int = 16_000_000
    rows: int = 200_000
    seconds: float = 60.0


@dataclass(frozen=True)
class Window:
    """The newest part of a log, between two transactions. cut: why it doesn't reach back as far as it was asked to."""

    slices: tuple[Slice, ...] = ()
    transactions: int = 0
    cut: str = ""


@dataclass
class _Newest:
    """The last transactions that take at most ``most`` bytes together."""

    most: int
    starts: deque[tuple[Place, int]] = field(default_factory=deque)
    size: int = 0
    dropped: bool = False

    def add(self, place: Place, size: int) -> None:
        self.starts.append((place, size))
        self.size += size
        while self.size > self.most:
            self.size -= self.starts.popleft()[1]
            self.dropped = True


def newest(log: Log, transport: Transport, since: int, bounds: Bounds, deadline: float) -> Window:
    """Return the log from the first transaction that committed at or after ``since`` (microseconds since 1970 UTC).

    deadline: a value of time.monotonic(). Raises SourceError and BinlogError.
    """
    head, files = log.head()[:2], log.binary_logs()  # in this order: files that are listed later have the head
    older = (file for file, _ in reversed(files) if format_description(transport, file) * 1_000_000 < since)
    begin = next(older, files[0][0])
    last = _Newest(bounds.bytes)
    for place, size, committed in _transactions(transport, between(transport, files, (begin, FIRST_OFFSET), head)):
        if time.monotonic() > deadline:
            return Window(cut=f"it wasn't found within {bounds.seconds:g} seconds")
        if last.starts or last.dropped or committed >= since:
            last.add(place, size)
    cut = f"no more than the newest {bounds.bytes / 1e6:g} MB in whole transactions" if last.dropped else ""
    if not last.starts:
        return Window(cut=cut)
    return Window(between(transport, files, last.starts[0][0], head), len(last.starts), cut)


def _transactions(transport: Transport, parts: tuple[Slice, ...]) -> Iterator[tuple[Place, int, int]]:
    for part in parts:
        for boundary in transaction_boundaries(transport, part):
            yield (part.file, boundary.start_offset), boundary.end_offset - boundary.start_offset, boundary.committed_us
