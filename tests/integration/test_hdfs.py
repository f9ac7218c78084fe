"""A lake on HDFS, by Hadoop's own servers: the same mirror as in a folder, and of two who commit one version one is
refused, whether Spark commits, deltalake or binlake itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hdfs_native import Client

import peers
from binlake.doctor.reach import lake_checks
from binlake.errors import LakeError
from binlake.faults import FaultPoint
from binlake.lake.opened_lake import open_lake
from binlake.storage import files
from frozen import Frozen
from hdfs_servers import HdfsServers
from mirror import Mirror
from stored_lake import assert_asked, assert_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
TABLES = ("a", "b", "späß #1[]")
COMMITS = 5


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServers]:
    try:
        servers = HdfsServers(tmp_path_factory.mktemp("hdfs") / "servers")
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))
    with servers as running:
        yield running


@pytest.fixture(scope="module")
def mirror(
    mysql_server: Server, spark: SparkSession, hdfs: HdfsServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    mysql_server.execute("CREATE DATABASE on_hdfs")
    mirror = Mirror(mysql_server, "on_hdfs", tmp_path_factory.mktemp("yaml"), spark, url=f"{hdfs.url}/lake")
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), u VARCHAR(20))",
        "CREATE TABLE b (v VARCHAR(20))",
        "CREATE TABLE `späß #1[]` (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO a (v) VALUES ('one'), ('two'), ('three')",
        "INSERT INTO b VALUES ('same'), ('same')",
        "INSERT INTO `späß #1[]` VALUES (1, 'one')",
    )
    mirror.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_TESTS", mysql_server.uri())
        yield mirror
    mysql_server.execute("DROP DATABASE on_hdfs")


def work(mirror: Mirror) -> None:
    column = f"c{mirror.version('a')}"
    mirror.execute(
        "UPDATE a SET v = CONCAT(LEFT(v, 9), '!') WHERE id % 2",
        f"ALTER TABLE a ADD COLUMN {column} INT DEFAULT 7",
        f"INSERT INTO a (v, {column}) VALUES ('new', 1)",
        "DELETE FROM a ORDER BY id LIMIT 1",
        "DELETE FROM b LIMIT 1",
        "INSERT INTO b VALUES ('same'), ('more')",
        "UPDATE `späß #1[]` SET v = CONCAT(LEFT(v, 9), '!')",
    )


def engines(mirror: Mirror, table: str, newest: int) -> set[str]:
    return {commit["engineInfo"].partition("/")[0] for commit in DeltaTable(mirror.path(table)).history(newest)}


def test_it_is_mirrored_verified_and_looked_after_by_spark_and_without(mirror: Mirror, hdfs: HdfsServers) -> None:
    mirror.assert_equal(*TABLES)
    for limit, engine in ((0, "Apache-Spark"), (16, "binlake")):
        merging = replace(mirror, options={"merge": {"without_spark_mb": limit}})
        work(mirror)
        merging.sync()
        assert engines(mirror, "späß #1[]", 1) == {engine}
        mirror.assert_equal(*TABLES)
        assert_read(open_lake(mirror.config), mirror, *TABLES)
    assert_asked(mirror, mirror.write_yaml(), TABLES[0])
    assert all(table.equal for table in mirror.verify().tables)
    kept = {"history_hours": 0, "log_hours": 0, "metadata_hours": 0}
    report = replace(mirror, options={"maintain": kept}).maintain()
    assert sum(table.removed_files for table in report.tables) > 0
    work(mirror)
    mirror.sync()
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)
    assert all(check.ok is True for check in lake_checks(mirror.config, None))


def test_who_is_cut_off_is_followed(mirror: Mirror) -> None:
    points: tuple[FaultPoint, ...] = ("manifest written", "data file written", "epoch committed")
    for number, point in enumerate(points):
        without = replace(mirror, options={"merge": {"without_spark_mb": 16 if number < 2 else 0}})
        work(mirror)
        with without.cut_off_at(point):
            without.sync()
        without.sync()
        mirror.assert_equal(*TABLES)
    copying: tuple[FaultPoint, ...] = ("chunks written", "rows committed")
    for point in copying:
        with mirror.cut_off_at(point):
            mirror.snapshot("*.a")
    mirror.snapshot("*.a")
    mirror.sync()
    mirror.assert_equal(*TABLES)


def test_of_two_runs_that_race_the_later_commits_nothing(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frozen = Frozen(mirror, tmp_path_factory.mktemp("frozen"))
    try:
        for point, limit in (("data file written", 0), ("epoch committed", 16)):
            work(mirror)
            frozen.run(point, "sync")
            assert mirror.metadata.swap("lease", "token IS NOT NULL", {"expires_us": 1})
            replace(mirror, options={"merge": {"without_spark_mb": limit}}).sync()
            before = {table: mirror.version(table) for table in TABLES}
            code, said = frozen.wake()
            assert (code, "lost its lease" in said) == (3, True), said
            assert {table: mirror.version(table) for table in TABLES} == before
    finally:
        frozen.kill()
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)


def test_three_kinds_of_writers_lose_no_commit(mirror: Mirror, hdfs: HdfsServers) -> None:
    """Spark and deltalake append; binlake's own commits contend for the next version of a log beside."""
    path = f"{hdfs.url}/lake/raced"
    write_deltalake(path, pa.table({"n": pa.array([], pa.int64())}))
    errors: list[BaseException] = []

    def append() -> None:
        try:
            for number in range(COMMITS):
                write_deltalake(path, pa.table({"n": [number]}), mode="append")
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=append)
    other.start()
    for number in range(COMMITS):
        rows = mirror.spark.range(100 + number, 101 + number).toDF("n")
        rows.coalesce(1).write.format("delta").mode("append").save(path)
    other.join()
    assert not errors
    numbers = mirror.spark.read.format("delta").load(path).toArrow()["n"].to_pylist()
    assert sorted(numbers) == [*range(COMMITS), *range(100, 100 + COMMITS)]


