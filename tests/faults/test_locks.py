"""Locks of ours on a busy server: no writer waits for longer than the limit, and whoever is in the way is named."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pymysql
import pytest

from binlake import pipeline
from binlake.errors import LockTimeout
from binlake.phases.bootstrap import KeysAsked
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot.commit import SnapshotResult
from binlake.source import lock_waits, read_lock as read_locks, session_settings
from binlake.source.endpoint import Endpoint
from binlake.source.locks import Busy, LockMode
from binlake.source.read_lock import LockBlocked, read_lock
from binlake.source.server import Source
from mirror import Mirror, on_mariadb, on_mysql
from servers import Server

LIMIT = 1.0
SLACK = 0.7
"""Seconds that a loaded machine may add to a wait."""


@dataclass
class Writer:
    """Writes one row after the other. waits: seconds that each took."""

    waits: list[float] = field(default_factory=lambda: [0.0])

    @property
    def longest(self) -> float:
        return max(self.waits)


@contextmanager
def writing(server: Server, database: str) -> Iterator[Writer]:
    writer, stop = Writer(), threading.Event()
    server.execute("CREATE TABLE IF NOT EXISTS written (id INT PRIMARY KEY AUTO_INCREMENT)", database=database)

    def write() -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                began = time.monotonic()
                cursor.execute("INSERT INTO written VALUES (NULL)")
                connection.commit()
                writer.waits.append(time.monotonic() - began)
                stop.wait(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield writer
    finally:
        stop.set()
        thread.join()


@contextmanager
def at_work(server: Server, database: str, *statements: str | bytes) -> Iterator[int]:
    """A session that runs statements, of which the last may take long. Yields the server's number of it."""
    connection = server.connect(database=database)
    number = connection.thread_id()

    def run() -> None:
        with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(lock_waits.LONG + 0.3)
    try:
        yield number
    finally:
        server.execute(f"KILL {number}")
        thread.join()
        with suppress(pymysql.err.MySQLError):
            connection.close()


def endpoint(server: Server, user: str = "root", password: str = "") -> Endpoint:
    return Endpoint("127.0.0.1", server.port, user, password)


@pytest.fixture
def table(server: Server, database: str) -> TableName:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    return TableName(database, "t")


def take(where: Endpoint, mode: LockMode, table: TableName, patience: float = 3.0) -> read_locks.Held:
    with Source.open(where) as source, read_lock(source, mode, [table], limit=LIMIT, patience=patience) as held:
        pass
    return held


LONG_SELECT = "SELECT SLEEP(60) FROM t"
LONG_WRITE = "UPDATE t SET id = 1 WHERE SLEEP(60) = 0"


@pytest.mark.parametrize("statement", [LONG_SELECT, LONG_WRITE])
def test_behind_a_long_statement_no_lock_is_asked_for(server: Server, table: TableName, statement: str) -> None:
    with at_work(server, table.database, statement) as number, writing(server, table.database) as writer:
        if server.kind == "mariadb" and statement == LONG_SELECT:
            assert take(endpoint(server), "flush", table).mode == "flush"  # it waits for no SELECT there
        else:
            with pytest.raises(LockBlocked, match=f"connection {number} of root@") as caught:
                take(endpoint(server), "flush", table)
            assert statement.split()[0] in caught.value.message
            assert "SLEEP" not in caught.value.message  # a statement holds values
    assert writer.longest < SLACK


@pytest.fixture
def blind(server: Server, database: str) -> Iterator[Endpoint]:
    """An account that sees no statement of others."""
    grants = ["RELOAD, XA_RECOVER_ADMIN ON *.*" if server.kind == "mysql" else "RELOAD ON *.*"]
    server.create_account("unsighted", "x", [*grants, f"LOCK TABLES, SELECT ON `{database}`.*"])
    yield endpoint(server, "unsighted", "x")
    server.execute("DROP USER unsighted")


@pytest.mark.parametrize("statement", [LONG_SELECT, LONG_WRITE])
def test_an_account_that_sees_nobody_lets_writes_go_on_after_each_try(
    server: Server, table: TableName, blind: Endpoint, statement: str
) -> None:
    """On MySQL a FLUSH TABLES WITH READ LOCK that fails with error 1205 keeps the global lock."""
    with at_work(server, table.database, statement), writing(server, table.database) as writer:
        if server.kind == "mariadb" and statement == LONG_SELECT:
            take(blind, "flush", table)
        else:
            with pytest.raises(LockBlocked, match="a session that the account can't see"):
                take(blind, "flush", table, patience=4)
            assert writer.longest > 0.2  # it did try
    assert writer.longest < LIMIT + SLACK


