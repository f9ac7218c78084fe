"""Spark's executors read parts of a table at the position of the views of this process, and sum up what it would.

Here they are threads of a local Spark; test_cluster.py has others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from pyspark.sql import SparkSession

from begun_alone import begin_alone
from binlake import pipeline
from binlake.errors import SourceError
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.spark import starting
from binlake.verify.cluster import executor_plan, executor_tasks
from binlake.verify.cluster.by_executors import ByExecutors
from binlake.verify.cluster.executor_tasks import ReadingTask
from binlake.verify.pace import Budget
from binlake.verify.reading.by_read import ByRead
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Sums
from binlake.verify.result import TableResult
from binlake.verify.server_load import OtherReaders, ServerLoad
from binlake.verify.views import ReadViews
from cluster import wait_until
from mirror import Mirror, on_mysql
from servers import Server, free_port

ROWS = 900
CONNECTIONS = 2


@pytest.fixture
def mirror(server: Server, database: str, lake: Path) -> Iterator[Mirror]:
    made = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    made.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, v VARCHAR(20))",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900)"
        " SELECT n, 0, CONCAT('v', n) FROM s",
        "ANALYZE TABLE t",
    )
    begin_alone(made)
    with mock.patch("binlake.verify.reading.lake_rows.ROWS_PER_CHUNK", 100):
        yield made


def by_read(mirror: Mirror, budget: Budget | None = None) -> ByRead:
    return ByRead(mirror.config, 2, budget or Budget(None), ServerLoad(mirror.endpoint, None, Budget(None), print))


class Compared:
    """Two readings of one table by the same views: by executors, and by this process alone."""

    def __init__(
        self,
        mirror: Mirror,
        spark: SparkSession,
        reached: Endpoint | None = None,
        kind: type[ByExecutors] = ByExecutors,
        budget: Budget | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self.mirror, self.said = mirror, list[str]()
        self.by_executors, self.alone = by_read(mirror, budget), by_read(mirror)
        name = TableName(mirror.database, "t")
        with Source.open(mirror.endpoint) as source:
            self.table: SourceTable = read_tables(source, [name], mirror.config.excluding)[name]
            self.chosen = self.alone.cut(self.table)
            planned = executor_plan.planned_table(source, self.table, self.chosen, connections)
        self.executors = kind(
            spark.sparkContext, mirror.config, reached or mirror.endpoint, [planned], connections, Budget(None),
            self.said.append,
        )  # fmt: skip
        self.by_executors.use(self.executors)

    @contextmanager
    def views(self) -> Iterator[ReadViews]:
        with ReadViews(
            self.mirror.endpoint,
            [self.table.name],
            count=2,
            under_lock=lambda _: None,
            elsewhere=self.executors,
        ) as views:
            yield views

    def sums(self, reader: ByRead, views: ReadViews) -> Sums:
        futures = reader.begin(self.table, views, self.chosen)
        wait(futures)
        for future in futures:
            future.result()
        return reader._tables[self.table.name].server

    def assert_alike(self, views: ReadViews) -> None:
        ours, theirs = self.sums(self.alone, views), self.sums(self.by_executors, views)
        assert ours.total == ROWS
        assert not len(ours.differing(theirs))


@contextmanager
def writing(mirror: Mirror) -> Iterator[Callable[[], int]]:
    """Each transaction adds to the numbers of all rows; yields how many there were."""
    over, done = threading.Event(), [0]

    def work() -> None:
        while not over.is_set():
            mirror.execute("UPDATE t SET n = n + 1")
            done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        over.set()
        thread.join()


def test_sums_of_executors_are_those_of_this_process_under_writes(mirror: Mirror, spark: SparkSession) -> None:
    compared = Compared(mirror, spark)
    with writing(mirror) as written:
        while not written():
            pass
        with compared.views() as views:
            before = written()
            while written() < before + 3:  # none of which the views see
                pass
            compared.assert_alike(views)
            assert run_again(compared) == "an executor was lost"
    assert len(compared.executors.connections) == CONNECTIONS
    assert not compared.said


def run_again(compared: Compared) -> str:
    """As Spark would run the task of a connection whose executor is lost."""
    gate, nobody = compared.executors.gates[0], OtherReaders((), ())
    task = ReadingTask(compared.mirror.endpoint, gate, (), "", None, None, None, nobody)
    return executor_tasks.read_server(task)


@on_mysql
def test_the_lakes_rows_are_summed_up_alike(mirror: Mirror, spark: SparkSession) -> None:
    for statement in ("DELETE FROM t WHERE id % 10 = 0", "INSERT INTO t VALUES (1001, 1, 'new')"):
        mirror.execute(statement)
        pipeline.sync(mirror.config, mirror.origin, starting.no_session, Report())
    compared = Compared(mirror, spark)
    lake = LakeRows(mirror.config.table_path(compared.table.name))
    cells = compared.chosen.known.cells
    reach = lake.reach(compared.table.schema, cells)
    assert len(reach.paths) > 1
    some = np.arange(cells.chunks) % 2 == 0
    for wanted in (None, some):
        paths = reach.paths if wanted is None else reach.holding(wanted)
        ours = Sums.empty(cells.count)
        columns = ComparedColumns(compared.table.schema)
        for file in lake.files(columns, paths):
            for rows, _ in file.numbered():
                measured = columns.measured(rows if wanted is None else columns.of_chunks(rows, cells, wanted), cells)
                ours.add(measured.cells, measured.checksums)
        theirs = compared.executors.lake_sums(compared.table, cells, lake, paths, wanted)
        assert theirs
        assert theirs.total == ours.total > 0
        assert not len(ours.differing(theirs))
    assert compared.executors.lake_sums(compared.table, cells, lake, ["gone.parquet"], None) is None
    assert "as executors can't" in compared.said[0]


@on_mysql
def test_nothing_counts_once_nobody_holds_the_gates(mirror: Mirror, spark: SparkSession) -> None:
    """A task that Spark ran again could then open a later view."""
    mirror.options["verify"] = {"rows_per_second": 300}
    compared = Compared(mirror, spark)
    with compared.views() as views, Source.open(mirror.endpoint) as other:
        (row,) = other.query("SELECT IS_USED_LOCK(%s) AS holder", [compared.executors.gates[0].spent])
        other.execute(f"KILL {row['holder']}")
        mirror.execute("UPDATE t SET n = 1")
        compared.assert_alike(views)
    assert len(compared.said) == 1
    assert compared.said[0].startswith("this process reads ")


class RunTwice(ByExecutors):
    """The first connection's task is also run a second time, which comes to the gate while the first stands there: so
    would one whose executor is lost to Spark and lives on."""

    def come(self, control: Source, beside: Sequence[int]) -> None:
        super().come(control, beside)
        (task, *_) = self._tasks(beside)
        self.again = threading.Thread(target=executor_tasks.read_server, args=(task,))
        self.again.start()
        with Source.open(self._endpoint) as asked:

            def stand() -> bool:
                shown = asked.query("SHOW FULL PROCESSLIST")
                return sum(f"GET_LOCK('{task.gate.closed}'" in (row["Info"] or "") for row in shown) == 2

            wait_until(stand, "the second isn't at the gate")


def test_a_view_that_opens_once_the_gate_is_free_again_counts_for_nothing(mirror: Mirror, spark: SparkSession) -> None:
    mirror.options["verify"] = {"rows_per_second": 300}
    compared = Compared(mirror, spark, kind=RunTwice)
    with compared.views() as views, Source.open(mirror.endpoint) as other:
        mirror.execute("UPDATE t SET n = 1")
        (row,) = other.query("SELECT IS_USED_LOCK(%s) AS holder", [compared.executors.gates[0].open])
        assert row["holder"] in compared.executors.connections
        other.execute(f"KILL {row['holder']}")
        assert isinstance(compared.executors, RunTwice)
        compared.executors.again.join()
        compared.assert_alike(views)
    assert compared.said[0].startswith("this process reads ")


@on_mysql
def test_executors_end_once_the_time_is_up(mirror: Mirror, spark: SparkSession) -> None:
    """A lock keeps them from the rows behind the first ones."""
    mirror.options["verify"] = {"rows_per_second": 150}
    compared = Compared(mirror, spark, budget=Budget(0), connections=1)  # a core is left for the lake's rows
    with (
        mock.patch("binlake.verify.reading.by_read._TOGETHER", 1),
        mock.patch("binlake.verify.reading.lake_rows._MOST_TIMES", 9),
        compared.views() as views,
        mirror.server.connect(database=mirror.database) as locking,
    ):
        wait(compared.by_executors.begin(compared.table, views)[:2])
        with locking.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
        blank = TableResult(compared.table.name, "failed", batch=0)
        result = compared.by_executors.compare(compared.table, views, blank, None)
        assert (result.state, result.looked) == ("unfinished", 2)
        tracker = spark.sparkContext.statusTracker()
        (job,) = tracker.getJobIdsForGroup(compared.executors.group)
        wait_until(lambda: tracker.getJobInfo(job).status == "FAILED", "executors continue")
    assert not compared.said


@on_mysql
def test_executors_that_cannot_reach_the_server(mirror: Mirror, spark: SparkSession) -> None:
    nowhere = Endpoint("127.0.0.1", free_port(), "root", "")
    compared = Compared(mirror, spark, nowhere)
    with compared.views() as views:
        compared.assert_alike(views)
    (said,) = compared.said
    assert "this process reads 9 of 9 parts of large tables, as executors didn't: " in said
    assert nowhere.address in said


def test_connections_that_read_elsewhere_are_counted_while_they_run(mirror: Mirror) -> None:
    with Source.open(mirror.endpoint) as reading, Source.open(mirror.endpoint) as asked:
        reading.query("SELECT GET_LOCK('of a test', 0)")
        numbers = OtherReaders((reading.connection_id,), ()), OtherReaders((), ("of a test",))
        assert [others.running(asked) for others in numbers] == [0, 0]

        def sleep() -> None:
            with suppress(SourceError):  # of MariaDB, once it is killed
                reading.query("SELECT SLEEP(600)")

        thread = threading.Thread(target=sleep)
        thread.start()
        try:
            for others in numbers:
                wait_until(lambda others=others: others.running(asked) == 1, "it isn't counted")
        finally:
            asked.execute(f"KILL QUERY {numbers[0].connections[0]}")
            thread.join()


def test_how_many_connections_executors_open() -> None:
    """One core stays free, and one connection this process's."""
    assert [executor_plan.connections(cores, None) for cores in (1, 2, 3, 9, 30)] == [1, 1, 2, 6, 20]
    assert [executor_plan.connections(9, most) for most in (1, 2, 16)] == [0, 1, 6]
