"""Servers that a bastion leads to: each connection by an ssh of its own, and one that dies is a lost connection."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_home import ProcessWatch
from authority import Authority
from bastion import Bastion, new_key
from begun_alone import begin_alone
from binlake import pipeline
from binlake.binlog.integrity import format_description
from binlake.doctor.server_checks import server_checks
from binlake.errors import ConfigurationError, ConnectionFailed
from binlake.interrupts import Ending
from binlake.phases.follow import FollowPace
from binlake.report import Report
from binlake.snapshot import jdbc
from binlake.snapshot.copying import Copying
from binlake.source import tunnel
from binlake.source.connection import CONNECTION_FILE, from_environment, parse_airflow_connection, write_file
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.storage import storage_errors
from binlog_slices import position
from ended_followers import EndAtHead
from fault_proxy import FaultProxy
from mirror import Mirror, in_the_soak, on_mysql
from no_session import NoSession
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSPHRASE = "Schluesselwort4e2d"
SECONDS = 60
HALF = 200_000
"""Bytes from the server after which the bastion is cut off, of some 400,000."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plain key, and one that is locked by PASSPHRASE."""
    folder = tmp_path_factory.mktemp("keys")
    new_key(folder / "plain")
    new_key(folder / "locked", PASSPHRASE)
    return folder


@pytest.fixture(scope="module")
def bastion(keys: Path) -> Iterator[Bastion]:
    with Bastion([path.read_text() for path in sorted(keys.glob("*.pub"))]) as running:
        yield running


