"""The chunks that a verification compares: those that may have changed since they were compared, and others whose turn
it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.errors import LakeError
from binlake.planner.steps import Life
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from binlake.verify.reading.changed_chunks import unchanged
from binlake.verify.reading.known_chunks import KnownChunks, rows_by_life
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Flags


@dataclass(frozen=True)
class ChosenChunks:
    """Chunks of a table. known: what is known of all of them. wanted: which are compared."""

    known: KnownChunks
    wanted: Flags

    @property
    def count(self) -> int:
        """Return the number of chunks that are compared."""
        return int(self.wanted.sum())


@dataclass(frozen=True)
class Choice:
    """The part of known tables that a verification compares.

    since_us: all chunks but those compared since this time, in microseconds; None for those that may have changed.
    share: the part of all rows that is compared in any case, those first that were compared the longest time ago.
    """

    since_us: int | None
    share: float = 0.0

    @property
    def runs(self) -> int:
        """Return the number of runs that compare everything at least once."""
        return math.ceil(1 / self.share)

    def of(self, known: Mapping[TableName, KnownChunks]) -> dict[TableName, ChosenChunks]:
        """Return the chunks to compare. known: of chunks that haven't changed since."""
        chosen = {name: ChosenChunks(chunks, self._flags(chunks)) for name, chunks in known.items()}
        if self.since_us is None:
            for name, number in self._next(chosen):
                tables = chosen[name]
                tables.wanted[number if tables.known.cells.can_be_chosen else slice(None)] = True
        return chosen

    def _flags(self, known: KnownChunks) -> Flags:
        since_us = self.since_us
        wanted = [chunk is None or (since_us is not None and chunk.seen_us < since_us) for chunk in known.chunks]
        # Others than ranges are read by reading the whole table.
        return np.array(wanted if known.cells.can_be_chosen else [any(wanted)] * len(wanted), np.bool_)

    def _next(self, chosen: Mapping[TableName, ChosenChunks]) -> Iterable[tuple[TableName, int]]:
        """Yield the chunks that were compared the longest time ago, until they are the share of all rows."""
        others = [
            (chunk.seen_us, name, number, chunk.rows)
            for name, tables in chosen.items()
            for number, (chunk, wanted) in enumerate(zip(tables.known.chunks, tables.wanted.tolist(), strict=True))
            if chunk and not wanted
        ]
        left = self.share * sum(tables.known.rows for tables in chosen.values())
        for _, name, number, rows in sorted(others):
            if left <= 0:
                return
            left -= rows
            yield name, number


def known_chunks(metadata: Metadata, lives: Mapping[TableName, Life]) -> dict[TableName, KnownChunks]:
    """Return the noted chunks of tables whose shape is the same, and whose files had no problem since. Raises
    LakeError."""
    by_life = rows_by_life(metadata)
    known = {name: KnownChunks.of_rows(life, by_life.get(life.id, [])) for name, life in lives.items()}
    return {name: chunks for name, chunks in known.items() if chunks is not None and not chunks.problem}


def still_known(
    config: PipelineConfig, known: Mapping[TableName, KnownChunks], versions: Mapping[TableName, int | None]
) -> dict[TableName, KnownChunks]:
    """Return the chunks of tables that are still known equal by the Delta logs up to these versions; tables without any
    are left out."""
    left: dict[TableName, KnownChunks] = {}
    for name, chunks in known.items():
        if (version := versions.get(name)) is None:
            continue
        try:
            still = unchanged(LakeRows(config.table_path(name), version), chunks)
        except (DeltaError, LakeError, OSError, pa.ArrowException):
            continue  # it is met again, and said, when the lake is read
        if still is not None:
            left[name] = still
    return left
