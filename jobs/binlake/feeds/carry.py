"""Carry a feed: read recorded batches' staging from its watermark on, format the mutations, and send them to its sink.

    place     read from the sink, if it keeps it with the messages; else from where ``position`` says
    batches   read one after the other, from the place on; only recorded ones
    commit    only between two source transactions, so that a transaction's mutations stay together

The feed has a lease of its own, and reads what the mirror wrote; a sync doesn't depend on it. After a kill, the next
run continues from the last commit: what was sent since is sent again, unless the sink took it back.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.binlog.border import XaEvent
from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import BinlakeError, ConfigurationError, FeedError, NoSnapshotYet, StagingError
from binlake.faults import fault
from binlake.feeds import positions
from binlake.feeds.contract import (
    FeedContext,
    FeedTable,
    Format,
    NotesPosition,
    SchemaChange,
    Sink,
    TransactionRefused,
)
from binlake.feeds.error_layers import FeedErrors, FeedFailure
from binlake.feeds.outlet import Outlet
from binlake.feeds.preload import Preload, begin_with_lake
from binlake.feeds.selection import Selection
from binlake.feeds.shapes import Shapes, table_of
from binlake.feeds.staged import LogWindow, StagedBatch, StatementHere
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.planner.manifest import Manifest, StagedFile
from binlake.position import Range
from binlake.records import feed_watermarks, lost_tables
from binlake.records.feed_watermarks import FeedLease, FeedLimits, FeedPosition
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.staging.staged_files import read_manifest
from binlake.store.metadata import Metadata, metadata_of
from binlake.store.rows import BatchRow, StatementRow, WatermarkRow

_PLACE_LOST = "nobody knows where the feed is: the metadata table feeds is gone"
_COLLECTED_EVERY = 500_000
"""Number of new objects after which Python's collector runs; 700 by default."""


@dataclass(frozen=True)
class FeedRun:
    """The result of a feed's run. batch: the last one carried. mutations: of the source. messages: number sent.
    left_out: a line for each event, or several alike, that the feed left out."""

    feed: str
    source: str
    batch: int
    batches: int
    mutations: int
    messages: int
    seconds: float
    message: str
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the result as a dict that JSON can hold, by field name."""
        return asdict(self)


@dataclass(frozen=True)
class Parts:
    """Makers of a feed's format (from feed and context) and sink (from feed and source name)."""

    make_format: Callable[[FeedConfig, FeedContext], Format]
    make_sink: Callable[[FeedConfig, str], Sink]


def carry(
    config: PipelineConfig,
    feed: FeedConfig,
    parts: Parts,
    *,
    until: datetime | None = None,
    restarts: bool = False,
) -> FeedRun:
    """Carry a feed to the newest recorded batch, or to the first commit at or after ``until``.

    restarts: forget the feed's place, and begin where ``feed.begin`` says. Raises FeedError if the feed can't continue;
    the reason is kept in its row of metadata, which ``status`` shows.
    """
    with opened(config, feed, parts, restarts=restarts) as carried, rarely_collected():
        return carried.carry(_microseconds(until))


@contextmanager
def opened(
    config: PipelineConfig,
    feed: FeedConfig,
    parts: Parts,
    *,
    restarts: bool = False,
    follows: bool = False,
    between: Callable[[], None] = lambda: None,
) -> Iterator[OpenFeed]:
    """Hold a feed, with its sink open, for one run or for many.

    restarts: see ``carry``. follows: batches are carried as they come. between: called between two windows of rows;
    what was sent since the last commit is given up if it raises. Raises FeedError; LeaseHeld if another run has the
    feed.
    """
    metadata = metadata_of(config)
    limits = FeedLimits(feed.keep_gb, feed.keep_hours)
    is_lost = "feeds" in lost_tables.find(metadata)
    with feed_watermarks.held(metadata, feed.name, limits, follows=follows) as held:
        try:
            selection = Selection.of(config, feed)
            sink = parts.make_sink(feed, config.source.name)
            try:
                _refuse_lost_place(feed, held, sink, is_lost=is_lost and not restarts, restarts=restarts)
                yield OpenFeed(config, metadata, selection, held, sink, parts, between, restarts)
            finally:
                sink.close()
        except BinlakeError as error:
            held.stop(error.message, error.remedy)
            raise


