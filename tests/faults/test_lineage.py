"""The lake continues with a server that provably holds its past, and refuses every other."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from binlake import pipeline
from binlake.binlog.integrity import format_description
from binlake.doctor.preflight import preflight
from binlake.errors import NoBinlog, PositionLost, UsageError
from binlake.interrupts import Ending
from binlake.lake.opened_lake import place_of
from binlake.lease import lease
from binlake.phases import follow
from binlake.phases.follow import FollowPace
from binlake.position import Position
from binlake.records import decisions, missing_log
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot import waves
from binlake.source import lineage
from binlake.source.endpoint import Endpoint
from binlake.source.locks import CreatedOf, head_position
from binlake.source.server import Source
from fault_proxy import FaultProxy
from feeding import carried, feed, plain_lines
from mirror import Mirror
from no_session import NoSession
from replication import catch_up, replicate
from servers import KINDS, Server

DATABASE = "d"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "_PATIENCE", 1)


@pytest.fixture(params=KINDS)
def primary(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Server]:
    with new_server(request.param) as server:
        yield server


@pytest.fixture
def followed(primary: Server, lake: Path) -> Mirror:
    """A table with a key and one without, followed on the primary. The process copies and merges by itself."""
    primary.execute(f"CREATE DATABASE {DATABASE}")
    mirror = Mirror(primary, DATABASE, lake, spark=None, reader="direct")  # type: ignore[arg-type]
    mirror.options = {"merge": {"without_spark_mb": 16}}
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(30))",
        "CREATE TABLE b (v VARCHAR(30))",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "INSERT INTO b VALUES ('same'), ('same'), ('same')",
    )
    mirror.sync()
    return mirror


@pytest.fixture
def replica(primary: Server) -> Iterator[Server]:
    """Follows the primary from its first transaction on, and writes a log of its own."""
    with Server(primary.kind, server_id=2, log_slave_updates=True) as server:
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")  # its files count otherwise than the primary's
        replicate(server, primary)
        yield server


def promote(replica: Server) -> None:
    word = "REPLICA" if replica.kind == "mysql" else "SLAVE"
    replica.execute(f"STOP {word}", f"RESET {word} ALL")


def on(mirror: Mirror, server: Server) -> Mirror:
    """The same lake, with another server behind the connection."""
    return replace(mirror, server=server)


def resume(mirror: Mirror, table: str) -> None:
    name, why = TableName(DATABASE, table), Reason("ann", "a test")
    pipeline.resume(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), name, why)


def refused(mirror: Mirror, until: datetime | None = None) -> str:
    with pytest.raises(PositionLost) as caught:
        mirror.sync(until=until)
    return str(caught.value)


def test_a_promoted_replica(followed: Mirror, primary: Server, replica: Server) -> None:
    followed.execute(
        "UPDATE a SET v = 'since the sync' WHERE id = 1",
        "DELETE FROM b LIMIT 1",
        "XA START 'x'", "INSERT INTO a VALUES (50, 'prepared here')", "XA END 'x'", "XA PREPARE 'x'",
    )  # fmt: skip
    followed.sync()
    followed.execute("INSERT INTO b VALUES ('only in the log')", "ALTER TABLE b ADD n INT DEFAULT 4")
    catch_up(replica, primary)
    promote(replica)
    primary.stop()
    mirror = on(followed, replica)
    mirror.execute("INSERT INTO a VALUES (9, 'new primary')", "XA COMMIT 'x'", "FLUSH BINARY LOGS",
                   "UPDATE b SET v = 'changed' LIMIT 1")  # fmt: skip
    mirror.sync()
    mirror.assert_equal("a", "b")
    mirror.execute("DELETE FROM a WHERE id = 2", "INSERT INTO b VALUES ('and on', 5)")
    mirror.sync()
    mirror.assert_equal("a", "b")
    assert mirror.watermark("a")["position"].startswith(mirror.watermark("b")["position"].partition("/")[0])


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
def test_a_process_that_follows_goes_on_with_a_promoted_replica(
    followed: Mirror, primary: Server, replica: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the same name; between both the server is away for a while."""
    monkeypatch.setattr(follow, "_WAIT", 0.2)
    ending, said = Ending(), io.StringIO()
    with FaultProxy(primary.port) as proxy:
        endpoint = replace(followed.endpoint, port=proxy.port)
        pace = FollowPace(every=0.1, spark_idle=60, duration=60)

        def run() -> None:
            pipeline.follow(lambda: followed.config, endpoint, NoSession(), Report(said), pace, ending)

        following = threading.Thread(target=run)
        following.start()
        try:
            followed.execute("INSERT INTO a VALUES (8, 'by the primary')")
            until(lambda: stands_at_head(followed))
            catch_up(replica, primary)
            promote(replica)
            primary.stop()
            until(lambda: "it is tried again after growing waits" in said.getvalue())
            mirror = on(followed, replica)
            mirror.execute("INSERT INTO a VALUES (9, 'by the replica')", "DELETE FROM b LIMIT 1")
            proxy.forward_to(replica.port)
            until(lambda: stands_at_head(mirror))
            assert following.is_alive()
        finally:
            ending.ask()
            following.join()
    mirror.assert_equal("a", "b")
    assert said.getvalue().endswith("continuing\n")


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stands_at_head(mirror: Mirror) -> bool:
    position = lease.read(mirror.metadata).position
    with Source.open(mirror.endpoint) as source:
        return position is not None and (position.server, position.file, position.offset) == (
            source.server_identity, *source.head()[:2]
        )  # fmt: skip


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
def test_what_was_being_committed_when_a_snapshot_began_is_not_read_again(
    followed: Mirror, primary: Server, replica: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server doesn't count a transaction as executed yet that is in its log before the snapshot's position."""
    position_before_views = waves.position_before_views

    def while_one_commits(source: Source, created: CreatedOf, say: Callable[[str], None]) -> Position:
        before = source.head()
        committing = threading.Thread(target=followed.execute, args=("UPDATE a SET v = 'before' WHERE id = 1",))
        committing.start()
        while source.head()[:2] == before[:2]:
            time.sleep(0.01)
        position = position_before_views(source, created, say)
        committing.join()
        return position

    primary.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    with monkeypatch.context() as patched:
        patched.setattr(waves, "position_before_views", while_one_commits)
        followed.snapshot(lock="none")
    followed.execute("UPDATE a SET v = 'after' WHERE id = 1")
    followed.sync()
    catch_up(replica, primary)
    promote(replica)
    primary.stop()
    mirror = on(followed, replica)
    mirror.execute("INSERT INTO a VALUES (4, 'four')")
    mirror.sync()
    mirror.assert_equal("a", "b")


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
def test_nor_is_the_first_transaction_of_a_server(primary: Server) -> None:
    primary.execute(
        "CREATE DATABASE d", "RESET BINARY LOGS AND GTIDS", "SET GLOBAL binlog_group_commit_sync_delay = 1000000"
    )
    with Source.open(Endpoint("127.0.0.1", primary.port, "root", "")) as source:
        transport = source.transport()
        at_rest = source.head()
        committing = threading.Thread(target=primary.execute, args=("CREATE TABLE d.a (id INT PRIMARY KEY)",))
        committing.start()
        while source.head()[:2] == at_rest[:2]:
            time.sleep(0.01)
        position = head_position(source, partial(format_description, transport))
        assert position.gtid_set == ""
        committing.join()
        assert lineage.with_all_gtids(transport, position).gtid_set == source.head()[2]


@pytest.mark.parametrize("paused", ["before", "since"])
def test_a_table_that_was_paused_catches_up_in_the_log_of_a_server_whose_files_count_otherwise(
    followed: Mirror, primary: Server, replica: Server, paused: str
) -> None:
    pause = partial(decisions.pause, followed.config, TableName(DATABASE, "b"), Reason("ann", "a test"))
    primary.execute(*["FLUSH BINARY LOGS"] * 5)  # its numbers are higher than the replica's
    followed.execute("ALTER TABLE a ADD w INT", "ALTER TABLE b ADD w INT")
    followed.sync()
    if paused == "before":
        pause()
    catch_up(replica, primary)
    promote(replica)
    primary.stop()
    mirror = on(followed, replica)
    mirror.execute("ALTER TABLE a ADD x INT")
    mirror.sync()
    if paused == "since":
        pause()
    mirror.execute("ALTER TABLE a DROP w", "INSERT INTO a VALUES (4, 'four', 5)", "INSERT INTO b VALUES ('same', 5)")
    mirror.sync()
    mirror.assert_equal("a")
    resume(mirror, "b")
    mirror.assert_equal("a", "b")


def test_a_replica_that_lacks_what_the_lake_holds(followed: Mirror, primary: Server, replica: Server) -> None:
    catch_up(replica, primary)
    promote(replica)
    followed.execute("INSERT INTO a VALUES (4, 'never replicated')")
    followed.sync()
    replica.execute("INSERT INTO a VALUES (5, 'elsewhere')", database=DATABASE)
    assert "binlake snapshot" in refused(on(followed, replica))
    followed.execute("INSERT INTO a VALUES (6, 'the old server continues')")
    followed.sync()
    followed.assert_equal("a", "b")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_replica_with_a_transaction_of_its_own_among_its_primarys(
    followed: Mirror, primary: Server, replica: Server
) -> None:
    """Its number is one that the lake has, of another transaction (gtid_strict_mode=OFF)."""
    catch_up(replica, primary)
    replica.execute("INSERT INTO a VALUES (70, 'errant')", database=DATABASE)
    followed.execute("INSERT INTO a VALUES (4, 'four')", "INSERT INTO a VALUES (5, 'five')")
    followed.sync()
    catch_up(replica, primary)
    promote(replica)
    mirror = on(followed, replica)
    assert "gtid_strict_mode" in refused(mirror)
    mirror.snapshot()
    mirror.execute("INSERT INTO a VALUES (6, 'six')")
    mirror.sync()
    mirror.assert_equal("a", "b")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_numbers_that_go_back_on_the_same_server_are_no_other_lineage(followed: Mirror) -> None:
    """Its files and offsets prove that it is the one."""
    low = ("SET SESSION server_id = 9", "SET SESSION gtid_seq_no = 1")
    followed.execute(*low, "INSERT INTO a VALUES (4, 'four')")
    followed.sync()
    followed.execute("INSERT INTO a VALUES (5, 'five')", "FLUSH BINARY LOGS")
    followed.sync()
    followed.execute(*low, "INSERT INTO a VALUES (6, 'six')", "FLUSH BINARY LOGS")
    followed.sync()
    followed.execute("INSERT INTO a VALUES (7, 'seven')")
    followed.sync()
    followed.assert_equal("a", "b")


def test_another_server(followed: Mirror, primary: Server) -> None:
    with Server(primary.kind, server_id=3) as stranger:
        stranger.execute(f"CREATE DATABASE {DATABASE}")
        mirror = on(followed, stranger)
        mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(30))", "INSERT INTO a VALUES (7, 'stranger')")
        assert "binlake snapshot" in refused(mirror)
        mirror.execute("CREATE TABLE b (v VARCHAR(30))")
        mirror.snapshot()  # the remedy
        mirror.execute("INSERT INTO a VALUES (8, 'followed')")
        mirror.sync()
        mirror.assert_equal("a", "b")


@pytest.mark.parametrize(
    ("primary", "state_is_told"),
    [("mysql", False), ("mariadb", False), ("mariadb", True)],
    indirect=["primary"],
)
def test_a_replica_made_from_a_dump(followed: Mirror, primary: Server, state_is_told: bool) -> None:
    """What it got by the dump is in no log of its own, though it counts as executed.

    state_is_told: on MariaDB its log is made to continue where the lake stands.
    """
    lake = primary.variable("gtid_executed" if primary.kind == "mysql" else "gtid_binlog_pos").replace("\n", "")
    followed.execute("INSERT INTO a VALUES (9, 'in the dump')", "UPDATE b SET v = 'in the dump' LIMIT 1")
    dumped = primary.variable("gtid_executed" if primary.kind == "mysql" else "gtid_binlog_pos").replace("\n", "")
    with Server(primary.kind, server_id=2) as provisioned:
        if primary.kind == "mysql":
            provisioned.execute("RESET BINARY LOGS AND GTIDS", f"SET GLOBAL gtid_purged = '{dumped}'")
        else:
            provisioned.execute("RESET MASTER", f"SET GLOBAL gtid_slave_pos = '{dumped}'")
            if state_is_told:
                provisioned.execute(f"SET GLOBAL gtid_binlog_state = '{lake}'")
        provisioned.execute(
            "SET sql_log_bin = 0",
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.a (id INT PRIMARY KEY, v VARCHAR(30))",
            f"CREATE TABLE {DATABASE}.b (v VARCHAR(30))",
            f"INSERT INTO {DATABASE}.a VALUES (1, 'one'), (2, 'two'), (3, 'three'), (9, 'in the dump')",
            f"INSERT INTO {DATABASE}.b VALUES ('same'), ('same'), ('in the dump')",
        )
        mirror = on(followed, provisioned)
        mirror.execute("INSERT INTO a VALUES (10, 'since')")
        (position,) = [check for check in preflight(mirror.config, mirror.origin) if check.name == "lake's position"]
        assert position.ok is False
        assert "binlake snapshot" in position.remedy
        assert_begins_anew(mirror)


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
@pytest.mark.parametrize("on_again", [True, False], ids=["for_a_while", "for_good"])
def test_gtids_switched_off_before_a_failover(
    followed: Mirror, primary: Server, tmp_path: Path, on_again: bool
) -> None:
    primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    followed.execute("INSERT INTO a VALUES (4, 'without a GTID')", "FLUSH BINARY LOGS")
    if on_again:
        primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON")
        followed.execute("INSERT INTO a VALUES (5, 'with one')")
    primary.stop()
    copy = tmp_path / "copy"
    shutil.copytree(primary.datadir, copy)
    (copy / "auto.cnf").unlink()
    with Server(primary.kind, copy, server_id=2) as promoted:
        assert_begins_anew(on(followed, promoted))


def assert_begins_anew(mirror: Mirror, until: datetime | None = None) -> None:
    """A sync up to a time, or the head, is refused, and what it asks for helps."""
    assert "binlake snapshot" in refused(mirror, until)
    mirror.snapshot()
    mirror.execute("INSERT INTO b VALUES ('followed')")
    mirror.sync()
    mirror.assert_equal("a", "b")


def test_a_reset_log(followed: Mirror, primary: Server) -> None:
    followed.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO a VALUES (9, 'before the reset')")
    followed.sync()  # the numbers that come again are smaller
    time.sleep(1.1)  # logs are told apart by the second in which they began
    primary.execute("RESET BINARY LOGS AND GTIDS" if primary.kind == "mysql" else "RESET MASTER")
    followed.execute("INSERT INTO a VALUES (4, 'after the reset')")
    assert_begins_anew(followed)


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_log_that_is_reset_in_the_second_in_which_it_began(followed: Mirror) -> None:
    """Its first file has the name and the time of the one that was read."""
    began = Position.parse(followed.watermark("a")["position"])
    assert began.file.endswith(".000001")
    followed.execute("INSERT INTO a VALUES (9, 'before the reset')")
    followed.sync()
    followed.execute(
        f"SET timestamp = {began.created}", "RESET MASTER", "SET timestamp = 0", "INSERT INTO a VALUES (4, 'after it')"
    )
    assert_begins_anew(followed)
    assert Position.parse(followed.watermark("a")["position"]).created == began.created


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_paused_table_does_not_go_on_in_such_a_log(followed: Mirror) -> None:
    followed.snapshot()
    began = Position.parse(followed.watermark("b")["position"])
    decisions.pause(followed.config, TableName(DATABASE, "b"), Reason("ann", "a test"))
    followed.execute("INSERT INTO b VALUES ('only in the old log')")
    followed.sync()
    followed.execute(f"SET timestamp = {began.created}", "RESET MASTER", "SET timestamp = 0")
    followed.snapshot(f"{DATABASE}.a")
    followed.execute("INSERT INTO b VALUES ('in the new one')", "INSERT INTO a VALUES (9, 'nine')")
    assert_begins_anew(followed)


def test_log_files_of_another_name(followed: Mirror, primary: Server) -> None:
    followed.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    followed.sync()
    primary.restart(log_bin="renamed")
    followed.execute("INSERT INTO a VALUES (4, 'under the new name')")
    assert_begins_anew(followed)


@pytest.mark.parametrize(
    ("primary", "seen_by"), [("mysql", "sync"), ("mysql", "doctor"), ("mariadb", "stage")], indirect=["primary"]
)
def test_a_server_that_ran_without_its_log(followed: Mirror, primary: Server, seen_by: str) -> None:
    """Neither GTIDs nor positions tell of what it did meanwhile, but it was seen."""
    time.sleep(1.1)  # the file where the lake stands is older by its second
    if seen_by == "stage":
        followed.execute("INSERT INTO a VALUES (5, 'planned')")
        pipeline.plan(followed.config, followed.origin)
    primary.restart(log_bin=None, skip_log_bin="")
    followed.execute("INSERT INTO a VALUES (4, 'in no log')")
    if seen_by != "doctor":
        with pytest.raises(NoBinlog, match="writes no binlog") as caught:
            followed.sync()
        assert "restart the server" in caught.value.remedy
        assert "binlake snapshot" in caught.value.remedy
    else:
        assert any(check.name == "log_bin" and not check.ok for check in preflight(followed.config, followed.origin))
    time.sleep(1.1)
    primary.restart(log_bin="binlog", skip_log_bin=None)
    if seen_by == "doctor":
        assert "in no log" in refused(followed)
        return
    (position,) = [check for check in preflight(followed.config, followed.origin) if check.name == "lake's position"]
    assert "in no log" in position.found
    assert_begins_anew(followed)


def test_a_server_that_was_seen_without_its_log_in_the_second_in_which_a_file_began(followed: Mirror) -> None:
    position = lease.read(followed.metadata).position
    assert position is not None
    at_us = position.created * 1_000_000 + 999_999
    missing_log.note(followed.metadata, NoBinlog("writes no log", remedy="", server=position.server, at_us=at_us))
    time.sleep(1.1)
    assert_begins_anew(followed)


def test_a_snapshot_gets_past_it_where_a_log_of_rows_is_kept(followed: Mirror, primary: Server) -> None:
    """What reads every mutation can't have those of that time, either."""
    followed.modes = [{"tables": f"{DATABASE}.a", "log": {}}]
    followed.sync()
    time.sleep(1.1)  # the file where the lake stands is older by its second
    primary.restart(log_bin=None, skip_log_bin="")
    followed.execute("INSERT INTO a VALUES (4, 'in no log')")
    with pytest.raises(NoBinlog):
        followed.sync()
    time.sleep(1.1)
    primary.restart(log_bin="binlog", skip_log_bin=None)
    assert_begins_anew(followed)


@pytest.mark.parametrize("keeps", ["mirror alone", "log of rows"])
@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_snapshot_gets_past_a_border_of_files_that_do_not_follow_each_other(
    followed: Mirror, primary: Server, keeps: str
) -> None:
    """Somebody removed a file by hand, and the server gave its number to another."""
    if keeps == "log of rows":
        followed.modes = [{"tables": f"{DATABASE}.a", "log": {}}]
    followed.execute("INSERT INTO a VALUES (4, 'four')")
    followed.sync()
    followed.execute("FLUSH BINARY LOGS", "INSERT INTO a VALUES (5, 'in the removed file')")
    *_, before, (newest, _) = primary.execute("SHOW BINARY LOGS")
    primary.stop()
    (primary.datadir / newest).unlink()
    (primary.datadir / "binlog.index").write_text(f"./{before[0]}\n")
    primary.start()
    followed.execute("INSERT INTO a VALUES (6, 'six')")
    assert "doesn't continue where" in refused(followed)
    assert_begins_anew(followed)


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
@pytest.mark.parametrize("of_an_interval", [False, True], ids=["to_the_head", "up_to_a_time"])
def test_a_snapshot_gets_past_transactions_that_the_server_does_not_send(
    followed: Mirror, primary: Server, of_an_interval: bool
) -> None:
    """Once gtid_mode is ON, those without a GTID. The log of rows wants all of them."""
    followed.modes = [{"tables": f"{DATABASE}.a", "log": {}}]
    followed.execute("INSERT INTO a VALUES (4, 'four')")
    followed.sync()
    primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    followed.execute("INSERT INTO a VALUES (5, 'without a GTID')", "FLUSH BINARY LOGS")
    primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON")
    if of_an_interval:
        time.sleep(1.1)
        assert_begins_anew(followed, until=datetime.now(UTC))
    else:
        assert_begins_anew(followed)


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
def test_transactions_that_the_server_does_not_send_are_not_asked_for_again(followed: Mirror, primary: Server) -> None:
    """The file in which the lake's position is begins with them, and what it lists before them is compared."""
    primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    followed.execute("INSERT INTO a VALUES (5, 'without a GTID')")
    followed.sync()
    primary.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON")
    followed.execute("INSERT INTO a VALUES (6, 'with one')")
    followed.sync()
    followed.assert_equal("a", "b")


@pytest.mark.parametrize("with_its_identity", [True, False], ids=["as_the_old_server", "as_a_new_server"])
def test_a_restored_backup(followed: Mirror, primary: Server, tmp_path: Path, with_its_identity: bool) -> None:
    """As a new server it continues where it has all that the lake holds; with the identity of the old one it can't be
    told from a server whose transactions of the same names were others."""
    primary.stop()
    backup = tmp_path / "backup"
    shutil.copytree(primary.datadir, backup)
    if not with_its_identity:
        (backup / "auto.cnf").unlink(missing_ok=True)
    primary.start()
    followed.execute("INSERT INTO a VALUES (4, 'lost with the server')")
    restored = Server(primary.kind, backup, server_id=1 if with_its_identity else 4)
    if with_its_identity:
        followed.sync()
        primary.stop()
        with restored:
            restored.execute("INSERT INTO a VALUES (4, 'otherwise')", "INSERT INTO a VALUES (5, 'otherwise')",
                             database=DATABASE)  # fmt: skip
            assert "binlake snapshot" in refused(on(followed, restored))
        return
    primary.stop()
    with restored:
        mirror = on(followed, restored)
        mirror.execute("INSERT INTO a VALUES (4, 'another history')", "INSERT INTO b VALUES ('on')")
        mirror.sync()
        mirror.assert_equal("a", "b")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_purged_log_is_left_behind_by_a_table_whose_log_is_kept(followed: Mirror, primary: Server) -> None:
    followed.modes = [{"tables": f"{DATABASE}.a", "log": {}}]
    followed.execute("INSERT INTO a VALUES (4, 'four')")
    followed.sync()
    snapshot_behind_a_lost_log(followed, primary)
    followed.execute("INSERT INTO a VALUES (6, 'six')")
    followed.sync()
    followed.assert_equal("a", "b")


@pytest.mark.parametrize("mode", [None, "history", "log"])
def test_a_snapshot_behind_a_lost_log_is_a_version_at_once(followed: Mirror, primary: Server, mode: str | None) -> None:
    """Though the server is quiet since."""

    def keys() -> list[int]:
        answer = place_of(followed.config).at().sql(f"SELECT id FROM {DATABASE}.a ORDER BY id")
        return [row["id"] for row in answer.to_pylist()]

    followed.modes = [{"tables": f"{DATABASE}.a", mode: {}}] if mode else []
    followed.execute("INSERT INTO a VALUES (4, 'four')")
    before = followed.sync().batch
    assert before is not None
    snapshot_behind_a_lost_log(followed, primary)
    newest = place_of(followed.config).at()
    assert newest.batch == before + 1
    assert newest.version.position == followed.watermark("a")["position"]
    assert {f"{DATABASE}.a", f"{DATABASE}.b"} <= newest.version.contents.keys()
    assert keys() == [1, 2, 3, 4, 5]
    assert len(newest.at(batch=before).arrow(f"{DATABASE}.a")) == 4
    assert followed.sync().message.startswith("nothing new")
    followed.execute("INSERT INTO a VALUES (6, 'six')")
    assert followed.sync().batch == before + 2
    assert keys() == [1, 2, 3, 4, 5, 6]
    followed.assert_equal("a", "b")


@pytest.mark.parametrize("primary", ["mysql"], indirect=True)
def test_a_feed_goes_on_behind_a_lost_log_and_says_that_it_left_it_out(followed: Mirror, primary: Server) -> None:
    config = feed(followed)
    followed.execute("INSERT INTO a VALUES (4, 'four')")
    followed.sync()
    carried(followed, config)
    snapshot_behind_a_lost_log(followed, primary)
    followed.execute("INSERT INTO a VALUES (6, 'six')")
    followed.sync()
    carried(followed, config)
    assert plain_lines(followed)[-2:] == [
        'insert a {"id": 4} {"id": 4, "v": "four"}', 'insert a {"id": 6} {"id": 6, "v": "six"}'
    ]  # fmt: skip
    assert [row["layer"] for row in followed.metadata.read("omissions", ["layer"])] == ["log"]


def snapshot_behind_a_lost_log(mirror: Mirror, server: Server) -> None:
    """A row is written, its log is purged before it is read, the sync is refused, and the remedy is carried out."""
    mirror.execute("INSERT INTO a VALUES (5, 'never read')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge(server)
    assert "binlake snapshot" in refused(mirror)
    mirror.snapshot()


def purge(server: Server) -> None:
    """Remove all files of the log but the newest. One stays in use until the server notices that its reader left."""
    newest = server.execute("SHOW BINARY LOGS")[-1][0]
    deadline = time.monotonic() + 60
    while server.execute("SHOW BINARY LOGS")[0][0] != newest:
        assert time.monotonic() < deadline, "the server doesn't purge"
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        time.sleep(0.2)


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_clock_that_is_set_back_makes_no_other_log(followed: Mirror) -> None:
    before = Position.parse(followed.watermark("a")["position"])
    followed.execute(
        "CREATE TABLE c (id INT PRIMARY KEY)",
        "INSERT INTO c VALUES (1)",
        "SET timestamp = UNIX_TIMESTAMP() - 3600",
        "FLUSH BINARY LOGS",
    )
    result, _ = followed.snapshot(f"{DATABASE}.a", f"{DATABASE}.b")
    assert result.low > before
    assert result.low.created < before.created
    followed.sync()
    followed.assert_equal("a", "b", "c")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_a_paused_table_does_not_go_on_over_a_part_of_the_log_that_was_never_read(followed: Mirror) -> None:
    decisions.pause(followed.config, TableName(DATABASE, "b"), Reason("ann", "a test"))
    time.sleep(1.1)  # logs are told apart by the second in which they began
    followed.execute("INSERT INTO b VALUES ('only in the old log')", "RESET MASTER")
    followed.snapshot(f"{DATABASE}.a")
    followed.execute("INSERT INTO b VALUES ('in the new one')", "INSERT INTO a VALUES (9, 'nine')")
    followed.sync()
    followed.assert_equal("a")
    with pytest.raises(UsageError, match="what is between was never read"):
        resume(followed, "b")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_nor_where_the_new_log_is_followed_from_the_same_place(followed: Mirror) -> None:
    time.sleep(1.1)  # logs are told apart by the second in which they began
    followed.execute("RESET MASTER")
    followed.snapshot()
    decisions.pause(followed.config, TableName(DATABASE, "b"), Reason("ann", "a test"))
    followed.execute("INSERT INTO b VALUES ('only in the old log')")
    time.sleep(1.1)
    followed.execute("RESET MASTER")
    followed.snapshot(f"{DATABASE}.a")
    followed.execute("INSERT INTO b VALUES ('in the new one')", "INSERT INTO a VALUES (9, 'nine')")
    followed.sync()
    with pytest.raises(UsageError, match="what is between was never read"):
        resume(followed, "b")


@pytest.mark.parametrize("primary", ["mariadb"], indirect=True)
def test_nor_over_what_another_server_did_before_it_was_followed(followed: Mirror, primary: Server) -> None:
    decisions.pause(followed.config, TableName(DATABASE, "b"), Reason("ann", "a test"))
    with Server(primary.kind, server_id=3) as stranger:
        stranger.execute(f"CREATE DATABASE {DATABASE}")
        mirror = on(followed, stranger)
        mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (v VARCHAR(30))")
        mirror.execute("INSERT INTO b VALUES ('never read')")
        mirror.snapshot(f"{DATABASE}.a")
        mirror.execute("INSERT INTO b VALUES ('read')")
        mirror.sync()
        with pytest.raises(UsageError, match="what is between was never read"):
            resume(mirror, "b")
