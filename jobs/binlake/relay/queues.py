"""A client's queue: which of the events that arrived wait for it, by filters, limits and discard policies. Pure.

Events are counted, not kept: of each batch, a queue holds which of those that the client's filters let pass (the first,
the second …) still wait. Whoever serves one reads it from staging. So a queue without a limit takes no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from binlake.errors import UsageError
from binlake.metadata.feed_watermarks import FeedPlace
from binlake.schema.table import TableName

ALL_OPERATIONS = 7
MOST_FILTERS = 4096


class Discard(IntEnum):
    """What happens to an event that finds the queue full. NONE keeps what waits, too: the newest can't wait."""

    NONE = 0
    OLDEST = 1
    NEWEST = 2


@dataclass(frozen=True)
class TableFilter:
    """operations: bits 1 insert, 2 update, 4 delete. queue_limit: events in the client's queue, 0 for no limit."""

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
    """Of one batch what waits. filters: those by which its events are counted, as they stood when it arrived.

    ranges: [first, behind the last) of the counted events. place: behind the events before ``first_read``, for a reader
    that goes on there.
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
    """counts: served, discarded, the largest it ever was; ``delivered``: served, and not known to have come through."""

    waiting: deque[Waiting] = field(default_factory=deque)
    delivered: list[tuple[Waiting, int]] = field(default_factory=list)
    served: int = 0
    discarded: int = 0
    largest: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.waiting))

    def arrive(self, batch: int, filters: tuple[TableFilter, ...], passed: npt.NDArray[np.int64]) -> None:
        """Events of a batch, in order. passed: of each, the number of the filter that let it pass."""
        rules = {(filters[one].queue_limit, filters[one].discard) for one in np.unique(passed).tolist()}
        here = self._of(batch, filters)
        if len(rules) == 1:
            self._add(here, len(passed), *next(iter(rules)))
            return
        for one in passed.tolist():
            self._add(here, 1, filters[one].queue_limit, filters[one].discard)

    def _of(self, batch: int, filters: tuple[TableFilter, ...]) -> Waiting:
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
        """The oldest, whatever batch they are of; what arrives keeps its place, even if it is empty by that."""
        for here in list(self.waiting):
            while count and here.ranges:
                first = here.ranges[0]
                taken = min(count, first[1] - first[0])
                first[0] += taken
                count -= taken
                if first[0] == first[1]:
                    del here.ranges[0]

    def forget_empty(self) -> None:
        """RecordedBatches of which nothing waits any more; called where nothing of the newest will arrive any more."""
        self.waiting = deque(one for one in self.waiting if one.ranges)

    def head(self) -> tuple[Waiting, int] | None:
        """The oldest event: its batch and number there."""
        for here in self.waiting:
            if here.ranges:
                return here, here.ranges[0][0]
        return None

    def deliver(self) -> None:
        """The oldest goes out; it stands in ``delivered`` until ``acknowledge``."""
        head = self.head()
        assert head is not None
        self.delivered.append(head)
        self._drop(1)
        self.served += 1

    def acknowledge(self) -> None:
        """What was delivered has come through: the client asked for more."""
        self.delivered.clear()

    def take_back(self) -> None:
        """What was delivered may not have come through: it is told again, even if the queue is over its limit."""
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
        """A batch can't be read any more: its events are discarded; how many that were."""
        lost = len(here)
        here.ranges.clear()
        self.discarded += lost
        return lost

    def batches(self) -> Iterable[int]:
        """Those that are still read, delivered ones that may be told again among them."""
        yield from (one.batch for one in self.waiting if one.ranges)
        yield from (one.batch for one, _ in self.delivered)
