"""The relay itself: registrations, arrivals, polls. Both protocols stand before it; staging and a state file behind it.

    arrive    each newly recorded batch is counted into the queues of those who want something of it
    poll      the oldest events are read from staging; asking again says that the last ones came through
    state     clients, filters and queues outlive the process: in ``_binlake/relay.json`` of the lake

An event may be told twice, never lost: what was polled and not followed by another poll, before the client came back
or the relay was started anew, is told again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from binlake.config import PipelineConfig
from binlake.errors import FeedError, StagingError, UsageError
from binlake.metadata.feed_watermarks import FeedLease, FeedPosition
from binlake.metadata.metadata import now_us
from binlake.relay.client_events import RelayEvent
from binlake.relay.clients import Client, RelayState
from binlake.relay.queues import MOST_FILTERS, TableFilter, Waiting
from binlake.relay.reading import Arrived, Numbered, Operations, Prepared, RecordedBatches, passing
from binlake.schema.table import TableName
from binlake.storage import files

MOST_CLIENTS = 1000
MOST_EVENTS = 1000
"""Of one poll."""
_OPEN_READERS = 8
"""Clients whose staging is kept open between two polls; the others find their place again."""
_MOST_NAME = 255
_GONE = "their staging was gone before they were counted"
_SOONER = "poll sooner, or give the relay more --keep-gb and --keep-hours; the lake has the rows"


@dataclass(frozen=True)
class Polled:
    """remaining: events that wait behind the first, the second … of these."""

    events: tuple[RelayEvent, ...]
    remaining: tuple[int, ...]


class Relay:
    """Of one source. Its methods may be called from any thread; what one does is done whole.

    path: of the state file. held: the relay's own row among the feeds, by which staging is kept for it.
    """

    def __init__(self, batches: RecordedBatches, path: str, held: FeedLease) -> None:
        self._batches, self._path, self._held = batches, path, held
        self._lock = threading.RLock()
        self._readers: OrderedDict[int, tuple[Waiting, Iterator[Numbered]]] = OrderedDict()
        state = _kept(path)
        self._next_id = state.next_id
        self._clients = {one.name: one for one in state.restored()}
        self._prepared: dict[int, Prepared] = dict(state.prepared)
        self._changed = False
        self._needed: int | None = None

    # clients ----------------------------------------------------------------------------------------------------------
    def register(self, name: str, filters: Sequence[TableFilter] = (), *, begin: int | None = None) -> Client:
        """A new client, or the known one of that name with new token and key; what it may have missed is told again.

        begin: the first batch of a new client's events, or the oldest after it that is staged; None: the next that is
        recorded. Raises UsageError.
        """
        if not name or len(name) > _MOST_NAME or not name.isprintable():
            raise UsageError(f"a client's name has 1 to {_MOST_NAME} printable characters", remedy="choose another one")
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                client = self._new(name, begin)
            client.admit()
            client.queue.take_back()
            self._readers.pop(client.id, None)
            for one in filters:
                self._add(client, one)
            self._save()
            return client

    def _new(self, name: str, begin: int | None) -> Client:
        if len(self._clients) >= MOST_CLIENTS:
            raise UsageError(f"there are {MOST_CLIENTS} clients", remedy="remove those that nobody needs")
        newest = self._batches.newest
        first = newest + 1 if begin is None else max(begin, self._batches.oldest(newest))
        client = Client(self._next_id, name, min(first - 1, newest))
        self._next_id += 1
        self._clients[name] = client
        self._prepared.setdefault(client.batch + 1, ())
        return client

    def of_token(self, client_id: int, token: int) -> Client | None:
        """The client that the binary protocol's numbers stand for."""
        with self._lock:
            return next((c for c in self._clients.values() if c.id == client_id and token and c.token == token), None)

    def of_key(self, key: str) -> Client | None:
        with self._lock:
            return next((c for c in self._clients.values() if key and c.key == key), None)

    def add_filter(self, client: Client, added: TableFilter) -> None:
        """One for each table: a second one takes its place. Raises UsageError."""
        with self._lock:
            self._add(client, added)
            self._save()

    def _add(self, client: Client, added: TableFilter) -> None:
        if not self._batches.included(added.name):
            raise UsageError(f"{added.name} isn't mirrored", remedy="include it in the YAML, or filter another table")
        if added.name not in client.filters and len(client.filters) >= MOST_FILTERS:
            raise UsageError(f"a client has {MOST_FILTERS} filters at most", remedy="register another client")
        client.filters[added.name] = added

    def remove_filter(self, client: Client, name: TableName) -> None:
        """What of it waits already still comes."""
        with self._lock:
            client.filters.pop(name, None)
            self._save()

    def remove(self, name: str) -> bool:
        """The client goes, and what waits for it; False where there is none."""
        with self._lock:
            client = self._clients.pop(name, None)
            if client is not None:
                self._readers.pop(client.id, None)
                self._save()
            return client is not None

    # arrivals ---------------------------------------------------------------------------------------------------------
    def arrive(self) -> int:
        """Count what was recorded since the last call; how many batches that were. Raises BinlakeError."""
        newest, count = self._batches.newest, 0
        while True:
            with self._lock:
                waiting = [one for one in self._clients.values() if one.filters and one.batch < newest]
                if not waiting:
                    self._advance(newest)
                    return count
                batch = min(one.batch for one in waiting) + 1
                for_them = [(one, tuple(one.filters.values())) for one in waiting if one.batch == batch - 1]
            self._arrive(batch, for_them)
            count += 1

    def _arrive(self, batch: int, for_them: Sequence[tuple[Client, tuple[TableFilter, ...]]]) -> None:
        wanted: Operations = {}
        for _, filters in for_them:
            for one in filters:
                wanted[one.name] = wanted.get(one.name, 0) | one.operations
        try:
            arrived, behind = self._batches.arrived(batch, self._prepared.get(batch, ()), wanted)
        except StagingError:  # gone: it was kept no longer, and each of them is told so
            arrived, behind = [], ()
            for client, _ in for_them:
                client.missed = (*client.missed, batch)
        with self._lock:
            self._prepared[batch + 1] = behind
            for client, filters in for_them:
                if self._clients.get(client.name) is not client:
                    continue
                for part in arrived:
                    passed = _passed(part, filters)
                    if len(passed):
                        client.queue.arrive(batch, filters, passed)
                client.queue.forget_empty()
                client.batch = batch
            self._save()

    def _advance(self, newest: int) -> None:
        """Clients without filters go along; what nobody reads any more is forgotten."""
        for client in self._clients.values():
            if not client.filters and client.batch < newest:
                client.batch = newest
        needed = self.needs(newest)
        self._prepared = {batch: kept for batch, kept in self._prepared.items() if batch >= needed}
        if needed != self._needed:
            position = FeedPosition(newest)
            self._held.advance(position, sum(one.queue.served for one in self._clients.values()))
            if needed != position.needs:
                self._held.update(needs=needed)
            self._needed = needed

    def needs(self, newest: int) -> int:
        """The first batch whose staging is still read."""
        read = {newest + 1}
        for client in self._clients.values():
            read |= {client.batch + 1, *client.queue.batches()}
        xa = (one.batch for batch in read for one in self._prepared.get(batch, ()))
        return min([*read, *xa])

    # polls ------------------------------------------------------------------------------------------------------------
    def poll(self, client: Client, most: int = 1, *, again: bool = False) -> Polled:
        """The oldest events of a client's queue; that it asks says that those polled before came through.

        again: they didn't, and are told once more. Raises FeedError where staging was kept no longer.
        """
        with self._lock:
            if client.missed:
                first, last, client.missed = client.missed[0], client.missed[-1], ()
                raise FeedError(f"batches {first} to {last} are lost to {client.name}: {_GONE}", remedy=_SOONER)
            if again:
                client.queue.take_back()
                self._readers.pop(client.id, None)
            else:
                client.queue.acknowledge()
            events: list[RelayEvent] = []
            remaining: list[int] = []
            for _ in range(min(most, MOST_EVENTS)):
                head = client.queue.head()
                if head is None:
                    break
                event = self._read(client, *head)
                client.queue.deliver()
                client.served(event, now_us())
                events.append(event)
                remaining.append(len(client.queue))
            self._changed = self._changed or bool(events) or not again
            return Polled(tuple(events), tuple(remaining))

    def _read(self, client: Client, here: Waiting, number: int) -> RelayEvent:
        try:
            opened = self._readers.pop(client.id, None)
            if opened is None or opened[0] is not here or here.first_read > number:
                place = here.place if here.first_read <= number else None
                first = here.first_read if place is not None else 0
                prepared = self._prepared.get(here.batch, ())
                opened = here, self._batches.events(here.batch, prepared, here.filters, first, place)
            for found in opened[1]:
                here.first_read, here.place = found.number + 1, found.place
                if found.number == number:
                    self._keep(client, opened)
                    return found.event
        except StagingError as error:
            lost = client.queue.lose(here)
            raise FeedError(
                f"{lost} events of batch {here.batch} are lost to {client.name}: {error.message}", remedy=_SOONER
            ) from error
        raise AssertionError(f"batch {here.batch} tells fewer events than arrived")

    def _keep(self, client: Client, opened: tuple[Waiting, Iterator[Numbered]]) -> None:
        self._readers[client.id] = opened
        while len(self._readers) > _OPEN_READERS:
            self._readers.popitem(last=False)

    # what is told and kept --------------------------------------------------------------------------------------------
    def clients(self) -> list[dict[str, Any]]:
        """Each with its filters, counts and the last events served; no values of rows."""
        with self._lock:
            return [summary(one) for one in self._clients.values()]

    def save(self) -> None:
        """Write the state, if it changed since the last time."""
        with self._lock:
            if self._changed:
                self._save()

    def _save(self) -> None:
        state = RelayState.of(self._next_id, list(self._clients.values()), self._prepared)
        files.write_text(self._path, state.to_json())
        self._changed = False


