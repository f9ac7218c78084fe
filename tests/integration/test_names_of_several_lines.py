"""A line feed in a name begins no line: neither in what a command prints, nor in what a run says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from binlake.cli import command_line
from binlake.names import mysql_quote
from mirror import Mirror, on_mysql
from servers import Server

pytestmark = on_mysql
FORGED = "2026-11-29 00:00:00 forged"
TABLE, ANOTHER, DATABASE = f"t\n{FORGED}", f"u\r\n{FORGED}", f"d\n{FORGED}"
COLUMN = f"c\n{FORGED}"


@pytest.fixture
def odd(server: Server, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    server.execute(f"CREATE DATABASE {mysql_quote(DATABASE)}")
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", server.uri())
    mirror = Mirror(server, DATABASE, lake, spark=None, include=["d?2026*.*"], reader="direct")  # type: ignore[arg-type]
    mirror.options = {"merge": {"without_spark_mb": 16}, "policies": {"on_unfollowable": "stop"}}
    yield mirror
    server.execute(f"DROP DATABASE {mysql_quote(DATABASE)}")


def test_no_output_has_a_line_of_a_name(odd: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = str(odd.write_yaml())
    table, another = f"{DATABASE}.{TABLE}", f"{DATABASE}.{ANOTHER}"
    why = ("--why", "a test")
    said = ""
    odd.execute("FLUSH BINARY LOGS")  # the last one has events of other tests

    def run(command: str, *arguments: str, code: int = 0) -> None:
        nonlocal said
        got = command_line.run([*command.split(), "--config", yaml, *arguments])
        captured = capsys.readouterr()
        said += f"$ {command}\n{captured.out}{captured.err}"
        assert got == code, captured

    for name in (TABLE, ANOTHER):
        odd.execute(
            f"CREATE TABLE {mysql_quote(name)} (id INT PRIMARY KEY, {mysql_quote(COLUMN)} INT)",
            f"INSERT INTO {mysql_quote(name)} VALUES (1, 1), (2, 2)",
        )
    run("snapshot")
    odd.execute(
        f"UPDATE {mysql_quote(TABLE)} SET {mysql_quote(COLUMN)} = 7",
        f"ALTER TABLE {mysql_quote(TABLE)} ADD\n{mysql_quote(COLUMN + '2')} INT",
        f"ALTER TABLE {mysql_quote(ANOTHER)} MODIFY {mysql_quote(COLUMN)} VARCHAR(20)",
        f"INSERT INTO {mysql_quote(TABLE)} VALUES (3, 3, 3)",
    )
    run("sync")
    for command in ("status", "history", "doctor", "verify", "versions", "maintain", "snapshot"):
        run(command)
    run("table pause", "--table", table, *why)
    run("sync")
    run("status")
    run("table resume", "--table", table, *why)
    run("table resnapshot", "--table", another, *why)
    run("status")
    run("sync")
    odd.execute(f"INSERT INTO {mysql_quote(TABLE)} VALUES (4, 4, 4)", f"DROP TABLE {mysql_quote(ANOTHER)}")
    run("verify")
    run("sync")
    run("repair")
    run("history", "--table", "no.table", code=2)
    run("sql", "SELECT * FROM nothing", code=2)
    run("snapshot", "--tables", "no.table", code=2)
    run("views", "--dialect", "spark")
    log = max(odd.server.datadir.glob("binlog.0*")).as_uri()
    for arguments in ((), ("--events",)):
        assert command_line.run(["binlog", log, *arguments]) == 0
        said += capsys.readouterr().out
    assert "\\u000a" in said
    assert [line for line in said.splitlines() if line.startswith(FORGED)] == []