def test_one_name_is_written_once_by_whoever_comes_first(mirror: Mirror, hdfs: HdfsServers) -> None:
    """Of binlake's commits, and Spark's class for the log of a table on HDFS."""
    jvm: Any = mirror.spark.sparkContext._jvm
    hadoop: Any = mirror.spark.sparkContext._jsc.hadoopConfiguration()
    log = jvm.io.delta.storage.HDFSLogStore(hadoop)
    won: list[tuple[int, int]] = []

    def ours(version: int, who: int) -> None:
        try:
            files.write_if_absent(f"{hdfs.url}/log/{version}", f"{who} at {version}\n")
        except FileExistsError:
            return
        won.append((version, who))

    def theirs(version: int, who: int) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(f"{who} at {version}")
        try:
            log.write(jvm.org.apache.hadoop.fs.Path(f"{hdfs.url}/log/{version}"), lines.iterator(), False, hadoop)
        except Exception as error:  # py4j's
            assert "FileAlreadyExistsException" in str(error)  # noqa: PT017
            return
        won.append((version, who))

    files.make_private_folder(f"{hdfs.url}/log")
    for version in range(10):
        threads = [threading.Thread(target=(ours, theirs)[who % 2], args=(version, who)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [version for version, _ in won] == list(range(10))
    for version, who in won:
        assert files.read_text(f"{hdfs.url}/log/{version}") == f"{who} at {version}\n"
    assert all(entry.path.rpartition("/")[2].isdigit() for entry in Client(hdfs.url).list_status("/log"))


def test_what_a_namenode_refuses_is_told(mirror: Mirror, hdfs: HdfsServers) -> None:
    Client(hdfs.url).mkdirs("/lake/file", 0o755, True)
    with pytest.raises(LakeError, match="lake/file"):
        files.write_text(f"{hdfs.url}/lake/file", "")


def test_a_staged_row_is_as_private_as_on_a_disk(mirror: Mirror, hdfs: HdfsServers) -> None:
    files.make_private_folder(f"{hdfs.url}/readers/_binlake/staging")
    modes = [oct(entry.permission & 0o777) for entry in Client(hdfs.url).list_status("/readers", True)]
    assert (oct(Client(hdfs.url).get_file_info("/readers").permission & 0o777), modes) == ("0o755", ["0o700", "0o700"])
