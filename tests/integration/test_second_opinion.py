"""``binlake doctor --second-opinion``: the newest of a log by both readers, equal, or the place where it isn't."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymysqlreplication.row_event import find_charset

from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.doctor.check import Check
from binlake.second_opinion import comparison, opinion_checks, stream
from binlake.second_opinion.misread import MISREADINGS
from binlake.second_opinion.opinion_checks import second_opinion
from binlake.second_opinion.window import Bounds
from binlake.source.endpoint import Endpoint
from binlog_slices import position
from odd_values import LENIENT, SAMPLES, Sample, SampleTable
from servers import Server

GRANTS = {
    "mysql": "REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN, FLUSH_TABLES ON *.*",
    "mariadb": "REPLICATION SLAVE, BINLOG MONITOR, RELOAD ON *.*",
}
USUAL = Bounds()
SECRET = "s3cret-of-the-replica"
VALUE = "a value that nobody else may read"


def configured(database: str, lake: Path, **more: Any) -> PipelineConfig:
    source = {"name": "tests", "connection": "second_opinion", "server_id": 7400, "server_ids": 2}
    tables = {"include": [f"{database}.*"], **more}
    return PipelineConfig.model_validate(
        {"source": source, "tables": tables, "lake": {"path": str(lake)}, "invalid_dates": "keep_text"}
    )


Ask = Callable[..., dict[str, Check]]


@pytest.fixture
def ask(server: Server, database: str, lake: Path) -> Ask:
    """The lines by name, of what was written since the test began; as an account with a mirror's grants."""
    server.execute("FLUSH BINARY LOGS")
    server.execute("DROP USER IF EXISTS replica")
    server.create_account("replica", SECRET, [GRANTS[server.kind], f"SELECT ON {database}.*"])
    began = time.monotonic()

    def asked(bounds: Bounds = USUAL, minutes: float | None = None, **more: Any) -> dict[str, Check]:
        endpoint = Endpoint("127.0.0.1", server.port, "replica", SECRET)
        wanted = minutes or (time.monotonic() - began + 2) / 60  # clocks of the log have whole seconds
        checks = second_opinion(configured(database, lake, **more), endpoint, wanted, bounds)
        assert SECRET not in str(checks)
        assert VALUE not in str(checks)
        return {check.name: check for check in checks}

    return asked


def change(server: Server, database: str, table: SampleTable) -> None:
    """Every sample is inserted, takes another's place, and half of the rows go."""
    table.create(server, database)
    sets = ", ".join(f"t.{name} = u.{name}" for name in table.columns)
    server.execute(
        LENIENT,
        f"CREATE TEMPORARY TABLE u SELECT * FROM {table.name}",
        f"UPDATE {table.name} t JOIN u ON u.id = (t.id + 1) % {table.rows} SET {sets}",
        f"DELETE FROM {table.name} WHERE id % 2",
        database=database,
    )


def of_server(server: Server) -> list[Sample]:
    return [sample for sample in SAMPLES if sample.only in (None, server.kind)]


def readable(sample: Sample) -> bool:
    return sample.type != "vector" and "COMPRESSED" not in sample.declared


def test_every_sample_is_the_same_or_known_to_be_misread(server: Server, database: str, ask: Ask) -> None:
    for place, sample in enumerate(of_server(server)):
        change(server, database, SampleTable(f"t{place}", (sample,), invalid_dates=True))
    checks = ask(Bounds(bytes=64_000_000))
    whole = checks.pop("second opinion")
    assert (whole.ok, whole.detail["tables"]) == (True, len(of_server(server)))
    for place, sample in enumerate(of_server(server)):
        line = checks[f"second opinion {database}.t{place}"]
        assert line.detail["differing"] == 0, line.found
        assert line.ok is (True if readable(sample) else "warn"), line.found
        if readable(sample) and not line.detail["left_out"] and not line.detail["unread"]:
            rows = line.detail["rows"]
            assert line.detail["values"] > 2 * rows > 10  # more than the keys


