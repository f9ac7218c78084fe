"""Where columns stand after ALTER TABLE of several clauses, known from the text, equals the server's order."""

from __future__ import annotations

import random

import pymysql

from binlake.ddl import statements
from binlake.errors import SchemaMismatch
from binlake.schema.table import TableSchema
from binlake.source import catalog, listed_tables
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from servers import Server

SEED = 1216
STATEMENTS = 60
STRICT_BIT = 1 << 21
COLUMNS = ("a", "b", "c", "d", "e")


def random_alter(chosen: random.Random) -> str:
    """Clauses about columns that are there; each is named once, places name any column, old, new or dropped."""
    old = list(COLUMNS)
    chosen.shuffle(old)
    names = [*COLUMNS, "n0", "n1", "n2", "n3"]
    clauses: list[str] = []
    for number in range(chosen.randint(2, 4)):
        place = chosen.choice(("", " FIRST", f" AFTER {chosen.choice(names)}", f" AFTER {chosen.choice(names)}"))
        match chosen.randrange(6):
            case 0 | 1:
                clauses.append(f"ADD n{number} INT{place}")
            case 2:
                clauses.append(f"MODIFY {old.pop()} BIGINT{place}")
            case 3:
                clauses.append(f"CHANGE {old.pop()} n{number} BIGINT{place}")
            case 4:
                clauses.append(f"RENAME COLUMN {old.pop()} TO n{number}")
            case _:
                clauses.append(f"DROP {old.pop()}")
    return f"ALTER TABLE t {', '.join(clauses)}"


def order_from_text(statement: str, before: TableSchema, database: str, server: Server) -> list[str]:
    parsed = statements.parse(statement, database=database, sql_mode=STRICT_BIT, flavour=server.kind)
    [change] = parsed.changes
    assert isinstance(change, statements.AlterTable), statement
    return [column.name for column in statements.evolve(before, change, flavour=server.kind).after.columns]


def test_columns_stand_where_the_server_puts_them(server: Server, database: str) -> None:
    chosen = random.Random(SEED)
    wrong: list[str] = []
    applied = 0
    create = f"CREATE TABLE t ({', '.join(f'{name} INT' for name in COLUMNS)})"
    with (
        Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source,
        server.connect(database=database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(create)
        [listed] = [table for table in listed_tables.list_tables(source) if table.name.database == database]
        before = catalog.read_tables(source, [listed.name])[listed.name].schema
        for statement in (random_alter(chosen) for _ in range(STATEMENTS)):
            try:
                cursor.execute(statement)
            except pymysql.err.MySQLError:
                continue  # a place after a column that isn't there
            applied += 1
            cursor.execute("SHOW COLUMNS FROM t")
            shown = [row[0] if isinstance(row, tuple) else row["Field"] for row in cursor.fetchall()]
            cursor.execute("DROP TABLE t")
            cursor.execute(create)
            try:
                known = order_from_text(statement, before, database, server)
            except SchemaMismatch as error:
                wrong.append(f"{statement}: {error}")
                continue
            if known != shown:
                wrong.append(f"{statement}: {known} != {shown}")
    assert applied > STATEMENTS // 4
    assert not wrong, f"{len(wrong)} of {applied}\n" + "\n".join(wrong[:20])
