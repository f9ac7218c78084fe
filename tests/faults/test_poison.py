"""What can't be read stops what it concerns and nothing else; people decide about it, and their words are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlake import pipeline
from binlake.cli import command_line
from binlake.phases import resume
from binlake.spark import session
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in this process, on the tests' session."""
    monkeypatch.setattr(session, "build", lambda name, **options: spark)


@pytest.fixture
def ready(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Two tables, followed."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE u (v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO u VALUES ('same'), ('same')",
    )
    mirror.sync()
    return mirror


def command(mirror: Mirror, *arguments: str) -> int:
    verbs = 2 if arguments[0] == "table" else 1
    return command_line.run([*arguments[:verbs], "--config", str(mirror.write_yaml()), *arguments[verbs:]])


def decide(mirror: Mirror, action: str, *arguments: str, table: str | None = "t") -> int:
    about = ["--table", f"{mirror.database}.{table}"] if table else []
    return command(mirror, "table", action, *about, *arguments, "--who", "ann", "--why", "we know")


def work(mirror: Mirror) -> None:
    mirror.execute("UPDATE t SET v = CONCAT(v, '!')", "DELETE FROM u LIMIT 1", "INSERT INTO u VALUES ('more')")
    mirror.sync()


@on_mariadb
def test_a_paused_table_catches_up(ready: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decide(ready, "pause") == 0
    work(ready)
    ready.execute("ALTER TABLE t ADD COLUMN n INT DEFAULT 3 FIRST", "INSERT INTO t VALUES (1, 9, 'nine')")
    work(ready)
    ready.assert_equal("u")
    assert (ready.watermark("t")["status"], ready.watermark("t")["reason"]) == ("paused", "paused by ann: we know")
    assert decide(ready, "pause") == 2  # it is already
    with monkeypatch.context() as dying:

        def cut_off(*arguments: Any, **options: Any) -> Any:
            raise KeyboardInterrupt

        dying.setattr(resume.watermarks, "follow_again", cut_off)
        assert decide(ready, "resume") == 130
    assert decide(ready, "resume") == 0
    ready.assert_equal("t", "u")
    work(ready)
    ready.assert_equal("t", "u")
    decided = sorted(ready.metadata.read("decisions"), key=lambda row: row["at_us"])
    assert [(row["action"], row["who"]) for row in decided] == [("pause", "ann"), ("resume", "ann"), ("resume", "ann")]


@on_mysql
def test_a_table_that_stopped_goes_on_under_another_policy(ready: Mirror) -> None:
    ready.options["policies"] = {"on_truncate": "stop"}
    ready.execute("INSERT INTO t VALUES (3, 'before')", "TRUNCATE t", "INSERT INTO t VALUES (4, 'after')")
    assert command(ready, "sync") == 3
    work(ready)
    ready.assert_equal("u")
    assert ready.watermark("t")["status"] == "stopped"
    stood = ready.watermark("t")["position"]
    assert decide(ready, "resume") == 3  # it stops there again
    assert ready.watermark("t")["position"] == stood
    ready.options.clear()
    assert decide(ready, "resume") == 0
    ready.assert_equal("t", "u")


@on_mysql
def test_what_an_unfinished_batch_did_is_told_by_the_sync_that_finishes_it(
    ready: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    ready.options["policies"] = {"on_truncate": "stop"}
    ready.execute("TRUNCATE t", "INSERT INTO u VALUES ('continues')")
    with ready.cut_off_at("planned"):
        ready.sync()
    capsys.readouterr()
    assert command(ready, "sync", "--json") == 3
    run = json.loads(capsys.readouterr().out)
    assert run["message"].startswith("nothing new")
    (finished,) = run["earlier"]
    assert {(table["table"], table["status"]) for table in finished["tables"]} == {
        (f"{ready.database}.t", "stopped"),
        (f"{ready.database}.u", "following"),
    }


@on_mysql
def test_an_asked_for_snapshot(ready: Mirror) -> None:
    assert decide(ready, "resnapshot", table="u") == 0
    assert ready.watermark("u")["status"] == "resnapshot"
    work(ready)
    assert ready.watermark("u")["status"] == "following"
    ready.assert_equal("t", "u")


def test_an_undecodable_table_keeps_its_bytes_and_its_place(ready: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    stood = ready.watermark("t")["position"]
    with ready.server.setting("binlog_row_metadata", "MINIMAL"):
        ready.execute("INSERT INTO t VALUES (3, 'c')")
    ready.execute("INSERT INTO u VALUES ('continues')")
    assert command(ready, "sync") == 3
    (kept,) = ready.metadata.read("quarantine")
    assert kept["table"] == "t"
    assert b"t\x00" in kept["raw"]  # the table map with the table's name
    assert ready.watermark("t")["position"] == stood
    ready.assert_equal("u")
    capsys.readouterr()
    assert decide(ready, "resume") == 3
    assert "binlog_row_metadata" in capsys.readouterr().err
    assert decide(ready, "resnapshot") == 0
    work(ready)
    ready.assert_equal("t", "u")


@on_mariadb
def test_a_table_ends_the_run_where_the_policy_says_so(ready: Mirror) -> None:
    ready.options["policies"] = {"on_truncate": "stop", "on_decode_failure": "stop_run"}
    batch = pipeline.lease.read(ready.metadata).batch
    ready.execute("TRUNCATE t", "INSERT INTO u VALUES ('waits')")
    for _ in range(2):
        assert command(ready, "sync") == 3
    assert pipeline.lease.read(ready.metadata).open is not None
    ready.options["policies"] = {"on_truncate": "follow"}
    assert command(ready, "sync") == 0
    assert pipeline.lease.read(ready.metadata).batch == batch + 1
    ready.assert_equal("t", "u")


@on_mysql
@pytest.mark.parametrize("policy", ["stop_table", "stop_run"])
def test_a_commit_that_fails(ready: Mirror, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table's folder can't be written: by policy it stops alone, or the run is repeated."""
    from binlake.merge import apply

    ready.options["policies"] = {"on_commit_failure": policy}
    with monkeypatch.context() as broken:
        merged = apply.merge_epoch

        def failing(spark: Any, table: Any, life: Any, *arguments: Any, **options: Any) -> None:
            if life.name.table == "t":
                raise OSError("no space left on device")
            merged(spark, table, life, *arguments, **options)

        broken.setattr(apply, "merge_epoch", failing)
        ready.execute("INSERT INTO t VALUES (3, 'c')", "INSERT INTO u VALUES ('c')")
        assert command(ready, "sync") == 3
        ready.assert_equal("u")
        opened = pipeline.lease.read(ready.metadata).open
    if policy == "stop_table":
        assert opened is None
        work(ready)
        assert decide(ready, "resume") == 0
    else:
        assert opened is not None
        work(ready)
    ready.assert_equal("t", "u")


# events --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(ready: Mirror, tmp_path: Path) -> Mirror:
    """The same lake, continuing with a copy of the server's files in which the row event of ``INSERT … 'poison'`` is
    damaged; a row of each table comes after it."""
    ready.execute(
        "INSERT INTO t VALUES (3, 'poison')", "INSERT INTO t VALUES (4, 'four')", "INSERT INTO u VALUES ('u')"
    )
    ready.server.execute("FLUSH BINARY LOGS")
    folder = tmp_path / "archive"
    folder.mkdir()
    for file in sorted(ready.server.datadir.glob("binlog.0*")):
        shutil.copy(file, folder)
    for file in folder.iterdir():
        data = file.read_bytes()
        file.write_bytes(data.replace(b"\x06poison", b"\x06poisoN"))
    return Mirror(ready.server, ready.database, ready.folder, ready.spark, files=folder)


def test_a_damaged_event_stops_the_run_until_somebody_decides(
    archive: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(archive, "sync") == 3
    assert command(archive, "sync") == 3
    (kept,) = archive.metadata.read("quarantine")
    assert kept["table"] is None
    assert b"poisoN" in kept["raw"]
    assert "checksum" in kept["reason"]
    capsys.readouterr()
    assert command(archive, "status") == 0
    assert f"{kept['file']}:{kept['offset']}" in capsys.readouterr().out
    assert decide(archive, "skip-event", "--at", f"{kept['file']}:{kept['offset'] + 1}", table=None) == 2
    assert decide(archive, "skip-event", "--at", f"{kept['file']}:{kept['offset']}", table=None) == 0
    assert command(archive, "sync") == 0
    archive.assert_equal("u")
    archive.execute("DELETE FROM t WHERE v = 'poison'")  # in the server alone, so that both are as decided
    archive.assert_equal("t")