def test_tables_of_many_types_at_once(server: Server, database: str, ask: Ask) -> None:
    """Bits and lists of a table's description belong to the right column."""
    known = {"year", "json", "time", "binary", "set", "uuid", "inet4", "inet6", "date", "datetime", "timestamp", "char"}
    samples = [sample for sample in of_server(server) if readable(sample) and "CHARACTER SET" not in sample.declared]
    for name, chosen in (("mixed", [sample for sample in samples if sample.type not in known]), ("all_types", samples)):
        change(server, database, SampleTable(name, tuple(chosen), invalid_dates=False))
    checks = ask()
    assert checks["second opinion"].ok is True
    mixed = checks[f"second opinion {database}.mixed"].detail
    assert (mixed["left_out"], mixed["unread"], mixed["differing"]) == ([], [], 0)
    every = checks[f"second opinion {database}.all_types"].detail
    assert every["values"] > 2_000
    assert {kind for kind in known if any(kind in left_out["why"].lower() for left_out in every["left_out"])} >= {
        "year",
        "time",
    }


@pytest.mark.parametrize("known", MISREADINGS, ids=lambda misreading: misreading.what)
def test_each_known_misreading_is_named_and_is_a_difference_without_its_entry(
    server: Server, database: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, known: Any
) -> None:
    statement = MISREAD[known.what]
    if server.kind not in statement:
        assert server.kind == "mariadb"  # whose JSON is text
        return
    declared, literal = statement[server.kind]
    server.execute(LENIENT, f"CREATE TABLE t (id INT PRIMARY KEY, c {declared})", database=database)
    server.execute(LENIENT, f"INSERT INTO t VALUES (1, {literal}), (2, NULL)", database=database)
    line = ask()[f"second opinion {database}.t"]
    assert line.ok is True
    (left,) = line.detail["left_out"]
    assert (left["why"], left["columns"]) == (str(known), ["c"])
    assert f"left out: {known} (c: " in line.found
    monkeypatch.setattr(
        comparison, "MISREADINGS", tuple(misreading for misreading in MISREADINGS if misreading is not known)
    )
    comparison._known.cache_clear()
    try:
        line = ask()[f"second opinion {database}.t"]
    finally:
        comparison._known.cache_clear()
    assert line.ok is False
    (difference,) = line.detail["differences"]
    assert (difference["column"], difference["row"]) == ("c", 0)


def _both(declared: str, literal: str) -> dict[str, tuple[str, str]]:
    return {"mysql": (declared, literal), "mariadb": (declared, literal)}


MISREAD: dict[str, dict[str, tuple[str, str]]] = {
    "year 0000": _both("YEAR", "0"),
    "zero TIMESTAMP": _both("TIMESTAMP NULL", "0"),
    "zero and partial dates": _both("DATETIME", "'2020-00-10'"),
    "negative TIME with a fraction": _both("TIME(6)", "'-00:00:01.25'"),
    "empty SET": _both("SET('a')", "''"),
    "BINARY, UUID and INET that end in zero bytes": _both("BINARY(4)", "x'0100'"),
    "JSON null": {"mysql": ("JSON", "'null'")},
    "JSON with decimals, moments or bytes, and differences to JSON": {
        "mysql": ("JSON", "JSON_ARRAY(CAST(1.10 AS DECIMAL(10,2)))")
    },
    "text in a character set that Python has no codec for": _both("VARCHAR(9) CHARACTER SET ucs2", "'a'"),
    "text in UTF-16 and UTF-32": _both("VARCHAR(9) CHARACTER SET utf16", "'a'"),
    "ENUM and SET of names that aren't UTF-8": _both("ENUM('é') CHARACTER SET latin1", "'é'"),
    "text in a character set of which Python's codec has other characters for some codes": _both(
        "VARCHAR(9) CHARACTER SET sjis", "x'815f'"
    ),
}


def test_every_known_misreading_has_its_example() -> None:
    assert {misreading.what for misreading in MISREADINGS} == MISREAD.keys()


def test_each_collation_of_a_server_is_known_to_the_package_or_of_unicode(server: Server) -> None:
    """It takes others for UTF-8; of UTF-16, UCS-2 and UTF-32 every column is left out."""
    table, name = ("collations", "collation_name")
    if server.kind == "mariadb":
        table, name = ("collation_character_set_applicability", "full_collation_name")
    rows = server.execute(f"SELECT id, {name}, character_set_name FROM information_schema.{table}")
    unknown = {charset for number, _, charset in rows if find_charset(str(number), server.kind)[1] is None}
    assert unknown <= {"utf8mb3", "utf8mb4", "utf16", "ucs2", "utf32"}
    assert len(rows) > 250


