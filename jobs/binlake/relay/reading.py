"""Reading recorded batches for the relay: which mutations arrived, and their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from binlake.binlog.border import XaEvent
from binlake.config import PipelineConfig
from binlake.errors import FeedError, StagingError
from binlake.feeds.carry import oldest_staged
from binlake.feeds.contract import FeedTable
from binlake.feeds.shapes import Shapes, shown, table_of
from binlake.feeds.staged import LogWindow, StagedBatch, StatementHere
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import PreparedXa
from binlake.records.feed_watermarks import FeedPlace
from binlake.relay.client_events import RelayEvent, events_of
from binlake.relay.queues import TableFilter
from binlake.relay.usage import UsageCounts
from binlake.schema.table import TableName, TableSchema
from binlake.staging.staged_files import read_manifest
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow
from binlake.store.run_rows import RunRow

Prepared = tuple[PreparedXa, ...]
Operations = dict[TableName, int]
"""Bits of the wanted operations, by table."""


@dataclass(frozen=True)
class Arrived:
    """Mutations of a batch, in order. tables: for each, its table's number in ``names``. operations: their bits."""

    names: tuple[TableName, ...]
    tables: npt.NDArray[np.int64]
    operations: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Numbered:
    """An event with its number among those that pass the filters, and its place in the batch."""

    number: int
    place: FeedPlace
    event: RelayEvent


class RecordedBatches:
    """The recorded batches of one source. Raises StagingError if a batch's staging is gone or damaged."""

    def __init__(self, config: PipelineConfig, metadata: Metadata) -> None:
        self._config, self._metadata = config, metadata
        self._shapes: tuple[int, Shapes] | None = None

    @property
    def newest(self) -> int:
        """The number of the newest recorded batch; 0 before the first."""
        recorded_state = self.recorded_state
        return recorded_state.batch if recorded_state else 0

    @property
    def recorded_state(self) -> RecordedState | None:
        """Where the newest recorded batch ends; None before the first."""
        return lease.read(self._metadata).recorded_state

    @property
    def source(self) -> str:
        """Return the source's name."""
        return self._config.source.name

    def counts(self, after: int) -> list[tuple[int, dict[str, UsageCounts]]]:
        """Return the mutations of each recorded batch after one, with the time at which it was recorded, in order."""
        where = f"kind = 'sync' AND batch > {after}"
        rows = RunRow.read(self._metadata, "batch", "ended_us", "tables", where=where)
        return [(row.ended_us, _counts(row)) for row in sorted(rows, key=lambda row: row.batch or 0)]

    def newest_shapes(self) -> dict[TableName, TableSchema]:
        """Return the newest shapes of the included tables."""
        return {name: shape for name, shape in Shapes(self._metadata).newest().items() if self.included(name)}

    def oldest(self, newest: int) -> int:
        """Return the first batch that can be read."""
        return oldest_staged(self._config, newest)

    def included(self, name: TableName) -> bool:
        """Return whether the YAML includes a table in the mirror."""
        return self._config.included(name)

    def arrived(
        self, batch: int, prepared: Prepared, wanted: Operations
    ) -> tuple[list[Arrived], Prepared, set[TableName]]:
        """Return a batch's mutations of the wanted tables, the XA transactions without an outcome at its end, and the
        tables of which events are missing: those that couldn't be decoded or whose rows lack values, and, as it may be
        any table, those of an XA transaction that nobody here saw prepared."""
        unknown: list[XaEvent] = []
        partial: set[TableName] = set()
        staged = self._staged(
            batch, prepared, lambda name: name in wanted, lambda event, error: unknown.append(event), partial.add
        )
        mutations = [_counted(window) for window in staged.read() if isinstance(window, LogWindow)]
        return mutations, staged.waiting, set(wanted) if unknown else (staged.undecoded | partial) & wanted.keys()

    def events(
        self, batch: int, prepared: Prepared, filters: tuple[TableFilter, ...], first: int, after: FeedPlace | None
    ) -> Iterator[Numbered]:
        """Yield the events that pass the filters, after a place; the first one has the number ``first``."""
        wanted = {table_filter.name: table_filter.operations for table_filter in filters}
        number = first
        for window in self._staged(batch, prepared, lambda name: name in wanted).read(after):
            if isinstance(window, StatementHere):
                continue
            window_events = _WindowEvents(window)
            for row in np.flatnonzero(passing(_counted(window), wanted)).tolist():
                yield Numbered(number, window.place(row), window_events.event(row))
                number += 1

    def _staged(
        self,
        batch: int,
        prepared: Prepared,
        wants: Callable[[TableName], bool],
        unknown: Callable[[XaEvent, FeedError], None] = lambda event, error: None,
        partial: Callable[[TableName], None] = lambda name: None,
    ) -> StagedBatch:
        """Return a batch of the wanted tables. unknown: see StagedBatch. partial: called for a table with rows that
        lack values, which are left out."""
        row = BatchRow.first(self._metadata, "attempt", "range", where=f"batch = {batch} AND state = 'recorded'")
        if row is None:
            raise StagingError(f"batch {batch} isn't recorded any more", remedy="register again")
        attempt = row.attempt or ""
        manifest = read_manifest(self._config.staging_path(str(batch), attempt), batch, attempt)

        def table(file: StagedFile) -> FeedTable | None:
            if not wants(file.name) or not self._config.included(file.name):
                return None
            try:
                return table_of(file, self._shapes_of(batch).of_file(file, batch))
            except FeedError:
                partial(file.name)
                return None

        return StagedBatch(manifest, row.carried, prepared, table, shown, unknown)

    def _shapes_of(self, batch: int) -> Shapes:
        """Return the recorded shapes, at least up to the batch."""
        if self._shapes is None or self._shapes[0] < batch:
            self._shapes = batch, Shapes(self._metadata)
        return self._shapes[1]


