"""The world of the protocol without a network, Spark or files, in which the real pipeline runs.

A source's log, its lake and the metadata tables are small and in memory. Workers are threads of which one runs at a
time; each stops where it is told to: at the pipeline's own fault points, and before every access to what workers share.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from binlake import faults, pipeline, readers
from binlake.batch.manifest import StagedFile, StagedSlice
from binlake.batch.steps import Life, MergeStep
from binlake.binlog import boundaries
from binlake.binlog.border import Statement
from binlake.binlog.boundaries import Boundary
from binlake.config import PipelineConfig
from binlake.delta.attempts import Copied, DataFile
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.errors import LakeError, LeftToSpark, StagingError
from binlake.merge import apply, by_spark
from binlake.merge import table_progress as progress
from binlake.merge.lake_table import LakeTable
from binlake.merge.reshape import ReshapedColumn
from binlake.metadata import formats, holder, lease, record, watermarks
from binlake.metadata.holder import Machine
from binlake.metadata.lease import RecordedState
from binlake.metadata.metadata import SCHEMAS, Metadata, literal
from binlake.phases import bootstrap, open_batch, plan, snapshots
from binlake.position import Flavour, Position, Slice, file_number
from binlake.report import Report
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import loads
from binlake.snapshot import chunks, commit, snapshot
from binlake.snapshot.chunks import TableSnapshot
from binlake.snapshot.waves import Copying, Member, TableChanged
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.spark import functions, session
from binlake.staging import stage
from binlake.storage import files, stores

Row = tuple[int | None, ...]
Content = tuple[tuple[str, ...], tuple[Row, ...]]
"""A table's columns, and its rows in a fixed order."""
SERVER = "00000000-0000-0000-0000-000000000001"
CREATED = 1
KEYED = TableSchema((Column("id", "int", nullable=False), Column("v", "int")), ("id",), "primary")
KEYLESS = TableSchema((Column("id", "int", nullable=False), Column("v", "int")))
CREATE = {
    True: "CREATE TABLE `{}` (id INT NOT NULL PRIMARY KEY, v INT)",
    False: "CREATE TABLE `{}` (id INT NOT NULL, v INT)",
}


# the source ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RowChange:
    """before, after: None for an insert's and a delete's."""

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    offset: int
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Transaction:
    file: str
    start: int
    end: int
    committed_us: int
    items: tuple[RowChange | Statement, ...]


@dataclass(frozen=True)
class _Table:
    schema: TableSchema
    rows: tuple[Row, ...]

    @property
    def content(self) -> Content:
        return tuple(column.name for column in self.schema.columns), _sorted(self.rows)


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=repr))


