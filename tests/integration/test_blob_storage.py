"""A lake on Azure: the same mirror as in a folder, and of two who commit one version of a table one is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from binlake.config import PipelineConfig
from binlake.delta import layout, opened_tables
from binlake.doctor.reach import lake_checks
from binlake.errors import LeaseHeld
from binlake.lake.opened_lake import open_lake
from binlake.lease import lease
from binlake.spark import session, trust
from binlake.storage import files, stores
from binlake.store.metadata import Metadata, now_us
from blob_storage import ACCOUNT, BlobStorage
from frozen import Frozen
from mirror import Mirror
from stored_lake import (
    TABLES,
    assert_asked,
    assert_read,
    doctor_in_a_process,
    make_tables,
    plain_work,
    race_for_versions,
    race_with_spark,
    work,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers import Server

CONTAINER = f"abfss://lake@{ACCOUNT}.dfs.core.windows.net"
LAKE = f"{CONTAINER}/mirrors"
LIBRARIES = ("pyarrow", "deltalake", "Spark")
_TRUST = ("javax.net.ssl.trustStore", "javax.net.ssl.trustStoreType", "javax.net.ssl.trustStorePassword")


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobStorage]:
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    with pytest.MonkeyPatch.context() as patch, BlobStorage(tmp_path_factory.mktemp("blobs")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        # The tests' JVM began before the server, so it is told what a job's is told by its command.
        for option in trust.java_options(str(trust.store_for(LAKE))):
            name, _, value = option.removeprefix("-D").partition("=")
            jvm.System.setProperty(name, value)
        session.tell_store(spark.sparkContext, LAKE)
        hadoop.set("fs.azure.createRemoteFileSystemDuringInitialization", "true")
        jvm.org.apache.hadoop.fs.Path(f"{CONTAINER}/").getFileSystem(hadoop)  # makes the container
        yield running
        for name in _TRUST:
            jvm.System.clearProperty(name)
        for name in stores.at(LAKE).variables():
            spark.sparkContext.environment.pop(name)


@pytest.fixture(scope="module")
def mirror(
    mysql_server: Server, spark: SparkSession, store: BlobStorage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    """Three tables, bootstrapped on the store, for all tests of this file."""
    mysql_server.execute("CREATE DATABASE on_azure")
    mirror = Mirror(mysql_server, "on_azure", tmp_path_factory.mktemp("yaml"), spark, url=LAKE)
    make_tables(mirror)
    mirror.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_TESTS", mysql_server.uri())
        yield mirror
    mysql_server.execute("DROP DATABASE on_azure")


@pytest.mark.soak
def test_a_mirror_is_made_followed_verified_and_looked_after(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark, and for the plain table without it: as one that is small, and as one whose rows are marked."""
    without = replace(mirror, spark=None, options={"merge": {"without_spark_mb": 16}})  # type: ignore[arg-type]
    work(mirror)
    replace(mirror, options={"merge": {"without_spark_mb": 0}}).sync()
    for small in (layout.FEW_BYTES, 0):
        monkeypatch.setattr(layout, "FEW_BYTES", small)
        plain_work(mirror, f"cut off {small}")
        with without.cut_off_at("data file written"):
            without.sync()
        without.sync()
    mirror.assert_equal(*TABLES, "plain")
    assert_read(open_lake(mirror.config), mirror, *TABLES, "plain")
    assert_asked(mirror, mirror.write_yaml(), "plain")
    mirror.assert_each_once("plain")
    mirror.options = {"maintain": {"history_hours": 0, "log_hours": 0, "metadata_hours": 0}}
    assert sum(table.removed_files for table in mirror.maintain().tables) > 0
    assert all(table.equal for table in mirror.verify().tables)
    mirror.options = {}


def test_a_jvm_that_ends_sends_no_figures_of_its_requests(spark: SparkSession, store: BlobStorage) -> None:
    """It would wait for an account that doesn't answer any more."""
    account = f"{ACCOUNT}.dfs.core.windows.net"
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    configuration = jvm.org.apache.hadoop.fs.azurebfs.AbfsConfiguration(hadoop, account)
    assert configuration.isMetricsCollectionEnabled() is False


def test_of_those_who_commit_one_version_at_once_one_wins(spark: SparkSession, store: BlobStorage) -> None:
    """By the class that Delta commits with there, in a folder that is there, as a table's log is."""
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    folder = jvm.org.apache.hadoop.fs.Path(f"{LAKE}/log")
    folder.getFileSystem(hadoop).mkdirs(folder)
    race_for_versions(spark, jvm.io.delta.storage.AzureLogStore(hadoop), f"{LAKE}/log", 3)


def test_two_drivers_that_race_lose_no_commit(spark: SparkSession, store: BlobStorage) -> None:
    race_with_spark(spark, f"{LAKE}/raced", 3)


def test_those_who_race_without_spark_lose_no_commit(store: BlobStorage) -> None:
    path = f"{LAKE}/raced_by_deltalake"
    options = stores.storage_options(path)
    write_deltalake(path, pa.table({"n": pa.array([], pa.int64())}), storage_options=options)

    def append(number: int) -> None:
        for turn in range(5):
            write_deltalake(path, pa.table({"n": [10 * number + turn]}), mode="append", storage_options=options)

    writers = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    table = DeltaTable(path, storage_options=options)
    assert table.version() == 15
    assert len(table.file_uris()) == 15


