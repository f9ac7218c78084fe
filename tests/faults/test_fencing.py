"""Two at once, and processes that wake up after others did their work: one works, nothing is done twice or undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlake import faults
from binlake.cli import command_line
from binlake.delta.delta_log import overtaking
from binlake.delta.delta_schema import DeltaSchema
from binlake.lease import lease
from binlake.merge.lake_table import CONFLICTS, LakeTable, NewTable
from binlake.records import watermarks
from binlake.spark import data_files, session
from binlake.spark.transaction import OptimisticTransaction
from frozen import Frozen
from mirror import Mirror, in_the_soak
from stored_lake import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers import Server

TABLES = ("a", "b")


@pytest.fixture(scope="module")
def mirror(mysql_server: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """Two tables, followed, for all tests of this file."""
    mysql_server.execute("CREATE DATABASE fenced")
    mirror = Mirror(mysql_server, "fenced", tmp_path_factory.mktemp("lake"), spark)
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), u VARCHAR(20))",
        "CREATE TABLE b (v VARCHAR(20))",
        "INSERT INTO a (v) VALUES ('one'), ('two'), ('three')",
        "INSERT INTO b VALUES ('same'), ('same')",
    )
    mirror.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_TESTS", mysql_server.uri())
        yield mirror
    mysql_server.execute("DROP DATABASE fenced")


@pytest.fixture(scope="module")
def frozen(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    process = Frozen(mirror, tmp_path_factory.mktemp("frozen"))
    yield process
    process.kill()


@pytest.fixture(autouse=True)
def this_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others: the command line in this process, on the tests' session."""
    monkeypatch.setattr(session, "build", lambda name, **options: spark)


def command(mirror: Mirror, *arguments: str) -> int:
    return command_line.run([arguments[0], "--config", str(mirror.write_yaml()), *arguments[1:]])


def expire(mirror: Mirror) -> None:
    """As if the lifetime of what a process holds had gone by: who is frozen doesn't renew it."""
    held = [mirror.metadata.swap(table, "token IS NOT NULL", {"expires_us": 1}) for table in ("lease", "copiers")]
    assert any(held)


def state(mirror: Mirror) -> dict[str, Any]:
    """All that a woken process could change."""
    names = ("lease", "batches", "watermarks", "schemas", "ddl_history", "quarantine", "runs", "snapshots")
    kept: dict[str, Any] = {name: sorted(map(str, mirror.metadata.read(name))) for name in names}
    for table in TABLES:
        kept[table] = mirror.version(table)
    kept["staging"] = sorted(path.name for path in Path(mirror.config.staging_path()).iterdir())
    return kept


def assert_goes_on(mirror: Mirror) -> None:
    work(mirror)
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)


def test_one_works_and_the_other_ends_saying_who_does(
    mirror: Mirror, frozen: Frozen, capsys: pytest.CaptureFixture[str]
) -> None:
    work(mirror)
    frozen.run("planned", "sync")
    before = state(mirror)
    for verb in ("sync", "snapshot"):
        assert command(mirror, verb) == 3
        said = capsys.readouterr().err
        assert f"pid {frozen.process.pid} " in said
        assert " works on this source since 2" in said
        assert "wait for it to end" in said
    assert state(mirror) == before
    code, said = frozen.wake()
    assert (code, said) == (0, said)
    mirror.assert_equal(*TABLES)
    assert lease.read(mirror.metadata).open is None


@pytest.mark.parametrize(
    "point",
    ["epoch committed", "within record", *in_the_soak("planned", "manifest written")],
)
def test_a_sync_that_wakes_after_others_went_on_changes_nothing(mirror: Mirror, frozen: Frozen, point: str) -> None:
    work(mirror)
    frozen.run(point, "sync")
    expire(mirror)
    assert command(mirror, "sync") == 0
    work(mirror)
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES)
    before = state(mirror)
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert state(mirror) == before
    mirror.assert_each_once(*TABLES)
    assert_goes_on(mirror)


