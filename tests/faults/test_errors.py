"""What goes wrong says so and what to do, with its exit code; nothing is lost, and the next sync is good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from binlake import faults
from binlake.cli import command_line
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.spark import session
from mirror import Mirror
from servers import Server

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in this process, on the tests' session."""
    monkeypatch.setattr(session, "build", lambda name, **options: spark)


@pytest.fixture
def ready(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A table with a row, followed."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')")
    return mirror


def command(mirror: Mirror, *arguments: str) -> int:
    return command_line.run([arguments[0], "--config", str(mirror.write_yaml()), *arguments[1:]])


def good_again(mirror: Mirror) -> None:
    mirror.execute("INSERT INTO t VALUES (99, 'later')")
    assert command(mirror, "sync") == 0
    mirror.assert_equal("t")


def test_a_wrong_password(ready: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as wrong:
        wrong.setenv("AIRFLOW_CONN_TESTS", ready.server.uri("root", "s3cret"))
        assert command(ready, "sync") == 3
    said = capsys.readouterr().err
    assert "check the password" in said
    assert "s3cret" not in said
    good_again(ready)


def test_a_missing_grant(ready: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = "BINLOG MONITOR" if ready.server.kind == "mariadb" else "REPLICATION CLIENT"
    ready.server.create_account("poor", "s3cret", [f"{monitor} ON *.*", f"SELECT ON {ready.database}.*"])
    with monkeypatch.context() as poor:
        poor.setenv("AIRFLOW_CONN_TESTS", ready.server.uri("poor", "s3cret"))
        assert command(ready, "sync") == 3
    assert "grants" in capsys.readouterr().err
    ready.server.execute("DROP USER poor")
    good_again(ready)


def test_an_unknown_key_and_an_unknown_table(ready: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    path = ready.write_yaml()
    path.write_text(path.read_text().replace('"exclude"', '"exclud"'))
    assert command_line.run(["sync", "--config", str(path)]) == 2
    assert "tables.exclud" in capsys.readouterr().err
    assert command(ready, "snapshot", "--tables", "nowhere.*") == 2
    assert "no included table matches" in capsys.readouterr().err
    with pytest.raises(SystemExit) as wrong_use:
        command_line.run(["sync"])
    assert wrong_use.value.code == 2
    assert command(ready, "sync", "--until", "tomorrow") == 2
    good_again(ready)


def test_an_unwritable_lake(ready: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = Mirror(ready.server, ready.database, tmp_path / "blocked", ready.spark)
    blocked.folder.write_text("")
    path = ready.write_yaml()
    path.write_text(path.read_text().replace(str(ready.folder), str(blocked.folder)))
    assert command_line.run(["snapshot", "--config", str(path)]) == 3
    assert "writable" in capsys.readouterr().err


def test_a_purged_log(ready: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    ready.sync()
    feed_watermarks.register(ready.metadata, "out", FeedLimits(1, 1))
    ready.execute("INSERT INTO t VALUES (2, 'b')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    newest = ready.server.execute("SHOW BINARY LOGS")[-1][0]
    deadline = time.monotonic() + 60
    while ready.server.execute("SHOW BINARY LOGS")[0][0] != newest:
        # A file is in use until the server notices that its last reader hung up.
        assert time.monotonic() < deadline, "the server doesn't purge"
        ready.execute(f"PURGE BINARY LOGS TO '{newest}'")
        time.sleep(0.2)
    assert command(ready, "sync") == 3
    said = capsys.readouterr().err
    assert "purged" in said
    assert "binlake snapshot" in said
    assert command(ready, "snapshot") == 0
    (feed,) = feed_watermarks.statuses(ready.config, ready.metadata)
    assert (feed.left_out, "the log was lost before it was read" in feed.last_left_out) == (1, True)
    good_again(ready)


@pytest.fixture
def statement_format(ready: Mirror) -> Mirror:
    with ready.server.connect(database=ready.database, autocommit=True) as connection:
        connection.cursor().execute("SET SESSION binlog_format = 'STATEMENT'")
        connection.cursor().execute("UPDATE t SET v = 'unseen'")
    return ready


def test_rows_changed_in_statement_format(statement_format: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = statement_format
    mirror.execute("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    assert command(mirror, "sync") == 0
    assert "binlog_format isn't ROW" in capsys.readouterr().err
    assert [row["action"] for row in mirror.history() if row["kind"] == "DML"] == ["resnapshot asked"]
    mirror.assert_equal("t", "u")
    good_again(mirror)


def test_row_metadata_minimal(ready: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    with ready.server.setting("binlog_row_metadata", "MINIMAL"):
        ready.execute("INSERT INTO t VALUES (3, 'c')")
    assert command(ready, "sync") == 3
    assert "binlog_row_metadata" in capsys.readouterr().err
    assert command(ready, "snapshot", "--tables", f"{ready.database}.t") == 0
    good_again(ready)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_server_stopped_between_plan_and_stage(
    kind: Any, new_server: type[Server], lake: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with new_server(kind) as server:
        monkeypatch.setenv("AIRFLOW_CONN_TESTS", server.uri())
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", lake, spark)
        mirror.follow_from_here()
        mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')")
        with monkeypatch.context() as faulty:
            faulty.setattr(faults, "at_point", lambda point: server.kill() if point == "planned" else None)
            assert command(mirror, "sync") == 3
        assert "check that the server runs" in capsys.readouterr().err
        server.start()
        good_again(mirror)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_server_without_a_log(
    kind: Any, new_server: type[Server], lake: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with new_server(kind, skip_log_bin=True) as server:
        monkeypatch.setenv("AIRFLOW_CONN_TESTS", server.uri())
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        assert command(Mirror(server, "d", lake, spark), "snapshot") == 3
    assert "log_bin" in capsys.readouterr().err
