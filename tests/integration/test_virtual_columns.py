"""What the log tells of virtual columns: the server's value in UTC, whatever session wrote the row."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import comparison
from binlake.binlog.border import Mutations
from binlake.binlog.reader import read
from binlake.ddl import statements
from binlake.schema.table import TableName, TableSchema
from binlake.schema.virtual import as_logged
from binlake.source import catalog
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlog_slices import from_server, written
from servers import Server
from virtual_columns import COLUMNS, COMPUTED, OFFSETS, REFUSED, are_all_logged

SESSIONS = (
    "time_zone = '-03:00', lc_time_names = 'de_DE', default_week_format = 3",
    "time_zone = '+05:30', lc_time_names = 'ja_JP', default_week_format = 6, sql_mode = ''",
    "time_zone = '+00:00', sql_mode = 'ANSI_QUOTES'",
)
TEXTS = ("'a'", "'2020-01-02 18:00:00+02:00'", "NULL")
AUTO_INCREMENT = "pk INT AUTO_INCREMENT PRIMARY KEY"
PLAIN = COLUMNS.replace(AUTO_INCREMENT, "pk INT PRIMARY KEY")
"""MySQL computes nothing from AUTO_INCREMENT."""


@dataclass(frozen=True)
class Declared:
    """declarations: by table what the server takes; each table has rows of all sessions. images: their rows' after
    images in the log."""

    server: Server
    database: str
    declarations: dict[str, str]
    images: dict[str, list[pa.StructArray]]

    def shapes(self) -> dict[str, TableSchema]:
        with Source.open(Endpoint("127.0.0.1", self.server.port, "root", "")) as source:
            names = {TableName(self.database, table) for table in self.declarations}
            return {name.table: schema for name, schema in catalog.read_schemas(source, names).items()}

    def values(self, table: str) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Key and computed value of each row: as logged, and as the server shows them in UTC."""
        columns, shown = comparison.read_server(self.server, self.database, table)
        logged = comparison.comparable(columns, pa.Table.from_struct_array(pa.chunked_array(self.images[table])))
        return {row[0]: row[-1] for row in logged}, {row[0]: row[-1] for row in shown}


@pytest.fixture
def declared(server: Server, database: str) -> Declared:
    with written(server) as log:
        taken = _fill(server, database)
    images: dict[str, list[pa.StructArray]] = {table: [] for table in taken}
    for item in read(from_server(server), log.part, lambda schema, table: schema == database and table in taken):
        if isinstance(item, Mutations):
            images[item.name.table].append(item.batch.column("after"))
    return Declared(server, database, taken, images)


def _fill(server: Server, database: str) -> dict[str, str]:
    columns = PLAIN if server.kind == "mysql" else COLUMNS
    taken: dict[str, str] = {}
    for number, declaration in enumerate((*COMPUTED, *(declaration for declaration, _ in REFUSED), *OFFSETS)):
        table = f"t{number}"
        try:
            server.execute(f"CREATE TABLE {table} ({columns}, v {declaration})", database=database)
        except pymysql.err.MySQLError:
            continue
        taken[table] = declaration
    with closing(server.connect(database=database)) as connection, connection.cursor() as cursor:
        for number, (session, text) in enumerate(zip(SESSIONS, TEXTS, strict=True), start=1):
            cursor.execute(f"SET {session}")
            for table in list(taken):
                try:
                    cursor.execute(
                        f"INSERT INTO {table} (pk, n, u, s, e, d, t, dt, ts, j) VALUES"
                        f" ({number}, {number}, 3, {text}, 'b', '2020-02-02', '10:11:12', '2021-03-04 23:59:59.5',"
                        ' \'2022-05-06 23:30:00\', \'{"a": 1, "d": "2020-01-02 18:00:00+02:00"}\')'
                    )
                except pymysql.err.MySQLError:
                    del taken[table]
    return taken


def test_what_is_told_is_what_the_server_shows_in_utc(declared: Declared) -> None:
    in_the_log = {table for table, shape in declared.shapes().items() if not shape.untold}
    if are_all_logged(declared.server):
        assert len(in_the_log) > len(COMPUTED) - 3
    values = {declared.declarations[table]: declared.values(table) for table in in_the_log}
    assert not {declaration: both for declaration, both in values.items() if both[0] != both[1]}


def test_the_sessions_do_decide_what_is_not_told(declared: Declared) -> None:
    """The judgement isn't caution alone: the log has another value somewhere."""
    zoned = {"DATETIME AS (FROM_UNIXTIME(n))", "DATE AS (DATE(ts))", "VARCHAR(20) AS (DAYNAME(dt))"}
    values = {
        declaration: declared.values(table)
        for table, declaration in declared.declarations.items()
        if declaration in zoned
    }
    assert {declaration for declaration, (logged, shown) in values.items() if logged != shown} == zoned


def test_no_server_computes_a_column_by_a_stored_function(server: Server, database: str) -> None:
    """Whose body could change under the rows; nor lets one into a default, which a generated column may stand on."""
    server.execute("CREATE FUNCTION doubled (n INT) RETURNS INT DETERMINISTIC RETURN 2 * n", database=database)
    for declared in ("AS (doubled(n)) VIRTUAL", "AS (doubled(n)) STORED", "DEFAULT (doubled(1))"):
        with pytest.raises(pymysql.err.MySQLError, match="doubled"):
            server.execute(f"CREATE TABLE t (n INT, v INT {declared})", database=database)


def test_catalog_and_statement_judge_alike(declared: Declared) -> None:
    columns = PLAIN if declared.server.kind == "mysql" else COLUMNS
    for table, shape in declared.shapes().items():
        declaration = declared.declarations[table]
        parsed = statements.parse(
            f"CREATE TABLE {table} ({columns}, v {declaration})",
            database=declared.database,
            sql_mode=0,
            flavour=declared.server.kind,
        )
        (created,) = parsed.changes
        assert isinstance(created, statements.CreateTable)
        logged = created.schema if are_all_logged(declared.server) else as_logged(created.schema)
        assert (logged.untold, logged.columns) == (shape.untold, shape.columns), declaration
