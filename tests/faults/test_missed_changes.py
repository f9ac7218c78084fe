"""A server that stops logging some of its changes: the tables that missed them stop, and a snapshot by name helps."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlake import pipeline
from binlake.cli import command_line
from binlake.errors import PositionLost, ServerSettingError, UsageError, snapshot_again
from binlake.interrupts import Ending
from binlake.phases.follow import FollowPace
from binlake.phases.watch import watch
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from mirror import Mirror
from no_session import NoSession
from replication import replicate
from servers import KINDS, Server

DATABASE = "d"


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Server]:
    """It has what MariaDB has by default: as a replica it doesn't log."""
    with new_server(request.param, **{replica_updates(request.param): False}) as server:
        yield server


@pytest.fixture
def followed(server: Server, lake: Path) -> Mirror:
    mirror = Mirror(server, DATABASE, lake, spark=None, reader="direct")  # type: ignore[arg-type]
    mirror.options = {"merge": {"without_spark_mb": 16}, "policies": {"on_unfollowable": "stop"}}
    server.execute(
        f"CREATE DATABASE {DATABASE}", "CREATE DATABASE other", "CREATE TABLE other.o (id INT PRIMARY KEY)",
        f"CREATE TABLE {DATABASE}.a (id INT PRIMARY KEY)", f"INSERT INTO {DATABASE}.a VALUES (1)",
    )  # fmt: skip
    mirror.include = ["d.*", "other.*"]
    mirror.snapshot()
    mirror.execute("INSERT INTO a VALUES (2)")
    mirror.sync()
    return mirror


@pytest.fixture
def elsewhere(server: Server) -> Iterator[Server]:
    """Another server, which has the same table and writes into it."""
    with Server(server.kind, server_id=9) as primary:
        primary.execute(
            f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.a (id INT PRIMARY KEY)",
            *(["RESET BINARY LOGS AND GTIDS"] if server.kind == "mysql" else ["RESET MASTER"]),
        )  # fmt: skip
        yield primary


def replica_updates(kind: str) -> str:
    return "log_replica_updates" if kind == "mysql" else "log_slave_updates"


def begin_to_replicate(server: Server, primary: Server, row: int) -> None:
    """Replicate one row from another server."""
    replicate(server, primary)
    primary.execute(f"INSERT INTO {DATABASE}.a VALUES ({row})")
    until(lambda: server.execute(f"SELECT 1 FROM {DATABASE}.a WHERE id = {row}") == [(1,)])


def end_to_replicate(server: Server) -> None:
    word = "REPLICA" if server.kind == "mysql" else "SLAVE"
    server.execute(f"STOP {word}", f"RESET {word} ALL")


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def assert_asks_for_a_snapshot(mirror: Mirror, *tables: str) -> None:
    """The tables are stopped by name, don't catch up by the log, and a snapshot of them helps."""
    stopped = {table: mirror.watermark(table) for table in tables}
    assert {row["status"] for row in stopped.values()} == {"stopped"}
    assert all(snapshot_again(TableName(row["database"], row["table"])) in row["remedy"] for row in stopped.values())
    with pytest.raises(UsageError, match="can't catch up"):
        pipeline.resume(
            mirror.config, mirror.origin, lambda _: mirror.spark, Report(), TableName(DATABASE, tables[0]),
            Reason("ann", "a test"),
        )  # fmt: skip
    mirror.snapshot(*(f"{stopped[table]['database']}.{table}" for table in tables))
    mirror.execute("INSERT INTO a VALUES (90)")
    mirror.sync()
    mirror.assert_equal("a")
    assert {mirror.watermark(table)["status"] for table in tables} == {"following"}


def test_a_server_that_becomes_a_replica_and_does_not_log_it(
    followed: Mirror, server: Server, elsewhere: Server
) -> None:
    begin_to_replicate(server, elsewhere, 50)
    report = followed.sync()
    assert {table.status for table in report.tables if table.newly_stopped} == {"stopped"}
    assert replica_updates(server.kind) in followed.watermark("a")["reason"]
    followed.execute("CREATE TABLE born (id INT PRIMARY KEY)", "INSERT INTO born VALUES (1)")
    followed.sync()
    assert followed.watermark("born")["status"] == "stopped"  # it may have rows that aren't in the log, too
    assert any(replica_updates(server.kind) in gap for gap in watch(followed.config, followed.origin).gaps)
    with pytest.raises(ServerSettingError, match=replica_updates(server.kind)):
        followed.snapshot(f"{DATABASE}.a")
    end_to_replicate(server)
    assert_asks_for_a_snapshot(followed, "a", "born", "o")
    assert watch(followed.config, followed.origin).gaps == ()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_by_policy_the_next_sync_that_can_takes_the_snapshots(
    followed: Mirror, server: Server, elsewhere: Server
) -> None:
    followed.options["policies"] = {"on_unfollowable": "resnapshot"}
    begin_to_replicate(server, elsewhere, 50)
    with pytest.raises(ServerSettingError, match=replica_updates(server.kind)):
        followed.sync()
    assert followed.watermark("a")["status"] == "resnapshot"
    end_to_replicate(server)
    followed.sync()
    followed.assert_equal("a")
    assert followed.watermark("a")["status"] == "following"


