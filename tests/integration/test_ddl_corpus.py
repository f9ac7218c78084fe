"""What a statement makes of a table, parsed, equals what the server makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from binlake.errors import UnfollowedStatement
from binlake.names import mysql_quote
from binlake.schema import ddl
from binlake.schema.table import Column, TableName, TableSchema
from binlake.source import catalog
from binlake.source.connection import Endpoint
from binlake.source.server import Source
from servers import Server

CORPUS = Path(__file__).with_name("ddl_corpus")
STRICT = "STRICT_TRANS_TABLES"
STRICT_BIT = 1 << 21
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
SPATIAL = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geomcollection", "geometrycollection"),
)
BASE = "id INT PRIMARY KEY, Name VARCHAR(20), n INT NOT NULL"
OTHER = "CREATE TABLE other (id INT PRIMARY KEY, x VARCHAR(9) DEFAULT 'y', UNIQUE KEY (x))"


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as opened:
        yield opened


def corpus(name: str, server: Server) -> list[str]:
    """The lines of a list that are meant for this server."""
    found: list[str] = []
    for line in (CORPUS / f"{name}.txt").read_text().splitlines():
        only, _, rest = line.partition("] ") if line.startswith("[") else ("", "", line)
        if not line.startswith("##") and only in ("", f"[{server.kind}"):
            found.append(rest)
    return found


def parse(text: str, database: str, server: Server, sql_mode: int = STRICT_BIT) -> ddl.ParsedStatement:
    return ddl.parse(text, database=database, sql_mode=sql_mode, flavour=server.kind)


def apply_all(schema: TableSchema, parsed: ddl.ParsedStatement) -> TableSchema:
    for change in parsed.changes:
        assert isinstance(change, ddl.ShapeChange)
        schema = ddl.apply(schema, change, table_charset="latin1")
    return schema


def run(server: Server, database: str, statements: list[str], sql_mode: str = STRICT) -> None:
    """In one session: a corpus is hundreds of statements."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = %s, innodb_lock_wait_timeout = 5", (sql_mode,))
        if server.kind == "mysql":
            # The corpus tries keys that only old schemas have.
            cursor.execute("SET restrict_fk_on_non_standard_key = OFF")
        refused: list[str] = []
        for statement in statements:
            try:
                cursor.execute(statement)
            except pymysql.err.MySQLError as error:
                refused.append(f"{statement}: {error}")
    assert not refused, "the server refused:\n" + "\n".join(refused)


def named(template: str, table: str) -> str:
    return template.replace("{t}", table).replace("{sixty_four}", "é" * 64)


def shapes(source: Source, database: str) -> dict[str, TableSchema]:
    names = [listed.name for listed in catalog.list_tables(source) if listed.name.database == database]
    return {name.table: table.schema for name, table in catalog.read_tables(source, names).items()}


def compare(statement: str, parsed: TableSchema, shown: TableSchema) -> list[str]:
    if parsed == shown:
        return []
    different = [f"{a} != {b}" for a, b in zip(parsed.columns, shown.columns, strict=False) if a != b]
    return [
        f"{statement}\n    "
        + "\n    ".join([*different, f"{parsed.key_kind}{parsed.key} / {shown.key_kind}{shown.key}"])
    ]