class Server:
    """Tables, and the log of what happened to them. It is the planner's ``Log`` and the snapshot's ``Source``, too."""

    flavour: Flavour = "mysql"
    server_identity = SERVER
    lower_case_names = False

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now = clock
        self.tables: dict[TableName, _Table] = {}
        self.transactions: list[Transaction] = []
        self._files = ["binlog.000001"]
        self._ends = {"binlog.000001": 100}
        self._history: list[tuple[tuple[int, int], dict[TableName, _Table]]] = [((0, 0), {})]

    def is_of(self, server: str) -> bool:
        return server == SERVER

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        return tuple((file, self._ends[file]) for file in self._files)

    def head(self) -> tuple[str, int, str]:
        return self._files[-1], self._ends[self._files[-1]], ""

    def transport(self, server_id: int = 0, name: str = "") -> Server:
        return self

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Asked for the databases' character sets, of which this server has none."""
        assert "schemata" in sql
        return []

    def close(self) -> None:
        pass

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def position(self) -> Position:
        file, offset, _ = self.head()
        return Position(SERVER, file, offset, CREATED)

    def at(self, position: Position) -> dict[TableName, Content]:
        """What each table held there."""
        found = next(tables for order, tables in reversed(self._history) if order <= position.order)
        return {name: one.content for name, one in found.items()}

    def rotate(self) -> None:
        file = f"binlog.{len(self._files) + 1:06d}"
        self._files.append(file)
        self._ends[file] = 100

    def create(self, name: TableName, *, keyed: bool) -> None:
        self._statement(CREATE[keyed].format(name.table))
        self.tables[name] = _Table(KEYED if keyed else KEYLESS, ())
        self._remember()

    def drop(self, name: TableName) -> None:
        self._statement(f"DROP TABLE `{name.table}`")
        del self.tables[name]
        self._remember()

    def truncate(self, name: TableName) -> None:
        self._statement(f"TRUNCATE TABLE `{name.table}`")
        self.tables[name] = replace(self.tables[name], rows=())
        self._remember()

    def add_column(self, name: TableName, default: int | None) -> None:
        one = self.tables[name]
        column = f"c{len(one.schema.columns)}"
        end = "INT" if default is None else f"INT NOT NULL DEFAULT {default}"
        self._statement(f"ALTER TABLE `{name.table}` ADD COLUMN {column} {end}")
        columns = (*one.schema.columns, Column(column, "int", nullable=default is None))
        self.tables[name] = _Table(one.schema.with_columns(columns), tuple((*row, default) for row in one.rows))
        self._remember()

    def rename_column(self, name: TableName) -> None:
        """The last one."""
        one = self.tables[name]
        *others, last = one.schema.columns
        column = f"{last.name}_"
        self._statement(f"ALTER TABLE `{name.table}` RENAME COLUMN {last.name} TO {column}")
        self.tables[name] = replace(one, schema=one.schema.with_columns((*others, replace(last, name=column))))
        self._remember()

    def change(self, name: TableName, changes: Sequence[tuple[Row | None, Row | None]]) -> None:
        """A transaction that changes rows: of each pair the first goes, the second comes."""
        schema = self.tables[name].schema
        rows = list(self.tables[name].rows)
        start = self._ends[self._files[-1]]
        items: list[RowChange | Statement] = []
        for number, (before, after) in enumerate(changes, start=1):
            if before is not None:
                rows.remove(before)
            if after is not None:
                rows.append(after)
            items.append(RowChange(name, schema.columns, schema.key, start + 10 * number, before, after))
        self._commit(items)
        self.tables[name] = replace(self.tables[name], rows=tuple(rows))
        self._remember()

    def _statement(self, text: str) -> None:
        file, start, _ = self.head()
        self._commit([Statement(file, start + 10, 0, self.now(), None, "d", 0, text)])

    def _commit(self, items: list[RowChange | Statement]) -> None:
        file, start, _ = self.head()
        end = start + 10 * (len(items) + 2)
        self.transactions.append(Transaction(file, start, end, self.now(), tuple(items)))
        self._ends[file] = end

    def _remember(self) -> None:
        self._history.append((self.position.order, dict(self.tables)))

    def within(self, part: Slice) -> Iterator[Transaction]:
        for transaction in self.transactions:
            if transaction.file == part.file and part.start <= transaction.start < part.stop:
                yield transaction


# the lake ------------------------------------------------------------------------------------------------------------
class DeltaLog:
    """A Delta table: its versions, newest last, and the transactions recorded in it."""

    def __init__(self) -> None:
        self.versions: list[tuple[tuple[str, ...], tuple[Row, ...], dict[str, Any]]] = []
        self.recorded: dict[str, int] = {}
        self.files: list[str] = []
        """Those that its newest snapshot brought."""

    def get_add_actions(self) -> pa.Table:
        return pa.table({"num_records": [len(self.versions[-1][1])]})

    def transaction_version(self, app: str) -> int | None:
        return self.recorded.get(app)

    def version(self) -> int:
        return len(self.versions) - 1

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        told = [
            {"version": number, "operation": "WRITE", "userMetadata": json.dumps(note)}
            for number, (_, _, note) in enumerate(self.versions)
        ]
        return told[::-1][:limit]


Change = Callable[[tuple[str, ...], list[Row]], tuple[tuple[str, ...], list[Row]]]


