"""Snapshots: a lake that equals the views, whatever is written meanwhile, dies in between, or is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.delta.delta_log import LakeLog, overtaking
from binlake.errors import AccessDenied, InvalidDate, TableError
from binlake.lease import lease
from binlake.phases.bootstrap import begin_lives
from binlake.records import decisions
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot import direct, few_rows, jdbc, snapshot as snapshot_room, waves as wave
from binlake.snapshot.snapshot import SnapshotResult, SnapshotTask, snapshot
from binlake.source import prepared_xa, read_lock as read_locks
from binlake.source.endpoint import Endpoint
from binlake.source.listed_tables import included_tables
from binlake.source.locks import Busy, Gate, Gates
from binlake.source.read_lock import read_lock
from binlake.source.server import Source
from comparison import assert_equal
from mirror import SHORT_LIVED, Mirror, on_mariadb, on_mysql
from servers import Server
from writers import writing

ROWS = 600


def accounts(mirror: Mirror, *tables: str) -> None:
    """Tables of ``ROWS`` accounts of 100 each."""
    numbers = ", ".join(f"({number}, 100)" for number in range(1, ROWS + 1))
    for table in tables:
        mirror.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, amount INT NOT NULL)",
            f"INSERT INTO {table} VALUES {numbers}",
            f"ANALYZE TABLE {table}",
        )


def move_money(cursor: Any, number: int) -> None:
    """From one table to the other; now and then an account changes its key, closes, opens."""
    payer, payee = number % ROWS + 1, (number * 7) % ROWS + 1
    cursor.execute("UPDATE a SET amount = amount - 3 WHERE id = %s", (payer,))
    cursor.execute("UPDATE b SET amount = amount + %s WHERE id = %s", (3 if cursor.rowcount else 0, payee))
    if not cursor.rowcount:
        cursor.execute("UPDATE a SET amount = amount + 3 WHERE id = %s", (payer,))


def churn(cursor: Any, number: int) -> None:
    account = (number * 13) % (3 * ROWS) + 1
    cursor.execute("DELETE FROM a WHERE id = %s", (account,))
    cursor.execute("UPDATE IGNORE a SET id = id + %s WHERE id = %s", (ROWS, account // 2))
    cursor.execute("REPLACE INTO a VALUES (%s, %s)", (account + 5, number))


def total(mirror: Mirror, *tables: str) -> int:
    amount = 0
    for table in tables:
        builder = QueryBuilder().register("rows", DeltaTable(mirror.path(table)))
        amount += builder.execute("SELECT CAST(SUM(amount) AS BIGINT) AS s FROM rows").read_all()["s"][0].as_py()
    return amount


def copied(mirror: Mirror, rows: int, lock: Any) -> tuple[list[SnapshotResult], list[TableError]]:
    with Source.open(mirror.endpoint) as source, lease.held(mirror.metadata) as held:
        task = SnapshotTask(
            mirror.config,
            mirror.endpoint,
            source,
            mirror.metadata,
            Report(),
            held.control().batch,
            lock=lock,
            chunk_rows=rows,
        )
        return snapshot(lambda why: mirror.spark, task, included_tables(source, mirror.config))


def chunked(mirror: Mirror, *, rows: int = 100, lock: Any = "flush") -> list[SnapshotResult]:
    """A snapshot in many chunks; the lives don't begin."""
    results, failures = copied(mirror, rows, lock)
    for error in failures:
        raise error
    return results


def begin(mirror: Mirror, results: list[SnapshotResult]) -> None:
    with Source.open(mirror.endpoint) as source, lease.held(mirror.metadata) as held:
        begin_lives(held, mirror.metadata, source, results, held.control().batch)


def staged_chunks(mirror: Mirror) -> list[dict[str, Any]]:
    return [row for row in mirror.metadata.read("snapshots") if row["state"] == "staged"]


