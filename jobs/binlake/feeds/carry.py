"""Carry a feed: from its watermark over the recorded batches' staging, through its format, to its sink.

    place     from the sink, where it keeps it with the messages; else from where ``position`` says
    batches   one after the other, each from the place in it on; never one that isn't recorded
    commit    only between two source transactions, so that a transaction's mutations stand together

The feed holds a lease of its own, and reads what the mirror wrote; nothing here is asked by a sync. Killed anywhere,
the next run goes on from the last commit: what was sent since is told again, unless the sink took it back.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np

from binlake.batch.manifest import Manifest, StagedFile
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, FeedError, StagingError, UsageError
from binlake.faults import fault
from binlake.feed_config import FeedConfig
from binlake.feeds import positions
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, SchemaChange, Sink
from binlake.feeds.positions import PositionStore
from binlake.feeds.preload import Preload, begin_with_lake
from binlake.feeds.selection import Selection
from binlake.feeds.shapes import Shapes, table_of
from binlake.feeds.staged import LogWindow, StagedBatch, StatementHere
from binlake.feeds.transactions import SourceTransactions
from binlake.position import Range
from binlake.report import Report
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.state import feed_watermarks, lease
from binlake.state.feed_watermarks import FeedLease, FeedLimits, FeedPlace, FeedPosition
from binlake.state.lease import Standing
from binlake.state.metadata import Metadata, metadata_of, now_us
from binlake.state.staging import read_manifest

COMMIT_EVERY, COMMIT_BYTES = 20_000, 256 << 20
"""Mutations, or bytes of them as they are staged, after which the sink commits, at the next end of a transaction."""
LOAD_EVERY = 100_000
"""Rows of the lake after which it does: none of them belong together."""
_COLLECTED_EVERY = 500_000
"""Objects made after which Python looks for cycles; 700 by default."""


@dataclass(frozen=True)
class FeedRun:
    """What a run of a feed did. batch: up to which it has come. mutations: of the source; messages: sent."""

    feed: str
    source: str
    batch: int
    batches: int
    mutations: int
    messages: int
    seconds: float
    message: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Parts:
    """What a feed's run is made of. make_format: for a context. make_sink: for a feed and the source's name."""

    make_format: Callable[[FeedConfig, FeedContext], Format]
    make_sink: Callable[[FeedConfig, str], Sink]


def carry(
    config: PipelineConfig,
    feed: FeedConfig,
    parts: Parts,
    report: Report,
    *,
    until: datetime | None = None,
    anew: bool = False,
) -> FeedRun:
    """Carry a feed to the newest recorded batch, or to the first commit at or after ``until``.

    anew: its place is forgotten, and it begins as ``feed.begin`` says.

    Raises FeedError where it can't go on: the reason stands in its row, and in ``status``.
    """
    metadata = metadata_of(config)
    limits = FeedLimits(feed.keep_gb, feed.keep_hours)
    with feed_watermarks.held(metadata, feed.name, limits) as held:
        try:
            selection = Selection.of(config, feed)
            sink = parts.make_sink(feed, config.source.name)
            try:
                run = _Run(config, metadata, selection, held, sink, parts, _microseconds(until))
                with _rarely_collected():
                    found = run.go(anew)
            finally:
                sink.close()
        except BinlakeError as error:
            held.stop(error.message, error.remedy)
            raise
    report.say(found.message)
    return found


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Messages are small and many, and none is part of a cycle: to look through them took a quarter of a run."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _microseconds(until: datetime | None) -> int | None:
    return None if until is None else int(until.timestamp() * 1_000_000)


def begin(config: PipelineConfig, metadata: Metadata, selection: Selection, standing: Standing) -> FeedPosition:
    """Where a feed without a place begins. Raises FeedError."""
    feed = selection.feed
    if feed.begin == "lake":
        if feed.format.type == "binlog":  # asked for by --anew
            raise FeedError(
                f"feed {feed.name} writes a binlog, which has no CREATE TABLE of rows from the lake",
                remedy="copy the tables to where the log is applied, then begin with --anew now",
            )
        return begin_with_lake(metadata, selection, standing)
    if feed.begin == "now":
        return FeedPosition(standing.batch, None, standing.prepared)
    first = oldest_staged(config, standing.batch)
    return FeedPosition(first - 1, None, tuple(one for one in standing.prepared if one.batch < first))


def oldest_staged(config: PipelineConfig, newest: int) -> int:
    """The first of the recorded batches from which on all are staged; the next one's number where none is."""
    staged = feed_watermarks.staged_batches(config)
    first = newest + 1
    while first - 1 in staged:
        first -= 1
    return first


