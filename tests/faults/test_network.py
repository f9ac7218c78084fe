"""A network that cuts, stalls or crawls: nothing is lost, nothing comes twice, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import servers
from airflow_home import wait_for
from binlake.binlog.reader import read
from binlake.errors import AccessDenied, ConnectionFailed, ServerIdInUse
from binlake.position import Slice
from binlake.source import connection, dump
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.read_lock import read_lock
from binlake.source.server import Source
from binlog_slices import SERVER_ID, position, read_all, rows, written
from fault_proxy import DeafListener, FaultProxy
from mirror import Mirror, on_mysql
from servers import Kind, Server

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DEADLINE = 0.5
"""Seconds, in the place of the engine's own."""
AT_ONCE = 6.0
"""Seconds in which an error must have come, on a busy machine too."""


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as running:
        yield running


def at(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port, "root", "")


def reader_at(port: int, server: Server) -> ServerTransport:
    return ServerTransport(at(port), SERVER_ID, server.kind)


@contextmanager
def fails_at_once(seconds: float = AT_ONCE) -> Iterator[None]:
    """ConnectionFailed, which a retry can help, with its remedy."""
    began = time.monotonic()
    with pytest.raises(ConnectionFailed) as caught:
        yield
    assert time.monotonic() - began < seconds
    assert caught.value.retryable
    assert "run again" in caught.value.remedy


@pytest.fixture
def changes(server: Server, database: str) -> Slice:
    """Some hundred transactions on two tables, with a statement between them."""
    with written(server) as made:
        server.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(200))", "CREATE TABLE b (id INT, v INT)",
                       *(f"INSERT INTO a VALUES ({number}, REPEAT('{number} ', 30))" for number in range(60)),
                       "UPDATE a SET v = 'changed' WHERE id % 3 = 0", "ALTER TABLE b ADD w INT DEFAULT 5",
                       *(f"INSERT INTO b VALUES ({number}, 1, 2), (7, 7, 7)" for number in range(60)),
                       "DELETE FROM a WHERE id < 20", database=database)  # fmt: skip
    return made.part


