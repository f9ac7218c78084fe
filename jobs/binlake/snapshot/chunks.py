"""Chunks of a snapshot: how a table is cut, and what metadata remembers so that an interrupted snapshot can be
continued.

The table ``snapshots`` has one row per chunk: planned, staged (with its position) or committed. ``position`` is JSON:
the chunk's ``low`` and ``high`` position, which differ only without a lock. ``path`` ends with the attempt that copied
the chunk.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from binlake.config import PipelineConfig
from binlake.delta.delta_schema import DeltaSchema
from binlake.errors import WrittenMeanwhile
from binlake.position import Position
from binlake.records import expiry, table_versions, watermarks
from binlake.retries import Retries, growing
from binlake.schema.invalid import FAIL, InvalidValues
from binlake.schema.lake_columns import LakeColumn, mirror_columns
from binlake.schema.mask import Mask
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dump, dumps, load, loads
from binlake.snapshot import attempts, bounds, jdbc, restore
from binlake.snapshot.attempts import Attempts
from binlake.snapshot.bounds import Bound
from binlake.snapshot.cutting import cut
from binlake.source.catalog import Partition, SourceTable
from binlake.source.server import Source
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ChunkRow

CHUNK_ROWS = 1_000_000
_FEWEST_ROWS = 200_000
"""The fewest rows of a chunk that only exists to keep a connection busy; smaller ones cost more than they save."""
_FILE_BYTES = 256 << 20
"""Bytes of a data file, measured as the server stores the rows; as Parquet they take a half to a tenth of that."""
_FEWEST_IN_FILE = 1000
_TRANSACTIONAL = "innodb"
_REPLACING = Retries(growing(0.1), attempts=8)
"""A write of rows of ``snapshots``, while others write some."""


@dataclass(frozen=True)
class Chunk:
    """The rows of a table whose key is in [lower, upper); None is no bound. Of a partitioned table it may be the rows
    of some ``partitions``.

    low: the position from which replaying the log makes the chunk current. high: the position before which everything
    in the chunk was committed. attempt: the one that copied it (snapshot/attempts.py). rows, bytes: totals of its data
    files. lock_ms: how long writes were stopped for its wave.
    """

    number: int
    lower: Bound | None = None
    upper: Bound | None = None
    low: Position | None = None
    high: Position | None = None
    rows: int = 0
    bytes: int = 0
    lock_ms: int = 0
    attempt: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def staged(self) -> bool:
        """Return whether the chunk is copied."""
        return self.low is not None


@dataclass
class TableSnapshot:
    """One snapshot of one table, in progress. ``id`` ends with ``digest``.

    estimate, size: rows and bytes, as the server estimates them. many_rows: reading showed more rows than few_rows.py
    takes, whatever was estimated. partitions: the names of those that it had when it was cut; empty if it has none.
    """

    id: str
    name: TableName
    schema: TableSchema
    engine: str
    estimate: int
    size: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    table_id: str | None = None
    tries: int = 0
    seconds: float = 0.0
    many_rows: bool = False
    partitions: tuple[str, ...] = ()

    @property
    def transactional(self) -> bool:
        """Return whether the engine has read views of the table."""
        return self.engine.lower() == _TRANSACTIONAL and not self.schema.sequence

    @property
    def pending(self) -> list[Chunk]:
        """Return the chunks that aren't copied yet."""
        return [chunk for chunk in self.chunks if not chunk.staged]

    @property
    def is_cut_by_keys(self) -> bool:
        """Return whether a chunk has a bound."""
        return any(chunk.lower or chunk.upper for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """Return the number of rows copied so far."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Return the bytes of the data files written so far."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def rows_per_file(self) -> int:
        """Return the most rows of a data file."""
        return max(_FEWEST_IN_FILE, _FILE_BYTES * self.estimate // self.size) if self.size else CHUNK_ROWS

    @property
    def low(self) -> Position:
        """Return the lowest position from which the log makes a copied chunk current.

        Raises ValueError without such a chunk.
        """
        return min(chunk.low for chunk in self.chunks if chunk.low)

    @property
    def high(self) -> Position:
        """Return the highest position before which everything in a chunk was committed.

        Raises ValueError without such a chunk.
        """
        return max(chunk.high for chunk in self.chunks if chunk.high)

    def put(self, chunk: Chunk) -> None:
        """Replace the chunk with the same number."""
        self.chunks[chunk.number] = chunk


def digest(name: TableName, schema: TableSchema, invalid: InvalidValues) -> str:
    """Return eight hexadecimal digits of a hash of the table's schema, query and column expressions.

    Chunks copied under another digest have other columns and can't be used.
    """
    columns = restore.expressions(schema, invalid)
    text = json.dumps([schema.uncommented(), jdbc.whole_query(name, schema), columns], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def chunk_count(rows: int, chunk_rows: int, connections: int) -> int:
    """Return how many chunks ``rows`` rows make: at most ``chunk_rows`` rows each, and enough to fill whole waves."""
    needed = max(1, -(-rows // chunk_rows))
    full = -(-needed // connections) * connections
    return max(needed, min(full, rows // _FEWEST_ROWS))


def plan(
    source: Source,
    table: SourceTable,
    invalid: InvalidValues = FAIL,
    *,
    chunk_rows: int = CHUNK_ROWS,
    connections: int = 1,
) -> TableSnapshot:
    """Return a new snapshot of a table, cut into key ranges of about equal rows.

    A range has at most ``chunk_rows`` rows, by the server's estimate; a table that can't be cut (cutting.py) is one
    chunk. The outer ranges are open, so that the chunks cover all keys whenever they are read. A partitioned table is
    cut into whole partitions. Raises UnsupportedColumn.
    """
    restore.refuse_twice(table.name, table.schema, invalid)
    table_snapshot = TableSnapshot(
        f"{uuid.uuid4().hex[:12]}-{digest(table.name, table.schema, invalid)}",
        table.name,
        table.schema,
        table.engine,
        0 if table.schema.without_rows else table.rows,
        0 if table.schema.without_rows else table.size,
        partitions=tuple(partition.name for partition in table.partitions),
    )
    count = chunk_count(table_snapshot.estimate, chunk_rows, connections)
    cuts = table_snapshot.transactional and table_snapshot.schema.key and count > 1
    # Bounds are recorded, and a masked key's values aren't.
    ranges = cuts and not any(name.lower() in table.schema.masks for name in table.schema.key)
    if cuts and table.partitions:
        table_snapshot.chunks = _of_partitions(table.partitions, -(-table.rows // count))
        return table_snapshot
    inner = cut(source, table.name, table.schema, -(-table.rows // count), count) if ranges else []
    edges = [None, *inner, None]
    table_snapshot.chunks = [Chunk(number, *ends) for number, ends in enumerate(pairwise(edges))]
    return table_snapshot


def _of_partitions(partitions: Sequence[Partition], rows: int) -> list[Chunk]:
    """Return chunks of whole partitions, as a row may be in another one than a range of keys says. rows: about how many
    a chunk has at least, but for the last."""
    chunks: list[Chunk] = []
    names: list[str] = []
    held = 0
    for partition in partitions:
        names.append(partition.name)
        held += partition.rows
        if held >= rows:
            chunks.append(Chunk(len(chunks), partitions=tuple(names)))
            names, held = [], 0
    return [*chunks, Chunk(len(chunks), partitions=tuple(names))] if names else chunks


class Records:
    """The metadata table ``snapshots``: rows are saved, restored and removed here."""

    def __init__(self, config: PipelineConfig, metadata: Metadata) -> None:
        self._config = config
        self._metadata = metadata
        self._saving = threading.Lock()
        self._unsaved: dict[str, list[ChunkRow]] = {}
        by_snapshot: dict[str, list[ChunkRow]] = defaultdict(list)
        for row in ChunkRow.read(metadata):
            by_snapshot[row.snapshot].append(row)
        self._newest: dict[TableName, list[ChunkRow]] = {}
        self._unfinished: dict[TableName, set[str]] = defaultdict(set)
        for rows in by_snapshot.values():
            name = rows[0].name
            if _updated(rows) >= _updated(self._newest.get(name, [])):
                self._newest[name] = rows
            if not _committed(rows):
                self._unfinished[name].add(rows[0].snapshot)

    def check(self) -> None:
        """Raise LeaseHeld if this process lost its lease."""
        self._metadata.check()

    def note_lost_versions(self, name: TableName, newest: int) -> None:
        """Note that the Delta versions of a table behind its newest one are lost, where such were noted: the snapshot
        gives their numbers to others. newest: -1 where no table is there."""
        table_versions.note_lost_under(self._metadata, name, newest)

    def masks_before(self, name: TableName) -> list[Mapping[str, Mask]]:
        """Return the masks of each life that had a table's name."""
        return [life.schema.masks for life in watermarks.read_lives(self._metadata) if life.name == name]

    def keeps_deleted(self, table: TableSnapshot) -> bool:
        """Return whether deleted rows stay of those that the lake has of a table: not where it was copied under another
        condition than it has now, which may leave them out, or under one that isn't known."""
        if not table.schema.soft_delete:
            return False
        lives = [life for life in watermarks.read_lives(self._metadata) if life.name == table.name]
        before = {life.schema.where for life in lives if life.status != "dropped"}
        return not table.schema.where or before == {table.schema.where}

    def attempts(self, table: TableSnapshot) -> Attempts:
        """Return the folders of attempts of a snapshot."""
        return Attempts(self._config, table.name, table.id)

    def delta_schema(self, table: TableSnapshot) -> DeltaSchema:
        """Return the Delta schema that all data files of the snapshot are written with."""
        return DeltaSchema.of(self.columns(table), table.id, table.schema.comment)

    def columns(self, table: TableSnapshot) -> tuple[LakeColumn, ...]:
        """Return the columns of the Delta table."""
        return mirror_columns(table.schema, self._config.invalid)

    def save(self, *tables: TableSnapshot, committed: bool = False) -> None:
        """Write the tables' chunks as they are, in one metadata commit together with what other threads wait to save.

        Tables are committed in parallel; a metadata commit for each would make them queue.
        """
        for table in tables:
            self._unsaved[table.id] = [self._row(table, chunk, committed) for chunk in table.chunks]
        with self._saving:
            # Rows whose commit fails stay, so that each thread that waits for them fails in its turn.
            if taken := dict(self._unsaved):
                listed = ", ".join(literal(snapshot) for snapshot in taken)
                rows = [row for of_snapshot in taken.values() for row in of_snapshot]
                self._replace(f"snapshot IN ({listed})", rows)
            for snapshot, rows in taken.items():
                if self._unsaved[snapshot] is rows:
                    del self._unsaved[snapshot]

    def _replace(self, predicate: str, rows: Sequence[ChunkRow]) -> None:
        """Put rows in the place of others. An upkeep writes this table, too, while tables are copied beside it."""
        _REPLACING.call(lambda: ChunkRow.replace(self._metadata, predicate, rows), WrittenMeanwhile)

    def unfinished(self, table: SourceTable, usable: Callable[[Position], bool]) -> TableSnapshot | None:
        """Return a table's newest snapshot if it was interrupted and its chunks can still be used, else None.

        usable: returns whether the log can be replayed from a position.
        """
        rows = self._newest.get(table.name, [])
        if not rows or _committed(rows) or not self._has_columns(table, rows):
            return None
        restored = _restore(table, rows)
        if restored.is_cut_by_keys and table.partitions:  # an older binlake cut it so, and may have missed rows
            return None
        if restored.schema != table.schema or not all(usable(chunk.low) for chunk in restored.chunks if chunk.low):
            return None
        restored.schema = restored.schema.commented_as(table.schema)
        # Chunks of a table without a key can't be made equal by the log: all or none.
        return restored if restored.schema.key or not restored.pending else None

    def committed(self, table: SourceTable) -> TableSnapshot | None:
        """Return a table's newest snapshot if it was committed, with the columns that it would have now, else None."""
        rows = self._newest.get(table.name, [])
        return _restore(table, rows) if rows and _committed(rows) and self._has_columns(table, rows) else None

    def _has_columns(self, table: SourceTable, rows: list[ChunkRow]) -> bool:
        """Return whether a snapshot has the table's columns, as the YAML has them read."""
        return rows[0].snapshot.endswith(digest(table.name, table.schema, self._config.invalid))

    def forget(self, name: TableName, *, but: str | None = None, ending: str = "") -> None:
        """Remove a table's unfinished snapshots and their files, except ``but``. ending: only ids with this suffix."""
        for snapshot in self._unfinished.pop(name, set()) - {but}:
            if snapshot.endswith(ending):
                self._remove(name, snapshot)

    def drop(self, table: TableSnapshot) -> None:
        """Remove a snapshot that this run began, with its files."""
        self._remove(table.name, table.id)

    def _remove(self, name: TableName, snapshot: str) -> None:
        self._replace(f"snapshot = {literal(snapshot)}", [])
        Attempts(self._config, name, snapshot).remove()

    def clean(self) -> None:
        """Remove files of snapshots whose removal was interrupted."""
        attempts.remove_dead(self._config, lambda: expiry.unfinished_snapshots(self._metadata))

    def lost(self, table: TableSnapshot) -> list[Chunk]:
        """Return the staged chunks whose files are missing, truncated or unknown."""
        of_table = self.attempts(table)
        return [chunk for chunk in table.chunks if chunk.staged and not of_table.is_whole(chunk.attempt, chunk.rows)]

    def copy_again(self, table: TableSnapshot, chunks: Sequence[Chunk]) -> None:
        """Mark chunks as not copied and delete their files, unless a commit may have taken these."""
        for chunk in chunks:
            table.put(Chunk(chunk.number, chunk.lower, chunk.upper, partitions=chunk.partitions))
        self.save(table)
        of_table = self.attempts(table)
        if not of_table.given:
            for chunk in chunks:
                of_table.discard(chunk.attempt)

    def _row(self, table: TableSnapshot, chunk: Chunk, committed: bool) -> ChunkRow:
        positions = {"low": dump(chunk.low), "high": dump(chunk.high)} if chunk.low and chunk.high else None
        return ChunkRow(
            snapshot=table.id,
            table_id=table.table_id,
            **vars(table.name),
            chunk=chunk.number,
            state="committed" if committed else "staged" if chunk.staged else "planned",
            # A committed chunk isn't copied again: key values aren't kept without need.
            lower=None if committed else bounds.write(chunk.lower),
            upper=None if committed else bounds.write(chunk.upper),
            position=json.dumps(positions) if positions else None,
            gtid_set=chunk.low.gtid_set if chunk.low else None,
            rows=chunk.rows,
            bytes=chunk.bytes,
            lock_ms=chunk.lock_ms,
            partitions=json.dumps(chunk.partitions) if chunk.partitions else None,
            path=self.attempts(table).staging_folder(chunk.attempt),
            schema=dumps(table.schema),
            updated_us=now_us(),
        )


def _updated(rows: list[ChunkRow]) -> int:
    return max((row.updated_us for row in rows), default=0)


def _committed(rows: list[ChunkRow]) -> bool:
    return all(row.state == "committed" for row in rows)


def _restore(table: SourceTable, rows: list[ChunkRow]) -> TableSnapshot:
    restored = TableSnapshot(
        rows[0].snapshot,
        table.name,
        loads(TableSchema, rows[0].schema),
        table.engine,
        table.rows,
        table.size,
        table_id=rows[0].table_id,
    )
    for row in sorted(rows, key=lambda row: row.chunk):
        chunk = Chunk(
            row.chunk,
            bounds.read(row.lower, restored.schema),
            bounds.read(row.upper, restored.schema),
            partitions=tuple(json.loads(row.partitions or "[]")),
        )
        if row.position:
            positions = json.loads(row.position)
            chunk = replace(
                chunk,
                low=load(Position, positions["low"]),
                high=load(Position, positions["high"]),
                rows=row.rows,
                bytes=row.bytes,
                lock_ms=row.lock_ms,
                attempt=row.path.rpartition("/")[2],
            )
        restored.chunks.append(chunk)
    chosen = tuple(name for chunk in restored.chunks for name in chunk.partitions)
    restored.partitions = chosen or tuple(partition.name for partition in table.partitions)
    return restored
