"""What a statement makes of a table, parsed, equals what the server makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest

from binlake.ddl import statements as ddl
from binlake.errors import SchemaMismatch
from binlake.names import mysql_quote
from binlake.schema.statement_session import Session
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.virtual import as_logged
from binlake.source import catalog, listed_tables
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from servers import Server

CORPUS = Path(__file__).with_name("ddl_corpus")
STRICT = "STRICT_TRANS_TABLES"
STRICT_BIT = 1 << 21
MODES = {
    STRICT: STRICT_BIT,
    "ANSI_QUOTES": 1 << 2,
    "NO_AUTO_VALUE_ON_ZERO": 1 << 19,
    "NO_BACKSLASH_ESCAPES": 1 << 20,
    "PAD_CHAR_TO_FULL_LENGTH": 1 << 31,
}
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
SPATIAL = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geomcollection", "geometrycollection"),
)
BASE = "id INT PRIMARY KEY, Name VARCHAR(20), n INT NOT NULL"
OTHER = "CREATE TABLE other (id INT PRIMARY KEY, x VARCHAR(9) DEFAULT 'y' COMMENT 'x', UNIQUE (x)) COMMENT 'copied'"


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as opened:
        yield opened


def corpus(name: str, server: Server) -> list[str]:
    """The lines of a list that are meant for this server.

    A line may begin with the kind of server that knows it, [mysql] or [mariadb]; [-11.4] is for all but that release.
    """
    meant = {"", f"[{server.kind}"} | ({"[-11.4"} if server.release != "11.4" else set())
    meant_lines: list[str] = []
    for line in (CORPUS / f"{name}.txt").read_text().splitlines():
        only, _, rest = line.partition("] ") if line.startswith("[") else ("", "", line)
        if not line.startswith("## ") and only in meant:
            meant_lines.append(rest)
    return meant_lines


def parse(
    text: str, database: str, server: Server, sql_mode: int = STRICT_BIT, *, explicit: bool = True
) -> ddl.ParsedStatement:
    session = Session(explicit_timestamps=explicit)
    return ddl.parse(text, database=database, sql_mode=sql_mode, flavour=server.kind, session=session)


def run(server: Server, database: str, statements: list[str], sql_mode: str = STRICT, *, explicit: bool = True) -> None:
    """In one session: a corpus is hundreds of statements. explicit: explicit_defaults_for_timestamp."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = %s, innodb_lock_wait_timeout = 5", (sql_mode,))
        cursor.execute("SET explicit_defaults_for_timestamp = %s", (explicit,))
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
    names = [listed.name for listed in listed_tables.list_tables(source) if listed.name.database == database]
    return {name.table: table.schema for name, table in catalog.read_tables(source, names).items()}


def comments(schema: TableSchema) -> tuple[str, ...]:
    return schema.comment, *(column.comment for column in schema.columns)


def compare(statement: str, parsed: TableSchema, shown: TableSchema) -> list[str]:
    """What of a shape differs, its indexes and comments included."""
    parsed = as_logged(parsed) if shown.unlogged else parsed
    if parsed == shown and parsed.indexes == shown.indexes and comments(parsed) == comments(shown):
        return []
    different = [f"{a}\n      != {b}" for a, b in zip(parsed.columns, shown.columns, strict=False) if a != b]
    names = [[column.name for column in schema.columns] for schema in (parsed, shown)]
    rest = [
        (comments(s), s.key_kind, s.key, s.charset, [(i.name, i.columns, i.prefixes, i.unique) for i in s.indexes])
        for s in (parsed, shown)
    ]
    return ["\n    ".join([statement, *different, f"{names[0]} / {names[1]}", *map(str, rest)])]


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
                assert comments(shown[table]) == comments(shown[like.table])
            case other:
                wrong.append(f"{statement}: {other}")
    assert not wrong, "\n" + "\n".join(wrong)


