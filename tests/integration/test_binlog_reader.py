"""``binlake binlog --reader mysql-replication``: the same log through another's hands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from binlake.cli import command_line
from binlog_slices import position
from odd_values import LENIENT
from servers import Server

THROUGH = ("--reader", "mysql-replication")
TIMES = {"committed", "committed_us", "created"}
"""The package knows whole seconds alone."""


@pytest.fixture
def start(server: Server, database: str) -> str:
    """A place in the log from which on only this test writes."""
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n DECIMAL(10,2), at TIME(3), b BLOB, e ENUM('a','é'),"
        " s SET('x','y'), bits BIT(9), d DATETIME(6), m TIMESTAMP(2) NULL, f FLOAT, u BIGINT UNSIGNED, g POINT)",
        "CREATE TABLE other (id INT)",
        database=database,
    )
    return head(server)


def head(server: Server) -> str:
    file, offset = position(server)
    return f"{file}:{offset}"


def change(server: Server, database: str) -> None:
    server.execute(
        LENIENT,
        "INSERT INTO t VALUES (1, 'it''s', -1.5, '-12:00:00', x'00ff', 'é', 'y,x', 257, '2020-02-29 01:02:03.000004',"
        " '2021-03-28 01:30:00.12', -0e0, 18446744073709551615, ST_GeomFromText('POINT(1 -2)')), (2, '', NULL, NULL,"
        " '', NULL, 'y', NULL, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO other VALUES (7)",
        "FLUSH BINARY LOGS",
        "UPDATE t SET v = '€', id = id + 10",
        "DELETE FROM t WHERE id = 11",
        "TRUNCATE TABLE t",
        database=database,
    )


def run(capsys: pytest.CaptureFixture[str], server: Server, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = command_line.run(["binlog", server.uri(), *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def lines(printed: tuple[int, str, str]) -> list[dict[str, Any]]:
    code, out, err = printed
    assert (code, err) == (0, "")
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in out.splitlines()]


def events(printed: tuple[int, str, str]) -> list[dict[str, Any]]:
    """Without the sets of executed GTIDs, which the package fails on where other tests made tags."""
    code, out, err = printed
    assert (code, err) == (0, "") or "left out what is here in PREVIOUS_GTIDS events" in err
    return [line for line in lines((0, out, "")) if line["type"] != "PREVIOUS_GTIDS"]


def mutations(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of the log, without the texts of invalid dates, which the package doesn't have."""
    rows = [line for line in events if "op" in line]
    for row in rows:
        for side in ("before", "after"):
            if row[side]:
                row[side] = {name: value for name, value in row[side].items() if not name.endswith("__text")}
    return sorted(rows, key=lambda row: (row["file"], row["offset"], row["row"]))