def lake_table(world: World) -> type[LakeTable]:
    """A LakeTable in memory: each change is one commit, which Delta leaves out when its version is recorded."""

    class InMemory(LakeTable):
        def commit(self, version: int, note: dict[str, Any], change: Change, *, new: bool = False) -> None:
            world.reach("begin commit")
            found = world.lake.get(self.path)
            if new and found is not None:
                raise LakeError(f"{self.path} is there already")
            if found is None or not world.skips or version > found.recorded.get(self.app, -1):
                base = len(found.versions) if found else 0
                columns, rows = (found.versions[-1][0], list(found.versions[-1][1])) if found else ((), [])
                columns, rows = change(columns, rows)
                world.reach("end commit")
                if world.lake.get(self.path) is not found or (found and len(found.versions) != base):
                    raise LakeError(f"{self.path} was changed by another commit")
                written = world.lake.setdefault(self.path, DeltaLog())
                written.versions.append((columns, tuple(rows), note))
                written.recorded[self.app] = version
                world.commits[self.path, self.app, version] += 1
            self._prove(version)

        @contextmanager
        def _optimistic(self, session: Any, note: dict[str, Any]) -> Iterator[Any]:
            world.reach("begin commit")
            found = world.lake.get(self.path)
            base = len(found.versions) if found else 0

            def written() -> DeltaLog:
                world.reach("end commit")
                if world.lake.get(self.path) is not found or (found and len(found.versions) != base):
                    raise LakeError(f"{self.path} was changed by another commit")
                return world.lake.setdefault(self.path, DeltaLog())

            def commit(recorded: Mapping[str, int], metadata: Any = None) -> None:
                log = written()
                columns, rows, _ = log.versions[-1]
                log.versions.append((columns, rows, note))
                log.recorded |= recorded

            def replaced(schema: DeltaSchema, data: Sequence[DataFile], recorded: Mapping[str, int]) -> None:
                log = written()
                log.files = [f"{self.path}/{file.path}" for file in data]
                rows = tuple(row for file in log.files for row in world.files[file])
                log.versions.append((tuple(name for name, _ in schema.columns), rows, note))
                log.recorded |= recorded
                world.commits.update((self.path, app, version) for app, version in recorded.items())
                world.snapshotted[self.path] = note["binlake"]["life"]

            yield SimpleNamespace(
                is_new=found is None,
                version=lambda app: found.recorded.get(app, -1) if found else -1,
                versions=lambda: dict(found.recorded) if found else {},
                metadata=None,
                commit=commit,
                replace=replaced,
            )

        def _support(self, session: Any, columns: Any) -> None:
            """Delta's features are all there."""

        def overwrite(
            self, session: Any, rows: Any, version: int, note: dict[str, Any], *, mode: str = "overwrite"
        ) -> None:
            columns, values = rows
            self.commit(version, note, lambda _columns, _rows: (tuple(columns), list(values)), new=mode == "error")

        def create(self, session: Any, columns: Sequence[LakeColumn], version: int, note: dict[str, Any]) -> None:
            self.take(session, ([one.name for one in columns], []), version, note)  # type: ignore[arg-type]

        def truncate(self, session: Any, version: int, note: dict[str, Any]) -> None:
            self.commit(version, note, lambda columns, _: (columns, []))

        def reshape(
            self, session: Any, columns: list[ReshapedColumn], version: int, note: dict[str, Any], **options: Any
        ) -> None:
            def reshaped(before: tuple[str, ...], rows: list[Row]) -> tuple[tuple[str, ...], list[Row]]:
                def value(row: Row, column: ReshapedColumn) -> Any:
                    if column.origin:
                        return row[before.index(column.origin)]
                    return _number(column.value) if column.value else None

                moved = [tuple(value(row, column) for column in columns) for row in rows]
                return tuple(column.name for column in columns), moved

            self.commit(version, note, reshaped)

        def move_from(self, session: Any, old: Any, life: str, version: int, note: dict[str, Any]) -> None:
            columns, rows, _ = old.log().versions[old.last_version_of(life)]
            self.take(session, (columns, rows), version, note)  # type: ignore[arg-type]

        def leave(self, session: Any, version: int, note: dict[str, Any]) -> None:
            self.truncate(session, version, note)

    return InMemory


def _number(expression: str) -> int:
    found = re.search(r"-?\d+", expression)
    assert found, expression
    return int(found[0])