def implicit_timestamps(server: Server) -> list[list[str]]:
    """Each definition beside other TIMESTAMP columns, in tables created and altered."""
    definitions = corpus("implicit_timestamps", server)
    there = ("TIMESTAMP", "TIMESTAMP NULL")
    both = [
        (a, b)
        for definition, other in itertools.product(definitions, there)
        for a, b in ((definition, other), (other, definition))
    ]
    created = [[f"CREATE TABLE {{t}} (a {a}, b {b}, id INT)"] for a, b in both]
    clauses = ("ADD a {}", "ADD a {} FIRST", "MODIFY id {}", "CHANGE ts id2 {} AFTER id")
    altered = [
        [f"CREATE TABLE {{t}} (ts {other}, id INT)", f"ALTER TABLE {{t}} {clause.format(definition)}"]
        for definition, other, clause in itertools.product(definitions, there, clauses)
        if " AS " not in definition or clause.startswith("ADD")
    ]
    keys = [
        [f"CREATE TABLE {{t}} (a TIMESTAMP, b {definition}, PRIMARY KEY (b, a))"]
        for definition in ("TIMESTAMP", "TIMESTAMP(2) ON UPDATE NOW(2)", "TIMESTAMP DEFAULT 0")
    ]
    more = [["CREATE TABLE {t} (a TIMESTAMP, b INT)", "ALTER TABLE {t} ADD c TIMESTAMP, ADD PRIMARY KEY (c)"]]
    more += [["CREATE TABLE {t} (a TIMESTAMP PRIMARY KEY, b INT)", "ALTER TABLE {t} MODIFY a TIMESTAMP AFTER b"]]
    more += [["CREATE TABLE {t} (a TIMESTAMP, b INT)", "ALTER TABLE {t} ADD c TIMESTAMP(1) FIRST, ADD d TIMESTAMP"]]
    more += [["CREATE TABLE {t} (a TIMESTAMP, b INT)", "ALTER TABLE {t} DROP a, ADD c TIMESTAMP, ADD d TIMESTAMP"]]
    return created + altered + keys + more


def test_timestamps_get_what_nobody_wrote(server: Server, database: str, source: Source) -> None:
    """explicit_defaults_for_timestamp = OFF."""
    wrong: list[str] = []
    made: dict[str, tuple[str, TableSchema]] = {}
    statements: list[str] = []
    for number, templates in enumerate(implicit_timestamps(server)):
        for text in (named(template, f"t{number}") for template in templates):
            statements.append(text)
            match parse(text, database, server, 0, explicit=False).changes:
                case [ddl.CreateTable(schema=schema)]:
                    made[f"t{number}"] = text, schema
                case [ddl.AlterTable() as change]:
                    before = made[f"t{number}"][1]
                    made[f"t{number}"] = text, ddl.evolve(before, change, flavour=server.kind).after
                case other:
                    wrong.append(f"{text}: {other}")
    run(server, database, statements, sql_mode="", explicit=False)
    shown = shapes(source, database)
    for table, (text, schema) in made.items():
        wrong += compare(text, schema, shown[table])
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


def test_wide_strings_become_text_without_strict_mode(server: Server, database: str, source: Source) -> None:
    types = ("VARCHAR(20000)", "VARCHAR(70000)", "VARCHAR(5000000)", "VARBINARY(70000)", "VARCHAR(5000) CHARSET utf8")
    statement = f"CREATE TABLE t ({', '.join(f'c{n} {type_}' for n, type_ in enumerate(types))})"
    run(server, database, [statement], sql_mode="")
    [created] = parse(statement, database, server, sql_mode=0).changes
    assert isinstance(created, ddl.CreateTable)
    assert created.schema == shapes(source, database)["t"]
    [refused] = parse(statement, database, server).changes
    assert isinstance(refused, ddl.Unfollowed)


def test_comments_are_as_long_as_the_server_keeps_them(server: Server, database: str, source: Source) -> None:
    """Without strict mode what is too long is cut off."""
    statement = f"CREATE TABLE t (a INT COMMENT '{'é' * 1025}', b INT COMMENT '{'b' * 1024}') COMMENT '{'日' * 2049}'"
    run(server, database, [statement], sql_mode="")
    [created] = parse(statement, database, server, sql_mode=0).changes
    assert isinstance(created, ddl.CreateTable)
    shown = shapes(source, database)["t"]
    assert comments(created.schema) == comments(shown)
    assert [len(text) for text in comments(shown)] == [2048, 1024, 1024]


