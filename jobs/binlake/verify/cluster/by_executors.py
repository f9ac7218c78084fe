"""Spark's executors read and sum up rows of large tables, at the position of a verification's read views.

Each of their connections stops at a gate (source/locks.py), and opens its view while the control connection holds the
lock under which this process opens its own. The rows that they read are fixed before: while their views are open they
wait for nothing. The sums of each part come as a file in the lake's staging, so that they count before the task has
ended.

Sums count only of connections that opened their views under the lock. A task that Spark runs again, as its executor was
lost, is turned away at its gate; the sums of such a one wouldn't count. Parts of which no sums come are read by this
process, on its own views, which are at the same position.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.schema import hash_key
from binlake.schema.table import TableName
from binlake.snapshot import direct
from binlake.source.catalog import SourceTable
from binlake.source.endpoint import Endpoint
from binlake.source.locks import Busy, Gate, Gates
from binlake.source.server import Source
from binlake.storage import files, java_errors, storage_errors
from binlake.verify.cluster import executor_tasks
from binlake.verify.cluster.executor_tasks import FilesTask, PartQuery, ReadingTask, SumsOfCells
from binlake.verify.pace import Budget
from binlake.verify.reading.chosen_chunks import ChosenChunks
from binlake.verify.reading.key_cells import KeyCells
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Flags, Sums
from binlake.verify.server_load import OtherReaders

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOKED_EVERY = 0.5
"""Seconds between two looks for sums that were written."""
_READY_SECONDS = 120.0
"""Seconds within which all connections must be at their gates."""
_ENDED_WITHIN = 10.0
"""Seconds for which tasks that were cancelled, or have nothing left to do, are waited for."""
_LEFT_FOR = 7 * 86_400
"""Seconds after which the folder of a verification that was killed is removed."""
_AGAIN = "nothing: this process reads them"


@dataclass(frozen=True)
class ExecutorPart:
    """A part of a table that executors read. sums: of the cells of its chunks; None where they didn't read it."""

    query: PartQuery
    sums: Future[Sums | None] = field(default_factory=Future)


@dataclass(frozen=True)
class PlannedTable:
    """A table that executors read: these chunks of it, by these queries, each with the chunks that it reads."""

    table: SourceTable
    chosen: ChosenChunks
    queries: Sequence[tuple[slice, str]]