def _counts(run: RunRow) -> dict[str, UsageCounts]:
    """Return the mutations of a run, by table."""
    return {table.table: UsageCounts(table.inserted, table.updated, table.deleted) for table in run.did}


def _counted(window: LogWindow) -> Arrived:
    names = tuple(part.table.name for part in window.parts)
    tables = np.repeat(np.arange(len(names)), [part.rows.num_rows for part in window.parts])[window.order]
    op = np.concatenate([part.rows.column("op").to_numpy() for part in window.parts])[window.order]
    return Arrived(names, tables, 1 << (op.astype(np.int64) - 1))


def passing(arrived: Arrived, wanted: Operations) -> npt.NDArray[np.bool_]:
    """Return for each mutation whether it is wanted."""
    bits = np.array([wanted.get(name, 0) for name in arrived.names], np.int64)
    passed: npt.NDArray[np.bool_] = (bits[arrived.tables] & arrived.operations) != 0
    return passed


class _WindowEvents:
    """Events of a window, made for ``_STRETCH`` rows of one table at a time."""

    _STRETCH = 256

    def __init__(self, window: LogWindow) -> None:
        self._window = window
        self._starts = np.concatenate(([0], np.cumsum([part.rows.num_rows for part in window.parts])))
        self._known: dict[int, tuple[int, list[RelayEvent]]] = {}

    def event(self, row: int) -> RelayEvent:
        laid = int(self._window.order[row])
        part = int(np.searchsorted(self._starts, laid, side="right")) - 1
        at = laid - int(self._starts[part])
        start, made = self._known.get(part, (0, []))
        if not start <= at < start + len(made):
            changes = self._window.parts[part]
            stretch = changes.rows.slice(at, self._STRETCH)
            start, made = self._known[part] = (
                at,
                list(events_of(changes.__class__(changes.table, stretch, changes.file))),
            )
        return made[at - start]
