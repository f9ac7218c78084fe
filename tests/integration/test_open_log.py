"""``binlake.binlog.open`` and ``binlake binlog``: a log read on its own, from servers and from files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from binlake import binlog
from binlake.binlog.border import Mutations, Statement
from binlake.cli import command_line
from binlake.errors import PositionLost, TableError, UsageError
from binlake.gtid import GtidSet
from binlake.source.openlog import OpenLog
from binlake.source.server import Source
from mirror import on_mariadb
from servers import Server


@pytest.fixture
def start(server: Server, database: str) -> str:
    """A place in the log from which on only this test writes."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), at TIME(3))", database=database)
    return head(server)


def head(server: Server) -> str:
    statement = "SHOW BINARY LOG STATUS" if server.kind == "mysql" else "SHOW MASTER STATUS"
    file, offset, *_ = server.execute(statement)[0]
    return f"{file}:{offset}"


def executed(server: Server) -> str:
    variable = "gtid_executed" if server.kind == "mysql" else "gtid_binlog_pos"
    return server.variable(variable).replace("\n", "")


def ids(log: OpenLog, database: str) -> list[int]:
    return [row["id"] for batch in log.batches(database, "t") for row in batch.column("after").to_pylist()]


@pytest.mark.parametrize("place", ["server", "folder"])
def test_batches_of_one_table(server: Server, database: str, start: str, place: str) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL), (2, 'b', NULL)", database=database)
    server.execute("FLUSH BINARY LOGS", "UPDATE t SET v = 'c' WHERE id = 2", database=database)
    log = binlog.open(server.uri() if place == "server" else server.datadir.as_uri(), start)
    assert ids(log, database) == [1, 2, 2]
    assert len(log.slices) == 2
    server.execute("INSERT INTO t VALUES (3, '', NULL)", database=database)
    assert ids(log, database) == [1, 2, 2]  # frozen when it was opened