def test_created_tables_have_the_servers_shape(server: Server, database: str, source: Source) -> None:
    definitions = [
        f"CREATE TABLE {{t}} (id INT, a {definition}\n)"
        for text in ("columns", "not_constant")
        for definition in corpus(text, server)
    ]
    templates = [*definitions, *corpus("tables", server)]
    statements = {f"t{number}": named(template, f"t{number}") for number, template in enumerate(templates)}
    run(server, database, [OTHER, *statements.values()])
    shown = shapes(source, database)
    wrong: list[str] = []
    for table, statement in statements.items():
        parsed = parse(statement, database, server)
        assert parsed.kind == "CREATE TABLE"
        assert parsed.tables[0] == TableName(database, table)
        match parsed.changes[-1]:
            case ddl.CreateTable(schema=schema):
                wrong += compare(statement, schema, shown[table])
            case ddl.CreateLike(like=like):
                assert shown[table] == shown[like.table]
            case other:
                wrong.append(f"{statement}: {other}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_wide_strings_become_text_without_strict_mode(server: Server, database: str, source: Source) -> None:
    types = ("VARCHAR(20000)", "VARCHAR(70000)", "VARCHAR(5000000)", "VARBINARY(70000)", "VARCHAR(5000) CHARSET utf8")
    statement = f"CREATE TABLE t ({', '.join(f'c{n} {type_}' for n, type_ in enumerate(types))})"
    run(server, database, [statement], sql_mode="")
    [created] = parse(statement, database, server, sql_mode=0).changes
    assert isinstance(created, ddl.CreateTable)
    assert created.schema == shapes(source, database)["t"]
    [refused] = parse(statement, database, server).changes
    assert isinstance(refused, ddl.Unfollowed)


def server_value(source: Source, database: str, table: str, column: Column) -> str | None:
    """The value in the table's one row, as the type writes it."""
    name = mysql_quote(column.name)
    text = f"CAST({name} AS CHAR)"
    if column.type == "bit":
        text = f"CONCAT('b''', BIN({name} + 0), '''')"
    elif column.type in BYTES:
        text = f"CONCAT('0x', HEX({name}))"
    elif column.type in SPATIAL or column.type == "vector":
        text = f"HEX({name})"
    value = source.query(f"SELECT {text} AS v FROM {database}.{table}")[0]["v"]
    return None if value is None else str(value)


def expected_value(column: Column) -> str | None:
    default = ddl.old_row_default(column)
    if default is None or column.type not in BYTES:
        return default
    raw = bytes.fromhex(default[2:]) if default else b""
    return "0x" + raw.ljust(column.length or 0 if column.type == "binary" else 0, b"\0").hex().upper()


def test_altered_tables_have_the_servers_shape_and_values(server: Server, database: str, source: Source) -> None:
    definitions = [f"ALTER TABLE {{t}} ADD a {d}\n" for d in corpus("columns", server)]
    templates = [*definitions, *corpus("alters", server)]
    alters = {f"t{number}": named(template, f"t{number}") for number, template in enumerate(templates)}
    creates = [f"CREATE TABLE {table} ({BASE}) CHARSET latin1" for table in alters]
    inserts = [f"INSERT INTO {table} VALUES (1, 'x', 2)" for table in alters]
    run(server, database, [OTHER, "INSERT INTO other VALUES (1, 'z')", *creates, *inserts])
    before = shapes(source, database)
    run(server, database, list(alters.values()))
    shown = shapes(source, database)
    wrong: list[str] = []
    for table, statement in alters.items():
        try:
            schema = apply_all(before[table], parse(statement, database, server))
        except UnfollowedStatement as error:
            wrong.append(f"{statement}: {error}")
            continue
        wrong += compare(statement, schema, shown[table])
        for column in schema.columns:
            if not before[table].has(column.name):
                value, expected = server_value(source, database, table, column), expected_value(column)
                if value != expected:
                    wrong.append(f"{statement}: {column.name} is {value!r}, expected {expected!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_is_not_followed_says_so(server: Server, database: str, source: Source) -> None:
    not_constant = corpus("not_constant", server)
    templates = [
        *(f"ALTER TABLE {{t}} ADD a {definition}\n" for definition in not_constant),
        *corpus("unfollowed", server),
    ]
    statements = {f"t{number}": named(template, f"t{number}") for number, template in enumerate(templates)}
    run(server, database, [f"CREATE TABLE {table} ({BASE}) CHARSET latin1" for table in statements])
    before = shapes(source, database)
    run(server, database, list(statements.values()))
    for table, statement in statements.items():
        parsed = parse(statement, database, server)
        assert parsed.kind != "UNPARSED"
        with pytest.raises(UnfollowedStatement):
            apply_all(before[table], parsed)


def logged(server: Server, database: str, statements: list[str]) -> list[str]:
    """The statements as the server writes them to its log."""
    server.execute("FLUSH BINARY LOGS")
    file = server.execute("SHOW BINARY LOGS")[-1][0]
    run(server, database, statements)
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    texts = [str(event[5]) for event in events if event[2] == "Query"]
    return [text.split("; ", 1)[1] for text in texts if text.startswith("use ")]


def test_statements_as_the_server_logs_them(server: Server, database: str, source: Source) -> None:
    hidden_key = server.kind == "mysql"
    texts = logged(
        server,
        database,
        [
            OTHER,
            "CREATE TABLE selected (z INT) SELECT id, 'text' AS t, 1.5 AS d FROM other",
            *(["SET sql_generate_invisible_primary_key = ON"] if hidden_key else []),
            "CREATE TABLE keyless (a INT)",
            "CREATE TEMPORARY TABLE passing (a INT, b VARCHAR(9) CHARSET latin1)",
            "CREATE TABLE like_passing LIKE passing",
            "INSERT INTO passing VALUES (1, 'x')",
            "DROP TABLE passing",
            "CREATE TABLE gone (a INT /*!99999 , b INT */ /*!50000 , c INT */)",
            "DROP TABLE gone /* comment */",
        ],
    )
    known: dict[TableName, TableSchema] = {}
    for text in texts:
        for change in parse(text, database, server).changes:
            match change:
                case ddl.CreateTable(name=name, schema=schema):
                    known[name] = schema
                case ddl.DropTable(name=name):
                    assert [column.name for column in known.pop(name).columns][-2:] == ["a", "c"]
                case other:
                    raise AssertionError(f"{text}: {other}")
    assert {name.table: schema for name, schema in known.items()} == shapes(source, database)
    if hidden_key:
        assert known[TableName(database, "keyless")].key == ("my_row_id",)


def test_ansi_quotes_and_plain_backslashes(server: Server, database: str, source: Source) -> None:
    statement = r"""CREATE TABLE "a""b" ("c\" VARCHAR(9) DEFAULT '\', `d` ENUM('\','"') DEFAULT '"')"""
    run(server, database, [statement], sql_mode="ANSI_QUOTES,NO_BACKSLASH_ESCAPES")
    [created] = parse(statement, database, server, sql_mode=1 << 2 | 1 << 20).changes
    assert isinstance(created, ddl.CreateTable)
    assert created.schema == shapes(source, database)['a"b']
