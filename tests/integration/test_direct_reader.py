"""``snapshot: {reader: direct}``: the same rows as by JDBC, of every type, and the same moments and errors."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from binlake.errors import TableError
from binlake.phases import snapshots
from binlake.schema.table import TableName
from binlake.snapshot import chunks, direct_tasks, few_rows, jdbc
from binlake.source.catalog import read_schemas
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from mirror import Mirror, in_the_soak, on_mariadb, on_mysql
from odd_values import LENIENT, SampleTable
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
by_tasks_in_the_soak = pytest.mark.parametrize("copier", ["process", *in_the_soak("tasks")], indirect=True)
"""Where Spark is local, the process copies; tasks of Spark do so on a cluster."""


@pytest.fixture
def copier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "tasks":
        monkeypatch.setattr(snapshots, "_is_in_process", lambda config, session: False)
        monkeypatch.setattr(few_rows, "MOST_ROWS", -1)


@pytest.fixture
def direct_mirror(mirror: Mirror) -> Mirror:
    mirror.options["snapshot"] = {"reader": "direct"}
    return mirror


def both(spark: SparkSession, server: Server, query: str) -> tuple[Any, Any]:
    """What JDBC and our reader give for a query: types and rows."""
    endpoint, mariadb = Endpoint("127.0.0.1", server.port, "root", ""), server.kind == "mariadb"
    frames = [reader(spark, jdbc.ChunkQuery(endpoint, query, mariadb)) for reader in (jdbc.read, direct_tasks.read)]
    by_jdbc, ours = ((frame.schema, [repr(row) for row in frame.collect()]) for frame in frames)
    return by_jdbc, ours


def test_every_sample_of_every_type_is_the_same(server: Server, spark: SparkSession, database: str) -> None:
    samples = SampleTable.of(server.kind, "samples", invalid_dates=True)
    samples.create(server, database)
    name = TableName(database, "samples")
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        schema = read_schemas(source, [name])[name]
    by_jdbc, ours = both(spark, server, jdbc.chunk_query(name, schema, None, None) + " ORDER BY id")
    assert len(ours[1]) == samples.rows
    assert ours == by_jdbc


@pytest.mark.parametrize("options", [{}, {"invalid_dates": "keep_text", "invalid_text": "keep_bytes"}])
def test_data_files_are_the_same_as_sparks(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """Of every type."""
    table = SampleTable.of(mirror.server.kind, "samples", invalid_dates=bool(options))
    table.create(mirror.server, mirror.database)
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    lakes = {}
    for reader in ("direct", "jdbc"):
        (tmp_path / reader).mkdir()
        chosen = {**options, "snapshot": {"reader": reader}}
        lake = lakes[reader] = Mirror(mirror.server, mirror.database, tmp_path / reader, mirror.spark, options=chosen)
        lake.snapshot()
    ours, sparks = (
        lake_of_reader.spark.read.format("delta").load(lake_of_reader.path("samples")).orderBy("id")
        for lake_of_reader in lakes.values()
    )
    assert ours.schema == sparks.schema
    assert ours.toArrow() == sparks.toArrow()
    if not options:
        lakes["direct"].assert_equal("samples")
    by_arrow = [file for file in (tmp_path / "direct").rglob("snapshot-*/*.parquet") if "Spark" not in created(file)]
    assert len(by_arrow) == 1


def created(file: Path) -> str:
    return str(pq.ParquetFile(file).metadata.created_by).replace("parquet-mr", "Spark")


@by_tasks_in_the_soak
@pytest.mark.usefixtures("copier")
def test_invalid_text_is_kept_or_refused(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half of a surrogate pair, which both servers take in ucs2."""
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET ucs2)",
        "INSERT INTO t VALUES (1, 'whole'), (2, x'0041D800'), (3, NULL)",
    )
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    mirror.options = {"snapshot": {"reader": "direct"}}
    with pytest.raises(TableError, match="column 'v' isn't valid"):
        mirror.snapshot()
    mirror.options = {"snapshot": {"reader": "direct"}, "invalid_text": "keep_bytes"}
    mirror.snapshot()
    rows = mirror.spark.read.format("delta").load(mirror.path("t")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (1, "whole", None), (2, None, bytearray(b"\x00A\xd8\x00")), (3, None, None),
    ]  # fmt: skip