@pytest.fixture(autouse=True)
def airflow_s_variable(bastion: Bastion, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = bastion.connection(private_key=(keys / "plain").read_text())
    monkeypatch.setenv("AIRFLOW_CONN_BASTION", json.dumps(fields))


def endpoint(port: int, **extra: Any) -> Endpoint:
    """As Airflow's environment holds it; the SSH connection by its name."""
    fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": port, "login": "root"}
    return parse_airflow_connection(json.dumps({**fields, "extra": {"ssh": "bastion", **extra}}), name="X")


def through(bastion: Bastion, server: Server, **extra: Any) -> Endpoint:
    """The same, with other fields of the SSH connection."""
    return endpoint(server.port, ssh=bastion.connection(**extra))


def test_each_kind_of_connection_goes_through(
    server: Server, bastion: Bastion, spark: SparkSession, tmp_path: Path
) -> None:
    where = endpoint(server.port)
    bastion.stop()
    try:
        with pytest.raises(ConnectionFailed, match="can't be reached through nobody@127") as caught:
            Source.open(where)
        assert caught.value.retryable
        assert "Connection refused" in str(caught.value)
    finally:
        bastion.start()
    with Source.open(where) as source:
        assert source.now()
        assert source.server_identity
    assert format_description(ServerTransport(where, 7700, server.kind), position(server)[0])

    def ask(there: Endpoint) -> str:
        with Source.open(there) as source:
            return source.server_identity

    assert len(set(spark.sparkContext.parallelize([where] * 2, 2).map(ask).collect())) == 1
    query = jdbc.ChunkQuery(where, "SELECT 7 AS c0", mariadb=server.kind == "mariadb")
    row = jdbc.read(spark, query).head()
    assert row is not None
    assert row["c0"] == 7
    bastion.stop()
    try:
        with pytest.raises(Exception, match="CONNECTION"):  # and there is no other way
            jdbc.read(spark, query).head()
    finally:
        bastion.start()
    (check,) = [check for check in server_checks(where) if check.name == "tunnel"]
    assert check.found == f"the way leads through {bastion.user}@127.0.0.1:{bastion.port}"


def test_a_verified_name_is_the_server_s_and_not_the_tunnel_s(
    new_server: type[Server], spark: SparkSession, tmp_path: Path
) -> None:
    authority = Authority.made(tmp_path, "authority")
    cert, key = authority.sign("server")
    with new_server("mysql", ssl_ca=str(authority.pem), ssl_cert=str(cert), ssl_key=str(key)) as server:
        where = endpoint(server.port, ssl={"ca": str(authority.pem)})
        Source.open(where).close()
        assert jdbc.read(spark, jdbc.ChunkQuery(where, "SELECT 7 AS c0", mariadb=False)).count() == 1
        other = replace(where, host="localhost")
        with pytest.raises(Exception, match="no TLS that can be trusted"):
            Source.open(other)
        with pytest.raises(Exception, match="CONNECTION") as caught:
            jdbc.read(spark, jdbc.ChunkQuery(other, "SELECT 7 AS c0", mariadb=False)).count()
        assert re.search(r"(?i)hostname|identity|certificate", storage_errors.messages(caught.value))


@on_mysql
def test_an_account_s_password_stands_in_no_argument(server: Server) -> None:
    with Bastion([], password=PASSPHRASE) as bastion, ProcessWatch(PASSPHRASE) as watch:
        where = through(bastion, server)
        with Source.open(where) as source:
            assert source.query("SELECT SLEEP(0.3)")
        bastion.password = "wrong"
        with pytest.raises(ConnectionFailed, match="Permission denied") as caught:
            Source.open(through(bastion, server))
    assert not watch.leaks
    assert PASSPHRASE not in str(caught.value) + repr(where)


@on_mysql
def test_a_key_s_passphrase_stands_in_no_argument(server: Server, bastion: Bastion, keys: Path) -> None:
    locked = through(bastion, server, key_file=str(keys / "locked"), private_key_passphrase=PASSPHRASE)
    before = {path.name for path in Path("/tmp").glob("binlake-ssh-*")}
    with ProcessWatch(PASSPHRASE) as watch:
        for _ in range(3):
            with Source.open(locked) as source:
                source.query("SELECT SLEEP(0.3)")
                assert {path.name for path in Path("/tmp").glob("binlake-ssh-*")} <= before  # its files are gone
        with pytest.raises(ConnectionFailed, match="Permission denied") as caught:
            Source.open(through(bastion, server, key_file=str(keys / "locked"), private_key_passphrase="wrong"))
    assert not watch.leaks
    assert PASSPHRASE not in str(caught.value) + repr(locked)


@on_mysql
def test_a_bastion_with_another_key_gets_nothing(server: Server, bastion: Bastion, keys: Path, tmp_path: Path) -> None:
    """Also where Airflow's own hook would look away, and where no key is known."""
    plain = {"key_file": str(keys / "plain"), "no_host_key_check": "true"}
    for host_key in (new_key(tmp_path / "other"), ""):
        with pytest.raises(ConnectionFailed, match=r"Host key verification failed|key is known"):
            Source.open(through(bastion, server, **plain, host_key=host_key))
    type_left_out = bastion.host_key.split()[1]
    Source.open(through(bastion, server, **plain, host_key=type_left_out)).close()


@on_mysql
def test_a_server_that_the_bastion_cannot_reach(server: Server, bastion: Bastion, keys: Path) -> None:
    where = through(bastion, server, key_file=str(keys / "plain"))
    with pytest.raises(ConnectionFailed, match="open failed: connect failed"):
        Source.open(replace(where, port=1))


@on_mysql
def test_nothing_is_left_of_a_process_that_is_killed(server: Server, bastion: Bastion) -> None:
    """Its ssh ends with its input."""
    program = (
        "import sys, time\nfrom binlake.source.connection import endpoint_of\n"
        "from binlake.source.server import Source\n"
        "source = Source.open(endpoint_of(sys.argv[1]))\nprint('open', flush=True)\ntime.sleep(60)"
    )
    uri = f"mysql://root@127.0.0.1:{server.port}/?ssh=bastion"
    with subprocess.Popen(
        [sys.executable, "-c", program, uri], stdout=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGKILL)
    assert len(children) == 1
    deadline = time.monotonic() + 10
    while Path(f"/proc/{children[0]}/cmdline").exists() and Path(f"/proc/{children[0]}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- killed in the middle ----------------------------------------------------------------------------------------


@pytest.fixture
def slow(server: Server) -> Iterator[FaultProxy]:
    """A server that takes seconds to send what these tests read."""
    with FaultProxy(server.port) as proxy:
        proxy.delay = 0.01
        yield proxy


@contextmanager
def cut_in_the_middle(bastion: Bastion, proxy: FaultProxy) -> Iterator[list[int]]:
    """Kill all ways once the server has sent HALF; gives how many were killed."""
    killed: list[int] = []
    over = threading.Event()
    before = sum(proxy.connections)

    def look() -> None:
        while not over.wait(0.01):
            if sum(proxy.connections) - before > HALF:
                killed.append(bastion.cut())
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
    assert killed
    assert killed[0]


def fill(mirror: Mirror, *numbers: int) -> None:
    rows = ", ".join(f"({number}, REPEAT('{number % 10}', 20000))" for number in numbers)
    mirror.execute(f"INSERT INTO a VALUES {rows}")


def until_done(work: Callable[[], Any]) -> int:
    """Run again after each lost connection, as Airflow does; return how many were lost."""
    for lost in range(3):
        try:
            work()
        except ConnectionFailed:
            continue
        return lost
    pytest.fail("lost again and again")


@on_mysql
@pytest.mark.parametrize("reader", ["jdbc", *in_the_soak("direct")])
def test_killed_in_the_middle_of_a_snapshot(mirror: Mirror, bastion: Bastion, slow: FaultProxy, reader: Any) -> None:
    mirror.reader = reader
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, text MEDIUMTEXT)")
    fill(mirror, *range(20))
    where, said = endpoint(slow.port), io.StringIO()
    with cut_in_the_middle(bastion, slow):
        lost = until_done(lambda: pipeline.bootstrap(mirror.config, where, lambda _: mirror.spark, Report(said)))
    assert lost or "is repeated" in said.getvalue()
    mirror.assert_equal("a")


@on_mysql
def test_killed_in_the_middle_of_a_stage(mirror: Mirror, bastion: Bastion, slow: FaultProxy) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, text MEDIUMTEXT)")
    begin_alone(mirror)
    for number in range(20):
        fill(mirror, number)
    where = endpoint(slow.port)
    with cut_in_the_middle(bastion, slow):
        assert until_done(lambda: pipeline.sync(mirror.config, where, NoSession(), Report())) == 1
    mirror.assert_equal("a")


