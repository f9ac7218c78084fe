"""The tests' own servers: started with the settings the project asks for, and gone when they should be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pymysql
import pytest

import servers
from servers import KINDS, Kind, Server, ServerFailed


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed child that nobody waited for is no process any more.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_settings_are_what_the_project_asks_for(server: Server) -> None:
    assert server.variable("log_bin") == "1"
    assert server.variable("binlog_format") == "ROW"
    assert server.variable("binlog_row_image") == "FULL"
    assert server.variable("binlog_row_metadata") == "FULL"
    assert server.variable("server_id") == "1"
    assert server.variable("bind_address") == "127.0.0.1"
    assert (
        server.execute("SELECT CONVERT_TZ('2024-07-01 12:00:00', 'UTC', 'Europe/Berlin') + INTERVAL 0 DAY")[0][
            0
        ].isoformat()
        == "2024-07-01T14:00:00"
    )


def test_mysql_has_gtids(mysql_server: Server) -> None:
    assert mysql_server.variable("gtid_mode") == "ON"


def test_it_is_the_server_it_is_called(server: Server) -> None:
    assert ("MariaDB" in server.variable("version")) == (server.kind == "mariadb")


def test_root_is_let_in_over_loopback(server: Server) -> None:
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as connection:
        assert connection.open


def test_account_has_only_its_grants(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    server.create_account("reader", "p'a\\ss %", [f"SELECT ON {database}.*"])
    try:
        with (
            pymysql.connect(
                host="127.0.0.1", port=server.port, user="reader", password="p'a\\ss %", database=database
            ) as connection,
            connection.cursor() as cursor,
        ):
            assert cursor.execute("SELECT * FROM t") == 0
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute("INSERT INTO t VALUES (1)")
    finally:
        server.execute("DROP USER reader@'%'")


@pytest.mark.parametrize("kind", KINDS)
def test_restart_keeps_data_and_port_and_changes_settings(kind: Kind, new_server: type[Server]) -> None:
    with new_server(kind) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (7)")
        port, files = server.port, len(server.execute("SHOW BINARY LOGS"))
        server.restart(binlog_row_metadata="MINIMAL")
        assert server.execute("SELECT id FROM d.t") == [(7,)]
        assert server.port == port
        assert server.variable("binlog_row_metadata") == "MINIMAL"
        assert len(server.execute("SHOW BINARY LOGS")) == files + 1


@pytest.mark.parametrize("kind", KINDS)
def test_kill_leaves_no_process_and_the_data_survives(kind: Kind, new_server: type[Server]) -> None:
    with new_server(kind) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (7)")
        pid = server.pid
        server.kill()
        assert not is_alive(pid)
        server.start()
        assert server.execute("SELECT id FROM d.t") == [(7,)]
        pid, folder = server.pid, server.datadir
    assert not is_alive(pid)
    assert not folder.exists()


def test_each_mysql_has_a_uuid_of_its_own(mysql_server: Server) -> None:
    with Server("mysql") as other:
        assert other.variable("server_uuid") != mysql_server.variable("server_uuid")


def test_server_dies_with_its_parent(new_server: type[Server]) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from servers import Server; import os, signal\n"
        "server = Server('mariadb').start(); print(server.pid, server.datadir, server.socket, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(servers.__file__).parent)], capture_output=True, text=True
    )
    pid, datadir, socket = done.stdout.split()
    deadline = time.monotonic() + 60
    while is_alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(pid))
    new_server("mariadb").close()  # whoever comes next sweeps up what the killed process left
    assert not Path(datadir).exists()
    assert not Path(socket).parent.exists()


def test_a_free_port_stays_free_whatever_connects_meanwhile() -> None:
    """The system gives each connection a port of its own, of a range that the servers' ports aren't of."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = {servers.free_port() for _ in range(50)}
    assert not ports & set(range(first, last + 1)) or first <= 1024, "then there are no others"
    assert len(ports) > 40, "two processes that choose at once choose others"


def test_failed_start_shows_the_error_log(new_server: type[Server]) -> None:
    with pytest.raises(ServerFailed, match="no-such-option"), new_server("mariadb", no_such_option="x"):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"mysql": "", "mariadb": ""}),
        ("mariadb-11.8", {"mariadb": "11.8"}),
        ("mysql, mariadb-11.4", {"mysql": "", "mariadb": "11.4"}),
    ],
)
def test_servers_are_chosen_by_name(text: str, expected: dict[str, str]) -> None:
    assert servers.chosen(text) == expected


@pytest.mark.parametrize("text", ["postgres", "mariadb-10.1", "mysql-8.0"])
def test_an_unknown_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"mariadb-11\.8 are known"):
        servers.chosen(text)
