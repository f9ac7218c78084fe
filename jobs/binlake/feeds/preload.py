"""Preload: a feed that begins with the lake first sends the tables' rows at a batch, as reads.

The tables and their Delta versions are frozen in the feed's position, with the number of rows of the first table that
were carried: a table is committed in portions, so that a kill repeats only one. Versions stay readable for
``maintain.history_hours``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.binlog.border import INSERT
from binlake.binlog.staged_schema import staged_schema
from binlake.config import PipelineConfig
from binlake.delta import data_rows, opened_tables
from binlake.errors import FeedError, LakeError, NoSnapshotYet
from binlake.feeds.contract import FeedChanges, FeedTable
from binlake.feeds.selection import Selection
from binlake.lake.lake_versions import lake_versions
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.planner.steps import Life
from binlake.records import watermarks
from binlake.records.feed_watermarks import FeedPosition, TableAtVersion
from binlake.schema.table import TableName
from binlake.storage import storage_errors
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import WatermarkRow

_TRIES, _PAUSE = 30, 0.1
"""How often the state of all tables is read while batches are recorded, and the seconds in between."""


def begin_with_lake(metadata: Metadata, selection: Selection) -> FeedPosition:
    """Return the position at the newest recorded batch, with all rows of the wanted tables still to be sent.

    Raises FeedError for a table that isn't at that batch, or whose mirror has no rows.
    """
    recorded_state, known = _recorded_lives(metadata)
    lives = [life for life in known if life.status != "dropped" and selection.wants(life.name)]
    for life in lives:
        ahead = life.low.server == recorded_state.position.server and life.low > recorded_state.position
        if life.status != "following" or ahead or life.delta_version is None:
            raise FeedError(
                f"{life.name} isn't at batch {recorded_state.batch}: it is {life.status}",
                remedy="run binlake sync, fix the table, or exclude it from the feed; then run again",
            )
        if life.schema.without_rows:
            raise FeedError(
                f"{life.name} has no mirror (tables.modes, mirror: false) whose rows could be sent first",
                remedy="exclude it from the feed, or begin the feed at a position of the log",
            )
    frozen = tuple(
        TableAtVersion(life.id, life.delta_version or 0) for life in sorted(lives, key=lambda life: life.name)
    )
    return FeedPosition(recorded_state.batch, None, recorded_state.prepared, frozen)


def _recorded_lives(metadata: Metadata) -> tuple[RecordedState, list[Life]]:
    """Return the newest recorded batch with all lives as it left them.

    A batch that is being recorded writes its lives first, and moves the lease's row last. Raises NoSnapshotYet.
    """
    tries = 0
    while True:
        tries += 1
        recorded_state = lease.read(metadata).recorded_state
        if recorded_state is None:
            raise NoSnapshotYet
        lives = watermarks.read_lives(metadata)
        newest = max((row.batch for row in WatermarkRow.read(metadata, "batch")), default=0)
        is_newest = recorded_state == lease.read(metadata).recorded_state
        if (newest <= recorded_state.batch and is_newest) or tries == _TRIES:
            return recorded_state, lives  # at last with a table that was snapshotted ahead, as its life shows
        time.sleep(_PAUSE)


def _table_of(life: Life) -> FeedTable:
    key = life.schema.key if life.schema.key_kind == "primary" else ()
    return FeedTable(life.name, life.schema.mirrored, key, life.schema)


@dataclass(frozen=True)
class Preload:
    """Reader of the lake's rows that a feed still has to send. recorded_state: where the newest recorded batch ends."""

    config: PipelineConfig
    metadata: Metadata
    selection: Selection
    recorded_state: RecordedState

    def rows(self, place: FeedPosition) -> Iterator[tuple[FeedTable | FeedChanges | None, FeedPosition]]:
        """Yield each table, its rows in portions, then None, each with the position to commit after it.

        A table some of whose rows were carried before isn't yielded again. Raises FeedError if a version is gone.
        """
        if not place.loading:
            return
        lives = {life.id: life for life in watermarks.read_lives(self.metadata)}
        named = self._names_at(place.batch)
        while place.loading:
            loading, left = place.loading[0], place.loading[1:]
            life = lives.get(loading.table_id)
            if life and life.id in named:
                life = replace(life, name=named[life.id])
            if life and not loading.passed:
                yield _table_of(life), place
            for changes, passed in self._changes_of(life, loading) if life else ():
                yield changes, replace(place, loading=(replace(loading, passed=passed), *left))
            place = replace(place, loading=left)
            yield None, place

    def _names_at(self, batch: int) -> dict[str, TableName]:
        """Return the names that lives had at a batch, in whose folders their rows of then are; none where that batch
        isn't known any more."""
        versions = (version for version in lake_versions(self.metadata) if version.batch == batch)
        return {table.table_id: table.name for version in versions for table in version.listed}

    def _changes_of(self, life: Life, at: TableAtVersion) -> Iterator[tuple[FeedChanges, int]]:
        table = _table_of(life)
        for batch, passed in self._batches(life, at):
            rows = self.selection.prepare(table, self._as_staged(table, batch, passed - batch.num_rows))
            yield FeedChanges(table, rows, self.recorded_state.position.file, snapshot=True), passed

    def _batches(self, life: Life, at: TableAtVersion) -> Iterator[tuple[pa.RecordBatch, int]]:
        location = self.config.table_path(life.name)
        image = staged_schema(life.schema.mirrored, self.config.invalid).field("after").type
        try:
            yield from data_rows.read(
                opened_tables.opened(location, at.version),
                location,
                list(image),
                at.passed,
                data_rows.counting(life.schema),
            )
        except LakeError:
            raise
        except (DeltaError, OSError, pa.ArrowException, KeyError) as error:
            why = f"no column {error}" if isinstance(error, KeyError) else storage_errors.cause_of(error)
            raise FeedError(
                f"{life.name} can't be read at version {at.version}: {why}",
                remedy=f"begin again: binlake feed --config FILE --feed {self.selection.feed.name} --restart-from lake",
            ) from error

    def _as_staged(self, table: FeedTable, batch: pa.RecordBatch, read: int) -> pa.RecordBatch:
        schema = staged_schema(table.columns, self.config.invalid)
        image = schema.field("after").type
        count = batch.num_rows
        after = pa.StructArray.from_arrays(batch.columns, fields=list(image))
        number, offset = self.recorded_state.position.order
        values: dict[str, Callable[[], pa.Array]] = {
            "op": lambda: pa.array([INSERT] * count, pa.int8()),
            "file": lambda: pa.array([number] * count, pa.int64()),
            "offset": lambda: pa.array([offset] * count, pa.int64()),
            "row": lambda: pa.array(range(read, read + count), pa.int64()),
            "committed_us": lambda: pa.array([now_us()] * count, pa.int64()),
            "after": lambda: after,
        }
        columns = [values[field.name]() if field.name in values else pa.nulls(count, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