def test_rows_and_statements_are_those_of_our_reader(
    server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(server, database)
    asked = ("--start", start, "--stop", head(server), "--table", f"{database}.*", "--format", "json")
    ours, theirs = (lines(run(capsys, server, *asked, *reader)) for reader in ((), THROUGH))
    assert [row["op"] for row in mutations(theirs)] == ["insert"] * 3 + ["update"] * 2 + ["delete"]
    assert mutations(theirs) == mutations(ours)
    said = ("statement", "database", "file", "offset", "ordinal", "gtid", "sql_mode")
    statements = [[{key: line[key] for key in said} for line in log if "statement" in line] for log in (theirs, ours)]
    assert statements[0] == statements[1]
    assert statements[0][0]["statement"] == "TRUNCATE TABLE t"


def test_events_are_those_of_our_reader(
    server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(server, database)
    asked = ("--start", start, "--stop", head(server), "--events", "--format", "json")
    ours, theirs = (events(run(capsys, server, *asked, *reader)) for reader in ((), THROUGH))
    said = ("type", "kind", "file", "offset", "size", "server_id")
    assert [[line[key] for key in said] for line in theirs] == [[line[key] for key in said] for line in ours]
    assert {
        "GTID" if server.kind == "mysql" else "MARIADB_GTID",
        "ROTATE",
        "FORMAT_DESCRIPTION",
        "XID",
        "TABLE_MAP",
    } <= {line["type"] for line in theirs}
    for mine, its in zip(ours, theirs, strict=True):
        both = mine["detail"].keys() & its["detail"].keys() - TIMES
        if mine["type"] == "TABLE_MAP":  # what a column is drawn from isn't known there
            its["detail"]["columns"] |= {"g": "point"} if "g" in its["detail"]["columns"] else {}
        assert {key: its["detail"][key] for key in both} == {key: mine["detail"][key] for key in both}


def test_files_of_each_form(
    server: Server, database: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(server, database)
    for form in ("csv", "parquet"):
        for name, reader in (("ours", ()), ("theirs", THROUGH)):
            asked = ("--start", start, "--table", f"{database}.t", "--format", form, "--output", str(tmp_path / name))
            assert run(capsys, server, *asked, *reader) == (0, "", "")
    ours, theirs = (
        mutations(pq.read_table(tmp_path / name / f"{database}.t.parquet").drop("committed_us").to_pylist())
        for name in ("ours", "theirs")
    )
    assert theirs == ours
    assert len((tmp_path / "theirs" / f"{database}.t.csv").read_text().splitlines()) == 6
    assert not list(tmp_path.rglob(f"{database}.other*"))


def test_begins_after_a_gtid_set(server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    server.execute("INSERT INTO other VALUES (1)", "FLUSH BINARY LOGS", database=database)
    variable = "gtid_executed" if server.kind == "mysql" else "gtid_binlog_pos"
    done = server.variable(variable).replace("\n", "")
    server.execute("INSERT INTO other VALUES (2)", database=database)
    asked = ("--start", done, "--table", f"{database}.*", "--format", "json")
    assert [line["after"] for line in lines(run(capsys, server, *asked, *THROUGH))] == [{"id": 2}]


def test_what_the_package_misreads_stands_as_it_reads_it(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.execute(
        "CREATE TABLE t (y YEAR, s SET('a'), b BINARY(3), m TIMESTAMP NULL, d DATE, w VARCHAR(3) COLLATE ucs2_bin)",
        database=database,
    )
    start = head(server)
    server.execute(LENIENT, "INSERT INTO t VALUES (0, '', x'010000', 0, 0, 'a')", database=database)
    code, out, _ = run(capsys, server, "--start", start, *THROUGH)
    assert code == 0
    assert [line.strip() for line in out.splitlines()[1:]] == [
        "y = 1900", "s = NULL", "b = 0x01", "m = '1970-01-01 00:00:00.000000+00:00'", "d = NULL", "w = 0x0061",
    ]  # fmt: skip


def test_a_table_that_the_package_cannot_read_stops_and_the_others_go_on(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "VECTOR(2)" if server.kind == "mysql" else "VARCHAR(300) COMPRESSED"
    server.execute(f"CREATE TABLE odd (id INT, v {odd})", "CREATE TABLE t (id INT)", database=database)
    start = head(server)
    for number in range(2):
        server.execute(f"INSERT INTO odd (id) VALUES ({number})", f"INSERT INTO t VALUES ({number})", database=database)
    code, out, err = run(capsys, server, "--start", start, "--format", "json", *THROUGH)
    events = [json.loads(line) for line in out.splitlines()]
    assert [line.get("stopped") or line["after"]["id"] for line in events] == [f"{database}.odd", 0, 1]
    assert "which it doesn't know" in events[0]["reason"]
    assert code == 3
    assert "→" in err


def test_events_that_the_package_does_not_know_are_said(
    server: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.execute("CREATE TABLE t (id INT, v TEXT)", database=database)
    start = head(server)
    compressed = "binlog_transaction_compression" if server.kind == "mysql" else "log_bin_compress"
    scope = "SESSION" if server.kind == "mysql" else "GLOBAL"
    server.execute(f"SET {scope} {compressed} = 1", "INSERT INTO t VALUES (1, REPEAT('x', 1000))", database=database)
    if scope == "GLOBAL":
        server.execute(f"SET GLOBAL {compressed} = 0")
    server.execute("INSERT INTO t VALUES (2, 'plain')", database=database)
    code, out, err = run(capsys, server, "--start", start, "--format", "json", *THROUGH)
    assert [json.loads(line)["after"]["id"] for line in out.splitlines()] == [2]
    assert code == 3
    kind = "TRANSACTION_PAYLOAD" if server.kind == "mysql" else "WRITE_ROWS_COMPRESSED_V1"
    assert f"events that it doesn't know ({kind})" in err
    assert "without --reader" in err
    code, out, err = run(capsys, server, "--start", start, "--events", *THROUGH)
    assert (code, err) == (0, "")
    assert "not known" in out


def test_files_are_refused_with_what_to_do(mysql_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["binlog", mysql_server.datadir.as_uri(), *THROUGH]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "mysql-replication reads from servers alone" in err
    assert "→ give the server that wrote these files" in err


def test_a_file_of_another_checksum_is_left_out(
    server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.execute("SET GLOBAL binlog_checksum = NONE")
    try:
        server.execute("INSERT INTO other VALUES (1)", database=database)
    finally:
        server.execute("SET GLOBAL binlog_checksum = CRC32")
    server.execute("INSERT INTO other VALUES (2)", database=database)
    code, out, err = run(capsys, server, "--start", start, "--table", f"{database}.*", "--format", "json", *THROUGH)
    assert [json.loads(line)["after"]["id"] for line in out.splitlines()] == [2]
    assert code == 3
    assert "another binlog_checksum" in err


def test_a_set_of_gtids_with_tags_costs_no_rows(mysql_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server = mysql_server
    server.execute(
        "CREATE DATABASE tagged",
        "CREATE TABLE tagged.t (id INT)",
        "SET gtid_next = 'AUTOMATIC:blue'",
        "INSERT INTO tagged.t VALUES (1)",
        "SET gtid_next = 'AUTOMATIC'",
        "FLUSH BINARY LOGS",
    )
    start = head(server).partition(":")[0]
    server.execute("INSERT INTO tagged.t VALUES (2)", "DROP DATABASE tagged")
    events = lines(run(capsys, server, "--start", start, "--table", "tagged.*", "--format", "json", *THROUGH))
    assert events[0]["after"] == {"id": 2}
    code, _, err = run(capsys, server, "--start", start, "--events", *THROUGH)
    assert code == 3
    assert "PREVIOUS_GTIDS events, where it fails" in err
