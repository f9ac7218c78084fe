"""Clients of the relay with their filters and queues, and how they are saved between processes."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field

from binlake.planner.steps import PreparedXa
from binlake.relay.client_events import RelayEvent
from binlake.relay.queues import Queue, TableFilter, Waiting
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads

LAST_EVENTS = 10
FORMER_TOKENS = 16
"""How many displaced connections of a client are known."""


@dataclass(frozen=True)
class LastEvent:
    """Summary of a served event, without values. served_us, committed_us: µs since 1970 UTC."""

    operation: int
    file: str
    position: int
    table: str
    committed_us: int
    served_us: int


@dataclass(eq=False)
class Client:
    """A registered client.

    batch: the last batch whose events were counted. token: for the binary protocol. key: for HTTP. Both are new after
    each registration, and never saved.
    """

    id: int
    name: str
    batch: int
    filters: dict[TableName, TableFilter] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    last: deque[LastEvent] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))
    token: int = 0
    key: str = ""
    former: deque[int] = field(default_factory=lambda: deque(maxlen=FORMER_TOKENS))
    """Tokens of connections that had the client before, the newest last."""
    missed: tuple[int, ...] = ()
    """Batches whose events are lost, which the client doesn't know yet."""

    def admit(self) -> None:
        """Set a new token and key."""
        if self.token:
            self.former.append(self.token)
        self.token = secrets.randbelow((1 << 32) - 1) + 1
        self.key = secrets.token_hex(16)

    def served(self, event: RelayEvent, at_us: int) -> None:
        """Note a served event among the last ones."""
        summary = LastEvent(event.operation, event.file, event.position, str(event.name), event.committed_us, at_us)
        self.last.append(summary)


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
    """The saved state of a relay. prepared: by batch, the XA transactions without an outcome at its start."""

    next_id: int = 1
    clients: tuple[_SavedClient, ...] = ()
    prepared: tuple[tuple[int, tuple[PreparedXa, ...]], ...] = ()

    @classmethod
    def of(cls, next_id: int, clients: list[Client], prepared: dict[int, tuple[PreparedXa, ...]]) -> RelayState:
        """Return the state to save. prepared: by batch, the XA transactions that have no outcome at its start."""
        return cls(next_id, tuple(_saved(client) for client in clients), tuple(sorted(prepared.items())))

    def to_json(self) -> str:
        """Return the state as the text of its file."""
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> RelayState:
        """Read a state from the text of its file."""
        return loads(cls, text)

    def restored(self) -> list[Client]:
        """Return the saved clients, with their filters and queues."""
        return [_restored(client) for client in self.clients]


def _saved(client: Client) -> _SavedClient:
    queue = client.queue
    counted: dict[int, _SavedWaiting] = {}
    for here in queue.waiting:
        counted[here.batch] = _saved_waiting(here, here.ranges)
    for here, number in queue.delivered:  # which the client may not have received
        before = counted.get(here.batch, _saved_waiting(here, []))
        counted[here.batch] = _saved_waiting(here, [*map(list, before.ranges), [number, number + 1]])
    return _SavedClient(
        client.id, client.name, client.batch, tuple(client.filters.values()),
        tuple(counted[batch] for batch in sorted(counted)), queue.served - len(queue.delivered), queue.discarded,
        queue.largest, tuple(client.last), client.missed,
    )  # fmt: skip


def _saved_waiting(here: Waiting, ranges: list[list[int]]) -> _SavedWaiting:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(map(tuple, ranges)):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return _SavedWaiting(here.batch, here.filters, tuple(joined), here.seen)


def _restored(saved: _SavedClient) -> Client:
    waiting = deque(
        Waiting(part.batch, part.filters, [list(r) for r in part.ranges], part.seen) for part in saved.waiting
    )
    queue = Queue(waiting, [], saved.served, saved.discarded, saved.largest)
    filters = {table_filter.name: table_filter for table_filter in saved.filters}
    last = deque(saved.last, maxlen=LAST_EVENTS)
    return Client(saved.id, saved.name, saved.batch, filters, queue, last, missed=saved.missed)
