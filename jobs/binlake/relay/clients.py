"""Clients of the relay: who they are, what they asked for, what waits for them; and how that outlives the process."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field

from binlake.batch.steps import PreparedXa
from binlake.relay.client_events import RelayEvent
from binlake.relay.queues import Queue, TableFilter, Waiting
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads

LAST_EVENTS = 10


@dataclass(frozen=True)
class LastEvent:
    """What is told of an event that was served, without values. served_us, committed_us: µs since 1970 UTC."""

    operation: int
    file: str
    position: int
    table: str
    committed_us: int
    served_us: int


@dataclass(eq=False)
class Client:
    """token: of the binary protocol, key: of HTTP; both are given out anew by each registration and never stored.

    batch: up to which batch events arrived.
    """

    id: int
    name: str
    batch: int
    filters: dict[TableName, TableFilter] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    last: deque[LastEvent] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))
    token: int = 0
    key: str = ""
    missed: tuple[int, ...] = ()
    """RecordedBatches whose events can't be told any more, of which the client wasn't told."""

    def admit(self) -> None:
        self.token = secrets.randbelow((1 << 32) - 1) + 1
        self.key = secrets.token_hex(16)

    def served(self, event: RelayEvent, at_us: int) -> None:
        told = LastEvent(event.operation, event.file, event.position, str(event.name), event.committed_us, at_us)
        self.last.append(told)


@dataclass(frozen=True)
class _SavedWaiting:
    batch: int
    filters: tuple[TableFilter, ...]
    ranges: tuple[tuple[int, int], ...]
    seen: int


@dataclass(frozen=True)
class _SavedClient:
    id: int
    name: str
    batch: int
    filters: tuple[TableFilter, ...]
    waiting: tuple[_SavedWaiting, ...]
    served: int
    discarded: int
    largest: int
    last: tuple[LastEvent, ...]
    missed: tuple[int, ...]


@dataclass(frozen=True)
class RelayState:
    """All that a relay keeps. prepared: by batch, the XA transactions that wait at its start."""

    next_id: int = 1
    clients: tuple[_SavedClient, ...] = ()
    prepared: tuple[tuple[int, tuple[PreparedXa, ...]], ...] = ()

    @classmethod
    def of(cls, next_id: int, clients: list[Client], prepared: dict[int, tuple[PreparedXa, ...]]) -> RelayState:
        return cls(next_id, tuple(_saved(one) for one in clients), tuple(sorted(prepared.items())))

    def to_json(self) -> str:
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> RelayState:
        return loads(cls, text)

    def restored(self) -> list[Client]:
        return [_restored(one) for one in self.clients]


def _saved(client: Client) -> _SavedClient:
    queue = client.queue
    counted: dict[int, _SavedWaiting] = {}
    for here in queue.waiting:
        counted[here.batch] = _of(here, here.ranges)
    for here, number in queue.delivered:  # may not have come through
        before = counted.get(here.batch, _of(here, []))
        counted[here.batch] = _of(here, [*map(list, before.ranges), [number, number + 1]])
    return _SavedClient(
        client.id, client.name, client.batch, tuple(client.filters.values()),
        tuple(counted[batch] for batch in sorted(counted)), queue.served - len(queue.delivered), queue.discarded,
        queue.largest, tuple(client.last), client.missed,
    )  # fmt: skip


def _of(here: Waiting, ranges: list[list[int]]) -> _SavedWaiting:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(map(tuple, ranges)):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return _SavedWaiting(here.batch, here.filters, tuple(joined), here.seen)


def _restored(saved: _SavedClient) -> Client:
    waiting = deque(Waiting(one.batch, one.filters, [list(r) for r in one.ranges], one.seen) for one in saved.waiting)
    queue = Queue(waiting, [], saved.served, saved.discarded, saved.largest)
    filters = {one.name: one for one in saved.filters}
    last = deque(saved.last, maxlen=LAST_EVENTS)
    return Client(saved.id, saved.name, saved.batch, filters, queue, last, missed=saved.missed)
