"""Whatever a server's settings are, our sessions read the same: a snapshot, a sync and a comparison are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlake.doctor.preflight import preflight
from binlake.errors import BinlakeError, InvalidText
from binlake.schema.table import TableName
from binlake.snapshot import direct, jdbc, resultset
from binlake.snapshot.jdbc import ChunkQuery
from binlake.source.catalog import database_charsets, read_schemas
from binlake.source.endpoint import Endpoint
from binlake.source.gaps import log_gaps
from binlake.source.listed_tables import list_tables
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.source.unlogged_engines import refused_engines
from binlake.verify.hashing import server_side
from binlake.verify.hashing.hashes import TableHashes
from mirror import Mirror
from odd_settings import OddSettings
from servers import KINDS, Kind, Server
from virtual_columns import are_all_logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "d"
ROWS = 30
TYPES = """CREATE TABLE every_type (
  id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n DECIMAL(20, 5), f FLOAT, r DOUBLE, b BIT(12), d DATE, at DATETIME(6),
  ts TIMESTAMP(3) NULL, tm TIME(3), y YEAR, c CHAR(10), v VARCHAR(30) CHARACTER SET latin1,
  g VARCHAR(30) CHARACTER SET gbk, t LONGTEXT, x BLOB, e ENUM('a', 'ö'), s SET('p', 'q'), j JSON, bin BINARY(4),
  p POINT, w INT AS (DAYOFMONTH(d)) VIRTUAL,
  q DECIMAL(30, 12) AS (n / 7) VIRTUAL, k VARCHAR(20) AS (CONCAT(c, '|')) VIRTUAL,
  m VARCHAR(64) AS (SUBSTR(v, 2)) STORED)"""
BEYOND_ARITHMETIC = ("w", "q", "k", "m")
"""Generated columns that the lake leaves out where the log has them in inserts alone."""
ROW = """(NULL, 1234.5, 0.1, 1e300, b'101010', '2024-02-29', '2024-02-29 12:34:56.789012', '2024-06-01 00:00:00.5',
  '-100:00:01.5', 2024, 'ab  ', 'zürich', '中文', REPEAT('ä', 40000), REPEAT(0x00FF, 30000), 'ö', 'p,q',
  '{"k": [1, "ü", 1.5]}', 0x01000000, ST_GeomFromText('POINT(1 2)'), DEFAULT, DEFAULT, DEFAULT, DEFAULT)"""
INIT_CONNECT = (
    "SET sql_mode = 'ANSI,PAD_CHAR_TO_FULL_LENGTH', time_zone = '-07:30', sql_select_limit = 2, max_join_size = 1,"
    " sql_big_selects = 0, div_precision_increment = 0, completion_type = 1;"
    " SET NAMES latin1; SET autocommit = 0; BEGIN"
)


@dataclass(frozen=True)
class Filled:
    """A server with tables, and an account that has no more than sql/grants gives."""

    server: Server
    endpoint: Endpoint


@pytest.fixture(scope="module", params=KINDS)
def filled(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Filled]:
    with new_server(request.param) as server:
        wide = ", ".join(f"c{number} INT DEFAULT {number}" for number in range(31))
        status = "REPLICATION CLIENT, XA_RECOVER_ADMIN" if server.kind == "mysql" else "BINLOG MONITOR"
        server.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        server.execute(
            TYPES,
            f"INSERT INTO every_type VALUES {', '.join([ROW] * ROWS)}",
            f"CREATE TABLE wide ({wide})",
            f"INSERT INTO wide () VALUES {', '.join(['()'] * ROWS)}",
            "CREATE TABLE child (id INT PRIMARY KEY, parent BIGINT UNSIGNED,"
            " FOREIGN KEY (parent) REFERENCES every_type (id))",
            "CREATE USER mirror@'127.0.0.1' IDENTIFIED BY 'x'",
            f"GRANT SELECT, LOCK TABLES ON {DATABASE}.* TO mirror@'127.0.0.1'",
            f"GRANT REPLICATION SLAVE, RELOAD, {status} ON *.* TO mirror@'127.0.0.1'",
            database=DATABASE,
        )
        yield Filled(server, Endpoint("127.0.0.1", server.port, "mirror", "x"))


def read_all(where: Endpoint) -> list[Any]:
    """What the control connection learns, every value as the direct reader gets it, and the hashes of verify."""
    with Source.open(where) as source:
        names = [listed.name for listed in list_tables(source)]
        schemas = read_schemas(source, names)
        answers: list[Any] = [
            schemas, database_charsets(source), unlogged_cascades(source, [DATABASE]), log_gaps(source, [DATABASE]),
            refused_engines(source), source.head(), source.binary_logs(),
        ]  # fmt: skip
        for name, schema in schemas.items():
            query = ChunkQuery(where, jdbc.chunk_query(name, schema, None, None), source.is_mariadb)
            columns = direct.QueriedRows(query).columns(len(schema.mirrored))
            answers.append([[values.to_pylist() for values in batch] for batch in columns])
            answers.append(server_side.aggregate(source, name, TableHashes(schema, 1)))
    return answers


def outcome(where: Endpoint) -> list[Any] | str:
    try:
        return read_all(where)
    except (BinlakeError, direct.ServerFailed) as error:
        return f"refused: {error}"


def changing(odd: OddSettings, values: dict[str, str], where: Endpoint, expected: list[Any]) -> dict[str, str]:
    """The fewest of the values that still change what is read."""
    items = list(values.items())
    for half in (items[: len(items) // 2], items[len(items) // 2 :]):
        if half and len(half) < len(items):
            with odd.set_to(dict(half)):
                answers = outcome(where)
            if answers != expected:
                return changing(odd, dict(half), where, expected)
    return values


@pytest.mark.parametrize("filled", ["mariadb"], indirect=True)
def test_a_limit_of_memory(filled: Filled) -> None:
    expected = read_all(filled.endpoint)
    with filled.server.setting("max_session_mem_used", 8192):
        assert read_all(filled.endpoint) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_take_more_bytes_than_max_allowed_packet(new_server: type[Server], kind: Kind) -> None:
    """In UTF-8 they are longer than stored, or in digits."""
    with new_server(kind, max_allowed_packet=1 << 20) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (l LONGTEXT CHARACTER SET latin1, u LONGTEXT CHARACTER SET ucs2, g GEOMETRY)",
            "INSERT INTO d.t VALUES (REPEAT(_latin1 X'E9', 600000), REPEAT(_ucs2 X'4E00', 400000),"
            " ST_GeomFromText(CONCAT('LINESTRING(0 0', REPEAT(',1 1', 40000), ')')))",
        )
        name = TableName("d", "t")
        with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
            schema = read_schemas(source, [name])[name]
            query = jdbc.chunk_query(name, schema, None, None)
            ((latin, wide, line),) = resultset.answer(source.connection, query, 3)
    assert latin.to_pylist() == ["é".encode() * 600_000]
    assert wide.to_pylist() == ["一".encode() * 400_000]
    assert len(line[0].as_py()) == 4 + 9 + 16 * 40_001


def test_json_whose_text_takes_more_than_max_allowed_packet(new_server: type[Server], lake: Path) -> None:
    """MySQL shows an empty text for it, whatever is asked."""
    spark: Any = None
    with new_server("mysql", max_allowed_packet=1 << 20) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)",
            "INSERT INTO d.t VALUES (1, JSON_ARRAY(REPEAT('\n', 700000))), (2, NULL), (3, '\"\"')",
        )
        mirror = Mirror(server, "d", lake, spark, reader="direct")
        with pytest.raises(InvalidText, match="'j' is longer, as text"):
            mirror.snapshot()
        with server.setting("max_allowed_packet", 1 << 30):
            mirror.snapshot()
            mirror.assert_equal("t")


def test_no_session_variable_changes_what_is_read(filled: Filled) -> None:
    odd = OddSettings(filled.server)
    expected = read_all(filled.endpoint)
    tried: set[str] = set()
    for number in range(odd.rounds()):
        values = odd.accepted(number)
        tried |= values.keys()
        with odd.set_to(values):
            answers = outcome(filled.endpoint)
        if answers != expected:
            culprits = changing(odd, values, filled.endpoint, expected)
            with odd.set_to(culprits):
                answers = outcome(filled.endpoint)
            pytest.fail(f"{culprits}: {answers if isinstance(answers, str) else 'other values'}")
    assert len(tried) > len(odd.as_it_was) - 10  # nearly all take an odd value


@pytest.mark.parametrize(
    "number", [1, *(pytest.param(other, marks=pytest.mark.soak) for other in (0, 2, 3, 4, 5, 6, 7))]
)
def test_a_mirror_beside_odd_settings(
    filled: Filled, number: int, lake: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mirror, "endpoint", filled.endpoint)
    mirror = Mirror(filled.server, DATABASE, lake, spark, options={"policies": {"on_unlogged_cascade": "derive"}})
    odd = OddSettings(filled.server)
    filled.server.execute(f'SET GLOBAL init_connect = "{INIT_CONNECT}"')
    try:
        with filled.server.connect(database=DATABASE) as writer, odd.set_to(odd.accepted(number)):
            mirror.snapshot()
            with writer.cursor() as cursor:
                cursor.execute("UPDATE every_type SET c = 'xy', n = 2 WHERE id < 9")
                cursor.execute("DELETE FROM wide LIMIT 3")
                cursor.execute("INSERT INTO child VALUES (1, 1)")
            assert mirror.sync().mutations == 12
            checks = preflight(mirror.config, mirror.origin, spark_checks=False)
            verified = mirror.verify("d.every_type", "d.wide").tables
        assert [check for check in checks if check.ok is False] == []
        mirror.assert_equal("every_type", without=() if are_all_logged(filled.server) else BEYOND_ARITHMETIC)
        mirror.assert_equal("wide", "child")
        counted = [
            filled.server.execute(f"SELECT COUNT(*) FROM {DATABASE}.{table.name.table}")[0][0] for table in verified
        ]
        assert [(table.equal, table.source_rows) for table in verified] == [(True, rows) for rows in counted]
    finally:
        filled.server.execute("SET GLOBAL init_connect = ''")
