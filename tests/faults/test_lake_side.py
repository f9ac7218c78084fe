"""What others do to our Delta tables: changed rows stop the table and nothing else, upkeep disturbs nobody."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from binlake.cli import command_line
from binlake.merge import apply
from binlake.merge.engine import by_spark
from binlake.spark import session
from mirror import Mirror

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.parametrize("server", ["mysql"], indirect=True)  # the lake's side is the same for both
SECONDS = 60


@pytest.fixture
def followed(mirror: Mirror, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Two tables of several data files each; the command line works in this process."""
    monkeypatch.setattr(session, "build", lambda name, **options: spark)
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "INSERT INTO other VALUES (1, 'one')",
    )
    mirror.snapshot()
    work(mirror)
    mirror.sync()
    return mirror


def work(mirror: Mirror) -> None:
    """Rows of both tables come and change; every data file of ``t`` holds a changed one."""
    mirror.execute(
        "INSERT INTO t SELECT max(id) + 1, 'new' FROM t",
        "UPDATE t SET v = CONCAT(LEFT(v, 9), '!')",
        "INSERT INTO other SELECT max(id) + 1, 'new' FROM other",
    )


def command(mirror: Mirror, *arguments: str) -> int:
    verbs = 2 if arguments[0] == "table" else 1
    return command_line.run([*arguments[:verbs], "--config", str(mirror.write_yaml()), *arguments[verbs:]])


def sql(mirror: Mirror, statement: str, table: str = "t") -> None:
    """As somebody else, in a session of their own."""
    mirror.spark.newSession().sql(statement.format(t=f"delta.`{mirror.path(table)}`"))


# changed rows --------------------------------------------------------------------------------------------------------


def overwritten(mirror: Mirror, table: str) -> None:
    """By a job that read the table, and put what it found back."""
    rows = mirror.spark.read.format("delta").load(mirror.path(table)).where("id > 1")
    rows.write.format("delta").mode("overwrite").save(mirror.path(table))


def repaired(mirror: Mirror, table: str) -> None:
    """A data file was lost, and the table's log was made to agree."""
    lake = DeltaTable(mirror.path(table))
    Path(lake.file_uris()[0].removeprefix("file://")).unlink()
    lake.repair()


def by_sql(statement: str) -> Callable[[Mirror, str], None]:
    return lambda mirror, table: sql(mirror, statement, table)


CHANGES: dict[str, tuple[str, Callable[[Mirror, str], None]]] = {
    "restored": ("RESTORE", by_sql("RESTORE TABLE {t} TO VERSION AS OF 1")),
    "deleted": ("DELETE", by_sql("DELETE FROM {t} WHERE id = 2")),
    "updated": ("UPDATE", by_sql("UPDATE {t} SET v = 'ours' WHERE id = 2")),
    "inserted": ("WRITE", by_sql("INSERT INTO {t} VALUES (99, 'ours')")),
    "overwritten": ("WRITE", overwritten),
    "altered": ("ADD COLUMNS", by_sql("ALTER TABLE {t} ADD COLUMNS (mine INT)")),
    "repaired": ("FSCK", repaired),
}
"""Of each table the operation in Delta's history, and what is done to it."""


def work_on_all(mirror: Mirror) -> None:
    work(mirror)
    for table in CHANGES:
        mirror.execute(
            f"INSERT INTO {table} SELECT max(id) + 1, 'new' FROM {table}",
            f"UPDATE {table} SET v = CONCAT(LEFT(v, 9), '!')",
        )


