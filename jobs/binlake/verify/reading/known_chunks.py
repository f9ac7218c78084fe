"""The chunks that are known equal, with their checksums: rows of the metadata table ``verified``."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from binlake.errors import WrittenMeanwhile
from binlake.planner.steps import Life
from binlake.retries import Retries, steady
from binlake.schema.table import TableName
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import VerifiedRow
from binlake.verify.reading.key_cells import CELLS, KeyCells, range_column
from binlake.verify.reading.row_checksums import Flags, Sums

_REPLACING = Retries(steady(0), attempts=5)
_NOTED_EVERY = 20.0
"""Seconds after which a run notes what it has compared by then: so much is compared again if it is killed."""


@dataclass(frozen=True)
class VerifiedAt:
    """The version and batch at which both sides were equal. batch, position: of the lake. delta_version: of the
    table."""

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
    """A table's chunks; None for one that isn't known equal. problem: what is wrong with the table's files by now,
    though its chunks were equal; empty where nothing is."""

    cells: KeyCells
    chunks: tuple[VerifiedChunk | None, ...]
    problem: str = ""

    @classmethod
    def none(cls, cells: KeyCells) -> Self:
        """Return chunks none of which is known equal."""
        return cls(cells, (None,) * cells.chunks)

    @classmethod
    def of_rows(cls, life: Life, rows: Sequence[VerifiedRow]) -> Self | None:
        """Return the chunks of a life from its rows of metadata; None where they are of another shape, or not all
        there."""
        ordered = sorted(rows, key=lambda row: row.chunk)
        if not ordered or ordered[0].shape != life.fingerprint or len(ordered) != ordered[0].chunks:
            return None
        cells = KeyCells(shares=len(ordered))
        if ordered[0].ranges:
            if (cut := range_column(life.schema)) is None:
                return None
            column, order = cut
            cells = KeyCells(column, order, np.array([int(row.least or 0) for row in ordered[1:]], order.dtype))
        return cls(cells, tuple(map(_chunk, ordered)), ordered[0].problem or "")

    def to_rows(self, life: Life) -> list[VerifiedRow]:
        """Return the chunks as rows of the metadata table, one a chunk."""
        edges = self.cells.edges
        least = [None] * self.cells.chunks if edges is None else [None, *map(str, edges.tolist())]
        return [
            VerifiedRow(
                table_id=life.id,
                **vars(life.name),
                chunk=number,
                chunks=self.cells.chunks,
                ranges=edges is not None,
                least=least[number],
                shape=life.fingerprint,
                problem=self.problem or None,
                **_fields(chunk),
            )
            for number, chunk in enumerate(self.chunks)
        ]

    @property
    def rows(self) -> int:
        """Return the rows of the chunks that are known."""
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


def _chunk(row: VerifiedRow) -> VerifiedChunk | None:
    if row.batch is None:
        return None
    through = VerifiedAt(row.batch, row.position or "", row.delta_version or 0)
    return VerifiedChunk(row.rows or 0, row.checksum or "", through, row.at_us or 0)


def _fields(chunk: VerifiedChunk | None) -> dict[str, Any]:
    if chunk is None:
        return {}
    return {"rows": chunk.rows, "checksum": chunk.checksum, "at_us": chunk.seen_us, **vars(chunk.through)}


def rows_by_life(metadata: Metadata) -> dict[str, list[VerifiedRow]]:
    """Return the rows of metadata by table id."""
    by_life: dict[str, list[VerifiedRow]] = {}
    for row in VerifiedRow.read(metadata):
        by_life.setdefault(row.table_id, []).append(row)
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
        """Write the notes that aren't written yet, unless the last write was a short time ago. Raises LakeError."""
        if time.monotonic() - self._written >= _NOTED_EVERY:
            self.write()

    def write(self) -> None:
        """Write what isn't written yet. Raises LakeError."""
        with self._putting:
            pending, self._pending = self._pending, {}
        rows = [row for name, known in pending.items() for row in known.to_rows(self._lives[name])]
        if ids := sorted({row.table_id for row in rows}):
            self._replace(f"table_id IN ({', '.join(map(literal, ids))})", rows)
        self._written = time.monotonic()

    def _replace(self, predicate: str, rows: Sequence[VerifiedRow]) -> None:
        """Replace rows, again where an upkeep wrote them meanwhile: the lease isn't held here. Raises LakeError."""
        _REPLACING.call(lambda: VerifiedRow.replace(self._metadata, predicate, rows), WrittenMeanwhile)
