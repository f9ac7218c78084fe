"""``snapshot: {reader: direct}`` where Spark is local: this process copies and commits, and no JVM is started."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.config import SnapshotConfig
from binlake.errors import AccessDenied, BinlakeError, ConnectionFailed, SparkNeeded
from binlake.merge.position_texts import boundary_text
from binlake.phases import snapshots
from binlake.phases.verification import VerifyRequest
from binlake.position import Position
from binlake.records import decisions
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.serialization import load
from binlake.snapshot import few_rows, jdbc, resultset, snapshot as snapshot_room
from binlake.snapshot.chunks import plan
from binlake.snapshot.snapshot import SnapshotResult, SnapshotTask, snapshot
from binlake.source import locks
from binlake.source.endpoint import Endpoint
from binlake.source.locks import Busy
from binlake.source.server import Source
from binlake.spark import settings
from binlake.spark.starting import no_session
from binlake.verify.reading.table_reading import TableReading
from mirror import Mirror, in_the_soak, on_mariadb, on_mysql, sync_alone
from servers import Server, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("big", "keyless", "small")


def _no_spark(why: str) -> NoReturn:
    pytest.fail(f"Spark was asked for: {why}")  # no error of code, which would cost its table alone


def snapshot_alone(mirror: Mirror, *patterns: str) -> list[SnapshotResult]:
    """A snapshot that must not ask for Spark."""
    report = Report(io.StringIO())
    return pipeline.bootstrap(mirror.config, mirror.origin, _no_spark, report, tables=list(patterns) or None)


@pytest.fixture
def shop(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A table of several chunks, one without a key, and one that is read together with other small ones; no Spark."""
    spark: Any = None
    mirror = Mirror(server, database, lake, spark)
    rows = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 300) SELECT"
    mirror.execute(
        "CREATE TABLE big (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12,2), at DATETIME(6), b BLOB)",
        f"INSERT INTO big {rows} n, CONCAT('näme ', n), n / 7, '2020-01-01' + INTERVAL n SECOND, UNHEX(SHA2(n, 256))"
        " FROM s",
        "CREATE TABLE keyless (v VARCHAR(5), w INT)", "INSERT INTO keyless VALUES ('a', 1), ('a', 1), (NULL, NULL)",
        "CREATE TABLE small (id INT PRIMARY KEY COMMENT 'key', d DATE) COMMENT 'of a few'",
        "INSERT INTO small VALUES (1, '2020-02-29'), (2, NULL)",
        "ANALYZE TABLE big",
    )  # fmt: skip
    monkeypatch.setattr(few_rows, "MOST_ROWS", 100)
    monkeypatch.setattr(snapshot_room, "plan", lambda *given, **options: plan(*given, **{**options, "chunk_rows": 100}))
    monkeypatch.setattr(snapshot_room, "_PAUSE", 0)
    mirror.options = {"snapshot": {"reader": "direct"}}
    return mirror


def test_it_copies_again_and_goes_on(shop: Mirror) -> None:
    first = snapshot_alone(shop)
    assert [result.why_spark for result in first] == ["", "", ""]
    assert max(row["chunk"] for row in shop.metadata.read("snapshots")) >= 2
    shop.assert_equal(*TABLES)
    assert comments(shop, "small") == ("of a few", "key")
    shop.execute("UPDATE big SET name = 'moved' WHERE id % 50 = 0", "DELETE FROM small WHERE id = 2")
    sync_alone(shop)
    shop.assert_equal(*TABLES)
    shop.execute("SET sql_log_bin = 0", "DELETE FROM big WHERE id < 20")
    shop.execute("ALTER TABLE small ADD COLUMN note VARCHAR(9) DEFAULT 'new', COMMENT '', MODIFY id INT COMMENT 'id'")
    again = snapshot_alone(shop, "*.big", "*.small")
    assert {result.delta_version for result in again} == {3}  # a batch, the fence, and the copy
    assert comments(shop, "small") == (None, "id")
    shop.execute("INSERT INTO big (id) VALUES (9)", "DELETE FROM small WHERE id = 1")
    sync_alone(shop)
    shop.assert_equal(*TABLES)