def _refuse_lost_place(feed: FeedConfig, held: FeedLease, sink: Sink, *, is_lost: bool, restarts: bool) -> None:
    """Raise FeedError for a feed whose place was in metadata that are gone, until a run that ``restarts`` begins it
    again: without that it would begin where ``begin`` says, and leave out what came between, or send it twice.

    is_lost: the table of feeds was gone when this run began, and the feed's row is new.
    """
    refused = is_lost or (held.row.status == "stopped" and held.row.reason == _PLACE_LOST)
    if refused and not restarts and not sink.keeps_position and feed.position == "metadata":
        raise FeedError(
            _PLACE_LOST,
            remedy=f"binlake feed --config FILE --feed {feed.name} --restart-from lake, or --restart-from now",
        )


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Make garbage collection rare: messages are never part of a cycle, and scanning them took a quarter of a run."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def context_of(feed: FeedConfig, config: PipelineConfig, recorded_state: RecordedState) -> FeedContext:
    """Return the context of a run that goes up to the newest recorded batch."""
    stop = recorded_state.position
    charsets = dict(recorded_state.charsets or {})
    living = partial(_living, config, feed)
    return FeedContext(feed.name, config.source.name, stop.server, stop.flavour, stop, charsets, living)


def _living(config: PipelineConfig, feed: FeedConfig) -> list[TableName]:
    """Return a feed's tables that are in the lake now, the oldest first. Raises LakeError."""
    rows = WatermarkRow.read(metadata_of(config), "database", "table", "status", "low")
    lives = [
        (row.began.order, row.name)
        for row in rows
        if row.low and row.status != "dropped"  # without a position nothing of it is in the lake
    ]
    selection = Selection.of(config, feed)
    return [name for _, name in sorted(lives) if selection.wants(name)]


def _microseconds(until: datetime | None) -> int | None:
    return None if until is None else int(until.timestamp() * 1_000_000)


def begin(
    config: PipelineConfig, metadata: Metadata, selection: Selection, recorded_state: RecordedState
) -> FeedPosition:
    """Return the position at which a feed without one begins. Raises FeedError."""
    feed = selection.feed
    if feed.begin == "lake":
        return begin_with_lake(metadata, selection)
    if feed.begin == "now":
        return FeedPosition(recorded_state.batch, None, recorded_state.prepared)
    first = oldest_staged(config, recorded_state.batch)
    return FeedPosition(first - 1, None, tuple(xa for xa in recorded_state.prepared if xa.batch < first))


def oldest_staged(config: PipelineConfig, newest: int) -> int:
    """Return the first recorded batch from which on all are staged; the next batch's number if the newest isn't."""
    staged = feed_watermarks.staged_batches(config)
    first = newest + 1
    while first - 1 in staged:
        first -= 1
    return first