def test_a_server_that_was_such_a_replica_between_two_syncs(
    followed: Mirror, server: Server, elsewhere: Server
) -> None:
    begin_to_replicate(server, elsewhere, 50)
    end_to_replicate(server)
    followed.sync()
    assert "without logging it" in followed.watermark("a")["reason"]
    assert_asks_for_a_snapshot(followed, "a", "o")


@pytest.mark.parametrize(("server", "seen_by"), [("mysql", "sync"), ("mariadb", "watch")], indirect=["server"])
def test_a_server_that_is_restarted_with_a_filter(
    followed: Mirror,
    server: Server,
    seen_by: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What sees the filter while it is there notes it: it is gone when the next sync comes."""
    server.restart(binlog_ignore_db=DATABASE)
    followed.execute("INSERT INTO a VALUES (50)")
    if seen_by == "watch":
        assert watch(followed.config, followed.origin).gaps == (f"binlog_ignore_db leaves out {DATABASE}",)
        monkeypatch.setenv("AIRFLOW_CONN_TESTS", server.uri())
        assert command_line.run(["status", "--config", str(followed.write_yaml())]) == 0
        assert f"the log lacks changes: binlog_ignore_db leaves out {DATABASE}" in capsys.readouterr().out
        server.restart(binlog_ignore_db=None)
    followed.sync()
    assert f"binlog_ignore_db leaves out {DATABASE}" in followed.watermark("a")["reason"]
    assert followed.watermark("o")["status"] == "following"
    if seen_by == "sync":
        server.restart(binlog_ignore_db=None)
    followed.sync()
    assert_asks_for_a_snapshot(followed, "a")


def test_a_server_that_writes_another_log_for_a_while(followed: Mirror, server: Server) -> None:
    """MySQL's GTIDs tell it later. On MariaDB nothing does, but a sync that came meanwhile saw it."""
    server.restart(log_bin="renamed")
    followed.execute("INSERT INTO a VALUES (50)")
    if server.kind == "mariadb":
        with pytest.raises(PositionLost, match="is purged or missing"):
            followed.sync()
    server.restart(log_bin="binlog")
    followed.execute("INSERT INTO a VALUES (51)")
    followed.sync()
    why = "without logging it" if server.kind == "mysql" else "another log for a while, renamed.*"
    assert why in followed.watermark("a")["reason"]
    assert_asks_for_a_snapshot(followed, "a", "o")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_follower_sees_it_though_the_log_is_quiet(followed: Mirror, server: Server, elsewhere: Server) -> None:
    ending, said = Ending(), io.StringIO()
    pace = FollowPace(every=0.1, spark_idle=60, duration=240)
    following = threading.Thread(
        target=pipeline.follow,
        args=(lambda: followed.config, followed.endpoint, NoSession(), Report(said), pace, ending),
    )
    following.start()
    try:
        until(lambda: "is followed" in said.getvalue())
        begin_to_replicate(server, elsewhere, 50)
        until(lambda: f"stopped: {DATABASE}.a" in said.getvalue())
    finally:
        ending.ask()
        following.join()
    end_to_replicate(server)
    assert_asks_for_a_snapshot(followed, "a")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_replica_that_logs_goes_on(lake: Path, elsewhere: Server, new_server: type[Server]) -> None:
    """What it replicated is in its log, and nothing is said, also once it replicates no more and doesn't log."""
    setting = replica_updates(elsewhere.kind)
    with new_server(elsewhere.kind, **{setting: True}) as server:
        mirror = Mirror(server, DATABASE, lake, spark=None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"merge": {"without_spark_mb": 16}}
        server.execute(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.a (id INT PRIMARY KEY)")
        mirror.snapshot()
        begin_to_replicate(server, elsewhere, 50)
        mirror.sync()
        mirror.assert_equal("a")
        elsewhere.execute(f"INSERT INTO {DATABASE}.a VALUES (51)")
        until(lambda: server.execute(f"SELECT 1 FROM {DATABASE}.a WHERE id = 51") == [(1,)])
        end_to_replicate(server)
        server.restart(**{setting: False})
        mirror.execute("INSERT INTO a VALUES (52)")
        mirror.sync()
        mirror.assert_equal("a")
        assert mirror.watermark("a")["status"] == "following"