def comments(mirror: Mirror, table: str) -> tuple[str | None, str]:
    """Of the table in the lake, and of its first column."""
    log = DeltaTable(mirror.path(table))
    return log.metadata().description, str(log.schema().fields[0].metadata["comment"])


@on_mariadb
def test_the_mirrors_own_columns_come_with_the_rows(shop: Mirror) -> None:
    shop.modes = [{"tables": f"{shop.database}.small", "soft_delete": True}]
    snapshot_alone(shop, "*.small")
    shop.execute("DELETE FROM small WHERE id = 2")
    sync_alone(shop)
    rows = QueryBuilder().register("t", DeltaTable(shop.path("small"))).execute("SELECT id, _deleted FROM t").read_all()
    assert sorted(pa.table(rows).to_pylist(), key=str) == [{"id": 1, "_deleted": False}, {"id": 2, "_deleted": True}]


def told(mirror: Mirror, table: str) -> dict[tuple[int, str], int]:
    """How many rows tell of each batch and position, all of them committed within the last minutes."""
    sql = (
        "SELECT _binlake_batch AS batch, _binlake_position AS position, count(*) AS rows FROM t "
        "WHERE _binlake_committed > now() - INTERVAL '9' MINUTE AND _binlake_committed < now() GROUP BY 1, 2"
    )
    rows = pa.table(QueryBuilder().register("t", DeltaTable(mirror.path(table))).execute(sql).read_all()).to_pylist()
    return {(row["batch"], row["position"]): row["rows"] for row in rows}


def positions_read(mirror: Mirror) -> set[str]:
    """The positions at which the chunks of ``big`` were read, as rows tell them."""
    rows = mirror.metadata.read("snapshots", ["position"], where="\"table\" = 'big'")
    return {boundary_text(*load(Position, json.loads(row["position"])["low"]).order) for row in rows}


@on_mysql
def test_rows_tell_the_position_of_the_wave_that_read_them(shop: Mirror) -> None:
    """Which is known once they are read; of chunks that Spark's tasks copied before, Spark writes it."""
    shop.modes = [{"tables": "*.big", "row_metadata": ["batch", "committed", "position"]}]
    with shop.cut_off_at("chunks written"):
        snapshot_alone(shop, "*.big")
    shop.execute("UPDATE big SET price = 1 WHERE id > 150")
    (result,) = snapshot_alone(shop, "*.big")
    assert result.why_spark == ""
    of_waves = told(shop, "big")
    assert {position for _, position in of_waves} == positions_read(shop)
    assert ({batch for batch, _ in of_waves}, len(of_waves), sum(of_waves.values())) == ({0}, 2, 300)
    shop.execute("UPDATE big SET price = 2 WHERE id = 7")
    sync_alone(shop)
    assert sum(rows for (batch, _), rows in told(shop, "big").items() if batch) == 151
    assert [table.equal for table in shop.verify("*.big").tables] == [True]


@on_mysql
@pytest.mark.parametrize(
    "point", ["chunks written", "rows committed", *in_the_soak("lock taken", "chunk copied", "commit begun")]
)
def test_killed_and_run_again(shop: Mirror, point: Any) -> None:
    with shop.cut_off_at(point):
        snapshot_alone(shop)
    shop.execute("UPDATE big SET price = 1 WHERE id > 150", "INSERT INTO small VALUES (7, '1999-12-31')")
    assert {result.name.table for result in snapshot_alone(shop)} == set(TABLES)
    assert not list(Path(shop.config.staging_path("snapshot")).iterdir())
    sync_alone(shop)
    shop.assert_equal(*TABLES)


