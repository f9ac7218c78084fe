"""The relay: registrations, arrivals and polls, for both protocols; it reads staging and keeps a state file.

    arrive    count each newly recorded batch into the queues of clients whose filters match
    poll      read a client's oldest events from staging; the next poll acknowledges them
    state     clients, filters and queues are saved in ``_binlake/relay.json`` of the lake, acknowledgements beside it

An event may be delivered twice, but isn't lost: events that weren't acknowledged by another poll before the client
registered again, or the relay restarted, are delivered again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from binlake.config import PipelineConfig
from binlake.errors import FeedError, LakeError, StagingError, UsageError
from binlake.records.feed_watermarks import FeedLease, FeedPosition
from binlake.relay.client_events import RelayEvent
from binlake.relay.clients import Client, RelayState
from binlake.relay.queues import MOST_FILTERS, TableFilter, Waiting
from binlake.relay.reading import Arrived, Numbered, Operations, Prepared, RecordedBatches, passing
from binlake.relay.usage import RelayStatus, UsageCounter, outlines
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.metadata import now_us

MOST_CLIENTS = 1000
MOST_EVENTS = 1000
"""The most events of one poll."""
_OPEN_READERS = 8
"""The most clients whose staging stays open between two polls; for others it is opened again."""
_MOST_NAME = 255
_GONE = "their staging was gone before they were counted, or they couldn't be decoded"
_LEFT_OUT = "the YAML leaves out tables whose events were counted"
_SOONER = "poll sooner, or give the relay more --keep-gb and --keep-hours; the lake has the rows"


@dataclass(frozen=True)
class Polled:
    """The answer to a poll. remaining: for each event, how many wait after it."""

    events: tuple[RelayEvent, ...]
    remaining: tuple[int, ...]


class Relay:
    """The relay of one source. Its methods are atomic, and may be called from any thread.

    path: of the state file. held: lease of the relay's row among the feeds, for which staging is kept.
    """

    def __init__(self, batches: RecordedBatches, path: str, held: FeedLease) -> None:
        self._batches, self._path, self._held = batches, path, held
        self._lock = threading.RLock()
        self._readers: OrderedDict[int, tuple[Waiting, Iterator[Numbered]]] = OrderedDict()
        state = _load_state(path)
        self._next_id = state.next_id
        self._clients = {client.name: client for client in state.restored()}
        self._acknowledgements = Acknowledgements(f"{path}.acknowledged")
        acknowledged = self._acknowledgements.read()
        for client in self._clients.values():
            client.queue.skip_to(acknowledged.get(client.id, 0))
        self._prepared: dict[int, Prepared] = dict(state.prepared)
        self._changed = False
        self._needed: int | None = None
        self._began_us, self._usage = now_us(), UsageCounter()
        self._used_up_to = batches.newest

    # clients ----------------------------------------------------------------------------------------------------------
    def register(self, name: str, filters: Sequence[TableFilter] = (), *, begin: int | None = None) -> Client:
        """Return a new client, or the known one of that name with new token and key.

        A known client gets unacknowledged events again. begin: the first batch of a new client's events, or the oldest
        staged one after it; None for the next recorded batch. Raises UsageError.
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
            for table_filter in filters:
                self._add(client, table_filter)
            self._save()
            return client

    def _new(self, name: str, begin: int | None) -> Client:
        if len(self._clients) >= MOST_CLIENTS:
            raise UsageError(f"there are {MOST_CLIENTS} clients", remedy="remove those that nobody needs")
        newest, prepared = self._newest()
        first = newest + 1 if begin is None else max(begin, self._batches.oldest(newest))
        client = Client(self._next_id, name, min(first - 1, newest))
        self._next_id += 1
        self._clients[name] = client
        self._prepared.setdefault(client.batch + 1, tuple(xa for xa in prepared if xa.batch <= client.batch))
        return client

    def _newest(self) -> tuple[int, Prepared]:
        """Return the number of the newest recorded batch, 0 before the first, and the XA transactions without an
        outcome at its end."""
        recorded_state = self._batches.recorded_state
        return (recorded_state.batch, recorded_state.prepared) if recorded_state else (0, ())

    def of_token(self, client_id: int, token: int) -> Client | None:
        """Return the client with this id and token of the binary protocol, None if there is none."""
        with self._lock:
            return next((c for c in self._clients.values() if c.id == client_id and token and c.token == token), None)

    def is_displaced(self, client_id: int, token: int) -> bool:
        """Return whether a token is a client's former one: another connection registered by the client's name since."""
        with self._lock:
            return any(client.id == client_id and token in client.former for client in self._clients.values())

    def of_key(self, key: str) -> Client | None:
        """Return the client with this HTTP key, None if there is none."""
        with self._lock:
            return next((c for c in self._clients.values() if key and c.key == key), None)

    def add_filter(self, client: Client, added: TableFilter) -> None:
        """Add a table's filter, or replace the one it has. Raises UsageError."""
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
        """Remove a table's filter; events that wait already are still delivered."""
        with self._lock:
            client.filters.pop(name, None)
            self._save()

    def remove(self, name: str) -> bool:
        """Remove a client with its queue; return False if there is none."""
        with self._lock:
            client = self._clients.pop(name, None)
            if client is not None:
                self._readers.pop(client.id, None)
                self._save()
            return client is not None

    # arrivals ---------------------------------------------------------------------------------------------------------
    def arrive(self) -> int:
        """Count batches recorded since the last call into the queues; return their number. Raises BinlakeError."""
        (newest, prepared), count = self._newest(), 0
        self._count_usage(newest)
        while True:
            with self._lock:
                waiting = [client for client in self._clients.values() if client.filters and client.batch < newest]
                if not waiting:
                    self._advance(newest, prepared)
                    return count
                batch = min(client.batch for client in waiting) + 1
                for_them = [(c, tuple(c.filters.values())) for c in waiting if c.batch == batch - 1]
            self._arrive(batch, for_them)
            count += 1

    def _count_usage(self, newest: int) -> None:
        """Count the mutations of batches that were recorded since the last call."""
        if newest <= self._used_up_to:
            return
        counts = self._batches.counts(self._used_up_to)
        with self._lock:
            for at_us, tables in counts:
                self._usage.add(at_us, tables)
            self._used_up_to = newest

    def _arrive(self, batch: int, for_them: Sequence[tuple[Client, tuple[TableFilter, ...]]]) -> None:
        wanted: Operations = {}
        for _, filters in for_them:
            for table_filter in filters:
                wanted[table_filter.name] = wanted.get(table_filter.name, 0) | table_filter.operations
        try:
            arrived, behind, lacking = self._batches.arrived(batch, self._prepared.get(batch, ()), wanted)
        except StagingError:
            arrived, behind, lacking = [], (), set(wanted)
        for client, filters in for_them:
            if any(table_filter.name in lacking for table_filter in filters):  # which the client's next poll reports
                client.missed = (*client.missed, batch)
        with self._lock:
            self._prepared[batch + 1] = behind
            for client, filters in for_them:
                if self._clients.get(client.name) is not client:
                    continue
                for part in arrived:
                    passed = _filter_numbers(part, filters)
                    if len(passed):
                        client.queue.arrive(batch, filters, passed)
                client.queue.forget_empty()
                client.batch = batch
            self._save()

    def _advance(self, newest: int, prepared: Prepared) -> None:
        """Move clients without filters to the newest batch, and release staging that no client needs.

        prepared: XA transactions without an outcome at the batch's end."""
        for client in self._clients.values():
            if not client.filters and client.batch < newest:
                client.batch = newest
                self._prepared.setdefault(newest + 1, prepared)
        needed = self.needs(newest)
        self._prepared = {batch: kept for batch, kept in self._prepared.items() if batch >= needed}
        if needed != self._needed:
            position = FeedPosition(newest)
            self._held.advance(position, sum(client.queue.served for client in self._clients.values()))
            if needed != position.needs:
                self._held.update(needs=needed)
            self._needed = needed

    def needs(self, newest: int) -> int:
        """Return the first batch whose staging is still needed."""
        read = {newest + 1}
        for client in self._clients.values():
            read |= {client.batch + 1, *client.queue.batches()}
        xa = (prepared.batch for batch in read for prepared in self._prepared.get(batch, ()))
        return min([*read, *xa])

    # polls ------------------------------------------------------------------------------------------------------------
    def poll(self, client: Client, most: int = 1, *, again: bool = False) -> Polled:
        """Return the oldest events of a client's queue, and acknowledge those polled before.

        again: return those polled before once more. Raises FeedError if events are lost because staging is gone.
        """
        with self._lock:
            if client.missed:
                first, last, client.missed = client.missed[0], client.missed[-1], ()
                lost = f"events of batches {first} to {last} are lost to {client.name}"
                raise FeedError(f"{lost}: {_GONE}", remedy=f"{_SOONER}; binlake status shows tables that are stopped")
            if again:
                client.queue.take_back()
                self._readers.pop(client.id, None)
            elif client.queue.delivered:
                client.queue.acknowledge()
                self._acknowledgements.note(client.id, client.queue.served)
            events: list[RelayEvent] = []
            remaining: list[int] = []
            for _ in range(min(most, MOST_EVENTS)):
                head = client.queue.head()
                if head is None:
                    break
                try:
                    event = self._read(client, *head)
                except FeedError:
                    client.queue.take_back()  # the client gets the error in the place of the events before it
                    raise
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
            for numbered in opened[1]:
                here.first_read, here.place = numbered.number + 1, numbered.place
                if numbered.number == number:
                    self._keep(client, opened)
                    return numbered.event
        except StagingError as error:
            raise self._lost(client, here, error.message, _SOONER) from error
        raise self._lost(client, here, _LEFT_OUT, "the lake has their rows where the table is included again")

    def _lost(self, client: Client, here: Waiting, why: str, remedy: str) -> FeedError:
        """Give up the events of a batch that wait, and return the error that says so."""
        lost = client.queue.lose(here)
        self._save()
        many = "event" if lost == 1 else "events"
        said = f"{lost} {many} of batch {here.batch} {'is' if lost == 1 else 'are'} lost to {client.name}: {why}"
        return FeedError(said, remedy=remedy)

    def _keep(self, client: Client, opened: tuple[Waiting, Iterator[Numbered]]) -> None:
        self._readers[client.id] = opened
        while len(self._readers) > _OPEN_READERS:
            self._readers.popitem(last=False)

    # summaries and state ----------------------------------------------------------------------------------------------
    def clients(self) -> list[dict[str, Any]]:
        """Return each client's summary: filters, counts and the last events served, without values."""
        with self._lock:
            return [summary(client) for client in self._clients.values()]

    def status(self) -> RelayStatus:
        """Return what the monitoring page shows. Raises LakeError."""
        recorded_state, schemas = self._batches.recorded_state, outlines(self._batches.newest_shapes())
        newest = recorded_state.batch if recorded_state else 0
        position = recorded_state.position if recorded_state else None
        oldest, now = self._batches.oldest(newest), now_us()
        with self._lock:
            return RelayStatus(
                self._batches.source,
                self._began_us,
                now,
                newest,
                position.short if position else "",
                position.gtid_set if position else "",
                oldest,
                self.needs(newest),
                tuple(self.clients()),
                self._usage.tables(now),
                schemas,
            )

    def save(self) -> None:
        """Write the state if it changed since it was last written."""
        with self._lock:
            if self._changed:
                self._save()

    def _save(self) -> None:
        state = RelayState.of(self._next_id, list(self._clients.values()), self._prepared)
        files.write_text(self._path, state.to_json())
        self._acknowledgements.clear()
        self._changed = False