class OpenFeed:
    """A feed on one source, held by this process, with its sink open."""

    def __init__(
        self,
        config: PipelineConfig,
        metadata: Metadata,
        selection: Selection,
        held: FeedLease,
        sink: Sink,
        parts: Parts,
        between: Callable[[], None],
        restarts: bool,
    ) -> None:
        """Find the place to continue from. Raises FeedError, NoSnapshotYet."""
        self._config, self._metadata, self._selection = config, metadata, selection
        self._feed, self._held, self._sink, self._parts, self._between = selection.feed, held, sink, parts, between
        row = held.row
        self._sent = self._total = row.messages
        self._was_stopped = row.status == "stopped"
        recorded_state = self._recorded_state()
        if sink.keeps_position and self._feed.position != "metadata":
            raise ConfigurationError(
                f"position: {self._feed.position} would have no effect: the sink {self._feed.sink.url} keeps the"
                " position with the messages",
                remedy="take position away",
            )
        self._store = positions.store_of(self._feed.position, self._feed.name, config.source.name, held)
        kept = None if restarts else self._kept_position()
        self._safe = kept or begin(config, metadata, selection, recorded_state)
        self._context = context_of(self._feed, config, recorded_state)
        self._errors = FeedErrors(
            self._feed, lambda left_out: feed_watermarks.record_omissions(self._metadata, left_out)
        )
        self._outlet = self._new_outlet()
        if kept is None:
            self._outlet.commit(self._safe)

    def carry(self, until_us: int | None = None, *, heartbeat: bool = True) -> FeedRun:
        """Carry everything from the last commit to the newest recorded batch, or to the time to stop at.

        heartbeat: send one where there was nothing to send. Raises FeedError, LeaseHeld.
        """
        began, first, before, mutations = time.monotonic(), self._safe.batch, self._total, 0
        self._held.check()
        recorded_state = self._recorded_state()
        self._follow_charsets(recorded_state)
        counted_before = self._outlet.mutations
        while True:
            try:
                place = self._carry_all(recorded_state, until_us)
                mutations += self._outlet.mutations - counted_before
                if heartbeat and place.batch == first and not mutations:
                    self._outlet.heartbeat(place)
                break
            except TransactionRefused:
                self._errors.again()
                mutations += self._outlet.mutations - counted_before
                self._outlet, counted_before = self._new_outlet(self._outlet.refused), 0
        if self._was_stopped:
            self._note(place, self._outlet.messages)
        lines, self._errors.lines = self._errors.lines, []
        sent = self._total - before
        message = (
            f"feed {self._feed.name}: {counted(mutations, 'mutation')} as {counted(sent, 'message')}, up to {place}"
        )
        message += "".join(f"\n  left out: {event}" for event in lines)
        seconds = round(time.monotonic() - began, 2)
        source = self._config.source.name
        batches = place.batch - first
        return FeedRun(self._feed.name, source, place.batch, batches, mutations, sent, seconds, message, tuple(lines))

    def _recorded_state(self) -> RecordedState:
        recorded_state = lease.read(self._metadata).recorded_state
        if recorded_state is None:
            raise NoSnapshotYet
        return recorded_state

    def _follow_charsets(self, recorded_state: RecordedState) -> None:
        """Give the format the databases' default character sets at the newest batch, between two transactions."""
        context = context_of(self._feed, self._config, recorded_state)
        if context.charsets != self._context.charsets:
            self._context = context
            self._outlet = self._new_outlet()

    def _new_outlet(self, careful: int = 0) -> Outlet:
        form = self._parts.make_format(self._feed, self._context)
        self._sent = self._total
        if isinstance(self._sink, NotesPosition):
            self._sink.stand(self._safe)
        return Outlet(form, self._sink, self._note, self._safe, self._errors, careful)

    def _carry_all(self, recorded_state: RecordedState, until_us: int | None) -> FeedPosition:
        """Return the position up to which all is carried. Raises TransactionRefused if what wasn't committed must be
        sent again."""
        place = self._load(self._outlet, self._safe, recorded_state)
        reader = BatchReader(self._config, self._metadata, self._selection, self._errors, self._between)
        while place.batch < recorded_state.batch:
            carried = reader.carry(place, self._outlet, until_us)
            place = carried.position
            if carried.stopped:
                break
        return place

    def _load(self, target: Outlet, place: FeedPosition, recorded_state: RecordedState) -> FeedPosition:
        """Send the lake's rows that are still to be sent; return the position after them."""
        for loaded, behind in Preload(self._config, self._metadata, self._selection, recorded_state).rows(place):
            self._between()
            target.load(loaded, behind)
            place = behind
        return place

    def _kept_position(self) -> FeedPosition | None:
        """Return the position that the sink keeps with its messages; the store's if it has none (a new sink)."""
        in_sink = self._sink.position() if self._sink.keeps_position else None
        return in_sink or self._store.read()

    def _note(self, position: FeedPosition, messages: int) -> None:
        """Write down what was committed. messages: how many the outlet sent."""
        if not self._sink.keeps_position:
            self._store.write(position)
        self._safe, self._total, self._was_stopped = position, self._sent + messages, False
        self._held.advance(position, self._total)
        fault("feed committed")


@dataclass(frozen=True)
class Carried:
    """A batch, or the part of it that was carried. stopped: the time to stop at lies in it."""

    position: FeedPosition
    mutations: int
    stopped: bool = False