class ByExecutors:
    """Reads by the executors of a Spark application. connections: how many of theirs read the server. say: is called
    with a text on anything that failed."""

    def __init__(
        self,
        context: SparkContext,
        config: PipelineConfig,
        endpoint: Endpoint,
        tables: Sequence[PlannedTable],
        connections: int,
        budget: Budget,
        say: Callable[[str], None],
    ) -> None:
        self._context = context
        self._config, self._endpoint, self._budget, self._say = config, endpoint, budget, say
        self._planned = {planned.table.name: planned for planned in tables}
        queries = [(planned, *query) for planned in tables for query in planned.queries]
        self._parts = [
            ExecutorPart(PartQuery(number, planned.table, planned.chosen.known.cells, chunks, text))
            for number, (planned, chunks, text) in enumerate(queries)
        ]
        self.gates = [Gate(()) for _ in range(min(connections, len(self._parts)))]
        run = uuid.uuid4().hex[:12]
        self.group = f"binlake-{run}"
        """Of the Spark job that reads the server."""
        self._folder = config.staging_path("verify", f"{int(time.time())}-{run}")
        self._why = ""
        self._then: Callable[[], None] = lambda: None
        self._ended = threading.Event()
        self._closing = threading.Event()
        self._control: Source | None = None
        self._held: Gates | None = None
        self.connections: frozenset[int] = frozenset()
        """The server's numbers of the connections that opened their views under the lock."""
        self._watching: threading.Thread | None = None

    # ReadViews calls these, in this order.

    def come(self, control: Source, beside: Sequence[int]) -> None:
        """Start the connections, and wait until they are at their gates.

        control: a connection that is used for nothing else until this is closed, and closed then. beside: the server's
        numbers of this process's connections.
        """
        self._control = control
        reading = threading.Thread(target=self._run, args=(self._tasks(beside),), daemon=True)
        try:
            self._make_folder()
            self._held = Gates(control, self.gates, self._refuse_ended)
            reading.start()
            self._held.wait_until_ready(_READY_SECONDS)
        except BinlakeError as error:
            self._give_up(error)
            if not reading.ident:
                self._ended.set()

    def open(self, seconds: float) -> None:
        """Let the connections open their views, while the lock is held, within so many seconds."""
        if self._held is None or self._why:
            return
        try:
            self.connections = frozenset(self._held.open(seconds))
        except BinlakeError as error:
            self._give_up(error)

    def watch(self) -> None:
        """Take the sums as they come, from here on."""
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def close(self) -> None:
        """End what still reads. Several threads may call it."""
        self._closing.set()
        self._cancel()
        if self._watching:
            self._watching.join()
        if self._control:
            self._control.close()

    # The comparison calls these.

    @property
    def others(self) -> OtherReaders:
        """Return the connections that read for this verification beside this process."""
        return OtherReaders((), tuple(gate.open for gate in self.gates))

    def then(self, work: Callable[[], None]) -> None:
        """Have something done once executors don't read the server any more."""
        self._then = work

    def cells(self, name: TableName) -> KeyCells | None:
        """Return the cells of a table of which executors read some chunks; None where they read none."""
        planned = self._planned.get(name)
        return planned.chosen.known.cells if planned else None

    def parts_of(self, table: SourceTable, cells: KeyCells) -> list[ExecutorPart]:
        """Return the parts of a table that executors read; none where its shape or chunks aren't those planned."""
        planned = self._planned.get(table.name)
        if planned is None or planned.table.schema != table.schema or not _are_alike(planned.chosen.known.cells, cells):
            return []
        return [part for part in self._parts if part.query.table.name == table.name]

    def lake_sums(
        self, table: SourceTable, cells: KeyCells, lake: LakeRows, paths: Sequence[str], wanted: Flags | None
    ) -> Sums | None:
        """Return the sums of the rows of some of the lake's data files; None where executors can't read them. wanted:
        only those in these chunks."""
        count = min(len(paths), self._context.defaultParallelism)
        if table.name not in self._planned or self._closing.is_set() or not count:
            return None
        tasks = [
            FilesTask(lake.path, lake.version, table.schema, cells, tuple(paths[first::count]), wanted)
            for first in range(count)
        ]
        sums = Sums.empty(cells.count)
        for answer in self._asked(executor_tasks.sum_up_files, tasks, f"{self.group}-lake"):
            if not isinstance(answer, SumsOfCells):
                self._say(f"this process reads the lake's rows of {table.name}, as executors can't: {answer}")
                return None
            sums.rows[answer.cells] += answer.rows
            sums.sums[answer.cells] += answer.sums
            lake.wrong.update(answer.wrong)
        return sums

    def side_by_side(self, name: TableName) -> int:
        """Return how many tasks read the lake's rows of a table at once; 1 where executors don't."""
        return max(1, self._context.defaultParallelism) if name in self._planned else 1

    def give_up(self, name: TableName) -> None:
        """Have the rest of a table not read; executors end once there is no other."""
        for part in self._parts:
            if part.query.table.name == name:
                part.sums.cancel()

    # In threads.

    def _tasks(self, beside: Sequence[int]) -> list[ReadingTask]:
        verify, count = self._config.verify, len(self.gates)
        pace = verify.rows_per_second / (count + 1) if verify.rows_per_second else None
        masks = [mask for part in self._parts for mask in part.query.table.schema.masks.values()]
        keys = hash_key.keys_of(masks)
        others = OtherReaders(tuple(beside), tuple(gate.open for gate in self.gates))
        # Neighbouring parts go to different connections, so that the first chunks are read first.
        return [
            ReadingTask(
                self._endpoint, gate, tuple(part.query for part in self._parts[first::count]), self._folder, pace,
                verify.max_threads_running, self._budget.left, others, keys,
            )
            for first, gate in enumerate(self.gates)
        ]  # fmt: skip

    def _run(self, tasks: Sequence[ReadingTask]) -> None:
        try:
            reasons = self._asked(executor_tasks.read_server, tasks, self.group)
            self._why = self._why or next(filter(None, reasons), "")
        finally:
            self._ended.set()

    def _asked(self, task: Callable[[Any], Any], tasks: Sequence[Any], group: str) -> list[Any]:
        """Return what a job's tasks return; a reason where it failed."""
        try:
            self._context.setJobGroup(group, "verify")
            return self._context.parallelize(tasks, len(tasks)).map(task).collect()
        except Exception as error:
            return [_reason(error)]

    def _refuse_ended(self) -> None:
        if self._ended.is_set():
            raise Busy(self._why or "their tasks ended before they read anything", remedy=_AGAIN)

    def _give_up(self, error: BinlakeError) -> None:
        """Discard the sums of executors, and end connections that still wait."""
        self._why = error.message
        self.connections = frozenset()
        if self._held:
            self._held.abort()
        self._cancel()

    def _cancel(self) -> None:
        if not self._ended.is_set():
            with suppress(Exception):  # its JVM may be gone
                self._context.cancelJobGroup(self.group)

    def _watch(self) -> None:
        left = {str(part.query.number): part for part in self._parts}
        try:
            while self.connections and not self._closing.is_set():
                ended = self._ended.is_set()
                self._take(left)
                if ended or not left:
                    break
                if all(part.sums.cancelled() for part in left.values()):
                    self._cancel()
                self._ended.wait(_LOOKED_EVERY)
        except (BinlakeError, OSError, ValueError) as error:
            self._why = error.message if isinstance(error, BinlakeError) else type(error).__name__
        self._end(left)

    def _take(self, left: dict[str, ExecutorPart]) -> None:
        """Take the sums that were written. Raises LakeError, StagingError, ValueError, and SourceError."""
        names = [file.name for file in files.list_files(self._folder) if file.name in left]
        written = {name: executor_tasks.written_sums(f"{self._folder}/{name}") for name in names}
        # While this connection holds these locks, no later view can have been opened than under the lock.
        if written and not (self._held and self._held.are_spent()):
            raise Busy("the connection that held their gates is gone", remedy=_AGAIN)
        for name, sums in written.items():
            if sums.connection in self.connections:
                _resolve(left.pop(name).sums, sums.to_sums())

    def _end(self, left: Mapping[str, ExecutorPart]) -> None:
        """Leave the rest to this process."""
        if left:
            self._cancel()
        self._ended.wait(_ENDED_WITHIN)
        self._then()
        rest = [part for part in left.values() if not part.sums.cancelled()]
        if rest and not self._closing.is_set():
            self._say(
                f"this process reads {len(rest)} of {len(self._parts)} parts of large tables, as executors didn't"
                + (f": {self._why}" if self._why else "")
            )
        for part in left.values():
            _resolve(part.sums, None)
        with suppress(BinlakeError):
            files.remove_folder(self._folder)

    def _make_folder(self) -> None:
        """Make the folder for sums, and remove those that others left."""
        place = self._config.staging_path("verify")
        for name in files.subfolders(place):
            since = name.partition("-")[0]
            if since.isdigit() and int(since) < time.time() - _LEFT_FOR:
                files.remove_folder(f"{place}/{name}")
        files.make_private_folder(self._folder)


def _reason(error: Exception) -> str:
    """Return why a job failed, without values of rows."""
    if refused := direct.sql_error(storage_errors.messages(error)):
        return refused.text
    chain = java_errors.causes(error)
    return java_errors.root_cause(chain) if chain else type(error).__name__


def _resolve(future: Future[Sums | None], sums: Sums | None) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(sums)


def _are_alike(planned: KeyCells, cut: KeyCells) -> bool:
    if planned.edges is None or cut.edges is None:
        return planned.edges is cut.edges and planned.shares == cut.shares
    return planned.column == cut.column and np.array_equal(planned.edges, cut.edges)