def test_one_wave_is_one_moment(mirror: Mirror) -> None:
    accounts(mirror, "a", "b")
    with writing(mirror, move_money):
        first, second = mirror.snapshot()
    assert first.low == first.high == second.low == second.high
    assert total(mirror, "a", "b") == 2 * ROWS * 100
    assert max(first.lock_ms, second.lock_ms) < 5000
    mirror.sync()
    mirror.assert_equal("a", "b")


@pytest.mark.parametrize("lock", ["flush", "tables", "none"])
def test_chunks_of_many_moments_become_equal(mirror: Mirror, lock: str) -> None:
    accounts(mirror, "a")
    with writing(mirror, churn):
        (result,) = chunked(mirror, rows=200, lock=lock)
        begin(mirror, [result])
    assert result.low < result.high
    assert result.lock_ms == 0 if lock == "none" else result.lock_ms > 0
    mirror.sync()
    mirror.assert_equal("a")


@on_mysql
def test_no_more_connections_than_configured(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts(mirror, "a")
    waves: list[int] = []

    def counting(copying: Any, members: Any, *rest: Any, **options: Any) -> None:
        waves.append(len(members))
        wave.run_wave(copying, members, *rest, **options)

    monkeypatch.setattr(snapshot_room, "run_wave", counting)
    mirror.options["snapshot"] = {"connections": 1}
    begin(mirror, chunked(mirror, rows=ROWS // 3))
    assert waves == [1, 1, 1]
    mirror.options["snapshot"] = {"connections": 100}  # those that find no core would wait at their gates for ever
    mirror.execute("UPDATE a SET amount = 7")
    mirror.snapshot("*.a")
    assert waves[3:] == [1]
    mirror.assert_equal("a")


@on_mariadb
def test_a_dead_snapshot_goes_on(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts(mirror, "a")
    waves = iter(range(10))

    def dying(*arguments: Any, **options: Any) -> None:
        if next(waves) == 1:
            raise KeyboardInterrupt
        wave.run_wave(*arguments, **options)

    monkeypatch.setattr(snapshot_room, "run_wave", dying)
    with pytest.raises(KeyboardInterrupt):
        chunked(mirror)
    before = {row["chunk"]: row["position"] for row in staged_chunks(mirror)}
    assert len(before) == 2
    mirror.execute("UPDATE a SET amount = amount + 1 WHERE id % 7 = 0")
    (result,) = chunked(mirror)
    kept = {row["chunk"]: row["position"] for row in mirror.metadata.read("snapshots")}
    assert before.items() <= kept.items()
    assert result.low < result.high
    assert not list(Path(mirror.config.staging_path("snapshot")).iterdir())
    begin(mirror, [result])
    mirror.sync()
    mirror.assert_equal("a")


_KILLED = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from types import SimpleNamespace
from binlake.spark import session
from binlake.report import Report
from binlake.snapshot.snapshot import SnapshotTask, snapshot
from binlake.source.listed_tables import included_tables
from binlake.source.server import Source
from binlake.lease import lease
from mirror import Mirror
mirror = Mirror(SimpleNamespace(port={port}), {database!r}, Path({lake!r}), session.build("killed", master="local[2]"))
with Source.open(mirror.endpoint) as source, lease.held(mirror.metadata):
    task = SnapshotTask(mirror.config, mirror.endpoint, source, mirror.metadata, Report(), 0, chunk_rows=20)
    snapshot(lambda why: mirror.spark, task, included_tables(source, mirror.config))
"""


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_killed_and_run_again(mirror: Mirror) -> None:
    accounts(mirror, "a")
    script = _KILLED.format(
        path=[entry for entry in sys.path if "tests" in entry or "docker" in entry],
        port=mirror.server.port,
        database=mirror.database,
        lake=str(mirror.folder),
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, **SHORT_LIVED}, start_new_session=True
    ) as process:
        try:  # its JVM belongs to its process group
            deadline = time.monotonic() + 240
            while len(staged_chunks(mirror)) < 4 and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.1)
            assert process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    staged = {row["chunk"] for row in staged_chunks(mirror)}
    assert 4 <= len(staged) < ROWS / 20
    time.sleep(1)  # the lease's heartbeat
    mirror.metadata.swap("lease", "true", {"expires_us": 0})
    (result,) = chunked(mirror, rows=20)
    assert result.rows == ROWS
    begin(mirror, [result])
    mirror.execute("DELETE FROM a WHERE id < 10")
    mirror.sync()
    mirror.assert_equal("a")


@on_mysql
def test_committed_but_not_begun(mirror: Mirror) -> None:
    accounts(mirror, "a")
    (first,) = chunked(mirror)
    version = mirror.version("a")
    (again,) = chunked(mirror)
    assert again == first or (again.table_id, again.low, again.rows) == (first.table_id, first.low, first.rows)
    assert mirror.version("a") == version


@on_mysql
def test_a_new_snapshot_of_all_that_is_followed_passes_over_no_new_table(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    mirror.snapshot()
    mirror.execute("CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (2)")
    mirror.snapshot(f"{mirror.database}.a")
    mirror.sync()
    mirror.assert_equal("a", "b")


@on_mysql
def test_a_new_snapshot_of_all_tables_follows_the_log_from_there(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.execute("INSERT INTO a VALUES (1)")
    mirror.snapshot()
    assert mirror.sync().mutations == 0
    mirror.assert_equal("a", "b")


@on_mariadb
def test_a_new_snapshot_at_the_same_position_replaces_a_damaged_table(mirror: Mirror) -> None:
    accounts(mirror, "a")
    (first,) = mirror.snapshot()
    mirror.spark.sql(f"DELETE FROM delta.`{mirror.path('a')}` WHERE id < 50")
    (second,) = mirror.snapshot("*.a")
    assert second.low == first.low
    assert second.delta_version > first.delta_version + 1
    mirror.assert_equal("a")
    mirror.execute("UPDATE a SET amount = 7 WHERE id = 3")
    mirror.sync()
    mirror.assert_equal("a")


@on_mysql
def test_a_new_snapshot_over_other_columns(mirror: Mirror) -> None:
    """What the table's features are by now, its data files knew nothing of when they were written."""
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO a VALUES (1, 'one'), (2, NULL)")
    mirror.snapshot()
    mirror.execute("ALTER TABLE a RENAME COLUMN v TO w")
    mirror.sync()
    mirror.execute("ALTER TABLE a ADD t DATETIME(6)", "UPDATE a SET t = '2020-02-29 01:02:03.000004' WHERE id = 1")
    mirror.snapshot("*.a")
    mirror.assert_equal("a")
    mirror.execute("ALTER TABLE a RENAME COLUMN w TO `x y`, ADD n INT FIRST", "DELETE FROM a WHERE id = 2")
    mirror.sync()
    mirror.assert_equal("a")
    mirror.execute("ALTER TABLE a ADD m INT", "INSERT INTO a (id, `x y`, m) VALUES (3, 'three', 4)")
    mirror.snapshot("*.a")
    mirror.assert_equal("a")
    mirror.execute("ALTER TABLE a RENAME COLUMN `x y` TO z, DROP n", "UPDATE a SET z = 'four' WHERE id = 3")
    mirror.sync()
    mirror.assert_equal("a")
    first = mirror.spark.read.format("delta").option("versionAsOf", 0).load(mirror.path("a"))
    assert {tuple(row) for row in first.collect()} == {(1, "one"), (2, None)}


@on_mysql
def test_a_table_is_born_in_the_log_where_its_snapshot_died(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE b (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    with mirror.cut_off_at("chunks written"):
        mirror.snapshot("*.a")
    mirror.sync()
    mirror.assert_equal("a", "b")
    mirror.execute("INSERT INTO a VALUES (2)")
    mirror.snapshot("*.a")
    mirror.sync()
    mirror.assert_equal("a")


@on_mariadb
def test_an_odd_name_over_a_plain_table(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    mirror.snapshot()
    mirror.execute("ALTER TABLE a ADD `o d` INT DEFAULT 7", "INSERT INTO a VALUES (2, 8)")
    mirror.snapshot("*.a")
    mirror.assert_equal("a")
    mirror.execute("ALTER TABLE a RENAME COLUMN `o d` TO d", "UPDATE a SET d = 9 WHERE id = 1")
    mirror.sync()
    mirror.assert_equal("a")


@on_mysql
def test_history_tells_what_a_snapshot_wrote(mirror: Mirror) -> None:
    accounts(mirror, "a")
    mirror.snapshot()
    mirror.snapshot("*.a")
    commit = DeltaTable(mirror.path("a")).history(1)[0]
    assert (commit["operation"], commit["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
    metrics = {name: int(value) for name, value in commit["operationMetrics"].items()}
    assert (metrics["numFiles"], metrics["numOutputRows"], metrics["numRemovedFiles"]) == (1, ROWS, 1)
    assert min(metrics["numOutputBytes"], metrics["numRemovedBytes"]) > 0


def test_odd_tables(mirror: Mirror) -> None:
    odd = "o dd.`n'a\"m\\e; DROP TABLE a"
    mirror.execute(
        f"CREATE TABLE `{odd.replace('`', '``')}` (`i d` INT PRIMARY KEY, `a.b``c` VARCHAR(9), `ü漢=;{{}}` INT)",
        f"INSERT INTO `{odd.replace('`', '``')}` VALUES (1, 'x', 2), (2, NULL, NULL)",
        "CREATE TABLE hollow (id INT PRIMARY KEY, v VARCHAR(5))",
        "CREATE TABLE keyless (v VARCHAR(5), w INT)",
        "INSERT INTO keyless VALUES ('a', 1), ('a', 1), (NULL, NULL)",
        "CREATE TABLE plain (id INT PRIMARY KEY, v TEXT) ENGINE=MyISAM",
        "INSERT INTO plain VALUES (1, 'one'), (2, '')",
        "CREATE TABLE text_key (k VARCHAR(20) COLLATE utf8mb4_bin, n INT, PRIMARY KEY (k, n))",
        "INSERT INTO text_key VALUES ('b', 1), ('a', 2), ('', 0)",
        "CREATE TABLE huge (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "INSERT INTO huge VALUES (0, 1), (18446744073709551615, 2), (9223372036854775808, 3)",
        "CREATE TABLE low (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO low VALUES (-9223372036854775808, 1), (-1, 2), (0, 3), (9223372036854775807, 4)",
        "ANALYZE TABLE huge, low",
    )
    results = chunked(mirror, rows=1)
    begin(mirror, results)
    names = [result.name.table for result in results]
    assert set(names) == {odd, "hollow", "keyless", "plain", "text_key", "huge", "low"}
    mirror.assert_equal(*names)
    mirror.execute("INSERT INTO plain VALUES (3, 'x')", "UPDATE low SET v = 9 WHERE id = -1")
    mirror.sync()
    mirror.assert_equal(*names)


@on_mariadb
def test_a_table_that_the_server_cant_read_fails_alone(mirror: Mirror) -> None:
    accounts(mirror, "a", "lost", "z")
    mirror.execute("ALTER TABLE lost DISCARD TABLESPACE")
    with pytest.raises(TableError, match=r"lost.*\(error 1814\)"):
        mirror.snapshot()
    mirror.assert_equal("a", "z")
    mirror.execute("UPDATE a SET amount = 1")
    mirror.sync()
    mirror.assert_equal("a", "z")


def test_keyless_and_plain_tables_lock_even_without_locks(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE keyless (v INT)",
        "INSERT INTO keyless VALUES (1), (1)",
        "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO plain VALUES (1)",
    )

    def insert(cursor: Any, number: int) -> None:
        # One transaction each: with GTID, engines don't mix.
        if number % 2:
            cursor.execute("INSERT INTO keyless VALUES (%s)", (number % 5,))
        else:
            cursor.execute("INSERT INTO plain VALUES (%s)", (number + 2,))

    with writing(mirror, insert):
        results = mirror.snapshot(lock="none")
    assert all(result.low == result.high and result.lock_ms > 0 for result in results)
    mirror.sync()
    mirror.assert_equal("plain", "keyless")


@on_mysql
def test_ddl_between_waves_begins_the_table_anew(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts(mirror, "a")
    waves = iter(range(20))

    def altering(*arguments: Any, **options: Any) -> None:
        if next(waves) == 1:
            mirror.execute("ALTER TABLE a ADD COLUMN note VARCHAR(5) DEFAULT 'new'")
        wave.run_wave(*arguments, **options)

    monkeypatch.setattr(snapshot_room, "run_wave", altering)
    (result,) = chunked(mirror)
    assert result.schema.has("note")
    mirror.assert_equal("a")


def test_invalid_dates(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE dated (id INT PRIMARY KEY, d DATE, t DATETIME(3), s TIMESTAMP(2) NULL)",
        "INSERT INTO dated VALUES (1, '2020-02-29', '1000-01-01 00:00:00.001', '2030-01-01 00:00:00.25'),"
        " (2, '0000-00-00', '2020-02-30 01:02:03', '0000-00-00 00:00:00'), (3, '2020-00-10', NULL, NULL)",
        "CREATE TABLE good (id INT PRIMARY KEY)",
    )
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    results, failures = copied(mirror, 100, "flush")
    monkeypatch.undo()
    assert [result.name.table for result in results] == ["good"]
    assert isinstance(failures[0], InvalidDate)
    assert "dated" in str(failures[0])
    assert "2 rows" in str(failures[0])
    assert "'d'" in str(failures[0])
    with pytest.raises(InvalidDate):
        mirror.snapshot("*.dated")
    mirror.options["invalid_dates"] = "keep_text"
    mirror.snapshot("*.dated")
    mirror.assert_equal("dated")


def test_prepared_transactions_end_first(mirror: Mirror) -> None:
    accounts(mirror, "a")
    preparing = mirror.server.connect(database=mirror.database)
    with preparing.cursor() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute("UPDATE a SET amount = 1 WHERE id = 1")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")

    def end() -> None:
        with preparing.cursor() as cursor:
            cursor.execute("XA COMMIT 'x'")

    timer = threading.Timer(8, end)
    timer.start()
    try:
        mirror.snapshot()
    finally:
        timer.join()
        preparing.close()
    mirror.sync()
    mirror.assert_equal("a")


def test_a_transaction_that_stays_prepared_is_named(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts(mirror, "a")
    preparing = mirror.server.connect(database=mirror.database)
    try:
        with preparing.cursor() as cursor:
            cursor.execute("XA START 'y'")
            cursor.execute("UPDATE a SET amount = 1 WHERE id = 1")
            cursor.execute("XA END 'y'")
            cursor.execute("XA PREPARE 'y'")
        with Source.open(mirror.endpoint) as source:
            with pytest.raises(Busy, match="prepared XA") as caught, read_lock(source, "flush", [], patience=0):
                pass
            mirror.execute("UPDATE a SET amount = 5 WHERE id = 2")  # nothing is locked any more
        assert ("X'79',X'',1" if mirror.server.kind == "mysql" else "'y'") in caught.value.message
        assert "connection" in caught.value.message or "whose client has left" in caught.value.message
    finally:
        with preparing.cursor() as cursor:
            cursor.execute("XA ROLLBACK 'y'")
        preparing.close()


def test_a_sync_follows_the_log_beside_a_transaction_that_stays_prepared(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another table's. The lock isn't taken, nor waited for twice; the snapshot is taken once it has ended."""
    mirror.include = [f"{mirror.database}.a", f"{mirror.database}.b"]
    mirror.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    accounts(mirror, "a", "b")
    mirror.snapshot()
    decisions.resnapshot(mirror.config, TableName(mirror.database, "b"), Reason("ann", "a test"))
    monkeypatch.setattr(snapshot_room, "PATIENCE", 0)
    monkeypatch.setattr(snapshot_room, "BRIEF_PATIENCE", 0)
    looks: list[list[str]] = []

    def look(source: Source) -> list[str]:
        looks.append([str(row["data"]) for row in source.query("XA RECOVER")])
        return looks[-1]

    monkeypatch.setattr(prepared_xa, "prepared_xids", look)
    monkeypatch.setattr(read_locks._Locker, "acquire", lambda *_: pytest.fail("the lock is taken"))
    with mirror.server.connect(database=mirror.database) as preparing, preparing.cursor() as cursor:
        for statement in ("XA START 'z'", "INSERT INTO other VALUES (1)", "XA END 'z'", "XA PREPARE 'z'"):
            cursor.execute(statement)
        mirror.execute("UPDATE a SET amount = 7 WHERE id = 1")
        mirror.sync()
        cursor.execute("XA ROLLBACK 'z'")
    mirror.assert_equal("a")
    assert len(looks) == 1
    monkeypatch.undo()
    mirror.sync()
    mirror.assert_equal("a", "b")


def test_an_account_that_may_not_flush_locks_its_tables(mirror: Mirror) -> None:
    accounts(mirror, "a", "b")
    grants = [f"SELECT, LOCK TABLES ON `{mirror.database}`.*"]
    grants.append(
        "BINLOG MONITOR, REPLICATION SLAVE ON *.*"
        if mirror.server.kind == "mariadb"
        else "REPLICATION CLIENT, REPLICATION SLAVE, XA_RECOVER_ADMIN ON *.*"
    )
    mirror.server.create_account("copier", "s3cr3t pass", grants)
    endpoint = Endpoint("127.0.0.1", mirror.server.port, "copier", "s3cr3t pass")
    with writing(mirror, move_money):
        pipeline.bootstrap(mirror.config, endpoint, lambda _: mirror.spark, Report())
    assert total(mirror, "a", "b") == 2 * ROWS * 100
    mirror.server.execute(f"REVOKE LOCK TABLES ON `{mirror.database}`.* FROM copier")
    names = [TableName(mirror.database, "a")]
    with (
        Source.open(endpoint) as source,
        pytest.raises(AccessDenied, match="may lock neither"),
        read_lock(source, "flush", names),
    ):
        pass


def test_an_account_that_may_not_see_prepared_transactions(mysql_server: Server) -> None:
    """MySQL only: MariaDB lists them to everybody."""
    mysql_server.create_account("blind", "x", ["RELOAD, REPLICATION CLIENT ON *.*"])
    endpoint = Endpoint("127.0.0.1", mysql_server.port, "blind", "x")
    with (
        Source.open(endpoint) as source,
        pytest.raises(AccessDenied, match="prepared XA") as caught,
        read_lock(source, "flush", []),
    ):
        pass
    assert "XA_RECOVER_ADMIN" in caught.value.remedy


def test_a_gate_lets_nobody_through_twice(server: Server, database: str) -> None:
    """Spark may run a lost task again: it must fail instead of opening a later view."""
    server.execute("CREATE TABLE a (id INT PRIMARY KEY)", database=database)
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    gate = Gate((TableName(database, "a"),))
    with Source.open(endpoint) as control, Source.open(endpoint) as first, Source.open(endpoint) as second:
        gates = Gates(control, [gate], lambda: None)
        statements = gate.init_statements(mariadb=control.is_mariadb).split("; ")

        def connect() -> None:
            first.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for statement in statements:
                first.execute(statement)

        thread = threading.Thread(target=connect)
        thread.start()
        gates.wait_until_ready()
        assert thread.is_alive()
        gates.open()
        thread.join()
        with pytest.raises(Exception, match="more than 1 row"):
            second.execute(statements[0])
        gates.forget()


def test_who_stands_at_a_gate_twice_passes_it_once(server: Server) -> None:
    """So would a task that Spark runs again while the connection of the lost one lives on: its view would be later."""
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    gate = Gate(())
    with Source.open(endpoint) as control:
        gates = Gates(control, [gate], lambda: None)
        statements = gate.init_statements(mariadb=control.is_mariadb).split("; ")

        def connect() -> None:
            with Source.open(endpoint) as source:
                for statement in statements:
                    source.execute(statement)
                direct.wait_until_seen(source.connection, gate.spent)

        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(connect) for _ in range(2)]
            shown = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE info LIKE %s"
            while control.query(shown, [f"SELECT GET_LOCK('{gate.closed}'%"])[0]["n"] < 2:
                time.sleep(0.01)
            gates.open()
        errors = [future.exception() for future in futures]
        assert sorted(error is None for error in errors) == [False, True]
        (refused,) = filter(None, errors)
        assert "more than 1 row" in str(refused)
        gates.forget()


def test_read_committed_never_counts_as_open(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT PRIMARY KEY)", database=database)
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    gate = Gate((TableName(database, "a"),))
    with Source.open(endpoint) as control, Source.open(endpoint) as reader:
        gates = Gates(control, [gate], lambda: None)
        reader.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        statements = gate.init_statements(mariadb=control.is_mariadb).split("; ")

        def connect() -> None:
            for statement in statements:
                reader.execute(statement)

        thread = threading.Thread(target=connect)
        thread.start()
        gates.wait_until_ready()
        with pytest.raises(Busy):
            gates.open(seconds=1)
        thread.join()


def test_the_password_shows_nowhere(mirror: Mirror) -> None:
    accounts(mirror, "a")
    password = "pass word'`\"ß"
    grants = [f"SELECT ON `{mirror.database}`.*"]
    mirror.server.create_account("secretive", password, grants)
    endpoint = Endpoint("127.0.0.1", mirror.server.port, "secretive", password)
    mariadb = mirror.server.kind == "mariadb"
    query = jdbc.ChunkQuery(endpoint, f"SELECT id AS c0 FROM `{mirror.database}`.a", mariadb)
    frame = jdbc.read(mirror.spark, query)
    assert frame.count() == ROWS
    plan = frame._jdf.queryExecution()
    assert password not in plan.toString() + plan.logical().treeString() + repr(endpoint)
    wrong = Endpoint("127.0.0.1", mirror.server.port, "secretive", "wrong" + password)
    with pytest.raises(Exception) as caught:
        jdbc.read(mirror.spark, jdbc.ChunkQuery(wrong, "SELECT 1 AS c0", mariadb))
    assert password not in str(caught.value)


def test_encrypted_and_verified(mysql_server: Server, spark: Any, tmp_path: Path) -> None:
    """MySQL makes its own certificates; they carry no host name."""
    ca = mysql_server.datadir / "ca.pem"
    if not ca.exists():
        pytest.skip("this server was set up without certificates")
    endpoint = Endpoint("127.0.0.1", mysql_server.port, "root", "", tls=(("ca", str(ca)), ("check_hostname", "false")))
    query = "SELECT VARIABLE_VALUE AS c0 FROM performance_schema.session_status WHERE VARIABLE_NAME = 'Ssl_cipher'"
    row = jdbc.read(spark, jdbc.ChunkQuery(endpoint, query, mariadb=False)).head()
    assert row is not None
    assert row["c0"]


@on_mariadb
def test_the_commit_carries_its_position(mirror: Mirror) -> None:
    accounts(mirror, "a")
    (result,) = mirror.snapshot()
    (entry,) = DeltaTable(mirror.path("a")).history()
    note = json.loads(entry["userMetadata"])["binlake"]
    assert note["position"] == str(result.low)
    assert note["chunks"] == [result.low.short]
    recorded = LakeLog(mirror.path("a"), f"binlake:tests:{result.table_id}").recorded()
    assert recorded == overtaking(0) + 1
    assert_equal(mirror.server, mirror.database, "a", mirror.path("a"))