class _Run:
    """One run of a feed on one source."""

    def __init__(
        self,
        config: PipelineConfig,
        metadata: Metadata,
        selection: Selection,
        held: FeedLease,
        sink: Sink,
        parts: Parts,
        until_us: int | None,
    ) -> None:
        self._config, self._metadata, self._selection = config, metadata, selection
        self._feed, self._held, self._sink, self._until_us = selection.feed, held, sink, until_us
        self._parts = parts
        self._sent = int(held.row["messages"] or 0)

    def go(self, anew: bool) -> FeedRun:
        began, sent = time.monotonic(), self._sent
        standing = lease.read(self._metadata).standing
        if standing is None:
            raise UsageError("no table has a snapshot yet", remedy="run binlake snapshot (or the bootstrap DAG) first")
        store = positions.store_of(self._feed.position, self._feed.name, self._config.source.name, self._held)
        kept = None if anew else self._kept(store)
        place = kept or begin(self._config, self._metadata, self._selection, standing)
        stop = standing.position
        context = FeedContext(self._feed.name, self._config.source.name, stop.server, stop.flavour)
        target = Outlet(self._parts.make_format(self._feed, context), self._sink, self._committed(store), place)
        if kept is None:
            target.commit(place)
        first, (place, mutations) = place.batch, self._load(target, place, standing)
        reader = BatchReader(self._config, self._metadata, self._selection)
        left_out: tuple[str, ...] = ()
        while place.batch < standing.batch:
            carried = reader.carry(place, target, self._until_us)
            mutations += carried.mutations
            place = carried.position
            left_out += carried.left_out
            if carried.stopped:
                break
        if place.batch == first and not mutations:
            target.heartbeat(place)
        sent = target.messages
        message = f"feed {self._feed.name}: {mutations:,} mutations as {sent:,} messages, up to {place}"
        message += "".join(f"\n  left out: {one}" for one in left_out)
        seconds = round(time.monotonic() - began, 2)
        source = self._config.source.name
        return FeedRun(self._feed.name, source, place.batch, place.batch - first, mutations, sent, seconds, message)

    def _load(self, target: Outlet, place: FeedPosition, standing: Standing) -> tuple[FeedPosition, int]:
        """The rows of the lake that are still to come. Gives the place behind them, and how many they were."""
        rows = 0
        for changes, behind in Preload(self._config, self._metadata, self._selection, standing).rows(place):
            target.load(changes, behind)
            rows += changes.rows.num_rows if changes else 0
            place = behind
        return place, rows

    def _kept(self, store: PositionStore) -> FeedPosition | None:
        """The sink's, which is never behind what it holds; of a sink that was changed for another, the store's."""
        found = self._sink.position() if self._sink.keeps_position else None
        return found or store.read()

    def _committed(self, store: PositionStore) -> Callable[[FeedPosition, int], None]:
        def note(position: FeedPosition, messages: int) -> None:
            if not self._sink.keeps_position:
                store.write(position)
            self._held.advance(position, self._sent + messages)
            fault("feed committed")

        return note


