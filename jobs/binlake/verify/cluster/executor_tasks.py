"""The tasks of a verification for Spark's executors: read and sum up rows of the server, and of the lake's data files.

A task returns why it couldn't, without values of rows: one that fails ends the others of its job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from binlake.delta.claimed_statistics import WrongFiles
from binlake.errors import BinlakeError, ConnectionFailed, SourceError
from binlake.kernels.row_kernels import Numbers
from binlake.schema import hash_key
from binlake.schema.hash_key import HashKey
from binlake.schema.table import TableSchema
from binlake.serialization import Base64, dumps, loads
from binlake.snapshot import direct
from binlake.snapshot.direct import SqlError
from binlake.source.catalog import SourceTable
from binlake.source.endpoint import Endpoint
from binlake.source.locks import SPENT, Gate
from binlake.source.server import Source, error_code
from binlake.storage import files
from binlake.verify import view_session
from binlake.verify.pace import Budget, Pace
from binlake.verify.reading import server_rows
from binlake.verify.reading.key_cells import CELLS, ComparedColumns, KeyCells
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Flags, Sums, Words
from binlake.verify.server_load import OtherReaders, ServerLoad


@dataclass(frozen=True)
class PartQuery:
    """A query that reads a part of a table's rows: all of them are in these chunks. number: unique in a verification,
    from 0 on."""

    number: int
    table: SourceTable
    cells: KeyCells
    chunks: slice
    text: str


@dataclass(frozen=True)
class ReadingTask:
    """The parts that one connection reads, in this order, once it has passed its gate.

    folder: where the sums of each part are written. rows_per_second, most_running: limits, None for none. seconds: the
    time for which it may be paused. others: the other connections that read for this verification. keys: of hashes.
    """

    endpoint: Endpoint
    gate: Gate
    parts: tuple[PartQuery, ...]
    folder: str
    rows_per_second: float | None
    most_running: int | None
    seconds: float | None
    others: OtherReaders
    keys: tuple[HashKey, ...] = ()


@dataclass(frozen=True)
class WrittenSums:
    """A part's sums in a file. connection: the server's number of that by which the rows were read. rows, sums: of the
    cells of the part's chunks."""

    connection: int
    rows: Base64
    sums: Base64

    def to_sums(self) -> Sums:
        """Return the sums of the cells of the part's chunks. Raises ValueError."""
        return Sums(np.frombuffer(self.rows, np.int64), np.frombuffer(self.sums, np.uint64).reshape(-1, 2))


def read_server(task: ReadingTask) -> str:
    """Read a connection's parts, and write the sums of each. Return why some weren't read, empty if all were.

    Raises an error, with which the whole job ends, where no view can be opened.
    """
    hash_key.use(task.keys)
    load = ServerLoad(task.endpoint, task.most_running, Budget(task.seconds), _nothing_said)
    load.others = task.others
    try:
        with _view_behind(task.endpoint, task.gate) as view:
            try:
                return _read_parts(view, task, load)
            except Exception as error:
                return _reason(error)
    except _ExecutorLost:
        return "an executor was lost"
    finally:
        load.close()


def _read_parts(view: Source, task: ReadingTask, load: ServerLoad) -> str:
    connection, pace, why = view.connection_id, Pace(task.rows_per_second), ""
    for part in task.parts:
        try:
            with load.reading():
                sums = _part_sums(view, part, pace)
        except SourceError as error:
            if not error_code(error) or isinstance(error, ConnectionFailed):
                raise
            why = error.message  # a table was altered; the connection can continue
        else:
            cells = slice(part.chunks.start * CELLS, part.chunks.stop * CELLS)
            written = WrittenSums(connection, sums.rows[cells].tobytes(), sums.sums[cells].tobytes())
            files.write_text(f"{task.folder}/{part.number}", dumps(written))
        view.execute(f"ROLLBACK TO SAVEPOINT {view_session.SAVEPOINT}")
    direct.wait_until_seen(view.connection, task.gate.spent)
    return why


@contextmanager
def _view_behind(endpoint: Endpoint, gate: Gate) -> Iterator[Source]:
    """Open a read view once the gate is open. Raises _ExecutorLost where it was passed before, and what ends the job
    where the server refuses."""
    with ExitStack() as stack:
        try:
            view = stack.enter_context(Source.open(endpoint, read_timeout=view_session.STATEMENT_TIMEOUT))
            view_session.set_session(view)
            for _, statement in gate.statements(mariadb=view.is_mariadb):
                view.query(statement)
            view.execute(f"SAVEPOINT {view_session.SAVEPOINT}")
        except SourceError as error:
            if error_code(error) == SPENT:
                raise _ExecutorLost from None
            raise direct.task_error(SqlError(error_code(error), error.message)) from None
        yield view


class _ExecutorLost(Exception):
    """The gate was passed before: Spark runs a task again whose executor was lost."""


def _nothing_said(_text: str) -> None:
    pass


def _part_sums(view: Source, part: PartQuery, pace: Pace) -> Sums:
    compared, sums = ComparedColumns(part.table.schema), Sums.empty(part.cells.count)
    for rows in server_rows.read(view, part.table, part.text, pace):
        measured = compared.measured(rows, part.cells)
        sums.add(measured.cells, measured.checksums)
    return sums


def written_sums(path: str) -> WrittenSums:
    """Read what ``read_server`` wrote. Raises StagingError and ValueError."""
    return loads(WrittenSums, files.read_text(path))


@dataclass(frozen=True)
class FilesTask:
    """Data files of a Delta table at a version, whose rows are summed up; only those in wanted chunks, where some are.
    path: the table's. paths: below it."""

    path: str
    version: int
    schema: TableSchema
    cells: KeyCells
    paths: tuple[str, ...]
    wanted: Flags | None


@dataclass(frozen=True)
class SumsOfCells:
    """The sums of some cells. cells: their numbers. wrong: see LakeRows."""

    cells: NDArray[np.intp]
    rows: Numbers
    sums: Words
    wrong: WrongFiles


def sum_up_files(task: FilesTask) -> SumsOfCells | str:
    """Return the sums of data files' rows, or why they couldn't be read."""
    try:
        compared, sums = ComparedColumns(task.schema), Sums.empty(task.cells.count)
        lake = LakeRows(task.path, task.version)
        for file in lake.files(compared, task.paths):
            for rows, _ in file.numbered():
                chosen = rows if task.wanted is None else compared.of_chunks(rows, task.cells, task.wanted)
                measured = compared.measured(chosen, task.cells)
                sums.add(measured.cells, measured.checksums)
    except Exception as error:
        return _reason(error)
    cells = np.flatnonzero(sums.rows)
    return SumsOfCells(cells, sums.rows[cells], sums.sums[cells], lake.wrong)


def _reason(error: Exception) -> str:
    """Return an error as text without values of rows."""
    return error.message if isinstance(error, BinlakeError) else type(error).__name__