def test_a_statement_whose_bytes_are_no_text_is_named(server: Server, table: TableName) -> None:
    update = b"UPDATE t SET id = 1 WHERE SLEEP(60) = _binary '\xa3\xff'"
    with at_work(server, table.database, update) as number:
        with Source.open(endpoint(server)) as source:
            (holder,) = lock_waits.suspects(source)
            assert [each.connection for each in lock_waits.flush_holders(source)] == [number]
        assert (holder.connection, holder.statement) == (number, "UPDATE")


@on_mysql
def test_sessions_that_are_idle_with_a_lock_are_seen(server: Server, table: TableName) -> None:
    for statement in ("LOCK TABLES t WRITE", "LOCK TABLES t READ", "HANDLER t OPEN"):
        with (
            at_work(server, table.database, statement) as number,
            writing(server, table.database) as writer,
            pytest.raises(LockBlocked, match=f"connection {number} of root@"),
        ):
            take(endpoint(server), "flush", table, patience=0)
        assert writer.longest < SLACK, statement


def test_an_open_transaction_is_in_the_way_of_locking_its_table(server: Server, table: TableName) -> None:
    with (
        at_work(server, table.database, "BEGIN", "UPDATE t SET id = 2") as number,
        writing(server, table.database) as writer,
        pytest.raises(LockBlocked, match=f"connection {number} of root@"),
    ):
        take(endpoint(server), "tables", table)
    assert writer.longest < LIMIT + SLACK