@by_tasks_in_the_soak
@pytest.mark.usefixtures("copier")
def test_invalid_dates_are_counted_and_refused(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.execute(
        LENIENT, "CREATE TABLE t (id INT PRIMARY KEY, d DATE)",
        "INSERT INTO t VALUES (1, '2020-02-30'), (2, '2020-02-29'), (3, '0000-00-00'), (4, NULL)",
    )  # fmt: skip
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    mirror.options = {"snapshot": {"reader": "direct"}}
    with pytest.raises(TableError, match="column 'd' holds an invalid date in 2 rows"):
        mirror.snapshot()


@on_mysql
def test_files_of_a_chunk_are_left_out_by_their_bounds(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is found, in one of the files alone."""
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(99), day DATE, at DATETIME(6), stamp TIMESTAMP(6))",
        """INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 40)
           SELECT n, CONCAT(REPEAT(CHAR(65 + (n - 1) DIV 10), 33), n), '2020-01-01' + INTERVAL n DAY,
           '2020-01-01' + INTERVAL n * 1000001 MICROSECOND, '2020-01-01' + INTERVAL n * 1000001 MICROSECOND FROM s""",
    )
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    monkeypatch.setattr(chunks.TableSnapshot, "rows_per_file", 10)
    mirror.options = {"snapshot": {"reader": "direct"}}
    mirror.snapshot()
    mirror.assert_equal("t")
    whole = mirror.spark.read.format("delta").load(mirror.path("t"))
    rows = whole.orderBy("id").collect()
    assert len(whole.inputFiles()) == 4
    for row in (rows[0], rows[9], rows[10], rows[39]):
        for column in whole.columns:
            matching = whole.where(whole[column] == row[column])
            assert [match["id"] for match in matching.collect()] == [row["id"]]
            assert len(matching.inputFiles()) == 1


@on_mariadb
def test_no_row_and_many_rows(server: Server, spark: SparkSession, database: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=database)
    query = f"SELECT id + 0 AS c0, CAST(v AS CHAR) AS c1 FROM {database}.t ORDER BY id"
    assert both(spark, server, query)[1][1] == []
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6)"
    numbers = "a.d + 7*b.d + 49*c.d + 343*e.d + 2401*f.d + 16807*g.d"
    tables = ", ".join(f"{digits} {name}" for name in "abcefg")
    server.execute(
        f"INSERT INTO t SELECT n, IF(n % 3, n, NULL) FROM (SELECT {numbers} AS n FROM {tables}) x", database=database
    )
    by_jdbc, ours = both(spark, server, query)
    assert len(ours[1]) == 7**6
    assert ours == by_jdbc


def test_snapshot_and_sync(direct_mirror: Mirror) -> None:
    direct_mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO a VALUES (1, 'one'), (2, NULL)",
        "CREATE TABLE b (v DECIMAL(10, 2))", "INSERT INTO b VALUES (1.5), (1.5), (NULL)",
    )  # fmt: skip
    first, second = direct_mirror.snapshot()
    assert first.low == first.high == second.low == second.high
    direct_mirror.execute("UPDATE a SET v = 'two' WHERE id = 2", "DELETE FROM b LIMIT 1")
    direct_mirror.sync()
    direct_mirror.assert_equal("a", "b")


@on_mysql
def test_a_value_beyond_16_mib(direct_mirror: Mirror) -> None:
    mirror, server = direct_mirror, direct_mirror.server
    with server.setting("max_allowed_packet", 64 * MIB):
        mirror.execute(
            "CREATE TABLE large (id INT PRIMARY KEY, b LONGBLOB)",
            f"INSERT INTO large VALUES (1, REPEAT(x'00ff', {9 * MIB})), (2, 'behind')",
        )
        mirror.snapshot()
    rows = mirror.spark.sql(f"SELECT id, sha2(b, 256) FROM delta.`{mirror.path('large')}` ORDER BY id").collect()
    expected = [hashlib.sha256(value).hexdigest() for value in (b"\0\xff" * (9 * MIB), b"behind")]
    assert [row[1] for row in rows] == expected


@on_mysql
@by_tasks_in_the_soak
@pytest.mark.usefixtures("copier")
def test_a_table_that_the_server_cant_read_is_told_with_the_servers_number(direct_mirror: Mirror) -> None:
    direct_mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE lost (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)",
        "ALTER TABLE lost DISCARD TABLESPACE",
    )  # fmt: skip
    with pytest.raises(TableError, match=r"lost.*\(error 1814\)"):
        direct_mirror.snapshot()
    direct_mirror.assert_equal("a")


@on_mariadb
@by_tasks_in_the_soak
@pytest.mark.usefixtures("copier")
def test_a_connection_that_is_killed_within_the_rows(direct_mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another wave copies the chunk, at a position of its own."""
    mirror = direct_mirror
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO a VALUES (1, 'one'), (2, 'two')")
    query, killed = jdbc.chunk_query, threading.Event()

    def slow(*arguments: Any) -> str:
        return query(*arguments) + ("" if killed.is_set() else " WHERE SLEEP(IF(id = 2, 600, 0)) = 0")

    def kill() -> None:
        shown = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' AND INFO LIKE '%FROM%SLEEP(%'"
        while not (shown_rows := mirror.server.execute(shown)):
            time.sleep(0.2)
        killed.set()
        mirror.server.execute(f"KILL {shown_rows[0][0]}")

    monkeypatch.setattr(jdbc, "chunk_query", slow)
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    mirror.snapshot()
    assert killed.is_set()
    mirror.assert_equal("a")


def test_encrypted_and_verified(mysql_server: Server, spark: SparkSession) -> None:
    ca = mysql_server.datadir / "ca.pem"
    endpoint = Endpoint("127.0.0.1", mysql_server.port, "root", "", tls=(("ca", str(ca)), ("check_hostname", "false")))
    query = "SELECT VARIABLE_VALUE AS c0 FROM performance_schema.session_status WHERE VARIABLE_NAME = 'Ssl_cipher'"
    row = direct_tasks.read(spark, jdbc.ChunkQuery(endpoint, query, mariadb=False)).head()
    assert row is not None
    assert row["c0"]