def test_of_two_who_want_the_lease_one_gets_it(store: BlobStorage) -> None:
    metadata = Metadata(f"{LAKE}/_lease")
    with lease.held(metadata) as held:
        other = {"holder": "other-host pid 1 started 1", "token": "t"}
        stale = opened_tables.opened(metadata.location("lease"))
        assert metadata.swap("lease", "token IS NOT NULL", {**other, "expires_us": now_us() + 60_000_000})
        with pytest.raises(CommitFailedError):
            stale.update(predicate="token IS NOT NULL", updates={"holder": "'a third'"})
        with pytest.raises(LeaseHeld, match="lost its lease"):
            held.check()


def test_files_are_written_read_listed_and_removed(store: BlobStorage) -> None:
    """A large one is read by pieces."""
    folder = f"{LAKE}/_files"
    large = os.urandom(11 << 20)
    files.write_bytes(f"{folder}/deep/large", large)
    assert files.read_part(f"{folder}/deep/large", 10 << 20, 9) == large[10 << 20 :][:9]
    with files.hashing_sink(f"{folder}/small é") as sink:
        sink.write(b"text")
    assert files.read_text(f"{folder}/small é") == "text"
    assert files.checksum(f"{folder}/small é") == (4, sink.checksum)
    files.write_if_absent(f"{folder}/once", "first")
    with pytest.raises(FileExistsError):
        files.write_if_absent(f"{folder}/once", "second")
    assert sorted((file.name, file.bytes) for file in files.list_files(folder)) == [
        ("deep/large", len(large)), ("once", 5), ("small é", 4),
    ]  # fmt: skip
    assert files.subfolders(folder) == ["deep"]
    assert (files.exists(f"{folder}/deep"), files.size(f"{folder}/deep"), files.size(f"{folder}/once")) == (
        True,
        None,
        5,
    )
    files.remove_folder(folder)
    assert not files.exists(folder)
    with pytest.raises(FileNotFoundError), files.opened(f"{folder}/once"):
        pass


@pytest.mark.parametrize(
    ("changed", "remedy", "lake"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "bm90IHRoZSBrZXk="}, "AZURE_STORAGE_ACCOUNT_KEY", LAKE),
        ({}, "make the bucket", LAKE.replace("lake@", "nowhere@")),
        # It waits for who doesn't answer.
        pytest.param(
            {"AZURE_STORAGE_ENDPOINT": f"https://127.0.0.1:1/{ACCOUNT}"},
            "AZURE_STORAGE_ENDPOINT",
            LAKE,
            marks=pytest.mark.soak,
        ),
    ],
)
def test_the_doctor_tells_which_library_cannot_reach_the_store_and_why(
    spark: SparkSession, store: BlobStorage, changed: dict[str, str], remedy: str, lake: str
) -> None:
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.unset("fs.azure.createRemoteFileSystemDuringInitialization")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        session.tell_store(spark.sparkContext, lake)
        checks = list(lake_checks(config_of(lake), lambda _: spark))
    session.tell_store(spark.sparkContext, LAKE)
    assert [(check.name, check.ok) for check in checks] == [(f"lake by {library}", False) for library in LIBRARIES]
    for check in checks:
        assert remedy in check.remedy, check
        assert "<" not in check.found
        assert store.secret not in str(check)


def test_the_doctor_writes_and_reads_by_each_library(spark: SparkSession, store: BlobStorage) -> None:
    checks = list(lake_checks(config_of(f"{LAKE}/doctor"), lambda _: spark))
    assert [(check.name, check.ok) for check in checks] == [(f"lake by {library}", True) for library in LIBRARIES], (
        checks
    )


def config_of(lake: str) -> PipelineConfig:
    source = {"name": "tests", "connection": "tests", "server_id": 7100}
    return PipelineConfig.model_validate({"source": source, "tables": {"include": ["*.*"]}, "lake": {"path": lake}})


@pytest.mark.soak
def test_who_lost_the_lease_commits_nothing_and_who_was_killed_is_followed(mirror: Mirror, tmp_path: Path) -> None:
    """The second driver is a process with a JVM of its own, which has account and authority from the environment."""
    frozen = Frozen(mirror, tmp_path)
    work(mirror)
    frozen.run("epoch committed", "sync")
    _leave_behind(frozen, mirror, "a")
    plain_work(mirror, "raced")
    frozen.run("data file written", "sync")
    mirror.options = {"merge": {"without_spark_mb": 0}}
    _leave_behind(frozen, mirror, "plain")
    mirror.options = {}
    work(mirror)
    frozen.run("epoch committed", "sync")
    frozen.kill()
    mirror.sync()
    mirror.assert_equal(*TABLES, "plain")
    mirror.assert_each_once(*TABLES, "plain")


def _leave_behind(frozen: Frozen, mirror: Mirror, table: str) -> None:
    assert mirror.metadata.swap("lease", "token IS NOT NULL", {"expires_us": 1})
    mirror.sync()
    before = mirror.version(table)
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert mirror.version(table) == before


@pytest.mark.soak
def test_many_rounds_of_those_races(spark: SparkSession, store: BlobStorage) -> None:
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    folder = jvm.org.apache.hadoop.fs.Path(f"{LAKE}/long_log")
    folder.getFileSystem(hadoop).mkdirs(folder)
    race_for_versions(spark, jvm.io.delta.storage.AzureLogStore(hadoop), f"{LAKE}/long_log", 100)
    race_with_spark(spark, f"{LAKE}/long_race", 20)


@pytest.mark.soak
def test_the_command_line_keeps_no_secret(mirror: Mirror, store: BlobStorage, tmp_path: Path) -> None:
    """Neither in a file, nor in what Spark logs of its settings, nor in what it says."""
    said = doctor_in_a_process(mirror, mirror.config.model_dump()["lake"], store.environment, tmp_path)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"SparkListenerEnvironmentUpdate" in path.read_bytes() for path in kept)
    assert not [path for path in kept if store.secret.encode() in path.read_bytes()]
    assert store.secret not in said