def test_a_sync_that_wakes_while_others_work_leaves_their_batch_alone(
    mirror: Mirror, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only ended work is safe: another batch is open, staged by others, when it wakes."""
    work(mirror)
    frozen.run("manifest written", "sync")
    expire(mirror)
    assert command(mirror, "sync") == 0
    work(mirror)
    woken: list[tuple[int, str]] = []

    def wake(point: str) -> None:
        if point == "epoch committed" and not woken:
            woken.append((-1, ""))
            woken[0] = frozen.wake()

    monkeypatch.setattr(faults, "at_point", wake)
    assert command(mirror, "sync") == 0
    assert woken[0][0] == 3
    assert "lost its lease" in woken[0][1]
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)


@pytest.mark.parametrize(
    "point",
    [
        "chunk copied", "within the snapshot's commit", "rows committed",
        *in_the_soak(
            "chunks written", "before the snapshot's commit", "snapshot committed", "bootstrap noted", "lives begun"
        ),
    ],
)  # fmt: skip
def test_a_snapshot_that_wakes_after_others_went_on_changes_nothing(mirror: Mirror, frozen: Frozen, point: str) -> None:
    frozen.run(point, "snapshot", "--tables", "fenced.a")
    expire(mirror)
    assert command(mirror, "snapshot", "--tables", "fenced.a") == 0
    work(mirror)
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES)
    before = state(mirror)
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert state(mirror) == before
    assert_goes_on(mirror)


@pytest.mark.parametrize(
    "point",
    [
        "chunk copied", "rows committed", "lives begun",
        *in_the_soak("chunks written", "commit begun", "snapshot committed", "bootstrap noted", "slice staged"),
    ],
)  # fmt: skip
def test_a_copy_beside_the_batches_that_wakes_after_others_went_on_changes_nothing(
    mirror: Mirror, frozen: Frozen, point: str
) -> None:
    name = f"c{mirror.version('a')}"
    mirror.execute(f"CREATE TABLE {name} AS SELECT id, v FROM a", f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
    before_it_is_read = mirror.exclude
    mirror.exclude = [f"fenced.{name}"]
    assert command(mirror, "sync") == 0
    mirror.exclude = before_it_is_read
    frozen.run(point, "snapshot", "--tables", f"fenced.{name}")
    expire(mirror)
    work(mirror)
    mirror.execute(f"UPDATE {name} SET v = 'changed'")
    has_life = any(row.table == name and row.low for row in watermarks.read(mirror.metadata))
    assert command(mirror, "sync") == (0 if has_life else 3)  # without a life it is missing: no run copies it any more
    assert command(mirror, "snapshot", "--tables", f"fenced.{name}") == 0
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES, name)
    before = state(mirror)
    code, said = frozen.wake()
    assert (code, "lost its lease" in said) == (3, True), said
    assert state(mirror) == before
    assert_goes_on(mirror)
    mirror.assert_equal(name)
    mirror.execute(f"DROP TABLE {name}")


def test_who_was_killed_is_followed_at_once(mirror: Mirror, frozen: Frozen) -> None:
    """The last test: the process is gone."""
    work(mirror)
    frozen.run("manifest written", "sync")
    held = lease.read(mirror.metadata)
    assert held.expires_us > lease.now_us()
    frozen.kill()
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES)
    mirror.assert_each_once(*TABLES)


def test_a_table_that_comes_between_look_and_commit_meets_a_fence(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(lake / "t")
    zombie, fresh = LakeTable(path, "binlake:shop:old"), LakeTable(path, "binlake:shop:new")
    zombie.overwrite(spark, spark.range(3), 7, {})
    schema = DeltaSchema((("id", "bigint"),), "snapshot")
    files = data_files.write(spark, path, "snapshot-1", schema, spark.range(5), rows_per_file=100)
    looks = iter([False, False])
    monkeypatch.setattr(LakeTable, "exists", lambda table: next(looks, True))
    fresh.begin(spark, NewTable(schema, files), 4, {"binlake": {"snapshot": "snapshot"}}, lambda: None)
    assert zombie.recorded() == overtaking(4) < fresh.recorded()
    assert spark.read.format("delta").load(path).count() == 5


@pytest.mark.parametrize("is_plain", [True, False], ids=["our first commit", "Delta's first commit"])
def test_a_table_that_comes_within_the_commit_meets_a_fence(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    path = str(lake / "t")
    zombie, fresh = LakeTable(path, "binlake:shop:old"), LakeTable(path, "binlake:shop:new")
    schema = DeltaSchema((("id", "bigint"),), "snapshot")
    files = data_files.write(spark, path, "snapshot-1", schema, spark.range(5), rows_per_file=100)
    replace = OptimisticTransaction.replace
    comes = iter([True])

    def met(self: OptimisticTransaction, *arguments: Any) -> None:
        if next(comes, False):
            zombie.overwrite(spark, spark.range(3), 7, {})
        replace(self, *arguments)

    monkeypatch.setattr(OptimisticTransaction, "replace", met)
    monkeypatch.setattr(OptimisticTransaction, "_starts_plainly", lambda self: is_plain)
    if is_plain:
        fresh.begin(spark, NewTable(schema, files), 4, {"binlake": {"snapshot": "snapshot"}}, lambda: None)
        assert zombie.recorded() == overtaking(4) < fresh.recorded()
        assert spark.read.format("delta").load(path).count() == 5
    else:
        with pytest.raises(CONFLICTS):
            fresh.begin(spark, NewTable(schema, files), 4, {"binlake": {"snapshot": "snapshot"}}, lambda: None)
        assert spark.read.format("delta").load(path).count() == 3