def test_the_log_may_grow_while_it_is_opened(
    server: Server, database: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", database=database)
    listed = Source.binary_logs

    def growing(source: Source) -> tuple[tuple[str, int], ...]:
        files = listed(source)
        server.execute("REPLACE INTO t VALUES (2, 'b', NULL)", database=database)
        return files

    monkeypatch.setattr(Source, "binary_logs", growing)
    assert ids(binlog.open(server.uri(), start), database) == [1]


@pytest.mark.parametrize("place", ["server", "folder"])
def test_begins_after_a_gtid_set(server: Server, database: str, start: str, place: str) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", "FLUSH BINARY LOGS", database=database)
    server.execute("INSERT INTO t VALUES (2, 'b', NULL)", database=database)
    done = executed(server)
    server.execute("INSERT INTO t VALUES (3, 'c', NULL)", "FLUSH BINARY LOGS", database=database)
    server.execute("INSERT INTO t VALUES (4, 'd', NULL)", database=database)
    uri = server.uri() if place == "server" else server.datadir.as_uri()
    assert ids(binlog.open(uri, done), database) == [3, 4]
    assert ids(binlog.open(uri, executed(server)), database) == []


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_gtid_set_with_gaps_and_tags_leaves_out_what_is_in_it(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    done = executed(server)
    uuid = server.variable("server_uuid")
    number = max(last for _, last in GtidSet.parse(done).members[uuid])
    server.execute(
        "INSERT INTO t VALUES (1, '')",
        "INSERT INTO t VALUES (2, '')",
        f"SET gtid_next = 'AUTOMATIC:{database}'",  # a tag that no other test has used
        "INSERT INTO t VALUES (3, '')",
        "INSERT INTO t VALUES (4, '')",
        "SET gtid_next = 'AUTOMATIC'",
        "INSERT INTO t VALUES (5, '')",
        database=database,
    )
    log = binlog.open(server.uri(), f"{done},{uuid}:{number + 2}:{database}:1")
    assert ids(log, database) == [1, 4, 5]
    assert len(log.slices) == 2


def test_a_set_from_before_the_first_file_is_refused(server: Server, database: str, start: str) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", "FLUSH BINARY LOGS", database=database)
    newest = head(server).partition(":")[0]
    stranger = "aaaaaaaa-0000-0000-0000-000000000001:1-5" if server.kind == "mysql" else "77-1-5"
    only = server.datadir / newest
    with pytest.raises(PositionLost, match=f"the log begins with {newest}, and transactions before it aren't in"):
        binlog.open(only.as_uri(), stranger)


def test_places_that_are_none(server: Server, database: str, start: str) -> None:
    for wrong, said in (
        ("binlog.999999:4", "the log has no binlog.999999"),
        (f"{start}999999999", "lies past the end"),
        ("yesterday", "is not a GTID set"),
    ):
        with pytest.raises(UsageError, match=said):
            binlog.open(server.uri(), wrong)
    with pytest.raises(UsageError, match="lies behind the stop"):
        binlog.open(server.uri(), start, start.partition(":")[0])


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_table_that_cant_be_decoded_raises(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    start = head(server)
    server.execute("INSERT INTO t VALUES (1, '')", "SET SESSION binlog_row_image = 'MINIMAL'", database=database)
    server.execute("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET v = 'x' WHERE id = 1", database=database)
    with pytest.raises(TableError, match="partial row images"):
        ids(binlog.open(server.uri(), start), database)


def test_mutations_and_statements_in_the_order_of_the_log(server: Server, database: str, start: str) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", "ALTER TABLE t ADD x INT", database=database)
    server.execute("INSERT INTO t VALUES (2, 'b', NULL, 7)", database=database)
    mutations = list(binlog.open(server.uri(), start).mutations())
    assert [type(item) for item in mutations] == [Mutations, Statement, Mutations]


def test_every_event_is_named(server: Server, database: str, start: str) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", "FLUSH BINARY LOGS", database=database)
    events = list(binlog.open(server.uri(), start).events())
    names = [event.name for event in events]
    assert None not in names
    rows = next(event for event in events if event.detail.get("operation") == "write")
    assert rows.detail["table"] == f"{database}.t"
    assert "XID" in names
    assert "ROTATE" in names
    from_file = list(binlog.open(server.datadir.as_uri(), start, head(server)).events())
    assert from_file[: len(events)] == events


def test_events_tell_all_of_their_bodies(server: Server, database: str, start: str) -> None:
    server.execute(
        "SET SESSION binlog_format = 'STATEMENT'",
        "SET @text = 'ä', @double = -2.5e0, @integer = -3, @nothing = NULL",
        "SET @large = CAST(18446744073709551615 AS UNSIGNED), @decimal = CAST(-1234567890.012 AS DECIMAL(20, 5))",
        "SET @bytes = x'00ff'",
        "INSERT INTO t (id) VALUES ((@text IS NULL) + (@double IS NULL) + (@integer IS NULL) + (@nothing IS NULL)"
        " + (@large IS NULL) + (@decimal IS NULL) + (@bytes IS NULL))",
        "CREATE TEMPORARY TABLE u (id INT)",
        database=database,
    )
    server.execute("SET foreign_key_checks = 0", "INSERT INTO t VALUES (9, 'x', NULL)", database=database)
    events = list(binlog.open(server.uri(), start).events())
    variables = {event.detail["variable"]: event.detail for event in events if event.name == "USER_VAR"}
    value = {name: detail.get("value", detail.get("hex")) for name, detail in variables.items()}
    assert value == {
        "text": "ä", "double": -2.5, "integer": -3, "nothing": None, "large": 2**64 - 1, "decimal": "-1234567890.01200",
        "bytes": "00ff",
    }  # fmt: skip
    insert = next(event for event in events if "@text IS NULL" in event.detail.get("statement", ""))
    assert (insert.detail["thread"] > 0, insert.detail["seconds"], insert.detail["error"]) == (True, 0, 0)
    temporary = next(event for event in events if "TEMPORARY" in event.detail.get("statement", ""))
    assert "thread_specific" in temporary.flags
    rows = next(event for event in events if event.detail.get("operation") == "write")
    assert set(rows.detail["flags"]) >= {"statement_end", "no_foreign_key_checks"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command_line.run(["binlog", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_text_for_people(server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    server.execute("INSERT INTO t VALUES (1, 'it''s', '-12:00:00.5')", database=database)
    server.execute("UPDATE t SET v = NULL WHERE id = 1", "DELETE FROM t", "TRUNCATE TABLE t", database=database)
    code, out, _ = run(capsys, server.uri(), "--start", start)
    lines = [line.strip() for line in out.splitlines()]
    assert code == 0
    assert lines[1:4] == ["id = 1", "v = 'it''s'", "at = '-12:00:00.500000'"]
    assert lines[5:7] == ["id = 1", "v = 'it''s' → NULL"]
    assert lines[7].split("  ")[2] == f"delete {database}.t"
    assert lines[-1].endswith(f"[{database}] TRUNCATE TABLE t")


def test_a_file_for_each_table_and_shape(
    server: Server, database: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.execute("CREATE TABLE u (id INT)", "INSERT INTO u VALUES (5)", database=database)
    server.execute("INSERT INTO t VALUES (1, 'ä, b', NULL)", "ALTER TABLE t ADD x INT", database=database)
    server.execute("INSERT INTO t VALUES (2, NULL, NULL, 7)", "DELETE FROM t WHERE id = 1", database=database)
    for form in ("json", "csv", "parquet"):
        only = ["--start", start, "--table", f"{database}.t", "--format", form, "--output", str(tmp_path / form)]
        assert run(capsys, server.uri(), *only) == (0, "", "")
    rows = [json.loads(line) for line in (tmp_path / "json" / f"{database}.t.jsonl").read_text().splitlines()]
    assert [(row["op"], row["before"], row["after"]) for row in rows] == [
        ("insert", None, {"id": 1, "v": "ä, b", "at": None}),
        ("insert", None, {"id": 2, "v": None, "at": None, "x": 7}),
        ("delete", {"id": 1, "v": "ä, b", "at": None, "x": None}, None),
    ]
    first, second = (tmp_path / "csv" / f"{database}.t.csv", tmp_path / "csv" / f"{database}.t.2.csv")
    assert first.read_text().splitlines()[1].endswith(',1,"ä, b",')
    assert [line.rpartition(",,")[2] for line in second.read_text().splitlines()[1:]] == ["7", ""]
    assert pq.read_table(tmp_path / "parquet" / f"{database}.t.2.parquet").num_rows == 2
    assert not list(tmp_path.rglob(f"{database}.u*"))


def test_events_as_json(server: Server, database: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    server.execute("INSERT INTO t VALUES (1, 'a', NULL)", database=database)
    code, out, _ = run(capsys, server.uri(), "--start", start, "--events", "--format", "json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert events[-1]["type"] == "XID"
    assert "FORMAT_DESCRIPTION" not in [event["type"] for event in events]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://example/"], "the URI is neither a server's nor a file's"),
        (["file:///nowhere/binlog.000001"], "there is no /nowhere/binlog.000001"),
        (["FILES", "--format", "csv"], "csv has one file a table"),
        (["FILES", "--events", "--format", "parquet"], "events can't be written as parquet"),
    ],
)
def test_wrong_use(mysql_server: Server, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = mysql_server.datadir.as_uri()
    code, out, err = run(capsys, *[files if word == "FILES" else word for word in arguments])
    assert (code, out) == (2, "")
    assert said in err
    assert "→" in err


@on_mariadb
def test_batches_refuse_rows_that_were_rolled_back(server: Server, database: str, start: str) -> None:
    def run(*statements: str) -> None:
        server.execute("BEGIN", *statements, "COMMIT", database=database)

    back = ("CREATE TEMPORARY TABLE tmp (i INT)", "DROP TEMPORARY TABLE tmp", "ROLLBACK TO s")
    server.execute("CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    run("INSERT INTO t (id) VALUES (1)", "SAVEPOINT s", "INSERT INTO other VALUES (1)", *back)
    middle = head(server)
    run("INSERT INTO t (id) VALUES (2)", "SAVEPOINT s", "INSERT INTO t (id) VALUES (3)", *back)
    run("INSERT INTO t (id) VALUES (4)")
    path = f"file://{server.datadir}"
    assert ids(binlog.open(path, start, middle), database) == [1]
    with pytest.raises(TableError, match="rolled back"):
        ids(binlog.open(path, start), database)
