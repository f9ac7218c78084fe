"""Verify by reading: the server's rows and those of the lake's data files, both in Arrow, compared by this process.

Both sides are read once, each in its own order, by several threads. Rows are summed up by cells (key_cells.py); where
the sums of a cell differ, its rows are read again from both sides and compared by key, column by column. A large table
is compared some chunks at a time, and what is known by then is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.delta.data_rows import FileRows
from binlake.errors import LakeError, check_partitions, snapshot_command
from binlake.kernels.row_kernels import Numbers
from binlake.records import decisions
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.verify.cluster.by_executors import ByExecutors, ExecutorPart
from binlake.verify.pace import Budget, Pace
from binlake.verify.reading import server_rows
from binlake.verify.reading.beyond_snapshot import LakeKeys
from binlake.verify.reading.chosen_chunks import ChosenChunks
from binlake.verify.reading.key_cells import CELLS, ComparedColumns, KeyCells, Measured
from binlake.verify.reading.keys_twice import RepeatedKeys, repeated_keys, rows_of
from binlake.verify.reading.known_chunks import ChunkNotes, KnownChunks, VerifiedAt
from binlake.verify.reading.lake_rows import LakeRows, Unreadable
from binlake.verify.reading.row_checksums import Checksums, Flags, Sums
from binlake.verify.reading.row_pairs import Collected, Shown, differences, held_together
from binlake.verify.reading.table_reading import TableReading
from binlake.verify.repair.repair import Looked, Repairs
from binlake.verify.result import MOST_ROWS, TableRepair, TableResult
from binlake.verify.server_load import ServerLoad, TimeIsUp
from binlake.verify.views import ReadViews

_TOGETHER = 20
"""Chunks that are compared together: after these, what is known is noted, and the time that is left is looked at."""


class ByRead:
    """Comparisons of tables by reading.

    workers: how many data files are read at once. budget: the time they may take. load: the server's. repairs: what
    puts differing tables right, if that is asked for.
    """

    def __init__(
        self, config: PipelineConfig, workers: int, budget: Budget, load: ServerLoad, repairs: Repairs | None = None
    ) -> None:
        self._config = config
        self._repairs = repairs
        self._pace = Pace(config.verify.rows_per_second)
        self._budget = budget
        self._load = load
        self._workers = workers
        self._files = ThreadPoolExecutor(workers)
        self._tables: dict[TableName, TableReading] = {}
        self.executors: ByExecutors | None = None
        """Reads large tables, and the lake's rows of them; None where executors don't read."""
        self.notes: ChunkNotes | None = None
        """Notes what was compared, once the lake is at the position."""

    def use(self, executors: ByExecutors) -> None:
        """Let executors read large tables, by their share of the rows that may be read in a second."""
        self.executors = executors
        if limit := self._config.verify.rows_per_second:
            self._pace.limit(limit / (len(executors.gates) + 1))
            executors.then(lambda: self._pace.limit(limit))

    def close(self) -> None:
        """End the threads that read data files, and those that wait to be read."""
        self._files.shutdown(cancel_futures=True)

    def read_locked(self, view: Source, table: SourceTable) -> None:
        """Read a table whose engine has no read views, while it is locked. Raises SourceError."""
        reading = self._reading(table, self.cut(table))
        finished: Future[None] = Future()
        try:
            if reading.is_behind:
                raise Unreadable(f"{table.engine} has no read views, so that it is read before the lake's rows are")
            for _, query in server_rows.of_wanted(table, reading.cells, reading.chosen.wanted):
                reading.add_server(view, query, Pace(None))
            finished.set_result(None)
        except Unreadable as error:
            finished.set_exception(error)
        reading.parts.append(server_rows.ServerPart(slice(0, reading.cells.chunks), finished))

    def begin(self, table: SourceTable, views: ReadViews, chosen: ChosenChunks | None = None) -> Sequence[Future[None]]:
        """Begin to read a table's rows from the server, and return the futures of its parts.

        chosen: which chunks; all of the table, cut as the lake's rows are by now, where none are given.
        """
        if table.name in self._tables:
            return self._tables[table.name].futures
        reading = self._reading(table, chosen or self.cut(table))
        if reading.is_behind:
            return ()
        wanted = reading.chosen.wanted.copy()
        parts = self.executors.parts_of(table, reading.cells) if self.executors else []
        for part in parts:
            wanted[part.query.chunks] = False
        queries = server_rows.of_wanted(table, reading.cells, wanted)
        is_whole = bool(queries) and (wanted.all() or not table.partitions)
        count = server_rows.parts_without_ranges(table, reading.cells, self._workers) if is_whole else 1
        if count > 1:
            (whole, _), *_ = queries
            texts = views.looking.submit(lambda view: server_rows.of_parts(view, table, count)).result()
            queries = [(whole, query) for query in texts]
        reading.parts = [
            server_rows.ServerPart(chunks, views.reading.submit(self._reader(reading, query)))
            for chunks, query in queries
        ]
        reading.parts += [self._by_executors(reading, part, views) for part in parts]
        return reading.futures

    def _reader(
        self, reading: TableReading, query: str, wanted: Flags | None = None, known: LakeKeys | None = None
    ) -> Callable[[Source], None]:
        def read(view: Source) -> None:
            with self._load.reading():
                reading.add_server(view, query, self._pace, wanted, known)

        return read

    def _read_behind(self, reading: TableReading, views: ReadViews, wanted: Flags, known: LakeKeys) -> None:
        """Sum up the server's rows of wanted chunks: those that a snapshot copies, and of the others those that the
        lake has. Raises SourceError, Unreadable and TimeIsUp."""
        parts: list[Future[None]] = []
        only = None if wanted.all() else wanted  # a query may read rows of other chunks, too
        for beyond in (None, known):
            queries = server_rows.of_wanted(reading.table, reading.cells, wanted, beyond=beyond is not None)
            parts += [views.looking.submit(self._reader(reading, query, only, beyond)) for _, query in queries]
        for part in parts:
            part.result()

    def _by_executors(self, reading: TableReading, part: ExecutorPart, views: ReadViews) -> server_rows.ServerPart:
        """Return a part that executors read, and this process where they don't."""
        future: Future[None] = Future()
        chunks, text = part.query.chunks, part.query.text

        read = self._reader(reading, text)

        def by_this_process(view: Source) -> None:
            if not future.cancelled():
                read(view)

        def ended(read: Future[None]) -> None:
            if future.set_running_or_notify_cancel():
                if error := read.exception():
                    future.set_exception(error)
                else:
                    future.set_result(None)

        def summed_up(sums: Future[Sums | None]) -> None:
            part_sums = None if sums.cancelled() else sums.result()
            if future.cancelled():
                future.set_running_or_notify_cancel()
            elif part_sums is None:
                try:
                    views.reading.submit(by_this_process).add_done_callback(ended)
                except RuntimeError as error:  # the views are closed
                    future.set_exception(error)
            else:
                reading.add_sums(reading.server, part_sums, slice(chunks.start * CELLS, chunks.stop * CELLS))
                if future.set_running_or_notify_cancel():
                    future.set_result(None)

        part.sums.add_done_callback(summed_up)
        return server_rows.ServerPart(chunks, future)

    def _reading(self, table: SourceTable, chosen: ChosenChunks) -> TableReading:
        reading = TableReading(table, ComparedColumns(table.schema), chosen)
        self._tables[table.name] = reading
        return reading

    def cut(self, table: SourceTable) -> ChosenChunks:
        """Return all chunks of the table that the lake has by now, if it has one."""
        if self.executors and (planned := self.executors.cells(table.name)):
            return ChosenChunks(KnownChunks.none(planned), np.ones(planned.chunks, np.bool_))
        path = self._config.table_path(table.name)
        cells = KeyCells()
        try:
            if table.rows and opened_tables.is_table(path):
                cells = LakeRows(path).cells(table.schema, table.rows)
        except (DeltaError, OSError, pa.ArrowException, LakeError):
            pass  # it is met again, and said, when the lake is read
        return ChosenChunks(KnownChunks.none(cells), np.ones(cells.chunks, np.bool_))

    def compare(self, table: SourceTable, views: ReadViews, blank: TableResult, version: int | None) -> TableResult:
        """Compare a table with the lake's at a Delta version; ``blank`` is what is known of the result.

        Raises SourceError; Unreadable where this way can't compare it; what LakeRows raises.
        """
        path = self._config.table_path(table.name)
        try:
            return self._compare(table, views, blank, LakeRows(path, version))
        except (DeltaError, LakeError, OSError, pa.ArrowException) as error:
            if not self._repairs or not table.has_read_views or table.schema.snapshot_where:
                raise
            life = decisions.following(self._repairs.metadata, table.name)
            lake = self._repairs.without_unreadable(path, life)
            if lake is None:
                raise
            self._tables[table.name].begin_lake_again()
            result = self._compare(table, views, blank, lake)
            if result.repair is None or result.repair.state != "repaired":
                self.note_unreadable(table.name, (str(error).strip() or type(error).__name__).splitlines()[0])
            return replace(result, equal=False, reason=result.reason or "files of it couldn't be read")

    def _compare(self, table: SourceTable, views: ReadViews, blank: TableResult, lake: LakeRows) -> TableResult:
        reading = self._tables[table.name]
        lake.refuse_unknown()
        blank = replace(blank, delta_version=lake.version)
        if structure := lake.structure(reading.compared):
            wait(reading.futures)
            return replace(
                blank, state="compared", equal=False, source_rows=reading.server.total, chunks=0, differing=0,
                reason=f"columns differ: {structure}", remedy=snapshot_command(table.name),
            )  # fmt: skip
        position = str(views.position)
        self._compare_chunks(reading, lake, blank, views)
        cells = reading.differing()
        result = replace(
            blank, state="compared", equal=not (len(cells) or lake.wrong), source_rows=reading.total(reading.server),
            lake_rows=reading.total(reading.lake), chunks=reading.cells.chunks,
            differing=len(np.unique(cells // CELLS)), looked=int(reading.done.sum()),
            looked_rows=reading.looked_rows(reading.server), statistics=tuple(lake.wrong.values()),
        )  # fmt: skip
        twice = self._keys_twice(reading, views)
        if twice:
            self.note_unequal(reading.table.name)
            result = replace(result, equal=False, rows=twice.rows, reason=twice.reason)
            if self._repairs:
                refused = TableRepair("refused", {}, reason=twice.reason, remedy=check_partitions(reading.table.name))
                return replace(result, repair=refused)
        if lake.wrong and self._repairs:
            repair = self._repairs.restate(lake, decisions.following(self._repairs.metadata, table.name))
            result = replace(result, repair=repair)
            if repair.state == "refused":
                return result  # rows can't be put right in a file that is described wrongly
            if repair.state == "repaired":
                lake = LakeRows(lake.path, repair.delta_version)
                self._note(reading, lake, replace(result, delta_version=lake.version), position)
        if len(cells) or lake.left_out:
            looked = self._looked_into(reading, lake, views, cells, result)
            return replace(looked, rows=(*result.rows, *looked.rows), reason=result.reason or looked.reason)
        if not reading.is_done and not result.statistics:
            done = int((reading.done & reading.chosen.wanted).sum())
            reason = f"the time was up: {done:,} of {reading.chosen.count:,} chunks were compared, and are equal"
            remedy = "run it again: it continues there"
            return replace(result, state="unfinished", equal=None, reason=reason, remedy=remedy)
        return result

    def _compare_chunks(self, reading: TableReading, lake: LakeRows, blank: TableResult, views: ReadViews) -> None:
        """Sum up both sides' rows of the wanted chunks, some chunks at a time, for as long as the time allows, and note
        what is known then. Raises SourceError, Unreadable, and what LakeRows raises."""
        reach, position = lake.reach(reading.table.schema, reading.cells), str(views.position)
        together = _TOGETHER * (self.executors.side_by_side(reading.table.name) if self.executors else 1)
        for wanted in reach.together(reading.chosen.wanted, together):
            if not self._budget.allows():
                for future in reading.futures:
                    future.cancel()
                if self.executors:
                    self.executors.give_up(reading.table.name)
                break
            try:
                for part in reading.parts:
                    if wanted[part.chunks].any():
                        part.future.result()
                paths = reach.holding(wanted)
                reading.by_statistics |= len(paths) < len(reach.paths)
                keys = self._sum_up_lake(reading, lake, paths, None if wanted.all() else wanted)
                if reading.is_behind:
                    self._read_behind(reading, views, wanted, keys)
            except TimeIsUp:
                break
            reading.done |= wanted
            self._note(reading, lake, blank, position)
        if reading.by_statistics and (len(reading.differing()) or lake.wrong):
            self._sum_up_all_files(reading, lake)  # wrong statistics leave out files that have rows
        self._note(reading, lake, blank, position)

    def _note(self, reading: TableReading, lake: LakeRows, result: TableResult, position: str) -> None:
        """Note which chunks are known equal by now; none where statistics of files are wrong."""
        assert result.batch is not None
        assert result.delta_version is not None
        if self.notes:
            through = VerifiedAt(result.batch, position, result.delta_version)
            known = reading.chosen.known.compared(reading.done, reading.server, reading.lake, through)
            known = known.without(np.ones(reading.cells.chunks, np.bool_)) if lake.wrong else known
            self.notes.put(reading.table.name, known)

    def note_unequal(self, name: TableName) -> None:
        """Note that nothing is known equal of a table any more."""
        if self.notes:
            self.notes.put(name, KnownChunks.none(KeyCells()))

    def note_unreadable(self, name: TableName, why: str) -> None:
        """Note that a table's files can't be read, and why."""
        if self.notes:
            known = self._tables[name].chosen.known if name in self._tables else KnownChunks.none(KeyCells())
            self.notes.put(name, replace(known, problem=f"can't be read: {why}"))

    def _keys_twice(self, reading: TableReading, views: ReadViews) -> RepeatedKeys | None:
        """Return which keys the server has in several rows, read once more; None where there are none."""
        if reading.keys is None or not len(halves := reading.keys.twice()):
            return None
        compared = reading.compared

        def from_server(view: Source) -> list[Measured]:
            rows = self._server_rows(reading, view, reading.done)
            return rows_of((compared.measured(batch, reading.cells) for batch in rows), halves[:MOST_ROWS])

        return repeated_keys(compared, views.looking.submit(from_server).result(), len(halves))

    def _server_rows(
        self, reading: TableReading, view: Source, chunks: Flags, known: LakeKeys | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the server's rows of some chunks. known: see LakeKeys.rows_of, of those beyond a snapshot."""
        for _, query in server_rows.of_wanted(reading.table, reading.cells, chunks, beyond=known is not None):
            for rows in server_rows.read(view, reading.table, query, self._pace):
                yield known.rows_of(rows, reading.compared) if known else rows

    def _looked_into(
        self, reading: TableReading, lake: LakeRows, views: ReadViews, cells: Numbers, result: TableResult
    ) -> TableResult:
        """Return the result with the differing rows, which are repaired if that is asked for."""
        table, shown = reading.table, Shown(reading.compared, MOST_ROWS)

        def looked() -> Iterator[Looked]:
            for ours, theirs, differing in self._looked_at(reading, lake, views, cells):
                shown.add(ours, theirs, differing)
                yield ours, theirs, differing

        later = "" if table.has_read_views else f"{table.engine} has no read views: these rows are as of now"
        if self._repairs and table.has_read_views:
            repair = self._repaired(reading, lake, looked())
            if repair.state == "repaired":
                after = LakeRows(lake.path, repair.delta_version)
                self._note(reading, after, replace(result, delta_version=after.version), str(views.position))
            before = result.repair.counts if result.repair else {}
            result = replace(result, repair=replace(repair, counts={**repair.counts, **before}))
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
            self._sum_up_all_files(reading, LakeRows(self._config.table_path(name)))
            if left := len(reading.server.differing(reading.lake)):
                reason = f"{left} parts of its chunks still differ behind the repair"
                return replace(repair, state="refused", reason=reason, remedy=snapshot_command(name))
        return repair

    def _sum_up_all_files(self, reading: TableReading, lake: LakeRows) -> None:
        """Sum up the lake's rows again, of the chunks that were compared. Raises what reading the lake raises."""
        reading.lake = Sums.empty(reading.cells.count)
        wanted = reading.done if reading.cells.can_be_chosen and not reading.done.all() else None
        self._sum_up_lake(reading, lake, None, wanted)

    def _sum_up_lake(
        self, reading: TableReading, lake: LakeRows, paths: Sequence[str] | None, wanted: Flags | None
    ) -> LakeKeys:
        """Sum up rows of data files at some paths, all without any; only those in wanted chunks, where some are. Return
        their keys, where the server's rows are read behind them."""
        keys: list[Checksums] = []
        if self.executors and paths is not None and not reading.is_behind:
            sums = self.executors.lake_sums(reading.table, reading.cells, lake, paths, wanted)
            if sums is not None:
                reading.add_sums(reading.lake, sums)
                return LakeKeys.of(keys)

        def of_file(file: FileRows) -> None:
            for rows, _ in file.numbered():
                measured = reading.add(reading.lake, rows, wanted)
                if reading.is_behind and paths is not None:
                    keys.append(measured.keys)

        files = [self._files.submit(of_file, file) for file in lake.files(reading.compared, paths)]
        for file in files:
            file.result()
        return LakeKeys.of(keys)

    def _looked_at(self, reading: TableReading, lake: LakeRows, views: ReadViews, cells: Numbers) -> Iterator[Looked]:
        """Yield the rows of differing cells, of as many cells at a time as may be held, and what differs in them."""
        for some in held_together(cells, reading.server.rows, reading.lake.rows):
            wanted: Flags = np.zeros(reading.cells.count, np.bool_)
            wanted[some] = True
            chunks: Flags = np.zeros(reading.cells.chunks, np.bool_)
            chunks[some // CELLS] = True

            def from_server(
                view: Source, known: LakeKeys | None = None, chunks: Flags = chunks, wanted: Flags = wanted
            ) -> list[Measured]:
                rows = self._server_rows(reading, view, chunks, known)
                return reading.compared.of_cells(rows, reading.cells, wanted)

            copied = views.looking.submit(from_server)
            there = (rows for file in lake.files(reading.compared) for rows, _ in file.numbered())
            their_rows = reading.compared.of_cells(there, reading.cells, wanted)
            our_rows = copied.result()
            if reading.is_behind:
                known = LakeKeys.of(part.keys for part in their_rows)
                our_rows += views.looking.submit(partial(from_server, known=known)).result()
            mine, theirs = (Collected.of(reading.compared, rows) for rows in (our_rows, their_rows))
            yield mine, theirs, list(differences(mine, theirs, keyed=bool(reading.table.schema.key)))