def test_a_reader_that_is_cut_off_anywhere_has_given_no_row_twice_and_a_rerun_gives_all(
    server: Server, database: str, changes: Slice, proxy: FaultProxy
) -> None:
    direct = rows(read_all(reader_at(server.port, server), changes, database))
    through = reader_at(proxy.port, server)
    assert rows(read_all(through, changes, database)) == direct
    size = proxy.connections[0]
    assert size > changes.size
    for cut in [1, 30, 90, size // 8, size // 4, *(size - back for back in (changes.size // 2, 5000, 1000, 333, 200))]:
        proxy.cut_after = cut
        given: list[dict[str, Any]] = []
        with fails_at_once():
            for item in read(through, changes, lambda schema, table: schema == database):
                given += rows([item])
        for table in ("id,v", "id,v,w"):
            kind = [row for row in given if ",".join(row["after"] or row["before"]) == table]
            assert kind == [row for row in direct if ",".join(row["after"] or row["before"]) == table][: len(kind)]
    proxy.cut_after = None
    assert rows(read_all(through, changes, database)) == direct


def test_a_slow_network_changes_nothing(server: Server, database: str, changes: Slice, proxy: FaultProxy) -> None:
    direct = rows(read_all(reader_at(server.port, server), changes, database))
    proxy.delay = 0.05
    assert rows(read_all(reader_at(proxy.port, server), changes, database)) == direct


def test_a_stalled_reader_gives_up(
    server: Server, database: str, changes: Slice, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = reader_at(proxy.port, server)
    read_all(through, changes, database)
    monkeypatch.setattr(dump, "STALLED", DEADLINE)
    for stall in (proxy.connections[0] - changes.size // 2, proxy.connections[0] - 200):
        proxy.stall_after = stall
        with fails_at_once():
            read_all(through, changes, database)


# -- the control connection --------------------------------------------------------------------------------------


def test_a_port_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", DEADLINE)
    with DeafListener() as deaf, fails_at_once():
        Source.open(at(deaf.port))


def test_a_server_that_falls_silent_in_the_handshake(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its greeting and in it, while TLS is agreed upon, and in what a new session is set to."""
    Source.open(at(proxy.port)).close()
    size = proxy.connections[0]
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", DEADLINE)
    for greeted in (0, 20, 100, size // 2, size - 200, size - 1):
        proxy.stall_after = greeted
        with fails_at_once():
            Source.open(at(proxy.port), read_timeout=DEADLINE)


def test_a_server_that_falls_silent_while_asked(proxy: FaultProxy) -> None:
    with Source.open(at(proxy.port), read_timeout=2 * DEADLINE) as source:
        assert source.now()
        proxy.stall_after = proxy.connections[0]
        with fails_at_once():
            source.now()


def test_a_server_that_takes_nothing_any_more(monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", DEADLINE)
    with Source.open(at(proxy.port)) as source:
        proxy.stall_after = proxy.connections[0]
        with fails_at_once():
            source.execute(f"DO LENGTH('{'x' * 15_000_000}')")


@pytest.mark.parametrize("further", [0, 5])
def test_a_connection_that_was_cut_says_so_again_and_again(proxy: FaultProxy, further: int) -> None:
    """What tidies up after a failure mustn't hide it: a read lock is unlocked on a connection that is gone."""
    with Source.open(at(proxy.port)) as source:
        with fails_at_once(), read_lock(source, "flush", []):
            proxy.cut_after = proxy.connections[0] + further
            source.now()
        for _ in range(2):
            with fails_at_once():
                source.now()


def test_a_killed_connection_can_be_tried_again(server: Server) -> None:
    with Source.open(at(server.port)) as source:
        server.execute(f"KILL {source.connection_id}")
        with fails_at_once():
            source.now()


def test_an_idle_control_connection_stays(server: Server) -> None:
    """A snapshot's waits for its copies longer than many servers keep who asks nothing."""
    with server.setting("wait_timeout", 1), Source.open(at(server.port)) as source:
        time.sleep(2)
        assert source.now()


def test_a_server_without_a_free_connection_is_tried_again(server: Server) -> None:
    server.execute("CREATE USER crowded IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1")
    crowded = replace(at(server.port), user="crowded", password="x")
    try:
        with Source.open(crowded), pytest.raises(ConnectionFailed, match="max_user_connections") as caught:
            Source.open(crowded)
        assert "run again" in caught.value.remedy
    finally:
        server.execute("DROP USER crowded")
    with pytest.raises(AccessDenied):
        Source.open(crowded)


# -- the server's side of a long slice ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_log(server: Server) -> Slice:
    """More than the buffers between a server and its reader hold."""
    try:
        return fill(server)
    finally:
        server.execute("DROP DATABASE long_log")


def fill(server: Server) -> Slice:
    with written(server) as made:
        server.execute("CREATE DATABASE long_log",
                       "CREATE TABLE long_log.t (id INT PRIMARY KEY, v LONGBLOB)",
                       *(f"INSERT INTO long_log.t VALUES ({n}, REPEAT('x', 4000000))" for n in range(24)))  # fmt: skip
    return made.part


Begun = Callable[[], int]
"""Reads what is left; gives the bytes of the slice read in all."""


def begun(server: Server, part: Slice, reader: ServerTransport) -> Begun:
    """A reader that has read a little, and pauses."""
    chunks = reader.chunks(part)
    next(chunks)  # the format description event
    first = next(chunks).size
    return lambda: first + sum(chunk.size for chunk in chunks)


def readers_of(server: Server) -> list[tuple[Any, ...]]:
    return [row for row in server.execute("SHOW PROCESSLIST") if str(row[4]).startswith("Binlog Dump")]


def test_a_reader_may_pause_longer_than_the_server_waits_for_others(
    server: Server, long_log: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sets its own net_write_timeout; where that is over, the server hangs up, which is said."""
    with server.setting("net_write_timeout", 1):
        patient = begun(server, long_log, reader_at(server.port, server))
        monkeypatch.setattr(dump, "PAUSED", 1)
        impatient = begun(server, long_log, replace(reader_at(server.port, server), server_id=SERVER_ID + 1))
        wait_for("the server to hang up", 60, lambda: len(readers_of(server)) == 1)
    assert patient() == long_log.size
    with fails_at_once():
        impatient()


def test_a_second_replica_with_our_server_id(server: Server, long_log: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The elder of two is thrown out; MySQL knows them by uuid, which two readers never share."""
    reader = reader_at(server.port, server)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    ours = begun(server, long_log, reader)
    elder, younger_reads = max(row[0] for row in readers_of(server)), threading.Event()

    def read() -> None:
        rest = begun(server, long_log, reader)
        younger_reads.set()
        rest()

    other = threading.Thread(target=read)
    other.start()
    # MariaDB lets the younger wait until the elder is gone.
    while not younger_reads.wait(0.02) and elder in [row[0] for row in readers_of(server)]:
        continue
    with pytest.raises(ServerIdInUse, match="same server") as caught:
        ours()
    other.join()
    assert caught.value.retryable
    assert "source.server_id" in caught.value.remedy


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_readers_with_one_server_id_work_side_by_side_on_mysql(server: Server, changes: Slice) -> None:
    readers = [reader_at(server.port, server).chunks(changes) for _ in range(2)]
    assert [next(reader).size for reader in readers]
    assert [sum(chunk.size for chunk in reader) for reader in readers] == [changes.size] * 2


@pytest.mark.parametrize(("kind", "how"), [("mysql", "kill"), ("mariadb", "kill"), ("mariadb", "stop")])
def test_a_server_that_goes_while_it_is_read(
    kind: Kind, how: str, new_server: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it goes, the log isn't taken for lost: the same slice is there when the server is back."""
    # On a busy machine MariaDB now and then waits for a reader that pauses, and is killed in the end.
    monkeypatch.setattr(servers, "STOP_SECONDS", 10)
    with new_server(kind) as server:
        part = fill(server)
        reader = reader_at(server.port, server)
        rest = begun(server, part, reader)
        getattr(server, how)()
        with fails_at_once():
            rest()
        server.start()
        rest = begun(server, part, reader)
        if how == "stop":
            server.restart()
            with fails_at_once():
                rest()
            rest = begun(server, part, reader)
        assert rest() == part.size


# -- a whole sync ------------------------------------------------------------------------------------------------


class Proxied(Mirror):
    """Everything of the engine goes through the proxy; the comparison goes past it."""

    port = 0

    @property
    def endpoint(self) -> Endpoint:
        return at(self.port)


@on_mysql
def test_a_sync_that_is_cut_off_later_and_later_comes_to_its_end(
    server: Server, database: str, lake: Path, spark: SparkSession, proxy: FaultProxy
) -> None:
    mirror = Proxied(server, database, lake, spark)
    mirror.port = proxy.port
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE keyless (v INT)",
        *(f"INSERT INTO a VALUES ({number}, REPEAT('{number} ', 40))" for number in range(300)),
        "INSERT INTO keyless VALUES (1), (1), (NULL)",
        "UPDATE a SET v = 'changed' WHERE id % 5 = 0",
        "DELETE FROM a WHERE id < 10",
    )
    head = position(server)[1]
    failures, proxy.cut_after = 0, 64
    while True:
        with suppress(ConnectionFailed):
            report = mirror.sync()
            break
        failures += 1
        proxy.cut_after *= 2
        assert proxy.cut_after < 8 * head
    assert failures > 5
    assert report.batch == 1
    assert len(mirror.metadata.read("batches")) == 1
    mirror.assert_equal("a", "keyless")