class Outlet:
    """A format and a sink: mutations go in, commits come at the ends of transactions.

    committed: told each place that is safe, and how many messages were sent before.
    """

    def __init__(
        self, form: Format, sink: Sink, committed: Callable[[FeedPosition, int], None], place: FeedPosition
    ) -> None:
        self._format, self._sink, self._committed = form, sink, committed
        self._place = place
        self._begun = False
        self._pending = self._pending_bytes = 0
        self._last: FeedPlace | None = place.place
        self._transactions = SourceTransactions(form) if form.wants_transactions else None
        self._current: tuple[str | None, int] | None = None
        self.messages = 0

    def enter(self, place: FeedPosition) -> None:
        """A batch's part behind ``place`` follows."""
        self._place, self._last = place, place.place

    def window(self, window: LogWindow) -> None:
        """All its rows, in order."""
        bounds = self._bounds(window)
        each = max(
            1, sum(part.rows.nbytes for part in window.parts) // sum(part.rows.num_rows for part in window.parts)
        )
        if 0 in bounds[:1] and self._room(each) <= 0:
            self._commit_here()
        parts = self._transactions.number(window) if self._transactions else window.parts
        flat = [messages for part in parts for messages in self._formatted(part)]
        rows: list[Sequence[Message]] = [flat[number] for number in window.order.tolist()]
        if self._transactions:
            rows = self._transactions.surround(rows)
        at = 0
        while at < len(rows):
            enough = bounds[bounds >= at + max(1, self._room(each))]
            end = int(enough[0]) if len(enough) else len(rows)
            self.send(list(chain.from_iterable(rows[at:end])))
            self._pending += end - at
            self._pending_bytes += (end - at) * each
            self._last = window.place(end - 1)
            if end < len(rows):
                self._commit_here()
            at = end

    def _room(self, each: int) -> int:
        """Mutations of so many bytes that may still come before a commit."""
        return min(COMMIT_EVERY - self._pending, (COMMIT_BYTES - self._pending_bytes) // each)

    def _bounds(self, window: LogWindow) -> np.ndarray[Any, Any]:
        """Rows at which a transaction begins, the first among them where it does."""
        first = window.gtids[0].as_py(), int(window.committed_us[0])
        begins = self._current != first
        if begins:
            self._end_transaction()
        self._current = window.gtids[len(window) - 1].as_py(), int(window.committed_us[-1])
        return np.concatenate(([0], window.starts)) if begins else window.starts

    def load(self, changes: FeedChanges | None, behind: FeedPosition) -> None:
        """Rows of the lake, which are committed in portions, and at a table's end, which None is."""
        if changes is not None:
            self.send(list(chain.from_iterable(self._formatted(changes))))
            self._pending += changes.rows.num_rows
            self._pending_bytes += changes.rows.nbytes
        if changes is None or self._pending >= LOAD_EVERY or self._pending_bytes >= COMMIT_BYTES:
            self.commit(behind)

    def _formatted(self, changes: FeedChanges) -> Iterator[Sequence[Message]]:
        """Of each row its messages."""
        return chain.from_iterable(map(self._format.changes, changes.pieces()))

    def schema_change(self, change: SchemaChange, place: FeedPlace) -> None:
        """A statement ends the transaction before it."""
        self._end_transaction()
        self.send(list(self._format.schema_change(change)))
        self._last = place

    def _end_transaction(self) -> None:
        self._current = None
        if self._transactions:
            self.send(self._transactions.end())

    def send(self, messages: Sequence[Message]) -> None:
        if messages:
            self._begin()
            self._sink.send(messages)
            self.messages += len(messages)

    def _begin(self) -> None:
        if not self._begun:
            self._sink.begin()
            self._begun = True

    def _commit_here(self) -> None:
        assert self._last is not None
        self.commit(FeedPosition(self._place.batch, self._last, self._place.prepared))

    def pause(self) -> FeedPosition:
        """The batch isn't gone through, but here the feed stops for now."""
        self._end_transaction()
        position = FeedPosition(self._place.batch, self._last, self._place.prepared)
        self.commit(position)
        return position

    def end_batch(self, position: FeedPosition) -> None:
        self._end_transaction()
        self.commit(position)

    def heartbeat(self, place: FeedPosition) -> None:
        if messages := self._format.heartbeat(now_us()):
            self.send(list(messages))
            self.commit(place)

    def commit(self, position: FeedPosition) -> None:
        self._begin()
        fault("feed sent")
        self._sink.commit(position)
        fault("sink committed")
        self._begun, self._pending, self._pending_bytes = False, 0, 0
        self._committed(position, self.messages)


@dataclass(frozen=True)
class Carried:
    """A batch, or a part of it. left_out: events of the batch that nobody can decode. stopped: the time to stop at was
    met in it."""

    position: FeedPosition
    mutations: int
    left_out: tuple[str, ...] = ()
    stopped: bool = False


@dataclass
class BatchReader:
    """Reads recorded batches for a selection."""

    config: PipelineConfig
    metadata: Metadata
    selection: Selection
    _shapes: Shapes | None = field(default=None, init=False)

    def carry(self, place: FeedPosition, outlet: Outlet, until_us: int | None) -> Carried:
        """The rest of the batch behind ``place``. Raises FeedError where its staging is gone."""
        batch = place.batch + 1
        manifest, planned = self._staged(batch)
        staged = StagedBatch(
            manifest, planned, place.prepared, lambda file: self._table(file, batch), self.selection.prepare
        )
        left_out = self._left_out(manifest)
        outlet.enter(place)
        history = self._history(batch)
        mutations = 0
        try:
            for item in staged.read(place.place):
                if isinstance(item, StatementHere):
                    if change := _schema_change(item, history, self.selection):
                        outlet.schema_change(change, item.place)
                    continue
                if (count := _before(item, until_us)) < len(item):
                    if count:
                        outlet.window(item.first(count))
                    return Carried(outlet.pause(), mutations + count, left_out, stopped=True)
                outlet.window(item)
                mutations += len(item)
        except StagingError as error:
            raise self._left_behind(batch, error) from error
        done = FeedPosition(batch, None, staged.waiting)
        outlet.end_batch(done)
        return Carried(done, mutations, left_out)

    def _left_out(self, manifest: Manifest) -> tuple[str, ...]:
        """Events of the feed's tables that nobody can decode. Raises FeedError where the feed is to stop at them."""
        feed = self.selection.feed
        stopped = [one for part in manifest.slices for one in part.stopped if self.selection.wants(one.name)]
        told = tuple(f"{one.file}:{one.offset}, an event of {one.name}: {one.reason}" for one in stopped)
        if told and feed.on_error == "stop":
            raise FeedError(
                f"feed {feed.name} can't tell {told[0]}",
                remedy="once the lake has the table's rows again, begin behind it: "
                f"binlake feed --feed {feed.name} --anew lake (or now); or leave such events out: on_error: skip",
            )
        return told

    def _staged(self, batch: int) -> tuple[Manifest, Range]:
        rows = self.metadata.read("batches", where=f"batch = {batch} AND state = 'recorded'")
        if not rows:
            raise self._left_behind(batch, None)
        try:
            manifest = read_manifest(
                self.config.staging_path(str(batch), rows[0]["attempt"]), batch, rows[0]["attempt"]
            )
        except StagingError as error:
            raise self._left_behind(batch, error) from error
        return manifest, loads(Range, rows[0]["range"])

    def _left_behind(self, batch: int, error: StagingError | None) -> FeedError:
        reason, remedy = feed_watermarks.left_behind(self.selection.feed.name, batch)
        return FeedError(f"{reason} ({error.message})" if error else reason, remedy=remedy)

    def _table(self, file: StagedFile, batch: int) -> FeedTable | None:
        if not self.selection.wants(file.name):
            return None
        if self._shapes is None:
            self._shapes = Shapes(self.metadata)
        return table_of(file, self._shapes.at(file.name, (batch, *file.first[:2])))

    def _history(self, batch: int) -> dict[tuple[str, int], list[dict[str, Any]]]:
        self._shapes = None  # a batch may have brought new ones
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in self.metadata.read("ddl_history", where=f"batch = {batch}"):
            found.setdefault((row["file"], row["offset"]), []).append(row)
        return found


def _before(window: LogWindow, until_us: int | None) -> int:
    """How many rows come before the first that committed at or after the time."""
    if until_us is None:
        return len(window)
    late = np.flatnonzero(window.committed_us >= until_us)
    return int(late[0]) if len(late) else len(window)


def _schema_change(
    item: StatementHere, history: dict[tuple[str, int], list[dict[str, Any]]], selection: Selection
) -> SchemaChange | None:
    """What the DDL history tells of a statement; None where it concerned no table of the feed."""
    rows = [
        row
        for row in history.get((item.statement.file, item.statement.offset), ())
        if selection.wants(TableName(row["database"], row["table"])) and row["action"] != "ignored"
    ]
    if not rows:
        return None
    tables = tuple(
        (TableName(row["database"], row["table"]), loads(TableSchema, row["after"]) if row["after"] else None)
        for row in rows
    )
    return SchemaChange(item.statement, rows[0]["statement"], rows[0]["kind"], tables)