@dataclass
class BatchReader:
    """Reader of recorded batches for a selection. errors: decides about what can't be read. between: called before
    each window of rows."""

    config: PipelineConfig
    metadata: Metadata
    selection: Selection
    errors: FeedErrors
    between: Callable[[], None] = lambda: None
    _shapes: Shapes | None = field(default=None, init=False)
    _batch: int = field(default=0, init=False)

    def carry(self, place: FeedPosition, outlet: Outlet, until_us: int | None) -> Carried:
        """Carry the rest of the batch after ``place``. Raises FeedError if its staging is gone."""
        batch = self._batch = place.batch + 1
        manifest, planned = self._staged(batch)
        staged = StagedBatch(
            manifest, planned, place.prepared, lambda file: self._table(file, batch), self._prepared, self._unknown
        )
        self._leave_out(manifest, known=place.place is not None)
        outlet.enter(place)
        history = self._statements(batch)
        mutations = 0
        try:
            for item in staged.read(place.place):
                self.between()
                if isinstance(item, StatementHere):
                    if until_us is not None and item.statement.committed_us >= until_us:
                        return Carried(outlet.pause(), mutations, stopped=True)
                    if change := _schema_change(item, history, self.selection):
                        outlet.schema_change(change, item.place)
                    continue
                if (count := _before(item, until_us)) < len(item):
                    if count:
                        outlet.window(item.first(count))
                    return Carried(outlet.pause(), mutations + count, stopped=True)
                outlet.window(item)
                mutations += len(item)
        except StagingError as error:
            raise self._left_behind(batch, error) from error
        done = FeedPosition(batch, None, staged.waiting)
        outlet.end_batch(done)
        return Carried(done, mutations)

    def _leave_out(self, manifest: Manifest, *, known: bool) -> None:
        """Report events of the feed's tables that can't be decoded. Raises FeedError if the feed must stop at them.

        known: part of the batch was carried before, so they are recorded already.
        """
        feed, left_out = self.selection.feed.name, self.selection.feed.leaving_out("event_decode")
        events = (event for part in manifest.slices for event in part.stopped if self.selection.wants(event.name))
        for event in events:
            place = f"{event.file}:{event.offset}, an event of {event.name}"
            error = FeedError(
                f"feed {feed} can't decode {place}: {event.reason}",
                remedy=self.errors.going_on(
                    "once the lake has the table's rows again, begin behind it: "
                    f"binlake feed --feed {feed} --restart-from lake (or now); or leave such events out: {left_out}"
                ),
            )
            self.errors.decide(
                FeedFailure("decode", event.name, place, 0, event.reason, event.remedy), error, known=known
            )

    def _prepared(self, table: FeedTable, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as Selection.prepare does; none if that fails and the feed continues without them."""
        prepared = rows.slice(0, 0)
        place = f"batch {self._batch}, {counted(rows.num_rows, 'row')} of {table.name}"
        with self.errors.guarded("table_map", table.name, place, rows.num_rows):
            prepared = self.selection.prepare(table, rows)
        return prepared

    def _unknown(self, event: XaEvent, error: FeedError) -> None:
        """Decide about the commit of an XA transaction whose rows came before the feed."""
        place = f"{event.file}:{event.offset}, XA COMMIT of {event.xid}"
        error = FeedError(error.message, remedy=self.errors.going_on(error.remedy))
        self.errors.decide(FeedFailure("commit", None, place, 0, error.message, error.remedy), error)

    def _staged(self, batch: int) -> tuple[Manifest, Range]:
        row = BatchRow.first(self.metadata, "attempt", "range", where=f"batch = {batch} AND state = 'recorded'")
        if row is None:
            raise self._left_behind(batch, None)
        attempt = row.attempt or ""
        try:
            manifest = read_manifest(self.config.staging_path(str(batch), attempt), batch, attempt)
        except StagingError as error:
            raise self._left_behind(batch, error) from error
        return manifest, row.carried

    def _left_behind(self, batch: int, error: StagingError | None) -> FeedError:
        reason, remedy = self.errors.left_behind(batch)
        return FeedError(f"{reason} ({error.message})" if error else reason, remedy=remedy)

    def _table(self, file: StagedFile, batch: int) -> FeedTable | None:
        if not self.selection.wants(file.name):
            return None
        if self._shapes is None:
            self._shapes = Shapes(self.metadata)
        return table_of(file, self._shapes.of_file(file, batch))

    def _statements(self, batch: int) -> dict[tuple[str, int], list[StatementRow]]:
        self._shapes = None  # a batch may have brought new ones
        by_place: dict[tuple[str, int], list[StatementRow]] = {}
        for row in StatementRow.read(self.metadata, where=f"batch = {batch}"):
            by_place.setdefault((row.file, row.offset), []).append(row)
        return by_place


def _before(window: LogWindow, until_us: int | None) -> int:
    """Return how many rows come before the first one that was committed at or after the time."""
    if until_us is None:
        return len(window)
    late = np.flatnonzero(window.committed_us >= until_us)
    return int(late[0]) if len(late) else len(window)


def _schema_change(
    item: StatementHere, history: dict[tuple[str, int], list[StatementRow]], selection: Selection
) -> SchemaChange | None:
    """Return the schema change of a statement by the DDL history; None if it concerns no table of the feed."""
    rows = [
        row
        for row in history.get((item.statement.file, item.statement.offset), ())
        if selection.wants(row.name) and row.action != "ignored"
    ]
    if not rows:
        return None
    tables = tuple((row.name, row.shape) for row in rows)
    return SchemaChange(item.statement, rows[0].statement, rows[0].kind, tables, item.servers)