@on_mysql
def test_killed_in_the_middle_of_following(mirror: Mirror, bastion: Bastion, slow: FaultProxy) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, text MEDIUMTEXT)")
    begin_alone(mirror)
    for number in range(20):
        fill(mirror, number)
    ending, said = Ending(), io.StringIO()
    with cut_in_the_middle(bastion, slow):
        followed = pipeline.follow(
            lambda: mirror.config, endpoint(slow.port), NoSession(), Report(said),
            FollowPace(every=0.1, spark_idle=60, duration=SECONDS), ending, [EndAtHead(mirror, ending)],
        )  # fmt: skip
    assert followed.batches
    assert "it is tried again" in said.getvalue()
    mirror.assert_equal("a")


# -- what the connection says ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ssh", "in_driver", "directly"), [(False, False, False), (True, True, False), (True, False, True)]
)
def test_executors_take_the_reader_that_opens_tunnels(
    bastion: Bastion, ssh: bool, in_driver: bool, directly: bool
) -> None:
    where = endpoint(1) if ssh else Endpoint("127.0.0.1", 1, "root", "")
    nothing: Any = None
    copying = Copying(nothing, where, nothing, nothing, nothing, nothing, nothing)
    assert copying.reads_directly(in_driver=in_driver) is directly


def test_the_ssh_connection_may_be_a_uri(bastion: Bastion, keys: Path) -> None:
    uri = f"ssh://someone@bastion.example:2222/?key_file={keys}/plain"
    where = endpoint(1, ssh=uri)
    assert where.tunnel == tunnel.Tunnel("bastion.example", 2222, "someone", key=f"{keys}/plain")


def test_the_key_goes_to_jobs_and_executors_as_its_content(
    bastion: Bastion, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = endpoint(1, ssh=bastion.connection(key_file=str(keys / "plain")))
    content = (keys / "plain").read_text()
    assert where.tunnel is not None
    assert content not in repr(where)
    there = pickle.loads(pickle.dumps(where))
    assert there.tunnel.key == content
    path = tmp_path / "connection.json"
    write_file(where, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv(CONNECTION_FILE, str(path))
    assert from_environment("x").tunnel == there.tunnel


@pytest.mark.parametrize(
    ("ssh", "said"),
    [
        ("nowhere", "'nowhere' isn't there"),
        ({"login": "x"}, "has no host"),
        ({"host": "h", "extra": {"host_key": "S3cret key"}}, "isn't a public key"),
        ({"host": "h", "extra": {"host_key": "AAAA$"}}, "isn't a public key"),
    ],
    ids=str,
)
def test_a_wrong_ssh_connection_is_named_and_not_repeated(ssh: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        endpoint(1, ssh=ssh)
    assert "S3cret" not in str(caught.value)


def test_a_missing_program_and_a_missing_key_are_named(monkeypatch: pytest.MonkeyPatch, bastion: Bastion) -> None:
    with pytest.raises(ConfigurationError, match="can't read the key"):
        Source.open(endpoint(1, ssh=bastion.connection(key_file="/nowhere/key")))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="no program ssh"):
        Source.open(endpoint(1))


@on_mysql
def test_airflow_s_ssh_connection_is_the_one_that_the_server_s_names(
    server: Server, bastion: Bastion, monkeypatch: pytest.MonkeyPatch
) -> None:
    from binlake_airflow.hook import BinlakeHook

    fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": server.port, "login": "root"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**fields, "extra": {"ssh": "bastion"}}))
    with BinlakeHook("shop").get_conn() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 7")
        assert cursor.fetchone() == (7,)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**fields, "extra": {"ssh": "nobody_s"}}))
    with pytest.raises(ConfigurationError, match="'nobody_s', which the server's names, isn't defined in Airflow"):
        BinlakeHook("shop").endpoint()