@on_mariadb
def test_one_that_was_committed_under_another_yaml_is_copied_anew(shop: Mirror) -> None:
    """A column is left out between the commit and the life that would begin with it."""
    shop.exclude = ["*.small"]
    snapshot_alone(shop)
    sync_alone(shop)
    shop.exclude = []
    with shop.cut_off_at("bootstrap noted"):
        snapshot_alone(shop, "*.small")
    shop.options["tables"] = {"include": [f"{shop.database}.*"], "exclude_columns": ["*.small.d"]}
    sync_alone(shop)
    snapshot_alone(shop, "*.small")
    sync_alone(shop)
    shop.assert_equal("small", without=["d"])


def test_without_a_lock_prepared_transactions_end_first(shop: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table wasn't read when its rows were prepared."""
    monkeypatch.setattr(locks, "_PATIENCE", 0)
    shop.exclude = ["*.small"]
    snapshot_alone(shop)
    shop.execute("XA START 'x'", "INSERT INTO small VALUES (3, NULL)", "XA END 'x'", "XA PREPARE 'x'")
    sync_alone(shop)
    shop.exclude = []
    with pytest.raises(Busy, match="prepared XA"):
        shop.snapshot("*.small", lock="none")
    shop.execute("XA COMMIT 'x'")
    shop.snapshot("*.small", lock="none")
    sync_alone(shop)
    shop.assert_equal(*TABLES)


def test_a_table_asked_for_is_copied_by_the_next_sync(shop: Mirror) -> None:
    snapshot_alone(shop)
    shop.execute("SET sql_log_bin = 0", "UPDATE big SET name = 'unlogged'")
    decisions.resnapshot(shop.config, TableName(shop.database, "big"), Reason("ann", "a test"))
    sync_alone(shop)
    shop.assert_equal(*TABLES)


@on_mysql
def test_what_is_left_to_spark_is_told(shop: Mirror, spark: SparkSession) -> None:
    """A column's odd name is written by Spark; rows that tell what wrote them are written again by it where its tasks
    copied them."""
    shop.execute("CREATE TABLE odd (id INT PRIMARY KEY, ab INT)", "INSERT INTO odd VALUES (1, 2)")
    snapshot_alone(shop, "*.odd")
    shop.execute("ALTER TABLE odd RENAME COLUMN ab TO `a b`")
    shop.spark, shop.modes = spark, [{"tables": "*.big", "row_metadata": ["batch", "committed", "position"]}]
    shop.options = {"snapshot": {"reader": "jdbc"}}
    with shop.cut_off_at("chunks written"):
        shop.snapshot("*.big")
    shop.execute("UPDATE big SET price = 1 WHERE id > 150")
    shop.options = {"snapshot": {"reader": "direct"}}
    for table, why in (("odd", "written by Spark alone"), ("big", r"of t_\w+\.big .* say what wrote them")):
        (result,) = shop.snapshot(f"*.{table}")
        assert re.search(why, result.why_spark)
        newest = max(shop.metadata.read("runs"), key=lambda row: row["ended_us"])
        assert re.search(why, newest["why_spark"])
    of_waves = told(shop, "big")
    assert {position for _, position in of_waves} == positions_read(shop)
    assert ({batch for batch, _ in of_waves}, len(of_waves), sum(of_waves.values())) == ({0}, 2, 300)
    shop.assert_equal("odd")
    assert [table.equal for table in shop.verify("*.big").tables] == [True]


@on_mysql
def test_where_spark_is_on_a_cluster_or_has_a_job_it_copies(shop: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    config = shop.config
    assert snapshots._is_in_process(config, _no_spark)
    assert not snapshots._is_in_process(config.model_copy(update={"snapshot": SnapshotConfig()}), _no_spark)
    for name, value in (("SPARK_MASTER", "spark://there:7077"), ("PYSPARK_GATEWAY_PORT", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not settings.works_here(config.spark)
    with pytest.raises(SparkNeeded, match="copies rows on Spark's executors"):
        pipeline.bootstrap(config, shop.origin, no_session, Report(io.StringIO()))


def failing(mirror: Mirror, where: Endpoint) -> BinlakeError:
    """The error of a snapshot whose chunks are read from elsewhere than its control connection's server."""
    with Source.open(mirror.endpoint) as source:
        task = SnapshotTask(
            mirror.config, where, source, mirror.metadata, Report(io.StringIO()), 0, in_process=True
        )  # fmt: skip
        with pytest.raises(BinlakeError) as caught:
            snapshot(_no_spark, task, [TableName(mirror.database, "big")])
    return caught.value


@on_mysql
def test_a_password_that_is_wrong_and_a_server_that_isnt_there(shop: Mirror) -> None:
    shop.server.create_account("absent_minded", "right", [f"SELECT ON `{shop.database}`.*"])
    refused = failing(shop, Endpoint("127.0.0.1", shop.server.port, "absent_minded", "wr0ng"))
    assert isinstance(refused, AccessDenied | ConnectionFailed)
    assert "Access denied" in str(refused)
    assert "wr0ng" not in str(refused)
    unreached = failing(shop, Endpoint("127.0.0.1", free_port(), "root", ""))
    assert isinstance(unreached, ConnectionFailed)
    assert "is reached from here" in unreached.remedy


@on_mysql
def test_who_interrupts_doesnt_wait_for_the_rows(shop: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take days to come."""
    query = jdbc.chunk_query
    monkeypatch.setattr(jdbc, "chunk_query", lambda *given: f"{query(*given)} AND SLEEP(600) = 0")
    asleep = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'"

    def interrupted(written: int) -> None:
        while not shop.server.execute(asleep):
            time.sleep(0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshot_room._Snapshotter, "_watch", lambda *given: interrupted)
    with pytest.raises(KeyboardInterrupt):
        snapshot_alone(shop, "*.big")
    for (connection,) in shop.server.execute(asleep):  # the server doesn't look whether its client is there
        shop.server.execute(f"KILL {connection}")


def test_a_copy_gives_way_to_ddl_that_waits_for_its_table(shop: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes behind a waiting ALTER waits, too."""
    answer, slow = resultset.answer, ["the first copy"]

    def slowly(connection: Any, text: str, count: int) -> Iterator[Any]:
        yield from answer(connection, text, count)
        if slow and "`keyless`" in text:
            slow.pop()
            altering.start()
            with connection.cursor() as cursor:
                cursor.execute("SELECT SLEEP(60)")

    waited: list[float] = []

    def alter() -> None:
        began = time.monotonic()
        shop.server.execute("ALTER TABLE keyless ADD COLUMN late INT", database=shop.database)
        waited.append(time.monotonic() - began)

    altering = threading.Thread(target=alter)
    monkeypatch.setattr(resultset, "answer", slowly)
    monkeypatch.setattr(few_rows, "fits", lambda table: False)
    snapshot_alone(shop)
    altering.join()
    assert waited[0] < 8
    sync_alone(shop)
    shop.assert_equal(*TABLES)


@on_mariadb
def test_a_verification_gives_way_to_ddl_that_waits_for_a_table(
    shop: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read view keeps its locks there until its transaction ends."""
    for number in range(20):
        shop.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY)", f"INSERT INTO t{number} VALUES (1)")
    snapshot_alone(shop)
    add = TableReading.add_server

    def slowly(*arguments: Any) -> None:
        add(*arguments)
        time.sleep(2)

    monkeypatch.setattr(TableReading, "add_server", slowly)
    waited: list[float] = []

    def alter() -> None:
        time.sleep(4)
        began = time.monotonic()
        for number in range(20):
            shop.server.execute(f"ALTER TABLE t{number} ADD COLUMN late INT", database=shop.database)
        waited.append(time.monotonic() - began)

    altering = threading.Thread(target=alter)
    altering.start()
    report = pipeline.verify(shop.config, shop.origin, _no_spark, Report(io.StringIO()), VerifyRequest())
    altering.join()
    assert waited[0] < 10
    assert {table.state for table in report.tables} == {"compared", "unfinished"}
    assert not [table for table in report.tables if table.equal is False]
    monkeypatch.undo()
    sync_alone(shop)
    assert pipeline.verify(shop.config, shop.origin, _no_spark, Report(io.StringIO()), VerifyRequest()).equal