def server_values(source: Source, database: str, table: str, column: Column) -> list[str | None]:
    """The values in the table's rows, as the type writes them."""
    name = mysql_quote(column.name)
    text = f"CAST({name} AS CHAR)"
    if column.type == "bit":
        text = f"CONCAT('b''', BIN({name} + 0), '''')"
    elif column.type in BYTES:
        text = f"CONCAT('0x', HEX({name}))"
    elif column.type in SPATIAL or column.type == "vector":
        text = f"HEX({name})"
    rows = source.query(f"SELECT {text} AS v FROM {mysql_quote(database)}.{mysql_quote(table)}")
    return [None if row["v"] is None else str(row["v"]) for row in rows]


def expected_value(column: Column, fill: str | None) -> str | None:
    if fill is None or column.type not in BYTES:
        return fill
    raw = bytes.fromhex(fill[2:]) if fill else b""
    return "0x" + raw.ljust(column.length or 0 if column.type == "binary" else 0, b"\0").hex().upper()


@dataclass
class Step:
    """One statement of a chain. mark: what it must end as (see the lists)."""

    statement: str
    mark: str = ""


@dataclass
class Chain:
    """Statements of one session on tables of their own; shapes are known from the statements alone."""

    modes: tuple[str, ...]
    steps: list[Step]
    known: dict[str, TableSchema] = field(default_factory=dict)

    explicit: bool = True

    @property
    def bits(self) -> int:
        return sum(MODES[mode] for mode in self.modes)


def a_chain(number: int, lines: list[str], base: tuple[str, ...] = ()) -> Chain:
    """Marks and modes taken off; {t} named."""
    modes = tuple(lines.pop(0)[2:].split()) if lines[0].startswith("@ ") else ()
    steps = [Step(line) for line in base]
    for line in lines:
        mark = line[0] if line[:2] in ("? ", "! ", "~ ") else ""
        steps.append(Step(line[2:] if mark else line, mark))
    for step in steps:
        step.statement = named(step.statement, f"t{number}")
    strict = () if "NO_STRICT" in modes else (STRICT,)
    plain = tuple(mode for mode in modes if mode not in ("NO_STRICT", "IMPLICIT_TIMESTAMPS"))
    return Chain((*strict, *plain), steps, explicit="IMPLICIT_TIMESTAMPS" not in modes)


def chains(server: Server) -> list[Chain]:
    read: list[Chain] = []
    lines: list[str] = []
    for line in [*corpus("chains", server), ""]:
        if line:
            lines.append(line)
        elif lines:
            read.append(a_chain(len(read), lines))
            lines = []
    return read


def follow(chain: Chain, step: Step, database: str, server: Server) -> Iterator[tuple[str, ddl.Evolution]]:
    """Does to the known shapes what the statement says; gives each table's evolution, and fails where the mark lies."""
    parsed = parse(step.statement, database, server, chain.bits, explicit=chain.explicit)
    known, marks, reasons = chain.known, set[str](), list[str]()
    for change in parsed.changes:
        match change:
            case ddl.CreateTable(name=name, schema=schema, if_not_exists=if_not_exists):
                known.setdefault(name.table, schema) if if_not_exists else known.update({name.table: schema})
            case ddl.CreateLike(name=name, like=like):
                known[name.table] = known[like.table]
            case ddl.DropTable(name=name):
                known.pop(name.table, None)
            case ddl.RenameTables(pairs=pairs):
                for old, new in pairs:
                    known[new.table] = known.pop(old.table)
            case ddl.AlterTable(name=name):
                evolution = ddl.evolve(known[name.table], change, flavour=server.kind)
                known[name.table] = evolution.after
                marks |= {"?"} if evolution.unprovable or evolution.impossible else set()
                reasons += evolution.unprovable + evolution.impossible
                yield name.table, evolution
            case ddl.RowsChanged():
                marks = {"!"}
            case ddl.Unfollowed(why=why):
                assert step.mark == "~", why
                marks = {"~"}
            case ddl.NoShapeChange() | ddl.TruncateTable():
                pass
            case other:
                raise AssertionError(other)
    assert marks == ({step.mark} if step.mark else set()), f"ends as {marks or 'followed'}: {reasons}"


