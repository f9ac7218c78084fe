"""A lake on S3: the same mirror as in a folder, and of two who commit one version of a table one is refused."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JJavaError

from authority import Authority
from binlake import pipeline
from binlake.config import MergeConfig
from binlake.delta import layout, opened_tables
from binlake.doctor.preflight import preflight
from binlake.errors import LeaseHeld, UsageError
from binlake.faults import FaultPoint
from binlake.lake.opened_lake import open_lake
from binlake.lease import lease
from binlake.report import Report
from binlake.snapshot import few_rows
from binlake.spark import session, settings
from binlake.storage import stores
from binlake.store.metadata import Metadata, now_us
from fake_s3 import ROLE, FakeS3
from frozen import Frozen
from mirror import Mirror
from object_store import ObjectStore
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

COMMITS = 4
DIRECT = {"snapshot": {"reader": "direct"}}
_JAVA = {"aws.accessKeyId": "AWS_ACCESS_KEY_ID", "aws.secretAccessKey": "AWS_SECRET_ACCESS_KEY"}
"""The tests' JVM began before the server, so it gets the account by the next link of AWS's chain."""


def tell(spark: SparkSession, environment: dict[str, str]) -> None:
    """The running session where the store is; jobs that are started learn it from the environment alone."""
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in stores.S3.of(environment).spark_settings().items():
        if key.startswith("spark.hadoop.") and value:
            hadoop.set(key.removeprefix("spark.hadoop."), value)
    for key, variable in _JAVA.items():
        jvm.System.setProperty(key, environment[variable])
    spark.sparkContext.environment |= environment  # of the Python processes that it starts from now on


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch, ObjectStore(tmp_path_factory.mktemp("s3")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        tell(spark, running.environment)
        yield running
        for name in running.environment:
            spark.sparkContext.environment.pop(name)
        for key in _JAVA:
            spark.sparkContext._jvm.System.clearProperty(key)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def mirror(
    mysql_server: Server, spark: SparkSession, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    """Two tables, bootstrapped on the store, for all tests of this file."""
    mysql_server.execute("CREATE DATABASE on_s3")
    mirror = Mirror(mysql_server, "on_s3", tmp_path_factory.mktemp("yaml"), spark, url="s3://lake/mirrors")
    make_tables(mirror)
    mirror.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_TESTS", mysql_server.uri())
        yield mirror
    mysql_server.execute("DROP DATABASE on_s3")


@pytest.fixture(scope="module")
def frozen(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    process = Frozen(mirror, tmp_path_factory.mktemp("frozen"))
    yield process
    process.kill()


def test_spark_s_commit_is_written_once_another_write_of_it_is_over(spark: SparkSession, store: ObjectStore) -> None:
    """S3 puts it off by HTTP 409. What lies there then is others', or ours, of which the answer got lost."""
    jvm: Any = spark.sparkContext._jvm
    with FakeS3() as fake:
        settings = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())  # type: ignore[attr-defined]
        settings.set("fs.s3a.endpoint", fake.url)
        settings.set("fs.s3a.impl.disable.cache", "true")
        log_store = jvm.binlake.ConditionalLogStore(settings)

        def write(version: int) -> None:
            lines = jvm.java.util.ArrayList()
            lines.add("ours")
            place = jvm.org.apache.hadoop.fs.Path(f"s3a://lake/t/_delta_log/{version:020}.json")
            fake.conflicts = 2
            log_store.write(place, lines.iterator(), False, settings)

        write(0)
        assert (list(fake.objects.values()), fake.conflicts) == ([b"ours\n"], 0)
        fake.before_conflict = lambda name: fake.objects.update({name: b"ours\n"})
        write(1)
        fake.before_conflict = lambda name: fake.objects.update({name: b"theirs\n"})
        with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
            write(2)
        assert list(fake.objects.values()) == [b"ours\n", b"ours\n", b"theirs\n"]


