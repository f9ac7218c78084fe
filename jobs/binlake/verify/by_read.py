"""Verify by reading: the server's rows and those of the lake's data files, both in Arrow, compared by this process.

Both sides are read once, each in its own order, by several threads. Rows are summed up by cells (key_cells.py); where
the sums of a cell differ, its rows are read again from both sides and compared by key, column by column.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.delta.data_rows import FileRows
from binlake.errors import LakeError, snapshot_command
from binlake.kernels.row_kernels import Numbers
from binlake.metadata import decisions
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.verify import server_rows
from binlake.verify.key_cells import CELLS, ComparedColumns, KeyCells, Measured
from binlake.verify.lake_rows import LakeRows, Unreadable
from binlake.verify.pace import Pace
from binlake.verify.repair import Looked, Repairs
from binlake.verify.result import MOST_ROWS, TableRepair, TableResult
from binlake.verify.row_checksums import Flags, Sums
from binlake.verify.row_pairs import Collected, Shown, differences
from binlake.verify.views import ReadViews

MOST_LOOKED_AT = 200_000
"""The most rows of a side that are held to find the differing ones, but for those of one cell."""


@dataclass
class TableReading:
    """One table's comparison. server, lake: sums, which several threads add to."""

    table: SourceTable
    compared: ComparedColumns
    cells: KeyCells
    parts: list[Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server, self.lake = Sums.empty(self.cells.count), Sums.empty(self.cells.count)
        self._adding = threading.Lock()

    def add(self, sums: Sums, rows: pa.RecordBatch) -> None:
        """Add rows of one side to its sums."""
        measured = self.compared.measured(rows, self.cells)
        with self._adding:
            sums.add(measured.cells, measured.checksums)

    def add_server(self, source: Source, query: str, pace: Pace) -> None:
        """Add a query's rows. Raises SourceError and Unreadable."""
        for rows in server_rows.read(source, self.table, query, pace):
            self.add(self.server, rows)


class ByRead:
    """Comparisons of tables by reading.

    workers: how many data files are read at once. repairs: what puts differing tables right, if that is asked for.
    """

    def __init__(self, config: PipelineConfig, workers: int, repairs: Repairs | None = None) -> None:
        self._config = config
        self._repairs = repairs
        self._pace = Pace(config.verify.rows_per_second)
        self._workers = workers
        self._files = ThreadPoolExecutor(workers)
        self._tables: dict[TableName, TableReading] = {}
        self.equal: dict[TableName, tuple[KeyCells, Sums]] = {}
        """The chunks and sums of the tables that were compared and are equal."""

    def close(self) -> None:
        self._files.shutdown(cancel_futures=True)

    def read_under_lock(self, view: Source, table: SourceTable) -> None:
        """Read a table whose engine has no read views, while the server is locked. Raises SourceError."""
        reading = self._reading(table)
        finished: Future[None] = Future()
        try:
            for query in server_rows.of_all(table, reading.cells):
                reading.add_server(view, query, Pace(None))
            finished.set_result(None)
        except Unreadable as error:
            finished.set_exception(error)
        reading.parts.append(finished)

    def begin(self, table: SourceTable, views: ReadViews) -> Sequence[Future[None]]:
        """Begin to read a table's rows from the server, and return the futures of its parts."""
        if table.name in self._tables:
            return self._tables[table.name].parts
        reading = self._reading(table)
        queries = server_rows.of_all(table, reading.cells)
        if (count := server_rows.parts_without_ranges(table, reading.cells, self._workers)) > 1:
            queries = views.looking.submit(lambda view: server_rows.of_parts(view, table, count)).result()

        def part(query: str) -> Callable[[Source], None]:
            return lambda view: reading.add_server(view, query, self._pace)

        reading.parts = [views.reading.submit(part(query)) for query in queries]
        return reading.parts

    def _reading(self, table: SourceTable) -> TableReading:
        """Return a comparison whose chunks are those of the table that the lake has by now, if it has one."""
        path = self._config.table_path(table.name)
        cells = KeyCells()
        try:
            if table.rows and opened_tables.is_table(path):
                cells = LakeRows(path).cells(table.schema, table.rows)
        except (DeltaError, OSError, pa.ArrowException, LakeError):
            pass  # it is met again, and said, when the lake is read
        reading = TableReading(table, ComparedColumns(table.schema), cells)
        self._tables[table.name] = reading
        return reading

    def compare(self, table: SourceTable, views: ReadViews, blank: TableResult, version: int | None) -> TableResult:
        """Compare a table with the lake's at a Delta version; ``blank`` is what is known of the result.

        Raises SourceError; Unreadable where this way can't tell; what LakeRows raises.
        """
        reading = self._tables[table.name]
        for part in reading.parts:
            part.result()
        lake = LakeRows(self._config.table_path(table.name), version)
        lake.refuse_unknown()
        blank = replace(blank, delta_version=lake.version)
        if structure := lake.structure(reading.compared):
            return replace(
                blank, state="compared", equal=False, source_rows=reading.server.total, lake_rows=0, chunks=0,
                differing=0, reason=f"columns differ: {structure}", remedy=snapshot_command(table.name),
            )  # fmt: skip
        self._sum_up_lake(reading, lake)
        cells = reading.server.differing(reading.lake)
        chunks = np.unique(cells // CELLS)
        result = replace(
            blank, state="compared", equal=not len(cells), source_rows=reading.server.total,
            lake_rows=reading.lake.total, chunks=reading.cells.chunks, differing=len(chunks),
        )  # fmt: skip
        if not len(cells):
            self.equal[table.name] = (reading.cells, reading.server)
            return result
        shown = Shown(reading.compared, MOST_ROWS)

        def looked() -> Iterator[Looked]:
            for ours, theirs, differing in self._looked_at(reading, lake, views, cells):
                shown.add(ours, theirs, differing)
                yield ours, theirs, differing

        later = "" if table.has_read_views else f"{table.engine} has no read views: these rows are as of now"
        if self._repairs and table.has_read_views:
            result = replace(result, repair=self._repaired(reading, lake, looked()))
        else:
            all(len(shown.rows) < MOST_ROWS for _ in looked())
        return replace(result, rows=tuple(shown.rows), reason=later)

    def _repaired(self, reading: TableReading, lake: LakeRows, looked: Iterator[Looked]) -> TableRepair:
        """Repair a table, and compare it once more. Raises what reading the lake raises."""
        assert self._repairs is not None
        name = reading.table.name
        life = decisions.following(self._repairs.metadata, name)
        repair = self._repairs.repair(reading.compared, lake, life, looked)
        if repair.state == "repaired":
            reading.lake = Sums.empty(reading.cells.count)
            self._sum_up_lake(reading, LakeRows(self._config.table_path(name)))
            if left := len(reading.server.differing(reading.lake)):
                reason = f"{left} parts of its chunks still differ behind the repair"
                return replace(repair, state="refused", reason=reason, remedy=snapshot_command(name))
        return repair

    def _sum_up_lake(self, reading: TableReading, lake: LakeRows) -> None:
        def of_file(file: FileRows) -> None:
            for rows, _ in file.numbered():
                reading.add(reading.lake, rows)

        files = [self._files.submit(of_file, file) for file in lake.files(reading.compared)]
        for file in files:
            file.result()

    def _looked_at(self, reading: TableReading, lake: LakeRows, views: ReadViews, cells: Numbers) -> Iterator[Looked]:
        """Yield the rows of differing cells, of as many cells at a time as may be held, and what differs in them."""
        for some in _held(cells, reading.server.rows, reading.lake.rows):
            wanted: Flags = np.zeros(reading.cells.count, np.bool_)
            wanted[some] = True
            queries = server_rows.of_chunks(reading.table, reading.cells, np.unique(some // CELLS).tolist())

            def from_server(view: Source, queries: Sequence[str] = queries, wanted: Flags = wanted) -> list[Measured]:
                rows = (rows for query in queries for rows in server_rows.read(view, reading.table, query, self._pace))
                return _chosen(reading, rows, wanted)

            ours = views.looking.submit(from_server)
            there = (rows for file in lake.files(reading.compared) for rows, _ in file.numbered())
            theirs = Collected.of(reading.compared, _chosen(reading, there, wanted))
            mine = Collected.of(reading.compared, ours.result())
            yield mine, theirs, list(differences(mine, theirs, keyed=bool(reading.table.schema.key)))


def _chosen(reading: TableReading, rows: Iterable[pa.RecordBatch], wanted: Flags) -> list[Measured]:
    measured = (reading.compared.measured(batch, reading.cells).of_cells(wanted) for batch in rows)
    return [part for part in measured if part.rows.num_rows]


def _held(cells: Numbers, ours: Numbers, theirs: Numbers) -> Iterator[Numbers]:
    """Divide cells into groups whose rows may be held at once; a group has one cell at least."""
    group: list[int] = []
    rows = 0
    for cell in cells.tolist():
        more = max(int(ours[cell]), int(theirs[cell]))
        if group and rows + more > MOST_LOOKED_AT:
            yield np.array(group, np.int64)
            group, rows = [], 0
        group.append(cell)
        rows += more
    if group:
        yield np.array(group, np.int64)