def state_path(config: PipelineConfig) -> str:
    return config.metadata_path("relay.json")


def last_saved(config: PipelineConfig) -> list[dict[str, Any]]:
    """Clients as the relay wrote them down last, whether it runs or not. Raises FeedError."""
    return [summary(one) for one in _kept(state_path(config)).restored()]


def _kept(path: str) -> RelayState:
    """Raises FeedError where it is damaged."""
    if not files.exists(path):
        return RelayState()
    try:
        return RelayState.from_json(files.read_text(path))
    except ValueError as error:
        raise FeedError(
            f"{path} is damaged ({type(error).__name__})", remedy="move it away; clients then register anew"
        ) from None


def _passed(part: Arrived, filters: tuple[TableFilter, ...]) -> Any:
    """Of each mutation that passes, the number of its filter."""
    numbers = {one.name: number for number, one in enumerate(filters)}
    of_table = np.array([numbers.get(name, 0) for name in part.names], np.int64)
    wanted = {one.name: one.operations for one in filters}
    return of_table[part.tables][passing(part, wanted)]


def summary(client: Client) -> dict[str, Any]:
    queue = client.queue
    return {
        "id": client.id,
        "name": client.name,
        "batch": client.batch,
        "queued": len(queue),
        "largest_queue": queue.largest,
        "served": queue.served,
        "discarded": queue.discarded,
        "filters": [
            {
                "schema": one.name.database,
                "table": one.name.table,
                "operations": one.operations,
                "queue_limit": one.queue_limit,
                "discard": int(one.discard),
            }
            for one in client.filters.values()
        ],
        "last_events": [
            {
                "type": one.operation,
                "file": one.file,
                "position": one.position,
                "table": one.table,
                "committed_us": one.committed_us,
                "served_us": one.served_us,
            }
            for one in client.last
        ],
    }