def test_java_takes_a_container_s_role_as_the_others_do(spark: SparkSession, store: ObjectStore) -> None:
    """By the names that these variables have as settings of a JVM at work."""
    jvm: Any = spark.sparkContext._jvm
    with FakeS3() as fake:
        properties = {
            "aws.containerCredentialsFullUri": f"{fake.url}/role",
            "aws.containerAuthorizationToken": fake.token,
        }
        for name, value in properties.items():
            jvm.System.setProperty(name, value)
        credentials = (
            jvm.software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider.create().resolveCredentials()
        )
        for name in properties:
            jvm.System.clearProperty(name)
    assert credentials.accessKeyId() == ROLE["AccessKeyId"]


def test_of_spark_s_commit_and_one_without_spark_the_later_is_refused(mirror: Mirror, frozen: Frozen) -> None:
    """The other process has written its data file, and looked at the version behind which it commits."""
    plain_work(mirror, "raced")
    frozen.run("data file written", "sync")
    assert mirror.metadata.swap("lease", "token IS NOT NULL", {"expires_us": 1})
    replace(mirror, options={"merge": {"without_spark_mb": 0}}).sync()
    version = mirror.version("plain")
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert mirror.version("plain") == version
    engines = [commit["engineInfo"].partition("/")[0] for commit in DeltaTable(mirror.path("plain")).history(1)]
    assert engines == ["Apache-Spark"]
    mirror.assert_equal("plain")
    mirror.assert_each_once("plain")


@pytest.mark.soak
def test_who_lost_the_lease_commits_nothing_and_who_was_killed_is_followed(mirror: Mirror, frozen: Frozen) -> None:
    """The second driver is a process with a JVM of its own, which has its account from the environment."""
    work(mirror)
    frozen.run("epoch committed", "sync")
    assert mirror.metadata.swap("lease", "token IS NOT NULL", {"expires_us": 1})
    mirror.sync()
    mirror.assert_equal(*TABLES)
    before = {table: mirror.version(table) for table in TABLES}
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert {table: mirror.version(table) for table in TABLES} == before

    work(mirror)
    frozen.run("epoch committed", "sync")
    frozen.kill()
    mirror.sync()
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)