def follow_all(server: Server, database: str, source: Source, all_chains: list[Chain]) -> list[str]:
    """Statement by statement of all chains at once: the shapes known equal information_schema's. Gives what differs."""
    wrong: list[str] = []
    for place in range(max(len(chain.steps) for chain in all_chains)):
        evolutions: dict[str, tuple[Step, ddl.Evolution]] = {}
        statements: list[tuple[Chain, Step]] = []
        for chain in all_chains:
            if place < len(chain.steps):
                step = chain.steps[place]
                statements.append((chain, step))
                if step.statement.startswith("INSERT"):
                    continue
                try:
                    followed = list(follow(chain, step, database, server))
                    evolutions |= {table: (step, evolution) for table, evolution in followed}
                except (AssertionError, KeyError, SchemaMismatch) as error:
                    wrong.append(f"{step.statement}\n    {error!r}")
        for modes, explicit in sorted({(chain.modes, chain.explicit) for chain, _ in statements}):
            same = [step.statement for c, step in statements if (c.modes, c.explicit) == (modes, explicit)]
            run(server, database, same, ",".join(modes), explicit=explicit)
        shown = shapes(source, database)
        for chain, step in statements:
            if step.mark != "~":
                wrong += differences(chain, step, shown)
        for table, (step, evolution) in evolutions.items():
            renamed = next((new for new in (table, *shown) if new in shown and shown[new] == evolution.after), table)
            if not evolution.unprovable and step.mark != "!" and renamed in shown:
                wrong += wrong_values(source, database, renamed, step, evolution)
    return wrong


def differences(chain: Chain, step: Step, shown: dict[str, TableSchema]) -> list[str]:
    wrong: list[str] = []
    for table, schema in chain.known.items():
        if table not in shown:
            wrong.append(f"{step.statement}: the server has no table {table}")
            continue
        wrong += compare(step.statement, schema, shown[table])
        chain.known[table] = shown[table]  # told once, not after each later statement too
    return wrong


def wrong_values(source: Source, database: str, table: str, step: Step, evolution: ddl.Evolution) -> list[str]:
    """Added columns in which the rows have other values than told."""
    wrong: list[str] = []
    fills = {column.name: text for column, text in evolution.fills}
    for column, origin in zip(evolution.after.columns, evolution.origins, strict=True):
        if origin is None:
            expected = expected_value(column, fills.get(column.name))
            wrong += [
                f"{step.statement}: {column.name} is {value!r}, expected {expected!r}"
                for value in server_values(source, database, table, column)
                if value != expected
            ]
    return wrong


def test_altered_tables_have_the_servers_shape_and_values(server: Server, database: str, source: Source) -> None:
    run(server, database, [OTHER, "INSERT INTO other VALUES (1, 'z'), (2, 'w')"])
    definitions = [f"ALTER TABLE {{t}} ADD a {d}" for d in corpus("columns", server)]
    unknown = [f"? ALTER TABLE {{t}} ADD a {d}" for d in corpus("not_constant", server)]
    base = (f"CREATE TABLE {{t}} ({BASE}) CHARSET latin1", "INSERT INTO {t} VALUES (1, 'x', 2)")
    lines = [*definitions, *unknown, *corpus("alters", server)]
    numbered = [a_chain(number, [line], base) for number, line in enumerate(lines)]
    wrong = follow_all(server, database, source, numbered)
    assert not wrong, "\n" + "\n".join(wrong)


def test_many_statements_on_one_table(server: Server, database: str, source: Source) -> None:
    wrong = follow_all(server, database, source, chains(server))
    assert not wrong, "\n" + "\n".join(wrong)


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