def merge_epoch(
    spark: Any,
    target: Any,
    life: Life,
    step: MergeStep,
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
) -> None:
    """The mutations after the snapshot, one after the other."""
    for file in step.files:
        by_spark.check_shape(life.name, step.schema, file)
    staged: list[RowChange] = [
        change
        for file in step.files
        for number, change in spark("the model merges").world.files[file.path]
        if (number, change.offset) >= life.low.order
    ]

    def merged(columns: tuple[str, ...], rows: list[Row]) -> tuple[tuple[str, ...], list[Row]]:
        assert columns == tuple(column.name for column in step.schema.mirrored), "Spark finds a column by its name"
        for change in staged:
            for image in (change.before, change.after):
                if step.schema.key and image is not None:
                    rows = [row for row in rows if row[0] != image[0]]
            if not step.schema.key and change.before in rows:
                rows.remove(change.before)
            if change.after is not None:
                rows.append(change.after)
        return columns, rows

    target.commit(version, note, merged)


# metadata ------------------------------------------------------------------------------------------------------------
class Store(Metadata):
    """The metadata tables in SQLite: each write is atomic, as a Delta commit is, and its predicates are SQL, too.

    A replacement conflicts with what came between its guard and itself, if that concerns the same rows.
    """

    def __init__(self, world: World, guard: Callable[[], None] = lambda: None, database: Any = None) -> None:
        super().__init__("nowhere://")  # what isn't overridden here must fail
        self.check = guard
        self._world = world
        self._database = database or sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.row_factory = sqlite3.Row

    def guarded(self, guard: Callable[[], None]) -> Store:
        return Store(self._world, guard, self._database)

    def peek(self, name: str, predicate: str = "true") -> list[dict[str, Any]]:
        """Read without being a worker."""
        return [dict(row) for row in self._run(name, f"SELECT * FROM {name} WHERE {predicate}")]

    def watermarks(self) -> list[dict[str, Any]]:
        """As they stand, without being a worker."""
        told = [row["position"] for row in self.peek("lease") if row["position"]]
        recorded_state = formats.read(RecordedState, told[0]) if told else None
        return [watermarks.stands(row, recorded_state) for row in self.peek("watermarks")]

    def read(self, name: str, columns: list[str] | None = None, where: str | None = None) -> list[dict[str, Any]]:
        self._world.reach(f"read {name}")
        return self.peek(name, where) if where else self.peek(name)

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._world.reach(f"write {name}")
        self.check()
        self._insert(name, rows)

    def replace(self, name: str, predicate: str, rows: Sequence[Mapping[str, Any]]) -> None:
        predicate = re.sub(r"\btable\b", '"table"', predicate)  # a word of SQLite's own
        self._world.reach(f"write {name}")
        before = self.peek(name, predicate)
        self.check()
        self._world.reach(f"commit {name}")
        if self.peek(name, predicate) != before:
            self.check()
            raise LakeError(f"another process wrote {name}")
        self._run(name, f"DELETE FROM {name} WHERE {predicate}")
        self._insert(name, rows)

    def create_with(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._world.reach(f"write {name}")
        if not self.peek(name):
            self._insert(name, rows)

    def swap(self, name: str, predicate: str, updates: Mapping[str, str | int | None]) -> bool:
        self._world.reach(_what(updates))
        changes = ", ".join(f'"{column}" = {literal(value)}' for column, value in updates.items())
        swapped = bool(self._run(name, f"UPDATE {name} SET {changes} WHERE {predicate}").rowcount)
        if swapped and updates.get("position"):
            self._world.moved(formats.read(RecordedState, str(updates["position"])).position)
        return swapped

    def _insert(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        fields = SCHEMAS[name].names
        text = f"INSERT INTO {name} VALUES ({', '.join('?' * len(fields))})"
        for row in rows:
            self._run(name, text, [row.get(column) for column in fields])

    def _run(self, name: str, text: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        if name not in self._world.made:
            self._world.made.add(name)
            columns = ", ".join(f'"{column}"' for column in SCHEMAS[name].names)
            self._database.execute(f"CREATE TABLE {name} ({columns})")
        found: sqlite3.Cursor = self._database.execute(text, values)
        return found


def _what(updates: Mapping[str, object]) -> str:
    """The point before a change of the lease's row."""
    if "token" in updates:
        return "take lease" if updates["token"] else "give lease back"
    if "batch" in updates:
        return "freeze plan"
    if "position" in updates:
        return "move position"
    if "plan" in updates:
        return f"advance to {json.loads(str(updates['plan']))['state']}"
    return "renew lease"


# workers -------------------------------------------------------------------------------------------------------------
class Killed(BaseException):
    """The worker's process is gone: whatever it still tries comes to nothing."""


class Worker:
    """A process of its own, as far as the pipeline can tell."""

    def __init__(self, world: World, host: str, job: str, work: Callable[[], object]) -> None:
        self.host = host
        self.job = job
        self.pid = next(world.pids)
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None
        self.point = "start"
        self.until = ""
        self.renew: Callable[[], None] | None = None
        self.memory: list[Any] = []
        self._world = world
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.dead:
                self._work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self._stopped.release()

    def run(self, until: str = "") -> None:
        """Go on up to a point, or to the end; called by the test."""
        self.until = until
        before, self._world.worker = self._world.worker, self
        self._go.release()
        self._stopped.acquire()
        self._world.worker = before

    def reach(self, point: str) -> None:
        """Called by the worker."""
        if not self.dead and point == self.until:
            self.point = point
            self._stopped.release()
            self._go.acquire()
        if self.dead:
            raise Killed

    def kill(self) -> None:
        self.dead = True
        self.run()
        self._thread.join()


class _Thread:
    """The one that renews a lease: it runs when the test says so."""

    def __init__(self, world: World, target: Callable[[], None]) -> None:
        self._worker = world.worker
        self._target = target

    def start(self) -> None:
        if self._worker:
            self._worker.renew = self._target

    def join(self) -> None:
        if self._worker:
            self._worker.renew = None


class _Event:
    """Between two waits that end too early, a lease is renewed once."""

    def __init__(self) -> None:
        self._set = False
        self._waits = 0

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float) -> bool:
        self._waits += 1
        return self._set or self._waits % 2 == 0


class _Lock:
    """A worker that sleeps with it would let its renewing thread wait for ever."""

    def __init__(self) -> None:
        self._taken = False

    def __enter__(self) -> None:
        if self._taken:
            raise Waiting
        self._taken = True

    def __exit__(self, *error: object) -> None:
        self._taken = False


class Waiting(Exception):
    """Nothing happens before the lock is free."""


class _Pool:
    """Its threads would not be the test's: work is done when it is given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[[Any], Any], given: Iterable[Any]) -> Iterator[Any]:
        return map(work, given)


def _leave_to_spark(*step: Any, **options: Any) -> None:
    raise LeftToSpark("the model's tables have no files")


@dataclass
class Session:
    """As much of a Spark session as the engine's own code touches."""

    world: World

    @property
    def sparkContext(self) -> Any:  # Spark's name
        return SimpleNamespace(defaultParallelism=2)


def _planned(source: Source, table: SourceTable, invalid: InvalidValues, **options: Any) -> TableSnapshot:
    """With a key there are two chunks."""
    made = chunks.plan(source, table, invalid)
    if table.schema.key:
        made.chunks = [chunks.Chunk(0), chunks.Chunk(1)]
    return made


# all of it -----------------------------------------------------------------------------------------------------------
TABLES = tuple(TableName("d", name) for name in ("a", "b", "heap"))
KEYLESS_TABLE = TABLES[-1]


@dataclass
class World:
    """Everything outside a worker. ``check`` raises AssertionError where a promise is broken."""

    on_drop_table: str = "keep"
    clock: int = 1_000_000_000
    lake: dict[str, DeltaLog] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    commits: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    skips: ClassVar[bool] = True
    """Whether Delta leaves out a commit whose transaction is recorded."""
    worker: Worker | None = None
    failures: list[AssertionError] = field(default_factory=list)
    checks: int = 0

    def __post_init__(self) -> None:
        self.pids = iter(range(1, 1_000_000))
        self.server = Server(lambda: self.clock)
        self.made: set[str] = set()
        self.store = Store(self)
        self.workers: list[Worker] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(stores, "_FILE_SYSTEMS", ("memory",))
        self.config = PipelineConfig.model_validate(
            {
                "source": {"name": "s", "connection": "s", "server_id": 1, "server_ids": 1},
                "tables": {"include": ["d.*"]},
                "lake": {"path": "memory://lake"},
                "policies": {"on_drop_table": self.on_drop_table},
            }
        )
        self._position: Position | None = None
        self._jumps: set[Position] = set()
        self.snapshotted: dict[str, str] = {}
        """The life of the newest snapshot at a path."""
        self.begun: set[TableName] = set()
        try:
            self._install()
        except BaseException:
            self.patch.undo()
            raise

    def _install(self) -> None:
        put = self.patch.setattr
        for module in (plan, snapshots, holder, lease, record, watermarks):
            put(module, "now_us", lambda: self.clock)
        for module in (pipeline, snapshots, open_batch):
            put(module, "metadata_of", lambda config: self.store)
        put(faults, "at_point", self._fault)
        for module in (pipeline, plan, open_batch):
            put(module, "opened", self._opened)
        put(Source, "open", lambda endpoint: self.server)
        put(bootstrap, "included_tables", lambda source, config: sorted(self.server.tables))
        put(snapshots, "refused_for_gaps", lambda source, names: {})
        put(snapshots, "refused_for_engines", lambda source, names: {})
        put(snapshots, "refused_for_cascades", lambda config, source, names: {}, raising=False)
        put(snapshot, "refuse_retries", lambda session: None)
        put(snapshot, "format_description", lambda transport, file: CREATED)
        put(snapshot, "read_tables", self._source_tables)
        put(snapshot, "plan", _planned)
        put(snapshot, "run_wave", self._run_wave)
        put(snapshot, "_cores", lambda session: 1)
        put(session, "of_this_thread", lambda shared: shared)
        put(session, "_activate", lambda own: None)
        put(snapshot, "ThreadPoolExecutor", _Pool)
        put(commit, "LakeTable", lake_table(self))
        put(boundaries, "describe_file", lambda transport, file: SimpleNamespace(created=CREATED))
        put(plan, "transaction_boundaries", self._boundaries)
        put(stage.SliceTask, "run", lambda task, transport, progress: self._read(task))
        for module in (apply, progress, readers):
            put(module, "ThreadPoolExecutor", _Pool)
        put(functions, "register", lambda own: None)
        put(apply, "of_this_thread", lambda shared: shared)
        put(apply, "merge_epoch", merge_epoch)
        for name in ("reshape", "truncate"):
            put(apply.reshape_in_process, name, _leave_to_spark)
        put(apply, "LakeTable", lake_table(self))
        put(LakeLog, "log", lambda log: self.lake[log.path])
        put(LakeLog, "exists", lambda log: log.path in self.lake)
        put(LakeLog, "is_at", lambda log, version: log.exists() and version == log.version())
        put(files, "make_private_folder", self._make_folder)
        put(files, "exists", lambda path: path in self.files)
        put(files, "size", lambda path: 1 if path in self.files else None)
        put(files, "write_text", self._write_text)
        put(files, "read_text", self._read_text)
        put(files, "checksum", self._checksum)
        put(files, "remove_folder", self._remove_folder)
        put(files, "subfolders", self._subfolders, raising=False)
        put(holder, "os", SimpleNamespace(getpid=lambda: self.worker.pid if self.worker else 0))
        put(holder, "_machine", lambda: Machine(self.worker.host if self.worker else "", "boot", 1))
        put(holder, "_start_of", self._start_of)
        threads = SimpleNamespace(Lock=_Lock, Event=_Event, Thread=lambda target, **options: _Thread(self, target))
        put(lease, "threading", threads)

    def expire(self) -> None:
        """Time goes by; whoever sleeps doesn't renew its lease."""
        self.clock += (holder.LIFETIME + 1) * 1_000_000

    def close(self) -> None:
        for worker in self.workers:
            if not worker.ended:
                worker.kill()
        self.patch.undo()

    # what a worker may do --------------------------------------------------------------------------------------------
    def start(self, job: str, host: str, **options: Any) -> Worker:
        """A new process; it stands before its first access."""
        report = Report(io.StringIO())
        origin: Any = "server"
        spark: Any = lambda _: Session(self)  # noqa: E731  # typed as what it stands for
        jobs: dict[str, Callable[[], object]] = {
            "bootstrap": lambda: self.begun.update(
                result.name for result in pipeline.bootstrap(self.config, origin, spark, report, **options)
            ),
            "sync": lambda: pipeline.sync(self.config, origin, spark, report, **options),
            "plan": lambda: pipeline.plan(self.config, origin, **options),
            "stage": lambda: pipeline.stage(self.config, origin, spark, report),
            "merge": lambda: pipeline.merge(self.config, spark, report),
            "record": lambda: pipeline.record(self.config),
        }
        worker = Worker(self, host, job, jobs[job])
        self.workers.append(worker)
        return worker

    def reach(self, point: str) -> None:
        if self.worker:
            self.worker.reach(point)

    def _fault(self, point: str) -> None:
        if point == "recorded":
            try:
                self.check()
            except AssertionError as error:
                self.failures.append(error)
        self.reach(point)

    def _start_of(self, pid: int) -> int:
        alive = any(worker.pid == pid and not worker.dead and not worker.ended for worker in self.workers)
        return pid if alive else 0

    # the source ------------------------------------------------------------------------------------------------------
    @contextmanager
    def _opened(self, origin: object) -> Iterator[Server]:
        self.reach("read log")
        yield self.server

    def _boundaries(self, transport: Server, part: Slice) -> Iterator[Boundary]:
        for transaction in self.server.within(part):
            yield Boundary(transaction.start, transaction.end, transaction.committed_us, None)

    def _read(self, task: stage.SliceTask) -> StagedSlice:
        """What a reader does with a slice."""
        self.reach("read log")
        statements: list[Statement] = []
        staged: dict[tuple[Any, ...], list[RowChange]] = {}
        for transaction in self.server.within(task.part):
            for item in transaction.items:
                if isinstance(item, Statement):
                    statements.append(replace(item, ordinal=len(statements)))
                else:
                    staged.setdefault((item.name, item.columns, item.key, len(statements)), []).append(item)
        number = file_number(task.part.file)
        found: list[StagedFile] = []
        for (name, columns, key, before), changes in staged.items():
            path = f"{task.folder}/{task.number:05d}/{len(found):05d}.parquet"
            self.files[path] = [(number, change) for change in changes]
            first, last = ((number, changes[end].offset, 0) for end in (0, -1))
            counts = Counter((change.before is not None, change.after is not None) for change in changes)
            found.append(
                StagedFile(
                    path, name, columns, key, task.number, before, counts[False, True], counts[True, True],
                    counts[True, False], first, last, len(changes), "", {},
                )
            )  # fmt: skip
        return StagedSlice(task.number, tuple(found), tuple(statements), (), ())

    def _source_tables(self, source: Any, names: Iterable[TableName], excluding: Any) -> dict[TableName, SourceTable]:
        there = {name: self.server.tables[name].schema for name in names if name in self.server.tables}
        return {name: SourceTable(name, "BASE TABLE", "InnoDB", 0, 0, schema) for name, schema in there.items()}

    def _run_wave(self, copying: Copying, members: Sequence[Member], mode: object, **options: bool) -> None:
        """Copies each chunk at a position of its own, if the table keeps its shape; with a key, of two all odd rows."""
        for member in members:
            self.reach("copy chunk")
            table, chunk = member.table, member.chunk
            there = self.server.tables.get(table.name)
            if there is None or there.schema != table.schema:
                raise TableChanged([table])
            alone = len(table.chunks) == 1
            rows = [row for row in there.content[1] if alone or (row[0] or 0) % 2 == chunk.number]
            attempts = copying.records.attempts(table)
            attempt, position = attempts.new(), self.server.position
            attempts.begin(attempt)
            data = DataFile(f"{attempt}/part", 1, len(rows), "{}")
            self.files[f"{attempts.table_path}/{data.path}"] = rows
            self._fault("chunk copied")
            attempts.done(attempt, Copied((data,)))
            table.put(replace(chunk, low=position, high=position, rows=len(rows), bytes=1, attempt=attempt))
            copying.records.save(table)
        self._fault("chunks written")

    # files -----------------------------------------------------------------------------------------------------------
    def _make_folder(self, path: str) -> None:
        self.files[f"{path}/"] = ""

    def _write_text(self, path: str, text: str) -> None:
        self.reach("write manifest")
        self.files[path] = text

    def _read_text(self, path: str) -> str:
        self.reach("read manifest")
        if path not in self.files:
            raise StagingError(f"no {path}")
        return str(self.files[path])

    def _checksum(self, path: str) -> tuple[int, str]:
        if path not in self.files:
            raise StagingError(f"no {path}")
        return len(self.files[path]), ""

    def _remove_folder(self, path: str) -> None:
        self.reach("remove folder")
        for file in [file for file in self.files if file.startswith(path + "/")]:
            del self.files[file]
        self.lake.pop(path, None)

    def _subfolders(self, path: str) -> list[str]:
        inside = [file.removeprefix(path + "/") for file in self.files if file.startswith(path + "/")]
        return sorted({file.partition("/")[0] for file in inside})

    # promises --------------------------------------------------------------------------------------------------------
    def moved(self, position: Position) -> None:
        """The position up to which all is recorded is another now."""
        if self._position is not None and position < self._position:
            self.failures.append(AssertionError(f"the position went back from {self._position} to {position}"))
        self._position = position
        # A sync takes the snapshots that were asked for, too.
        lows = [loads(Position, row["low"]) for row in self.store.peek("watermarks") if row["low"]]
        if self.worker and (self.worker.job == "bootstrap" or position in lows):
            self._jumps.add(position)

    def check(self, *, at_end: bool = False) -> None:
        """The lake is the source at each watermark; nothing was committed twice; no range is missing.

        at_end: a snapshot that was committed and then killed is no excuse any more.
        """
        self.checks += 1
        twice = [commit for commit, count in self.commits.items() if count > 1]
        assert not twice, f"committed twice: {twice}"
        self._check_ranges()
        for path, log in self.lake.items():
            gone = [file for file in log.files if file not in self.files]
            assert not gone, f"files of {path} are gone: {gone}"
        rows = self.store.watermarks()
        lives = Counter(row["table"] for row in rows if row["status"] == "following")
        assert not lives or max(lives.values()) == 1, f"a table has two lives: {lives}"
        for row in rows:
            waits = row["status"] == "resnapshot" and not at_end  # the same run takes it up
            assert waits or row["status"] not in ("stopped", "resnapshot"), f"{row['table']}: {row['reason']}"
            if row["status"] == "following":
                self._check_table(row, at_end)

    def _check_ranges(self) -> None:
        batches = {row["batch"]: row for row in self.store.peek("batches")}
        for number, row in batches.items():
            following = batches.get(number + 1)
            if following is not None:
                start = Position.parse(following["start"])
                assert start == Position.parse(row["stop"]) or start in self._jumps, f"a gap before batch {number + 1}"

    def _check_table(self, row: dict[str, Any], at_end: bool) -> None:
        name, position = TableName(row["database"], row["table"]), Position.parse(row["position"])
        begins = self._is_ahead(name) and not at_end
        if position < loads(Position, row["high"]) or begins:
            return
        path = self.config.table_path(name)
        assert path in self.lake, f"{name} is gone from the lake"
        columns, rows, _ = self.lake[path].versions[-1]
        found, expected = (columns, _sorted(rows)), self.server.at(position).get(name)
        assert found == expected, f"{name} at {position.short}: {found}, the source had {expected}"

    def _is_ahead(self, name: TableName) -> bool:
        """Whether a new snapshot stands in the lake, whose life is about to begin."""
        life = self.snapshotted.get(self.config.table_path(name))
        return life is not None and all(row["table_id"] != life for row in self.store.peek("watermarks"))

    def settle(self) -> None:
        """Everything that sleeps wakes and ends; then a run carries the lake to the source's head."""
        for worker in self.workers:
            if not worker.ended:
                worker.run()
        self.expire()
        last = self.start("sync", "settling")
        last.run()
        self.workers.remove(last)
        self.raise_failures()
        if self._position is None:
            return
        if last.error is not None:
            raise AssertionError(f"the last run failed: {last.error!r}") from last.error
        assert self._position == self.server.position
        self.check(at_end=True)
        following = {row["table"] for row in self.store.peek("watermarks") if row["status"] == "following"}
        lost = {name.table for name in self.begun & set(self.server.tables)} - following
        assert not lost, f"no longer followed: {lost}"

    def raise_failures(self) -> None:
        if self.failures:
            raise self.failures[0]