# differences ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def row(server: Server, database: str, ask: Ask) -> tuple[str, int]:
    """A row in the log: its file, and the offset where its transaction begins."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50), n DECIMAL(10,2))", database=database)
    begins = position(server)
    server.execute(f"INSERT INTO t VALUES (1, '{VALUE}', 1.5)", database=database)
    return begins


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[stream.Rows], Any]) -> None:
    """As if the package had read the rows otherwise."""
    rows_of = stream.rows_of

    def changed(seen: stream.Seen) -> Any:
        rows = rows_of(seen)
        return change(rows) if isinstance(rows, stream.Rows) else rows

    monkeypatch.setattr(opinion_checks, "rows_of", changed)


@pytest.mark.parametrize(
    ("column", "value", "declared"),
    [("v", "another", "VARCHAR(200)"), ("n", 1.5, "DECIMAL(10,2)"), ("id", None, "INT")],
    ids=["another value", "another type", "a NULL"],
)
def test_a_value_that_differs_is_told_by_place_and_type_alone(
    server: Server, database: str, row: tuple[str, int], ask: Ask, monkeypatch: pytest.MonkeyPatch,
    column: str, value: Any, declared: str,
) -> None:  # fmt: skip
    planted(monkeypatch, lambda rows: replace(rows, rows=[(None, {**rows.rows[0][1], column: value})]))  # type: ignore[dict-item]
    checks = ask()
    line = checks[f"second opinion {database}.t"]
    assert (checks["second opinion"].ok, line.ok) == (False, False)
    assert (line.detail["differing"], line.detail["values"]) == (1, 3)
    (difference,) = line.detail["differences"]
    assert (difference["file"], difference["row"], difference["column"]) == (row[0], 0, column)
    assert difference["offset"] > row[1]
    assert difference["type"].startswith(declared.partition("(")[0])
    assert f"{row[0]}:{difference['offset']} row 0 column {column}" in line.found
    assert "another" not in line.found
    assert "verify" in line.remedy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: replace(rows, rows=[]), "no such row"),
        (lambda rows: replace(rows, rows=rows.rows * 2), "only mysql-replication has the row"),
        (lambda rows: replace(rows, offset=rows.offset + 1), "only binlake has the row"),
        (lambda rows: replace(rows, op=3, rows=[(rows.rows[0][1], None)]), "another operation"),
        (lambda rows: replace(rows, rows=[(None, {"id": 1, "v": VALUE})]), "only binlake has the column"),
        (lambda rows: replace(rows, rows=[(None, {**rows.rows[0][1], "x": 1})]), "only mysql-replication has it"),
    ],
    ids=["no row", "a row too many", "another place", "another operation", "a column less", "a column more"],
)
def test_rows_and_columns_that_only_one_reader_has(
    database: str, row: tuple[str, int], ask: Ask, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[stream.Rows], stream.Rows], said: str,
) -> None:  # fmt: skip
    planted(monkeypatch, change)
    line = ask()[f"second opinion {database}.t"]
    assert line.ok is False
    assert said in line.found


def test_rows_that_our_reader_drops_are_found(
    database: str, row: tuple[str, int], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opinion_checks, "read", lambda *_, **__: iter(()))
    assert "only mysql-replication has the row" in ask()[f"second opinion {database}.t"].found


def test_more_differences_than_are_shown_are_counted(
    server: Server, database: str, row: tuple[str, int], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        "INSERT INTO t VALUES " + ", ".join(f"({number}, '', 1)" for number in range(10, 30)), database=database
    )
    planted(monkeypatch, lambda rows: replace(rows, rows=[(None, {**after, "n": None}) for _, after in rows.rows]))
    line = ask()[f"second opinion {database}.t"]
    assert (line.detail["differing"], len(line.detail["differences"])) == (21, comparison.SHOWN)
    assert "16 more differences" in line.found


# what isn't compared -------------------------------------------------------------------------------------------------


def test_a_log_with_nothing_in_those_minutes(server: Server, database: str, row: tuple[str, int], ask: Ask) -> None:
    time.sleep(2.1)
    checks = ask(minutes=1 / 60)  # a second
    (line,) = checks.values()
    assert line.ok == "warn"
    assert "holds no transaction" in line.found
    assert "--minutes" in line.remedy


def test_changes_of_other_tables_alone(server: Server, database: str, ask: Ask) -> None:
    server.execute("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)", database=database)
    (line,) = ask(include=["nowhere.*"]).values()
    assert line.ok == "warn"
    assert "nothing to compare" in line.found


def test_excluded_columns_are_not_looked_at(
    database: str, row: tuple[str, int], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, lambda rows: replace(rows, rows=[(None, {**after, "v": 1}) for _, after in rows.rows]))
    line = ask(exclude_columns=[f"{database}.t.V"])[f"second opinion {database}.t"]
    assert (line.ok, line.detail["values"]) == (True, 2)


@pytest.fixture
def compressing(server: Server) -> Iterator[str]:
    """The kind of event that rows are in while it lasts."""
    mysql = server.kind == "mysql"
    variable = "binlog_transaction_compression" if mysql else "log_bin_compress"
    server.execute(f"SET GLOBAL {variable} = 1")
    yield "TRANSACTION_PAYLOAD" if mysql else "WRITE_ROWS_COMPRESSED_V1"
    server.execute(f"SET GLOBAL {variable} = 0")


def test_compressed_rows_are_counted_and_named(server: Server, database: str, ask: Ask, compressing: str) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    server.execute("INSERT INTO t VALUES (1, REPEAT('x', 1000)), (2, REPEAT('y', 1000))", database=database)
    checks = ask()
    line = checks[f"second opinion {database}.t"]
    assert (checks["second opinion"].ok, line.ok) == ("warn", "warn")
    assert f"left out: 2 rows in events that it doesn't know ({compressing})" in line.found
    assert compressing in checks["second opinion"].found


def test_rows_beside_compressed_ones_are_compared(server: Server, database: str, ask: Ask) -> None:
    variable = "binlog_transaction_compression" if server.kind == "mysql" else "log_bin_compress"
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    for on, key in ((1, 1), (0, 2)):
        server.execute(f"SET GLOBAL {variable} = {on}")
        server.execute(f"INSERT INTO t VALUES ({key}, REPEAT('x', 1000))", database=database)
    line = ask()[f"second opinion {database}.t"]
    assert (line.ok, line.detail["rows"], line.detail["unread"][0]["rows"]) == (True, 1, 1)


def test_a_table_of_which_it_cannot_read_a_row(server: Server, database: str, ask: Ask) -> None:
    odd = "VECTOR(2)" if server.kind == "mysql" else "VARCHAR(300) COMPRESSED"
    server.execute(f"CREATE TABLE odd (id INT PRIMARY KEY, v {odd}, n INT)", database=database)
    server.execute("INSERT INTO odd (id, n) VALUES (1, 2)", database=database)
    checks = ask()
    line = checks[f"second opinion {database}.odd"]
    assert (checks["second opinion"].ok, line.ok) == ("warn", "warn")
    kind = "VECTOR" if server.kind == "mysql" else "MariaDB's COMPRESSED"
    assert f"1 row of a table with a column of the type {kind}" in line.found


def test_partial_json_and_partial_rows(mysql_server: Server, lake: Path) -> None:
    server = mysql_server
    server.execute(
        "CREATE DATABASE partial",
        "CREATE TABLE partial.t (id INT PRIMARY KEY, n INT, j JSON)",
        "CREATE TABLE partial.u (id INT PRIMARY KEY, n INT)",
        "INSERT INTO partial.t VALUES (1, 1, JSON_OBJECT('a', REPEAT('x', 100), 'b', 1))",
        "INSERT INTO partial.u VALUES (1, 1)",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "UPDATE partial.t SET n = 2, j = JSON_SET(j, '$.b', 2)",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE partial.u SET n = 2",
    )
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    checks = {check.name: check for check in second_opinion(configured("partial", lake), endpoint, 1)}
    server.execute("DROP DATABASE partial")
    whole, stopped = checks["second opinion partial.t"], checks["second opinion partial.u"]
    assert whole.ok is True, whole.found
    assert whole.detail["left_out"] or whole.detail["unread"]
    assert stopped.ok is True
    assert "binlake itself stops at binlog." in stopped.found


def test_a_file_of_another_checksum_is_left_out(server: Server, database: str, ask: Ask) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "SET GLOBAL binlog_checksum = NONE", database=database)
    try:
        server.execute("INSERT INTO t VALUES (1)", database=database)
    finally:
        server.execute("SET GLOBAL binlog_checksum = CRC32")
    line = ask()[f"second opinion {database}.t"]
    assert (line.ok, line.detail["unread"][0]["rows"]) == ("warn", 1)
    assert "another binlog_checksum" in line.found


# bounds --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(server: Server, database: str, ask: Ask) -> int:
    """Transactions of one row, all in one file."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    server.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(40)), database=database)
    return 40


