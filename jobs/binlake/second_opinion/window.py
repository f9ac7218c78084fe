"""The newest part of a log, bounded: what a second opinion is asked about."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from binlake.binlog.boundaries import format_description, transaction_boundaries
from binlake.binlog.locate import Place, between
from binlake.binlog.transport import Transport
from binlake.position import FIRST_OFFSET, Slice
from binlake.source.log import Log


@dataclass(frozen=True)
class Bounds:
    """The most that is read: bytes of log, rows of included tables, and seconds to find and read them by the package.

    It reads some ten thousand rows a second.
    """

    bytes: int = 16_000_000
    rows: int = 200_000
    seconds: float = 60.0


@dataclass(frozen=True)
class Window:
    """The newest part of a log, between two transactions. cut: why it doesn't reach back all the time asked for."""

    slices: tuple[Slice, ...] = ()
    transactions: int = 0
    cut: str = ""


@dataclass
class _Newest:
    """The last transactions that take no more than ``most`` bytes together."""

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
    """From the first transaction on that committed at or after ``since`` (microseconds since 1970 UTC).

    deadline: of time.monotonic(). Raises SourceError and BinlogError.
    """
    files, head = log.binary_logs(), log.head()[:2]
    older = (file for file, _ in reversed(files) if format_description(transport, file) * 1_000_000 < since)
    begin = next(older, files[0][0])
    found = _Newest(bounds.bytes)
    for place, size, committed in _transactions(transport, between(transport, files, (begin, FIRST_OFFSET), head)):
        if time.monotonic() > deadline:
            return Window(cut=f"it wasn't found within {bounds.seconds:g} seconds")
        if found.starts or found.dropped or committed >= since:
            found.add(place, size)
    cut = f"no more than the newest {bounds.bytes / 1e6:g} MB in whole transactions" if found.dropped else ""
    if not found.starts:
        return Window(cut=cut)
    return Window(between(transport, files, found.starts[0][0], head), len(found.starts), cut)


def _transactions(transport: Transport, parts: tuple[Slice, ...]) -> Iterator[tuple[Place, int, int]]:
    for part in parts:
        for one in transaction_boundaries(transport, part):
            yield (part.file, one.start_offset), one.end_offset - one.start_offset, one.committed_us
