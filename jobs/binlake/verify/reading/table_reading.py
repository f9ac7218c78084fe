"""Reading of one table for its comparison: sums of both sides' rows, by cells of its key."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.verify.pace import Pace
from binlake.verify.reading import server_rows
from binlake.verify.reading.beyond_snapshot import LakeKeys
from binlake.verify.reading.chosen_chunks import ChosenChunks
from binlake.verify.reading.key_cells import CELLS, ComparedColumns, KeyCells, Measured
from binlake.verify.reading.keys_twice import KeysTwice
from binlake.verify.reading.row_checksums import Flags, Sums

_ALL = slice(None)


@dataclass
class TableReading:
    """One table's comparison. server, lake: sums, which several threads add to. done: which chunks were compared.
    by_statistics: whether files of the lake were left out by their statistics."""

    table: SourceTable
    compared: ComparedColumns
    chosen: ChosenChunks
    parts: list[server_rows.ServerPart] = field(default_factory=list)
    by_statistics: bool = False

    def __post_init__(self) -> None:
        self.server, self.lake = Sums.empty(self.cells.count), Sums.empty(self.cells.count)
        self.done: Flags = np.zeros(self.cells.chunks, np.bool_)
        self._adding = threading.Lock()
        self.keys = KeysTwice() if self.table.partitions and self.table.schema.key else None
        """Of rows that this process reads from the server, where partitions may have the same key."""

    @property
    def is_behind(self) -> bool:
        """Return whether the server's rows are read behind the lake's (see beyond_snapshot.py)."""
        return bool(self.table.schema.snapshot_where)

    @property
    def cells(self) -> KeyCells:
        """Return the cells into which the table is divided."""
        return self.chosen.known.cells

    def begin_lake_again(self) -> None:
        """Forget what was summed up of the lake."""
        self.lake = Sums.empty(self.cells.count)
        self.done[:] = False

    def add_sums(self, sums: Sums, part: Sums, cells: slice = _ALL) -> None:
        """Add what others have summed up of one side. cells: those that ``part`` has."""
        with self._adding:
            sums.rows[cells] += part.rows
            sums.sums[cells] += part.sums

    @property
    def futures(self) -> list[Future[None]]:
        """Return the futures of the server's parts."""
        return [part.future for part in self.parts]

    @property
    def is_done(self) -> bool:
        """Return whether all wanted chunks were compared."""
        return bool((self.done | ~self.chosen.wanted).all())

    def add(self, sums: Sums, rows: pa.RecordBatch, wanted: Flags | None = None) -> Measured:
        """Add rows of one side to its sums, and return them. wanted: only those in these chunks."""
        if wanted is not None:
            rows = self.compared.of_chunks(rows, self.cells, wanted)
        measured = self.compared.measured(rows, self.cells)
        with self._adding:
            sums.add(measured.cells, measured.checksums)
        return measured

    def add_server(
        self, source: Source, query: str, pace: Pace, wanted: Flags | None = None, known: LakeKeys | None = None
    ) -> None:
        """Add a query's rows. wanted: only those in these chunks. known: those alone whose keys are among these. Raises
        SourceError and Unreadable."""
        for rows in server_rows.read(source, self.table, query, pace):
            measured = self.add(self.server, known.rows_of(rows, self.compared) if known else rows, wanted)
            if self.keys:
                self.keys.add(measured.keys.first)

    def differing(self) -> NDArray[np.intp]:
        """Return the numbers of the cells that differ, of chunks that were compared."""
        cells = self.server.differing(self.lake)
        return cells[self.done[cells // CELLS]]

    def total(self, sums: Sums) -> int:
        """Return the rows of one side: those of the chunks that were compared, and of those that are known."""
        chunks = self.chosen.known.chunks
        known = sum(chunk.rows for chunk, done in zip(chunks, self.done.tolist(), strict=True) if chunk and not done)
        return known + self.looked_rows(sums)

    def looked_rows(self, sums: Sums) -> int:
        """Return the number of rows of one side in the chunks that were compared."""
        return int(sums.by_chunk(CELLS).rows[self.done].sum())