def test_no_more_rows_than_the_bound(database: str, many: int, ask: Ask) -> None:
    checks = ask(Bounds(rows=10))
    line = checks[f"second opinion {database}.t"]
    assert (line.ok, line.detail["rows"]) == (True, 10)
    assert "no further" in checks["second opinion"].found
    assert checks["second opinion"].detail["stop"]


def test_no_more_bytes_than_the_bound_and_the_newest_of_them(
    server: Server, database: str, many: int, ask: Ask
) -> None:
    checks = ask(Bounds(bytes=2000))
    whole = checks["second opinion"].detail
    assert 0 < whole["transactions"] < many
    assert sum(part["stop"] - part["start"] for part in whole["slices"]) <= 2000
    assert (whole["slices"][-1]["file"], whole["slices"][-1]["stop"]) == position(server)
    assert "no more than the newest 0.002 MB" in checks["second opinion"].found


def test_a_transaction_larger_than_the_bound(database: str, many: int, ask: Ask) -> None:
    (line,) = ask(Bounds(bytes=100)).values()
    assert line.ok == "warn"
    assert "nothing was read" in line.found


def test_no_longer_than_the_bound(database: str, many: int, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = ask(Bounds(seconds=0)).values()
    assert line.ok == "warn"
    assert "within 0 seconds" in line.found
    slow = stream.rows_of
    monkeypatch.setattr(opinion_checks, "rows_of", lambda seen: (time.sleep(0.3), slow(seen))[1])
    began = time.monotonic()
    checks = ask(Bounds(seconds=4))
    assert time.monotonic() - began < many * 0.3
    assert 0 < checks[f"second opinion {database}.t"].detail["rows"] < many
    assert "no further" in checks["second opinion"].found


def test_a_server_that_cannot_be_reached_or_read(server: Server, database: str, lake: Path) -> None:
    config = configured(database, lake)
    (line,) = second_opinion(config, Endpoint("127.0.0.1", server.port, "replica", "wrong"), 1)
    assert line.ok is False
    assert "password" in line.remedy
    position_alone = "REPLICATION CLIENT" if server.kind == "mysql" else "BINLOG MONITOR"
    server.create_account("blind", SECRET, [f"{position_alone} ON *.*"])
    (line,) = second_opinion(config, Endpoint("127.0.0.1", server.port, "blind", SECRET), 1)
    server.execute("DROP USER blind")
    assert line.ok is False
    assert SECRET not in str(line)


# the command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(
    server: Server, database: str, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, ask: Ask,
) -> Callable[..., tuple[int, str]]:  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_SECOND_OPINION", server.uri("replica", SECRET))
    path = tmp_path / "pipeline.yaml"
    path.write_text(json.dumps(configured(database, lake).model_dump(mode="json")))
    caplog.set_level(logging.DEBUG)

    def run(*arguments: str) -> tuple[int, str]:
        code = command_line.run(["doctor", "--config", str(path), *arguments])
        out, err = capsys.readouterr()
        assert SECRET not in out + err + caplog.text
        assert VALUE not in out + err + caplog.text
        return code, out

    return run


