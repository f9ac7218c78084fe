"""What old rows get that depends on the statement's time or time zone is told in the log, as the server wrote it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pymysql
import pytest
from pymysql.cursors import Cursor

from binlake.binlog.border import Statement
from binlake.ddl import statements as ddl
from binlake.names import mysql_quote
from binlake.schema.table import TableName, TableSchema
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlog_slices import from_server, read_all, written
from server_shape import read_schema
from servers import Server

TRIES = 200
FOLD = 1603587600
"""In this hour and the one before, clocks in Berlin showed the same."""


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as opened:
        yield opened


@dataclass
class Followed:
    """Of one ALTER TABLE what its log tells, and the values of its rows by column, TIMESTAMP in UTC."""

    text: str
    evolution: ddl.Evolution
    values: dict[str, set[str | None]]

    def wrong(self) -> list[str]:
        fills = {column.name: text for column, text in self.evolution.fills}
        added = {
            column.name
            for column, origin in zip(self.evolution.after.columns, self.evolution.origins, strict=True)
            if origin is None or column.name in fills
        }
        return [
            f"{self.text}: {name} is {self.values[name]}, told was {fills.get(name)!r}"
            for name in sorted(added)
            if self.values[name] != {fills.get(name)}
        ]


def follow(server: Server, source: Source, database: str, sessions: list[list[str]]) -> list[Followed]:
    """Runs statements, each list with settings of its own; gives each ALTER TABLE that the server took."""
    shapes = {}
    ran: list[str] = []
    with written(server) as made, server.connect(database=database) as connection, connection.cursor() as cursor:
        for statements in sessions:
            cursor.execute("SET time_zone = '+00:00', timestamp = DEFAULT, explicit_defaults_for_timestamp = ON")
            cursor.execute("SET sql_mode = ''")
            for statement in statements:
                if statement.startswith("ALTER TABLE "):
                    name = TableName(database, statement.split()[2])
                    shape = read_schema(source, name)
                    if taken(cursor, statement):
                        shapes[statement] = name, shape
                        ran.append(statement)
                else:
                    cursor.execute(statement)
    logged = {
        item.text: item for item in read_all(from_server(server), made.part, database) if isinstance(item, Statement)
    }
    followed: list[Followed] = []
    for text in ran:
        name, shape = shapes[text]
        evolution = evolved(logged[text.strip()], shape, server)
        followed.append(Followed(text, evolution, columns_of(source, name)))
    return followed


def evolved(statement: Statement, shape: TableSchema, server: Server) -> ddl.Evolution:
    """What the statement, as it is in the log, made of a table."""
    [change] = ddl.parse(
        statement.text,
        database=statement.database,
        sql_mode=statement.sql_mode,
        flavour=server.kind,
        session=statement.session,
    ).changes
    assert isinstance(change, ddl.AlterTable), change
    return ddl.evolve(shape, change, flavour=server.kind)


def taken(cursor: Cursor, statement: str) -> bool:
    try:
        cursor.execute(statement)
    except pymysql.err.MySQLError:
        return False
    return True


def columns_of(source: Source, name: TableName) -> dict[str, set[str | None]]:
    names = [column.name for column in read_schema(source, name).columns]
    chosen = ", ".join(f"CAST({mysql_quote(column)} AS CHAR) AS {mysql_quote(column)}" for column in names)
    rows = source.query(f"SELECT {chosen} FROM {mysql_quote(name.database)}.{mysql_quote(name.table)}")
    return {column: {row[column] for row in rows} for column in names}


def any_session(table: str, chance: random.Random) -> list[str]:
    """A table with rows, a session of some kind, and an ALTER TABLE in it."""
    pick = chance.choice
    others = ("", ", x TIMESTAMP NULL", ", x TIMESTAMP(6) DEFAULT NOW(6)", ", x DATETIME(3) DEFAULT NOW(3)")
    second = pick([1, FOLD - chance.randrange(7200), FOLD + chance.randrange(7200), 2**31 - 2])
    fraction = pick(["", f"({chance.randrange(7)})"])
    type_ = pick(["TIMESTAMP", "TIMESTAMP", "DATETIME"])
    now = pick(["NOW", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"]) + (fraction or "()")
    default = pick(["", "NOT NULL ", "NULL "]) + "DEFAULT " + pick([now, now, "'2020-10-25 02:30:00'"])
    written = pick([default, default, default + f" ON UPDATE {now}", "", "NOT NULL"])
    clauses = [
        f"ADD a {type_}{fraction} {written}".rstrip() + pick(["", " FIRST", " AFTER id"]),
        *pick([[], [], ["ADD y INT DEFAULT 5"], ["ADD INDEX (id)"], ["ADD z TIMESTAMP(2) DEFAULT NOW(2)"]]),
        *pick([[], [], ["ALGORITHM=COPY"], ["ALGORITHM=INPLACE"], ["ALGORITHM=INSTANT"]]),
    ]
    return [
        f"CREATE TABLE {table} (id INT PRIMARY KEY{pick(others)})",
        f"INSERT INTO {table} (id) VALUES (1), (2)",
        f"SET explicit_defaults_for_timestamp = {pick(['ON', 'OFF'])}",
        f"SET sql_mode = '{pick(['', 'STRICT_TRANS_TABLES', 'TRADITIONAL'])}'",
        f"SET time_zone = '{pick(['+00:00', '+05:30', '-03:00', 'SYSTEM', 'Europe/Berlin'])}'",
        f"SET timestamp = {pick(['DEFAULT', 'DEFAULT', f'{second}.{chance.randrange(10**6):06}', str(second)])}",
        f"ALTER TABLE {table} {', '.join(clauses)}",
    ]


def test_columns_that_come_with_the_time(server: Server, database: str, source: Source) -> None:
    chance = random.Random(20201025)
    statements = follow(server, source, database, [any_session(f"t{number}", chance) for number in range(TRIES)])
    followed = [statement for statement in statements if not statement.evolution.unprovable]
    assert len(followed) > TRIES // 2
    wrong = [line for statement in followed for line in statement.wrong()]
    assert not wrong, "\n".join(wrong)
    unknown = [statement.text for statement in statements if statement.evolution.unprovable]
    assert all("DATETIME" in text or "'2020-10-25" in text for text in unknown), unknown


def test_nulls_that_become_the_time(server: Server, database: str, source: Source) -> None:
    sessions: list[list[str]] = []
    for number in range(96):
        table, fraction = f"t{number}", ("", "(1)", "(3)", "(6)")[number % 4]
        sessions.append([
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v TIMESTAMP{fraction} NULL)",
            f"INSERT INTO {table} VALUES (1, NULL)" + (", (2, NULL)" if number % 3 else ""),
            f"SET explicit_defaults_for_timestamp = {('ON', 'OFF')[number // 4 % 2]}",
            f"SET sql_mode = '{('', 'STRICT_TRANS_TABLES')[number // 8 % 2]}'",
            f"SET time_zone = '{('+00:00', 'Europe/Berlin')[number // 16 % 2]}'",
            f"SET timestamp = {('DEFAULT', f'{FOLD - 900}.654321', '1.999999')[number // 32]}",
            f"ALTER TABLE {table} MODIFY v TIMESTAMP{fraction} NOT NULL" + (", ALGORITHM=COPY" if number % 5 else ""),
        ])  # fmt: skip
    followed = follow(server, source, database, sessions)
    assert len(followed) > 60
    assert not any(statement.evolution.unprovable for statement in followed)
    assert all(statement.evolution.fills for statement in followed)
    wrong = [line for statement in followed for line in statement.wrong()]
    assert not wrong, "\n".join(wrong)


def test_a_statement_that_waits_has_the_time_at_which_it_began(server: Server, database: str, source: Source) -> None:
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)",
        "CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)",
        "CREATE PROCEDURE p() BEGIN DO SLEEP(1.2); ALTER TABLE u ADD a TIMESTAMP(6) NULL DEFAULT NOW(6); END",
        database=database,
    )  # fmt: skip
    with server.connect(database=database) as holder, holder.cursor() as held:
        held.execute("BEGIN")
        held.execute("SELECT * FROM t")

        def release() -> None:
            time.sleep(1.5)
            held.execute("COMMIT")

        waiting = threading.Thread(target=release)
        waiting.start()
        began = time.time()
        [followed] = follow(server, source, database, [["ALTER TABLE t ADD a TIMESTAMP(6) NULL DEFAULT NOW(6)"]])
        waiting.join()
    assert not followed.wrong()
    assert time.time() - began >= 1.5
    shape = read_schema(source, TableName(database, "u"))
    with written(server) as made:
        server.execute("CALL p()", database=database)
    (logged,) = (item for item in read_all(from_server(server), made.part, database) if isinstance(item, Statement))
    assert not Followed(
        logged.text, evolved(logged, shape, server), columns_of(source, TableName(database, "u"))
    ).wrong()