@on_mariadb
@pytest.mark.parametrize("mode", ["flush", "tables"])
def test_a_backup_that_blocks_commits_is_waited_for_no_longer(server: Server, table: TableName, mode: LockMode) -> None:
    stages = [f"BACKUP STAGE {stage}" for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT")]
    began = time.monotonic()
    server.execute("CREATE TABLE written (id INT PRIMARY KEY)", database=table.database)
    with (
        at_work(server, table.database, *stages),
        at_work(server, table.database, "INSERT INTO written VALUES (1)"),  # its commit waits
        pytest.raises(LockBlocked, match="waits for backup lock"),
    ):
        take(endpoint(server), mode, TableName(table.database, "written"), patience=4)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("mode", ["flush", "tables"])
def test_at_the_limit_the_lock_is_released(server: Server, table: TableName, mode: LockMode) -> None:
    """Whatever keeps the views from being opened: nothing that was read under the lock is used."""
    said: list[str] = []
    with writing(server, table.database) as writer, Source.open(endpoint(server)) as source:
        names = [table, TableName(table.database, "written")]
        with (
            pytest.raises(Busy, match="released after 1 s"),
            read_lock(source, mode, names, limit=LIMIT, say=said.append) as held,
        ):
            time.sleep(3)
        assert held.ms > 0
    assert 0.5 < writer.longest < LIMIT + SLACK


def test_the_time_that_is_reported_is_not_less_than_what_a_writer_waited(server: Server, table: TableName) -> None:
    with writing(server, table.database) as writer, Source.open(endpoint(server)) as source:
        with read_lock(source, "flush", [table]) as held:
            time.sleep(0.5)
        time.sleep(0.1)
    assert 480 <= writer.longest * 1000 <= held.ms + 20


FREEZES = """
import os, signal, sys
from binlake.schema.table import TableName
from binlake.source.endpoint import Endpoint
from binlake.source.read_lock import read_lock
from binlake.source.server import Source
with Source.open(Endpoint("127.0.0.1", int(sys.argv[1]), "root", "")) as source:
    with read_lock(source, "flush", [TableName("mysql", "user")], limit=1):
        os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_freezes_keeps_no_lock(server: Server, table: TableName) -> None:
    """The server ends its idle connection."""
    with writing(server, table.database) as writer:
        frozen = subprocess.Popen([sys.executable, "-c", FREEZES, str(server.port)])
        try:
            os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
            time.sleep(3.5)
        finally:
            frozen.send_signal(signal.SIGKILL)
            frozen.wait()
    assert 0.5 < writer.longest < LIMIT + 2 + SLACK


def test_a_lock_without_a_limit_is_kept(server: Server, table: TableName) -> None:
    with (
        writing(server, table.database) as writer,
        Source.open(endpoint(server)) as source,
        read_lock(source, "tables", [table], limit=LIMIT, without_limit=True) as held,
    ):
        held.keep_alive_during(lambda: time.sleep(4))
    assert held.ms > 4000
    assert writer.longest < SLACK  # another table's


def test_a_session_of_ours_waits_for_a_locked_table_for_a_limited_time(
    server: Server, table: TableName, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Source.open(endpoint(server)) as source:
        row = source.query("SELECT @@lock_wait_timeout AS seconds")[0]
        assert row["seconds"] == session_settings.LOCK_WAIT
        source.execute("SET SESSION lock_wait_timeout = 1")
        with (
            at_work(server, table.database, "LOCK TABLES t WRITE"),
            pytest.raises(LockTimeout, match="in its way is"),
        ):
            source.query(f"SELECT id FROM `{table.database}`.`t`")


def shop(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "CREATE TABLE keyless (v INT)",
        "INSERT INTO keyless VALUES (1), (1)",
        "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO plain VALUES (1), (2)",
    )


LONG_JOIN = "SELECT SLEEP(600) FROM t LIMIT 1"


@on_mysql
def test_a_snapshot_and_a_verify_beside_a_long_select(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot continues without a lock, the verification locks its tables: no writer waits for the SELECT."""
    monkeypatch.setattr("binlake.snapshot.snapshot.BRIEF_PATIENCE", 1.0)
    monkeypatch.setattr("binlake.source.read_lock.BRIEF_PATIENCE", 1.0)
    shop(mirror)
    with at_work(mirror.server, mirror.database, LONG_JOIN), writing(mirror.server, mirror.database) as writer:
        results = {result.name.table: result for result in mirror.snapshot("*.t", "*.keyless", "*.plain")}
        mirror.sync()
        report = mirror.verify("*.t", "*.keyless", "*.plain")
    assert [table.equal for table in report.tables] == [True] * 3
    assert results["t"].lock_ms == 0
    assert writer.longest < 2 + SLACK


@on_mysql
def test_a_range_of_keys_beside_a_long_select(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table is locked: no writer waits for the SELECT."""
    monkeypatch.setattr("binlake.source.read_lock.BRIEF_PATIENCE", 1.0)
    shop(mirror)
    mirror.snapshot("*.t")
    said = io.StringIO()
    with at_work(mirror.server, mirror.database, LONG_JOIN), writing(mirror.server, mirror.database) as writer:
        result = keys_anew(mirror, "t", "1..2", said)
    assert (result.rows, "the tables are locked instead" in said.getvalue()) == (2, True)
    assert writer.longest < 2 + SLACK
    mirror.sync()
    mirror.assert_equal("t")


def test_a_range_of_keys_of_a_table_without_read_views_stops_its_own_writers_alone(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its copy takes, and whatever long statement reads another table."""
    slowly(monkeypatch)
    shop(mirror)
    mirror.snapshot("*.plain")
    mirror.execute("SET sql_log_bin = 0", "INSERT INTO plain VALUES (3)")
    with at_work(mirror.server, mirror.database, LONG_JOIN), writing(mirror.server, mirror.database) as writer:
        result = keys_anew(mirror, "plain", "1..5", io.StringIO())
    assert result.rows == 3
    assert result.lock_ms > 4000
    assert writer.longest < SLACK
    mirror.sync()
    mirror.assert_equal("plain")


def keys_anew(mirror: Mirror, table: str, keys: str, said: io.StringIO) -> SnapshotResult:
    asked = KeysAsked([f"{mirror.database}.{table}"], keys)
    (result,) = pipeline.snapshot_keys(mirror.config, mirror.origin, lambda _: mirror.spark, Report(said), asked)
    return result


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each copy of the table without read views take 4 seconds more."""
    from binlake.snapshot import spark_copies

    copy = spark_copies.SparkCopy.run

    def slow(self: spark_copies.SparkCopy, query: object) -> object:
        copied = copy(self, query)  # type: ignore[arg-type]
        time.sleep(4 if self._member.table.name.table == "plain" else 0)
        return copied

    monkeypatch.setattr(spark_copies.SparkCopy, "run", slow)


def test_a_table_without_read_views_stops_its_own_writers_alone(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its copy takes."""
    slowly(monkeypatch)
    shop(mirror)
    with writing(mirror.server, mirror.database) as writer:
        (result,) = mirror.snapshot("*.plain")
    assert result.lock_ms > 4000
    assert writer.longest < SLACK
    mirror.sync()
    mirror.assert_equal("plain")
