"""What is known equal: each table's chunks with their checksums, in the metadata table ``verified``."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from binlake.batch.steps import Life
from binlake.errors import WrittenMeanwhile
from binlake.metadata.metadata import Metadata, literal, now_us
from binlake.schema.table import TableName
from binlake.verify.key_cells import CELLS, KeyCells, range_column
from binlake.verify.row_checksums import Flags, Sums

TABLE = "verified"
_TRIES = 5
_NOTED_EVERY = 20.0
"""Seconds after which a run notes what it has compared by then: so much is compared again if it is killed."""


@dataclass(frozen=True)
class VerifiedAt:
    """Where both sides were equal. batch, position: of the lake. delta_version: of the table."""

    batch: int
    position: str
    delta_version: int


@dataclass(frozen=True)
class VerifiedChunk:
    """A chunk that is known equal. checksum: of its rows. through: up to where that is known, whose Delta version has
    these rows. seen_us: when they were read last."""

    rows: int
    checksum: str
    through: VerifiedAt
    seen_us: int


@dataclass(frozen=True)
class KnownChunks:
    """A table's chunks; None for one that isn't known equal."""

    cells: KeyCells
    chunks: tuple[VerifiedChunk | None, ...]

    @classmethod
    def none(cls, cells: KeyCells) -> Self:
        return cls(cells, (None,) * cells.chunks)

    @classmethod
    def of_rows(cls, life: Life, rows: Sequence[dict[str, Any]]) -> Self | None:
        """Return what rows of metadata tell of a life; None where they are of another shape, or not all there."""
        ordered = sorted(rows, key=lambda row: row["chunk"])
        if not ordered or ordered[0]["shape"] != life.fingerprint or len(ordered) != ordered[0]["chunks"]:
            return None
        cells = KeyCells(shares=len(ordered))
        if ordered[0]["ranges"]:
            if (cut := range_column(life.schema)) is None:
                return None
            column, order = cut
            cells = KeyCells(column, order, np.array([int(row["least"]) for row in ordered[1:]], order.dtype))
        return cls(cells, tuple(map(_chunk, ordered)))

    def to_rows(self, life: Life) -> list[dict[str, Any]]:
        edges = self.cells.edges
        least = [None] * self.cells.chunks if edges is None else [None, *map(str, edges.tolist())]
        common = {
            "table_id": life.id, "database": life.name.database, "table": life.name.table,
            "chunks": self.cells.chunks, "ranges": edges is not None, "shape": life.fingerprint,
        }  # fmt: skip
        return [
            {**common, "chunk": number, "least": least[number], **_fields(chunk)}
            for number, chunk in enumerate(self.chunks)
        ]

    @property
    def rows(self) -> int:
        """The rows of the chunks that are known."""
        return sum(chunk.rows for chunk in self.chunks if chunk)

    def without(self, changed: Flags) -> Self:
        """Return the same with chunks that may have changed as not known."""
        kept = zip(self.chunks, changed.tolist(), strict=True)
        return replace(self, chunks=tuple(None if is_changed else chunk for chunk, is_changed in kept))

    def compared(self, done: Flags, ours: Sums, theirs: Sums, through: VerifiedAt) -> Self:
        """Return what is known once the chunks that are ``done`` were compared by their sums. The others that are known
        haven't changed: they are known equal up to the same place."""
        summed, at_us = ours.by_chunk(CELLS), now_us()
        differing = set((ours.differing(theirs) // CELLS).tolist())
        chunks: list[VerifiedChunk | None] = []
        for number, known in enumerate(self.chunks):
            if done[number] and number in differing:
                chunks.append(None)
            elif done[number]:
                rows = int(summed.rows[number])
                chunks.append(VerifiedChunk(rows, summed.text(number), through, at_us))
            else:
                chunks.append(replace(known, through=through) if known else None)
        return replace(self, chunks=tuple(chunks))


def _chunk(row: Mapping[str, Any]) -> VerifiedChunk | None:
    if row["batch"] is None:
        return None
    through = VerifiedAt(row["batch"], row["position"], row["delta_version"])
    return VerifiedChunk(row["rows"], row["checksum"], through, row["at_us"])


def _fields(chunk: VerifiedChunk | None) -> dict[str, Any]:
    if chunk is None:
        return {}
    return {"rows": chunk.rows, "checksum": chunk.checksum, "at_us": chunk.seen_us, **vars(chunk.through)}


def rows_by_life(metadata: Metadata) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of metadata by table id."""
    by_life: dict[str, list[dict[str, Any]]] = {}
    for row in metadata.read(TABLE):
        by_life.setdefault(row["table_id"], []).append(row)
    return by_life


class ChunkNotes:
    """Notes of what a run has compared. Several threads may put some; one writes them every now and then."""

    def __init__(self, metadata: Metadata, lives: Mapping[TableName, Life]) -> None:
        self._metadata = metadata
        self._lives = lives
        self._pending: dict[TableName, KnownChunks] = {}
        self._written = time.monotonic()
        self._putting = threading.Lock()

    def put(self, name: TableName, known: KnownChunks) -> None:
        """Note what is known of a table, in the place of what was noted of it."""
        if name in self._lives:
            with self._putting:
                self._pending[name] = known

    def write_if_due(self) -> None:
        """Write what isn't written yet, unless the last time is too short a time ago. Raises LakeError."""
        if time.monotonic() - self._written >= _NOTED_EVERY:
            self.write()

    def write(self) -> None:
        """Write what isn't written yet. Raises LakeError."""
        with self._putting:
            pending, self._pending = self._pending, {}
        rows = [row for name, known in pending.items() for row in known.to_rows(self._lives[name])]
        if ids := sorted({row["table_id"] for row in rows}):
            self._replace(f"table_id IN ({', '.join(map(literal, ids))})", rows)
        self._written = time.monotonic()

    def _replace(self, predicate: str, rows: Sequence[dict[str, Any]]) -> None:
        """Replace rows, again where an upkeep wrote them meanwhile: the lease isn't held here. Raises LakeError."""
        for left in reversed(range(_TRIES)):
            try:
                return self._metadata.replace(TABLE, predicate, rows)
            except WrittenMeanwhile:
                if not left:
                    raise
