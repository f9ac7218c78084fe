"""A client's queue of events, by filters, limits and discard policies. Pure.

Events are numbered, not kept: for each batch, a queue has the numbers of the events that passed the client's filters
and still wait. They are read from staging when they are served. So even a queue without a limit takes little memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from binlake.errors import UsageError
from binlake.records.feed_watermarks import FeedPlace
from binlake.schema.table import TableName

ALL_OPERATIONS = 7
MOST_FILTERS = 4096


class Discard(IntEnum):
    """The events that a full queue drops. NONE is the same as NEWEST: the queue keeps what waits, and drops the new
    event."""

    NONE = 0
    OLDEST = 1
    NEWEST = 2


@dataclass(frozen=True)
class TableFilter:
    """A client's filter of a table. operations: bits 1 insert, 2 update, 4 delete. queue_limit: events, 0 for none."""

    name: TableName
    operations: int
    queue_limit: int = 0
    discard: Discard = Discard.NONE

    def __post_init__(self) -> None:
        if not 0 < self.operations <= ALL_OPERATIONS:
            raise UsageError(
                f"a filter of the operations {self.operations} lets nothing pass",
                remedy="add 1 for inserts, 2 for updates, 4 for deletes",
            )
        if not self.name.database or not self.name.table:
            raise UsageError("a filter names a schema and a table", remedy="give both")


@dataclass(eq=False)
class Waiting:
    """The events of one batch that wait.

    filters: the client's when the batch arrived, by which its events are numbered. ranges: [start, end) of the numbers
    that wait. seen: how many were numbered. place: the place in the batch after the events before ``first_read``, where
    a reader continues.
    """

    batch: int
    filters: tuple[TableFilter, ...]
    ranges: list[list[int]] = field(default_factory=list)
    seen: int = 0
    first_read: int = 0
    place: FeedPlace | None = None

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges)


@dataclass
class Queue:
    """A client's queue. served, discarded: counts. largest: its largest size. delivered: served but unacknowledged."""

    waiting: deque[Waiting] = field(default_factory=deque)
    delivered: list[tuple[Waiting, int]] = field(default_factory=list)
    served: int = 0
    discarded: int = 0
    largest: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.waiting))

    def arrive(self, batch: int, filters: tuple[TableFilter, ...], passed: npt.NDArray[np.int64]) -> None:
        """Add a batch's events, in order. passed: for each, the number of the filter that let it pass."""
        rules = {(filters[number].queue_limit, filters[number].discard) for number in np.unique(passed).tolist()}
        here = self._waiting_of(batch, filters)
        if len(rules) == 1:
            self._add(here, len(passed), *next(iter(rules)))
            return
        for number in passed.tolist():
            self._add(here, 1, filters[number].queue_limit, filters[number].discard)

    def _waiting_of(self, batch: int, filters: tuple[TableFilter, ...]) -> Waiting:
        if not self.waiting or self.waiting[-1].batch != batch:
            self.waiting.append(Waiting(batch, filters))
        return self.waiting[-1]

    def _add(self, here: Waiting, count: int, limit: int, discard: Discard) -> None:
        taken = count
        length = len(self)
        if limit and discard is not Discard.OLDEST:
            taken = max(0, min(count, limit - length))
        if taken:
            start = here.seen
            if here.ranges and here.ranges[-1][1] == start:
                here.ranges[-1][1] += taken
            else:
                here.ranges.append([start, start + taken])
        here.seen += count
        self.discarded += count - taken
        if limit and discard is Discard.OLDEST and (over := length + taken - limit) > 0:
            self.discarded += over
            self._drop(over)
        self.largest = max(self.largest, len(self))

    def _drop(self, count: int) -> None:
        """Drop the oldest events of any batch; the batches stay, even if nothing of them waits."""
        for here in list(self.waiting):
            while count and here.ranges:
                first = here.ranges[0]
                taken = min(count, first[1] - first[0])
                first[0] += taken
                count -= taken
                if first[0] == first[1]:
                    del here.ranges[0]

    def forget_empty(self) -> None:
        """Remove batches of which nothing waits; called once all events of the newest have been added."""
        self.waiting = deque(batch for batch in self.waiting if batch.ranges)

    def head(self) -> tuple[Waiting, int] | None:
        """Return the oldest event's batch and its number there, None if nothing waits."""
        for here in self.waiting:
            if here.ranges:
                return here, here.ranges[0][0]
        return None

    def deliver(self) -> None:
        """Move the oldest event to ``delivered``, where it stays until ``acknowledge``."""
        head = self.head()
        assert head is not None
        self.delivered.append(head)
        self._drop(1)
        self.served += 1

    def acknowledge(self) -> None:
        """Forget delivered events: the client has received them, since it asked for more."""
        self.delivered.clear()

    def skip_to(self, served: int) -> None:
        """Drop the oldest events as far as they were served and acknowledged. served: their count in all."""
        if (more := served - self.served) > 0:
            self._drop(more)
            self.served = served
            self.forget_empty()

    def take_back(self) -> None:
        """Put delivered events back, even above the queue's limit: the client may not have received them."""
        for here, number in reversed(self.delivered):
            if here not in self.waiting:
                self.waiting.appendleft(here)
            if here.ranges and here.ranges[0][0] == number + 1:
                here.ranges[0][0] = number
            else:
                here.ranges.insert(0, [number, number + 1])
            if here.first_read > number:
                here.first_read, here.place = 0, None
        self.served -= len(self.delivered)
        self.delivered.clear()

    def lose(self, here: Waiting) -> int:
        """Discard the events of a batch that can't be read any more; return how many waited."""
        lost = len(here)
        here.ranges.clear()
        self.discarded += lost
        return lost

    def batches(self) -> Iterable[int]:
        """Yield the numbers of batches that may still be read, including those of delivered events."""
        yield from (part.batch for part in self.waiting if part.ranges)
        yield from (part.batch for part, _ in self.delivered)
