"""Chunks of a snapshot: how a table is cut, and what metadata remembers so that a dead snapshot goes on.

The table ``snapshots`` has one row per chunk: planned, staged (with its position) or committed. ``position`` is JSON:
the chunk's ``low`` and ``high`` position, which differ only without a lock.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from binlake.config import PipelineConfig
from binlake.errors import StagingError
from binlake.names import mysql_quote
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dump, dumps, load, loads
from binlake.snapshot import jdbc
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.state import files
from binlake.state.metadata import Metadata, literal, now_us

CHUNK_ROWS = 1_000_000
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TRANSACTIONAL = "innodb"


@dataclass(frozen=True)
class Chunk:
    """The rows whose first key column is in [lower, upper), None being no bound.

    low: the log from here on makes the chunk current. high: everything the chunk shows lies before it.
    rows, bytes: of the staged Parquet. lock_ms: how long writes were stopped for its wave.
    """

    number: int
    lower: int | None = None
    upper: int | None = None
    low: Position | None = None
    high: Position | None = None
    rows: int = 0
    bytes: int = 0
    lock_ms: int = 0

    @property
    def staged(self) -> bool:
        return self.low is not None


@dataclass
class TableSnapshot:
    """One snapshot of one table under way. ``id`` ends with a digest of what is selected."""

    id: str
    name: TableName
    schema: TableSchema
    engine: str
    estimate: int
    chunks: list[Chunk] = field(default_factory=list)
    table_id: str | None = None
    tries: int = 0
    seconds: float = 0.0

    @property
    def transactional(self) -> bool:
        return self.engine.lower() == _TRANSACTIONAL and not self.schema.sequence

    @property
    def pending(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if not chunk.staged]

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def low(self) -> Position:
        return min(chunk.low for chunk in self.chunks if chunk.low)

    @property
    def high(self) -> Position:
        return max(chunk.high for chunk in self.chunks if chunk.high)

    def put(self, chunk: Chunk) -> None:
        self.chunks[chunk.number] = chunk


def digest(name: TableName, schema: TableSchema) -> str:
    """Eight hexadecimal digits of what a chunk selects: staged files of another selection don't fit."""
    text = json.dumps([dump(schema), jdbc.chunk_query(name, schema, None, None)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def plan(source: Source, table: SourceTable, *, chunk_rows: int = CHUNK_ROWS) -> TableSnapshot:
    """A fresh snapshot: ranges of an integer key of about ``chunk_rows`` rows, else the table in one chunk.

    The outer ranges are open, so that the chunks cover all keys whenever they are read.
    """
    made = TableSnapshot(
        f"{uuid.uuid4().hex[:12]}-{digest(table.name, table.schema)}",
        table.name,
        table.schema,
        table.engine,
        table.rows,
    )
    bounds = _bounds(source, made, chunk_rows)
    edges = [None, *bounds, None]
    made.chunks = [Chunk(number, edges[number], edges[number + 1]) for number in range(len(edges) - 1)]
    return made


def _bounds(source: Source, table: TableSnapshot, chunk_rows: int) -> list[int]:
    """Inner edges of the chunks, ascending."""
    count = -(-table.estimate // chunk_rows)
    key = table.schema.key
    if count < 2 or not table.transactional or not key or table.schema.column(key[0]).type not in _INTEGERS:
        return []
    column = mysql_quote(key[0])
    row = source.query(
        f"SELECT MIN({column}) AS least, MAX({column}) AS most"
        f" FROM {mysql_quote(table.name.database)}.{mysql_quote(table.name.table)}"
    )[0]
    if row["least"] is None:
        return []
    least, most = int(row["least"]), int(row["most"])
    return sorted({least + (most - least + 1) * number // count for number in range(1, count)} - {least})


class Records:
    """What metadata remembers of snapshots."""

    def __init__(self, config: PipelineConfig, metadata: Metadata) -> None:
        self._config = config
        self._metadata = metadata
        self._saving = threading.Lock()
        by_snapshot: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in metadata.read("snapshots"):
            by_snapshot[row["snapshot"]].append(row)
        self._newest: dict[TableName, list[dict[str, Any]]] = {}
        self._unfinished: dict[TableName, set[str]] = defaultdict(set)
        for rows in by_snapshot.values():
            name = TableName(rows[0]["database"], rows[0]["table"])
            if _updated(rows) >= _updated(self._newest.get(name, [])):
                self._newest[name] = rows
            if not _committed(rows):
                self._unfinished[name].add(rows[0]["snapshot"])

    def folder(self, snapshot: str, chunk: int | None = None) -> str:
        parts = [snapshot] if chunk is None else [snapshot, str(chunk)]
        return self._config.staging_path("snapshot", *parts)

    def save(self, table: TableSnapshot, *, committed: bool = False) -> None:
        """The table's chunks as they are now, in one commit."""
        rows = [self._row(table, chunk, committed) for chunk in table.chunks]
        with self._saving:  # tables are committed side by side; their rows needn't conflict
            self._metadata.replace("snapshots", f"snapshot = {literal(table.id)}", rows)

    def unfinished(self, table: SourceTable, usable: Callable[[Position], bool]) -> TableSnapshot | None:
        """The newest snapshot of a table that died, when its chunks are still of use.

        usable: whether the log is followed from a position on.
        """
        rows = self._newest.get(table.name, [])
        if not rows or _committed(rows) or not rows[0]["snapshot"].endswith(digest(table.name, table.schema)):
            return None
        found = _restore(table, rows)
        if found.schema != table.schema or not all(usable(chunk.low) for chunk in found.chunks if chunk.low):
            return None
        # Chunks of a table without a key can't be made equal by the log: all or none.
        return found if found.schema.key or not found.pending else None

    def committed(self, table: SourceTable) -> TableSnapshot | None:
        """The newest snapshot of a table, when it was committed."""
        rows = self._newest.get(table.name, [])
        return _restore(table, rows) if rows and _committed(rows) else None

    def forget(self, name: TableName, *, but: str | None = None) -> None:
        """Remove unfinished snapshots of a table with their files."""
        for snapshot in self._unfinished.pop(name, set()) - {but}:
            files.remove_folder(self.folder(snapshot))
            self._metadata.replace("snapshots", f"snapshot = {literal(snapshot)}", [])

    def lost(self, table: TableSnapshot) -> list[Chunk]:
        """Staged chunks whose files are missing, cut off or of another snapshot, as far as footers tell."""

        def is_whole(chunk: Chunk) -> bool:
            try:
                return files.parquet_rows(self.folder(table.id, chunk.number)) == chunk.rows
            except StagingError:
                return False

        return [chunk for chunk in table.chunks if chunk.staged and not is_whole(chunk)]

    def copy_again(self, table: TableSnapshot, chunks: Sequence[Chunk]) -> None:
        """What was staged of these chunks counts no more."""
        for chunk in chunks:
            table.put(Chunk(chunk.number, chunk.lower, chunk.upper))
        self.save(table)

    def _row(self, table: TableSnapshot, chunk: Chunk, committed: bool) -> dict[str, Any]:
        positions = {"low": dump(chunk.low), "high": dump(chunk.high)} if chunk.low and chunk.high else None
        return {
            "snapshot": table.id,
            "table_id": table.table_id,
            "database": table.name.database,
            "table": table.name.table,
            "chunk": chunk.number,
            "state": "committed" if committed else "staged" if chunk.staged else "planned",
            "lower": None if chunk.lower is None else str(chunk.lower),
            "upper": None if chunk.upper is None else str(chunk.upper),
            "position": json.dumps(positions) if positions else None,
            "gtid_set": chunk.low.gtid_set if chunk.low else None,
            "rows": chunk.rows,
            "bytes": chunk.bytes,
            "lock_ms": chunk.lock_ms,
            "path": self.folder(table.id, chunk.number),
            "schema": dumps(table.schema),
            "updated_us": now_us(),
        }


def _updated(rows: list[dict[str, Any]]) -> int:
    return max((row["updated_us"] for row in rows), default=0)


def _committed(rows: list[dict[str, Any]]) -> bool:
    return all(row["state"] == "committed" for row in rows)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _restore(table: SourceTable, rows: list[dict[str, Any]]) -> TableSnapshot:
    made = TableSnapshot(
        rows[0]["snapshot"],
        table.name,
        loads(TableSchema, rows[0]["schema"]),
        table.engine,
        table.rows,
        table_id=rows[0]["table_id"],
    )
    for row in sorted(rows, key=lambda row: row["chunk"]):
        chunk = Chunk(row["chunk"], _number(row["lower"]), _number(row["upper"]))
        if row["position"]:
            positions = json.loads(row["position"])
            chunk = replace(
                chunk,
                low=load(Position, positions["low"]),
                high=load(Position, positions["high"]),
                rows=row["rows"],
                bytes=row["bytes"],
                lock_ms=row["lock_ms"],
            )
        made.chunks.append(chunk)
    return made