def test_who_merges_without_spark_is_followed_wherever_he_is_cut_off(
    mirror: Mirror, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table that is small, and as one that is large, whose rows are marked."""
    without = replace(mirror, spark=None, options={"merge": {"without_spark_mb": 16}})  # type: ignore[arg-type]
    points: tuple[tuple[int, FaultPoint], ...] = (
        (layout.FEW_BYTES, "data file written"), (0, "rows marked"), (0, "data file written"), (0, "epoch committed"),
    )  # fmt: skip
    for number, (small, point) in enumerate(points):
        monkeypatch.setattr(layout, "FEW_BYTES", small)
        plain_work(mirror, f"cut off {number}")
        with without.cut_off_at(point):
            without.sync()
        without.sync()
        mirror.assert_equal("plain")
    mirror.assert_each_once("plain")
    newest = DeltaTable(mirror.path("plain")).history(len(points))
    assert {commit["engineInfo"].partition("/")[0] for commit in newest} == {"binlake"}
    assert list((store.folder / "lake" / "mirrors" / "tests" / mirror.database / "plain").glob("**/*.bin"))


@pytest.mark.soak
def test_upkeep_and_a_snapshot_that_are_cut_off_are_taken_up(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FEWEST", 2)
    kept = {"history_hours": 0, "log_hours": 0, "metadata_hours": 0}
    mirror = replace(mirror, options={"maintain": kept, "merge": {"without_spark_mb": 16}})
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    upkeep: tuple[FaultPoint, ...] = ("rows rewritten", "layout committed", "vacuumed")
    for point in upkeep:
        plain_work(mirror, point)
        mirror.sync()
        with mirror.cut_off_at(point):
            mirror.maintain("*.plain")
    mirror.maintain("*.plain")
    assert len(DeltaTable(mirror.path("plain")).file_uris()) == 1
    copying: tuple[FaultPoint, ...] = ("chunks written", "rows committed", "snapshot committed")
    for point in copying:
        with mirror.cut_off_at(point):
            mirror.snapshot("*.plain")
        plain_work(mirror, point)
    mirror.snapshot("*.plain")
    plain_work(mirror, "at last")
    mirror.sync()
    mirror.assert_equal("plain")


def test_a_store_is_verified_and_looked_after_as_a_folder_is(mirror: Mirror, store: ObjectStore) -> None:
    work(mirror)
    mirror.sync()
    assert all(table.equal for table in mirror.verify().tables)
    mirror.options = {"maintain": {"history_hours": 0, "log_hours": 0, "metadata_hours": 0}}
    report = mirror.maintain()
    assert sum(table.removed_files for table in report.tables) > 0
    work(mirror)
    mirror.sync()
    mirror.assert_equal(*TABLES)
    assert [path.name for path in (store.folder / "lake").iterdir() if path.name[0] != "."] == ["mirrors"]


def test_readers_take_the_account_of_the_environment_or_of_a_connection(
    mirror: Mirror, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(mirror)
    mirror.sync()
    yaml = tmp_path / "source.yaml"
    lakes = [open_lake("s3://lake/mirrors"), open_lake(mirror.config)]
    yaml.write_text(json.dumps({**mirror.config.model_dump(), "lake": {"path": mirror.url, "connection": "store"}}))
    rows = mirror.server.execute("SELECT id FROM on_s3.a ORDER BY id")
    for connected in (False, True):
        if connected:
            for name in store.environment:
                monkeypatch.delenv(name)
            monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(store.connection))
            lakes = [open_lake(yaml)]
        for lake in lakes:
            assert_read(lake, mirror, *TABLES)
            with lake.duckdb("on_s3.a") as connection:
                assert connection.sql("SELECT id FROM on_s3.a ORDER BY id").fetchall() == rows
    assert_asked(mirror, yaml, "a")


@pytest.mark.parametrize("options", [DIRECT, {}], ids=["direct", "jdbc"])
def test_rows_that_either_reader_copies(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """This process writes the data files, or reads the footers of Spark's, and commits them."""
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    monkeypatch.setattr(mirror, "options", options)
    mirror.snapshot()
    mirror.assert_equal(*TABLES)


def test_a_commit_that_another_driver_makes_between_look_and_write_stays(mirror: Mirror) -> None:
    """By the class that Delta commits with in this session; its actions come slowly."""
    path = "s3a://lake/mirrors/between"
    write_deltalake(path, pa.table({"n": [0]}))
    context: Any = mirror.spark.sparkContext
    jvm, hadoop = context._jvm, context._jsc.hadoopConfiguration()
    log_store = jvm
    for name in context.getConf().get("spark.delta.logStore.s3a.impl").split("."):
        log_store = getattr(log_store, name)
    log = log_store(hadoop)
    actions = jvm.java.io.PipedReader()
    writer = jvm.java.io.PipedWriter(actions)
    refused: list[str] = []

    def commit() -> None:
        version = jvm.org.apache.hadoop.fs.Path(f"{path}/_delta_log/{1:020}.json")
        try:
            log.write(version, jvm.java.util.Scanner(actions), False, hadoop)
        except Py4JJavaError as error:
            refused.append(str(error.java_exception.getClass().getName()))

    slow = threading.Thread(target=commit)
    slow.start()
    time.sleep(1)  # who looks before it writes has looked
    write_deltalake(path, pa.table({"n": [1]}), mode="append")
    writer.write("{}")
    writer.close()
    slow.join()
    assert refused == ["java.nio.file.FileAlreadyExistsException"]
    rows = mirror.spark.read.format("delta").load(path).toArrow()["n"].to_pylist()
    assert sorted(rows) == [0, 1]


def test_two_drivers_that_race_lose_no_commit(mirror: Mirror) -> None:
    race_with_spark(mirror.spark, "s3a://lake/mirrors/raced", COMMITS)


def test_of_those_who_commit_one_version_at_once_one_wins(mirror: Mirror) -> None:
    jvm: Any = mirror.spark.sparkContext._jvm
    hadoop: Any = mirror.spark.sparkContext._jsc.hadoopConfiguration()
    log, folder = jvm.binlake.ConditionalLogStore(hadoop), "s3a://lake/mirrors/log"
    version, who = race_for_versions(mirror.spark, log, folder, 10)[0]
    # Its answer got lost, and it asks again.
    lines = jvm.java.util.ArrayList()
    lines.add(f"{who} at {version}")
    log.write(jvm.org.apache.hadoop.fs.Path(f"{folder}/{version}"), lines.iterator(), False, hadoop)


def test_of_two_who_want_the_lease_one_gets_it(mirror: Mirror) -> None:
    metadata = Metadata("s3a://lake/mirrors/_lease")
    with lease.held(metadata) as held:
        other = {"holder": "other-host pid 1 started 1", "token": "t"}
        stale = opened_tables.opened(metadata.location("lease"))
        assert metadata.swap("lease", "token IS NOT NULL", {**other, "expires_us": now_us() + 60_000_000})
        with pytest.raises(CommitFailedError):
            stale.update(predicate="token IS NOT NULL", updates={"holder": "'a third'"})
        with pytest.raises(LeaseHeld, match="lost its lease"):
            held.check()


@pytest.mark.parametrize(
    ("changed", "remedy", "lake"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "AWS_SECRET_ACCESS_KEY", "s3a://lake/mirrors"),
        ({}, "make the bucket", "s3a://nowhere/mirrors"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "AWS_ENDPOINT_URL", "s3a://lake/mirrors"),
    ],
)
def test_the_doctor_tells_which_library_cannot_reach_the_store_and_why(
    mirror: Mirror, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], remedy: str, lake: str
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    tell(mirror.spark, {**store.environment, **changed})
    config = mirror.config.model_copy(update={"lake": mirror.config.lake.model_copy(update={"path": lake})})
    try:
        checks = preflight(config, mirror.origin, session=lambda _: mirror.spark)
    finally:
        tell(mirror.spark, store.environment)
    failed = {check.name: check for check in checks if check.ok is False}
    assert list(failed) == ["lake's position", "lake by pyarrow", "lake by deltalake", "lake by Spark"]
    for check in failed.values():
        assert remedy in check.remedy, check
        assert "<" not in check.found
        assert store.secret not in str(check)