def test_tables_that_others_changed_stop_until_they_are_snapshotted(
    followed: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in CHANGES:
        followed.execute(f"CREATE TABLE {table} LIKE t", f"INSERT INTO {table} SELECT * FROM t")
    followed.sync()
    work_on_all(followed)
    followed.sync()
    for table, (_, change) in CHANGES.items():
        change(followed, table)
    versions = {table: followed.version(table) for table in CHANGES}
    work_on_all(followed)
    assert command(followed, "sync") == 3
    said = capsys.readouterr().err
    for table, (operation, _) in CHANGES.items():
        changed = f"{operation} at Delta version {versions[table]} changed what binlake wrote"
        assert f"{followed.path(table)}: {changed}" in said
    assert "snapshot the table again" in said
    assert {table: followed.version(table) for table in CHANGES} == versions
    followed.assert_equal("t", "other")
    work_on_all(followed)
    assert command(followed, "sync") == 0  # what is known stops nobody again
    followed.assert_equal("t", "other")
    for table in CHANGES:
        asked = ("--table", f"{followed.database}.{table}", "--why", "restored")
        assert command(followed, "table", "resnapshot", *asked) == 0
    work_on_all(followed)
    assert command(followed, "sync") == 0
    followed.assert_equal("t", "other", *CHANGES)
    work_on_all(followed)
    followed.sync()
    followed.assert_equal("t", "other", *CHANGES)


def test_a_table_that_others_changed_is_found_though_the_log_says_nothing_of_it(
    followed: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    sql(followed, "OPTIMIZE {t}")
    followed.execute("INSERT INTO other VALUES (50, 'alone')")
    assert command(followed, "sync") == 0
    sql(followed, "DELETE FROM {t} WHERE id = 2")
    version = followed.version("t")
    followed.execute("DELETE FROM other WHERE id = 50")
    assert command(followed, "sync") == 3
    assert f"DELETE at Delta version {version} changed what binlake wrote" in capsys.readouterr().err
    (row,) = followed.metadata.read("quarantine")
    assert (row["table"], row["file"], row["offset"]) == ("t", None, None), "it wasn't the log that stopped it"
    followed.assert_equal("other")
    assert command(followed, "table", "resnapshot", "--table", f"{followed.database}.t", "--why", "restored") == 0
    work(followed)
    followed.sync()
    followed.assert_equal("t", "other")


@pytest.mark.parametrize("made_anew", [False, True], ids=["removed", "removed and made by others"])
def test_a_table_whose_folder_was_removed(
    followed: Mirror, made_anew: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(followed.path("t"))
    if made_anew:
        rows = followed.spark.sql("SELECT 'x' AS id, 1 AS part")
        for _ in range(4):  # with a longer history than ours had
            rows.write.format("delta").mode("append").partitionBy("part").save(followed.path("t"))
    work(followed)
    assert command(followed, "sync") == 3
    said = capsys.readouterr().err
    assert "isn't the table that was written" in said
    assert f"binlake snapshot --config FILE --tables '{followed.database}.t'" in said
    followed.assert_equal("other")
    assert command(followed, "snapshot", "--tables", f"{followed.database}.t") == 0
    work(followed)
    assert command(followed, "sync") == 0
    followed.assert_equal("t", "other")


def test_an_older_copy_of_the_folder_is_refused(
    followed: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has our transactions, but not all of them."""
    shutil.copytree(followed.path("t"), tmp_path / "kept")
    work(followed)
    followed.sync()
    shutil.rmtree(followed.path("t"))
    shutil.copytree(tmp_path / "kept", followed.path("t"))
    work(followed)
    assert command(followed, "sync") == 3
    assert "was recorded" in capsys.readouterr().err
    followed.assert_equal("other")
    assert command(followed, "snapshot", "--tables", f"{followed.database}.t") == 0
    work(followed)
    followed.sync()
    followed.assert_equal("t", "other")


# upkeep --------------------------------------------------------------------------------------------------------------


def vacuumed(mirror: Mirror) -> None:
    """All that the newest version doesn't need goes at once."""
    other = mirror.spark.newSession()
    other.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    other.sql(f"VACUUM delta.`{mirror.path('t')}` RETAIN 0 HOURS")


def test_upkeep_between_syncs_changes_nothing(followed: Mirror) -> None:
    upkeep: list[Callable[[Mirror], None]] = [
        lambda mirror: sql(mirror, "OPTIMIZE {t}"),
        vacuumed,
        lambda mirror: sql(mirror, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')"),
        lambda mirror: sql(mirror, "REORG TABLE {t} APPLY (PURGE)"),
        lambda mirror: DeltaTable(mirror.path("t")).optimize.compact(),
        lambda mirror: DeltaTable(mirror.path("t")).create_checkpoint(),
    ]
    for keep, also in zip(upkeep[::2], upkeep[1::2], strict=True):
        keep(followed)
        also(followed)
        work(followed)
        assert command(followed, "sync") == 0
    followed.assert_equal("t", "other")
    followed.assert_each_once("t")


# in the middle of a merge --------------------------------------------------------------------------------------------


@pytest.fixture
def merging(followed: Mirror) -> Mirror:
    """By Spark, whatever the tables are."""
    followed.options["merge"] = {"without_spark_mb": 0}
    return followed


@contextmanager
def between_read_and_commit(
    monkeypatch: pytest.MonkeyPatch, folder: Path, theirs: Callable[[], None]
) -> Iterator[list[int]]:
    """``theirs`` happens once a MERGE of ``t`` reads its rows, before it commits; gives the versions under which
    MERGEs began.

    A task that reads staged rows says so, and waits: Delta's transaction has begun by then.
    """
    reading, go = folder / "reading", folder / "go"
    versions: list[int] = []
    staged, merged = by_spark.changes, apply.merge_epoch

    def waits(batches: Iterator[Any]) -> Iterator[Any]:
        import time
        from pathlib import Path

        Path(reading_path).touch()
        deadline = time.monotonic() + seconds
        while not Path(go_path).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield from batches

    reading_path, go_path, seconds = str(reading), str(go), SECONDS
    waits.__module__ = "__main__"  # travels to the workers by value

    def slow(spark: SparkSession, life: Any, *arguments: Any, **options: Any) -> DataFrame:
        rows = staged(spark, life, *arguments, **options)
        assert rows is not None
        return rows.coalesce(1).mapInArrow(waits, rows.schema) if life.name.table == "t" else rows

    def counted(spark: Any, table: Any, life: Any, *arguments: Any, **options: Any) -> None:
        if life.name.table == "t":
            versions.append(options["version"])
        merged(spark, table, life, *arguments, **options)

    def act() -> None:
        deadline = time.monotonic() + SECONDS
        while not reading.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            theirs()
        finally:
            go.touch()

    with monkeypatch.context() as patched:
        patched.setattr(by_spark, "changes", slow)
        patched.setattr(apply, "merge_epoch", counted)
        thread = threading.Thread(target=act)
        thread.start()
        yield versions
        thread.join()


def test_an_optimize_in_the_middle_of_a_merge_makes_it_begin_again(
    merging: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging.execute("INSERT INTO t VALUES (60, 'apart')")
    merging.sync()
    work(merging)
    with between_read_and_commit(monkeypatch, tmp_path, lambda: sql(merging, "OPTIMIZE {t}")) as versions:
        assert command(merging, "sync") == 0
    assert "OPTIMIZE" in [commit["operation"] for commit in DeltaTable(merging.path("t")).history(2)]
    assert len(versions) == 2
    assert len(set(versions)) == 1
    merging.assert_each_once("t")
    merging.assert_equal("t", "other")


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM {t} WHERE id = 2", "INSERT INTO {t} VALUES (99, 'ours')"],
    ids=["which conflicts", "which doesn't"],
)
def test_a_change_in_the_middle_of_a_merge_stops_the_table(
    merging: Mirror, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A blind append conflicts with no MERGE, and lies before our newest commit: it is seen all the same."""
    work(merging)
    with between_read_and_commit(monkeypatch, tmp_path, lambda: sql(merging, change)) as versions:
        assert command(merging, "sync") == 3
    assert len(versions) == 1
    assert "changed what binlake wrote" in capsys.readouterr().err
    merging.assert_equal("other")
    assert command(merging, "table", "resume", "--table", f"{merging.database}.t", "--why", "try") in (2, 3)
    assert merging.watermark("t")["status"] == "stopped"
    assert command(merging, "table", "resnapshot", "--table", f"{merging.database}.t", "--why", "theirs") == 0
    work(merging)
    assert command(merging, "sync") == 0
    merging.assert_equal("t", "other")


# the session ---------------------------------------------------------------------------------------------------------


def test_transaction_options_left_in_the_session_skip_no_commit(merging: Mirror) -> None:
    """Delta skips what comes under a version that it has: a later commit of ours must not be taken for a repetition."""
    newest = max(merging.commits("t"))
    options = {
        "spark.databricks.delta.write.txnAppId": f"binlake:tests:{newest[0]}",
        "spark.databricks.delta.write.txnVersion": "1",
    }
    for key, value in options.items():
        merging.spark.conf.set(key, value)
    try:
        before = len(merging.commits("t"))
        work(merging)
        merging.execute("ALTER TABLE t ADD COLUMN n INT DEFAULT 3", "TRUNCATE other")
        work_again = "INSERT INTO t VALUES (70, 'x', 1)"
        merging.execute(work_again)
        merging.sync()
        assert len(merging.commits("t")) >= before + 3
        merging.assert_equal("t", "other")
        merging.reader = "jdbc"  # Spark commits it
        merging.snapshot("*.t")
        merging.assert_equal("t")
    finally:
        for key in options:
            merging.spark.conf.unset(key)