def test_the_command(
    database: str, row: tuple[str, int], command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = command()
    assert code == 0
    assert "second opinion" not in out
    code, out = command("--second-opinion", "--minutes", "1")
    assert code == 0
    assert f"ok    second opinion {database}.t: 1 row event, 1 row, 3 values equal" in out
    planted(monkeypatch, lambda rows: replace(rows, rows=[(None, {**after, "n": None}) for _, after in rows.rows]))
    code, out = command("--second-opinion", "--minutes", "2", "--json")
    lines = {line["name"]: line for line in json.loads(out)}
    assert code == 1
    assert lines[f"second opinion {database}.t"]["detail"]["differences"][0]["column"] == "n"
    assert lines["server"].keys() == {"name", "ok", "found", "remedy"}


@pytest.mark.parametrize("minutes", ["0", "-1", "inf", "nan", "soon"])
def test_minutes_that_are_none(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line.run(["doctor", "--config", "none", "--second-opinion", "--minutes", minutes])
    assert stopped.value.code == 2
    assert "--minutes" in capsys.readouterr().err


def test_files_have_no_second_opinion(
    mysql_server: Server, tmp_path: Path, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.yaml"
    source = {"name": "tests", "connection": mysql_server.datadir.as_uri()}
    path.write_text(json.dumps({"source": source, "tables": {"include": ["*.*"]}, "lake": {"path": str(lake)}}))
    assert command_line.run(["doctor", "--config", str(path), "--second-opinion"]) == 2
    assert "--second-opinion needs a server" in capsys.readouterr().err