def state_path(config: PipelineConfig) -> str:
    """Return the path of the relay's state file, in the lake's metadata."""
    return config.metadata_path("relay.json")


def last_saved(config: PipelineConfig) -> list[dict[str, Any]]:
    """Return the clients' summaries as the relay last saved them, whether it runs or not. Raises FeedError."""
    return [summary(client) for client in _load_state(state_path(config)).restored()]


def _load_state(path: str) -> RelayState:
    """Read the state file; an empty state if there is none. Raises FeedError if it is damaged."""
    if not files.exists(path):
        return RelayState()
    try:
        return RelayState.from_json(files.read_text(path))
    except ValueError as error:
        raise FeedError(
            f"{path} is damaged ({type(error).__name__})", remedy="move it away; clients then register again"
        ) from None


def _filter_numbers(part: Arrived, filters: tuple[TableFilter, ...]) -> Any:
    """Return, for each mutation that a filter lets pass, the number of that filter."""
    numbers = {table_filter.name: number for number, table_filter in enumerate(filters)}
    of_table = np.array([numbers.get(name, 0) for name in part.names], np.int64)
    wanted = {table_filter.name: table_filter.operations for table_filter in filters}
    return of_table[part.tables][passing(part, wanted)]


def summary(client: Client) -> dict[str, Any]:
    """Return a client with its filters, counts and last events as JSON values."""
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
                "schema": table_filter.name.database,
                "table": table_filter.name.table,
                "operations": table_filter.operations,
                "queue_limit": table_filter.queue_limit,
                "discard": int(table_filter.discard),
            }
            for table_filter in client.filters.values()
        ],
        "last_events": [
            {
                "type": event.operation,
                "file": event.file,
                "position": event.position,
                "table": event.table,
                "committed_us": event.committed_us,
                "served_us": event.served_us,
            }
            for event in client.last
        ],
    }