def test_jars_that_are_missing_are_told_before_anything_begins(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for jar in settings.JARS.glob("delta-*.jar"):
        (tmp_path / jar.name).symlink_to(jar)
    monkeypatch.setattr(settings, "JARS", tmp_path)
    for begin in (lambda: session.build("none", lake=mirror.config.root), mirror.snapshot):
        with pytest.raises(UsageError, match="binlake setup --stores s3"):
            begin()
    plain_work(mirror, "without jars")
    said = io.StringIO()
    config = mirror.config.model_copy(update={"merge": MergeConfig(without_spark_mb=16)})
    pipeline.sync(config, mirror.origin, lambda why: pytest.fail("Spark is asked for"), Report(said))
    assert "binlake setup --stores s3" in said.getvalue()
    assert "a sync that needs Spark ends there" in said.getvalue()
    mirror.assert_equal("plain")
    remedies = [check.remedy for check in preflight(mirror.config, mirror.origin) if check.name == "Spark jars"]
    assert remedies != [""]
    monkeypatch.setattr(mirror, "options", DIRECT)
    mirror.snapshot("on_s3.plain")
    mirror.assert_equal("plain")


def test_the_command_line_works_by_a_connection_alone_and_keeps_no_secret(mirror: Mirror, tmp_path: Path) -> None:
    """By the environment's account the processes work that are frozen above. The server's authority is a private one,
    which no library trusts by itself."""
    authority = Authority.made(tmp_path, "authority")
    store = ObjectStore(tmp_path / "s3", authority.sign("store"))
    lake = {**mirror.config.model_dump()["lake"], "connection": "store"}
    environment = {"AIRFLOW_CONN_STORE": json.dumps(store.connection), "SSL_CERT_FILE": str(authority.pem)}
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")  # other tests' stores had lakes at this address
    with store:
        said = doctor_in_a_process(mirror, lake, environment, tmp_path)
    kept = [path for folder in (tmp_path, store.folder) for path in folder.rglob("*") if path.is_file()]
    assert any(b"SparkListenerEnvironmentUpdate" in path.read_bytes() for path in kept)
    assert not [path for path in kept if store.secret.encode() in path.read_bytes()]
    assert store.secret not in said