class Acknowledgements:
    """The newest count of acknowledged events of each client, in all its life, by the client's id: a line in a file for
    each poll.

    The state is saved whole when batches arrive, and every few seconds. Without these lines a killed relay would send
    again all that was acknowledged since. A lake in a store has no file to append to: there ``--every`` bounds what is
    sent twice.
    """

    def __init__(self, path: str) -> None:
        """path: of the file; one in a store is neither read nor written."""
        self._path = None if "://" in path else path
        self._file: int | None = None

    def read(self) -> dict[int, int]:
        """Return the counts that were noted since the last ``clear``."""
        counts: dict[int, int] = {}
        if self._path is None or not os.path.exists(self._path):
            return counts
        with open(self._path, encoding="ascii", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError):  # the last line may be cut off
                    client, count, _ = line.split(" ")
                    counts[int(client)] = int(count)
        return counts

    def note(self, client: int, count: int) -> None:
        """Append a client's count. It survives the death of the process, not that of the machine."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(self._file, f"{client} {count} \n".encode("ascii"))
        except OSError as error:
            raise LakeError(f"{self._path}: {error.strerror}", remedy="the relay sends events again") from error

    def clear(self) -> None:
        """Forget the counts: the state that was saved has them."""
        if self._path is not None and os.path.exists(self._path):
            os.truncate(self._path, 0)
