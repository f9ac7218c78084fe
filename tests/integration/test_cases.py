"""tests/cases and tests/reports: what a schema change does, from the server's log to the lake.

A case is a file ``{family}/{name}.sql`` of statements in the order of the log, each ended by ``;`` at the end of its
line. Comments of one line say the rest:

    -- servers mysql, mariadb >= 10.7      those that know the statements; without it all do
    -- report https://…   the public report that the case comes from; its statements are words of our own
    -- snapshot           what stands above is in the bootstrap's snapshot, what follows comes by the log
    -- sync               the lake is brought to here, then the case continues
    -- fails              the next statement does
    -- resnapshot t       at the end a new snapshot of t has been asked and taken
    -- refused t WORDS    or the table stopped, for a reason that holds these words
    -- gone t             no table of this name is mirrored any more
    -- without t.c        the lake goes without this column; "for mariadb >= 11.5" may follow
    -- waits WORDS        the outcome is what it should be, and isn't yet: what is to be fixed

The selected cases of a server are mirrored together, each in a database of its own: ``pytest -k NAME`` carries that
one alone. A case whose statement the server refuses is left where it is, and its test alone fails. Merges are cut
off after some of their Delta commits, and begun again: after every single one with BINLAKE_CUT_OFF=1 (make soak), else
once or twice for each sync, each table after one of three. So each case proves as well that a kill between two of its
epochs does no harm. The process copies the cases and merges by itself; on MySQL Spark merges what two runs left. In the
soak Spark copies those of MySQL, and takes turns on both servers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pymysql
import pytest
from deltalake import DeltaTable

import comparison
from binlake.names import mysql_quote
from binlake.records import watermarks
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.source import listed_tables
from binlake.source.server import Source
from binlake.store import metadata
from mirror import MERGES, Merge, Mirror
from server_shape import read_schema
from servers import Kind, Server
from shared_servers import SharedServers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2400)  # the first case of a server waits for all of them
TESTS = Path(__file__).parents[1]
CASES = {f"{path.parent.name}/{path.stem}": path for path in sorted(TESTS.glob("cases/*/*.sql"))}
REPORTS = {f"{path.parent.name}/{path.stem}": path for path in sorted(TESTS.glob("reports/**/*.sql"))}
IN_FULL = "BINLAKE_CUT_OFF" in os.environ
SHARE = float(os.environ.get("BINLAKE_CUT_OFF", "0.34"))
"""Which part of the Delta commits ends a run."""
MOST: dict[Kind, int | None] = {"mysql": None, "mariadb": None} if IN_FULL else {"mysql": 2, "mariadb": 1}
"""How many runs of a sync are ended; all that can be in the soak."""
READERS: dict[Kind, Literal["jdbc", "direct"]] = {"mysql": "jdbc" if IN_FULL else "direct", "mariadb": "direct"}
ORDERS: dict[Kind, tuple[Merge, ...]] = {
    "mysql": MERGES if IN_FULL else ("rewrite", "mark", "spark"),
    "mariadb": MERGES if IN_FULL else ("rewrite", "mark"),
}
"""How the runs of a server's cases merge, in turn. On MySQL Spark merges what two runs left, on MariaDB what the
process leaves to it."""

Version = tuple[int, ...]


@dataclass
class Case:
    """parts[0] is snapshotted, each later part ends with a sync.

    servers: the lowest version of each kind that knows the statements; without any, every server does.
    refusal: the error of the statement that the server refused; nothing after it was run.
    """

    name: str
    parts: list[list[str]] = field(default_factory=lambda: [[]])
    has_snapshot: bool = False
    servers: dict[str, Version] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    expected: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    without: list[tuple[str, str, dict[str, Version]]] = field(default_factory=list)
    waits: str = ""
    refusal: str = ""

    @property
    def database(self) -> str:
        return "case_" + self.name.replace("/", "_")

    def is_known_to(self, kind: str, version: Version) -> bool:
        return _is_among(self.servers, kind, version)

    def columns_without(self, table: str, kind: str, version: Version) -> set[str]:
        return {column for of, column, servers in self.without if of == table and _is_among(servers, kind, version)}


def _is_among(servers: dict[str, Version], kind: str, version: Version) -> bool:
    return not servers or (kind in servers and version >= servers[kind])


def read_case(name: str, text: str) -> Case:
    case = Case(name)
    statement, fails = "", False
    for line in text.splitlines():
        if line.startswith("-- ") and not statement:
            word, _, rest = line.removeprefix("-- ").partition(" ")
            fails |= word == "fails"
            _read_comment(case, word, rest)
        elif line.strip():
            statement += line + "\n"
            if line.endswith(";"):
                case.parts[-1].append(statement.rstrip().removesuffix(";"))
                case.failing |= {case.parts[-1][-1]} if fails else set()
                statement, fails = "", False
    assert not statement, f"{name}: a statement without end"
    if not case.has_snapshot:
        case.parts.insert(0, [])
    return case


def _read_comment(case: Case, word: str, rest: str) -> None:
    """Take what a comment says of the case; one that begins with no word of ours is prose."""
    if word in ("snapshot", "sync") and not rest:
        case.has_snapshot |= word == "snapshot"
        case.parts.append([])
    elif word == "servers":
        case.servers = dict(_read_server(text) for text in rest.split(","))
    elif word == "report":
        case.reports.append(rest)
    elif word in ("resnapshot", "gone"):
        case.expected |= dict.fromkeys(rest.split(), word)
    elif word == "refused":
        table, _, case.reasons[table] = rest.partition(" ")
        case.expected[table] = "stopped"
    elif word == "waits":
        case.waits = rest
    elif word == "without":
        names, _, servers = rest.partition(" for ")
        known = dict(_read_server(text) for text in servers.split(",")) if servers else {}
        case.without += [(table, column, known) for table, column in (name.split(".") for name in names.split())]


def _read_server(text: str) -> tuple[str, Version]:
    """The kind and the lowest version in ``mariadb >= 10.7`` or ``mysql``."""
    kind, _, lowest = (part.strip() for part in text.partition(">="))
    assert kind in ("mysql", "mariadb"), f"{text!r} names no kind of server"
    return kind, _version(lowest or "0")


def _version(text: str) -> Version:
    return tuple(int(number) for number in text.partition("-")[0].split("."))


def cases(names: Iterable[str], server: Server) -> list[Case]:
    """Those of these names whose statements the server knows."""
    paths = CASES | REPORTS
    read = [read_case(name, paths[name].read_text(encoding="utf-8")) for name in names]
    version = _version(server.variable("version"))
    return [case for case in read if case.is_known_to(server.kind, version)]


def selected(items: Iterable[pytest.Item], kind: str) -> list[str]:
    """The names of the cases that are to be tested on a server."""
    asked = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return sorted(str(params["name"]) for params in asked if params.get("mirrored") == kind)


@dataclass
class Mirrored:
    """The selected cases of one server, carried through."""

    mirror: Mirror
    cases: dict[str, Case]


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def mirrored(
    request: pytest.FixtureRequest, shared_servers: SharedServers, spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mirrored]:  # fmt: skip
    server = shared_servers.of(request.param)
    by_name = {case.name: case for case in cases(selected(request.session.items, request.param), server)}
    folder = tmp_path_factory.mktemp(f"cases-{server.kind}")
    mirror = Mirror(server, "", folder, spark, include=["case_*.*"], exclude=["case_*.elsewhere*"])
    mirror.reader, mirror.merges = READERS[server.kind], ORDERS[server.kind]
    _run(server, list(by_name.values()), 0)
    mirror.follow_from_here()
    if any(case.has_snapshot for case in by_name.values()):
        mirror.snapshot()
    for part in range(1, max((len(case.parts) for case in by_name.values()), default=0)):
        _run(server, list(by_name.values()), part)
        mirror.sync_cut_off(random.Random(part), SHARE, MOST[server.kind])
    yield Mirrored(mirror, by_name)
    for case in by_name.values():
        server.execute(f"DROP DATABASE IF EXISTS {mysql_quote(case.database)}")


def _run(server: Server, chosen: list[Case], part: int) -> None:
    """Run this part of each case in a session of its own; one that the server refuses gets its refusal."""
    if part == 0:
        server.execute(*(f"CREATE DATABASE {mysql_quote(case.database)}" for case in chosen))
    for case in chosen:
        if part >= len(case.parts) or case.refusal:
            continue
        session = "SET sql_mode = 'STRICT_TRANS_TABLES'"
        with server.connect(database=case.database, init_command=session) as connection, connection.cursor() as cursor:
            for statement in case.parts[part]:
                error = _refusal(cursor, statement)
                if bool(error) != (statement in case.failing):
                    case.refusal = f"{case.name}: {statement}\n{error or 'does not fail'}"
                    break


def _refusal(cursor: pymysql.cursors.Cursor, statement: str) -> str:
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [*CASES, *REPORTS])
def test_the_lake_is_what_the_server_is(request: pytest.FixtureRequest, mirrored: Mirrored, name: str) -> None:
    case = mirrored.cases.get(name)
    if case is None:
        pytest.skip("this server doesn't know its statements")
    assert not case.refusal, case.refusal
    if case.waits:
        request.applymarker(pytest.mark.xfail(reason=case.waits, strict=False))
    mirror = mirrored.mirror
    rows = [row for row in mirror.metadata.read("watermarks") if row["database"] == case.database]
    living = {row["table"]: row for row in rows if row["status"] != "dropped"}
    reasons = {table: (row["status"], row["reason"]) for table, row in living.items() if row["status"] != "following"}
    expected = {table: "stopped" for table, what in case.expected.items() if what == "stopped"}
    assert {table: status for table, (status, _) in reasons.items()} == expected, reasons
    for table, words in case.reasons.items():
        assert words in reasons[table][1]
    gone = {table for table, what in case.expected.items() if what == "gone"}
    assert not gone & living.keys()
    with Source.open(mirror.endpoint) as source:
        listed = listed_tables.included_tables(source, mirror.config)
        names = {name.table for name in listed if name.database == case.database}
        assert names == living.keys(), "tables on the server, and those followed"
        for table in sorted(names - expected.keys()):
            path = mirror.config.table_path(TableName(case.database, table))
            version = _version(mirror.server.variable("version"))
            without = case.columns_without(table, mirror.server.kind, version)
            comparison.assert_equal(mirror.server, case.database, table, path, without=without)
            _assert_shape(mirror, source, TableName(case.database, table))
            _assert_old_versions_can_be_read(path)
    _assert_history(mirror, case)


def _assert_shape(mirror: Mirror, source: Source, name: TableName) -> None:
    """What DDL made of the shape is what information_schema shows, and the lake has the comments."""
    (life,) = [
        life for life in watermarks.read_lives(mirror.metadata) if life.name == name and life.status != "dropped"
    ]
    shown = read_schema(source, name)
    assert life.schema == shown
    comments = life.schema.commented_as(shown).lake_comments
    assert (life.schema.comment, life.schema.lake_comments) == (shown.comment, comments)
    lake = DeltaTable(mirror.config.table_path(name))
    fields = {field.name: field.metadata["comment"] for field in lake.schema().fields if "comment" in field.metadata}
    assert (lake.metadata().description or "", fields) == (shown.comment, comments)


def _assert_old_versions_can_be_read(path: str) -> None:
    for version in range(DeltaTable(path).version()):
        metadata.query(path, version=version)


def _assert_history(mirror: Mirror, case: Case) -> None:
    """Each statement is in the history once for each table it concerns; asked and stopped as expected."""
    rows = [row for row in mirror.metadata.read("ddl_history") if row["database"] == case.database]
    keys = [(row["file"], row["offset"], row["table"], row["kind"], row["before"]) for row in rows]
    assert len(keys) == len(set(keys))
    asked = {row["table"] for row in rows if row["action"] == "resnapshot asked"}
    assert asked == {table for table, what in case.expected.items() if what == "resnapshot"}
    for row in rows:
        _assert_row(row)


def _assert_row(row: dict[str, Any]) -> None:
    assert row["statement"]
    assert row["default_database"] == row["database"]
    if row["action"] in ("stopped", "resnapshot asked"):
        assert row["reason"].startswith(f"{row['file']}:{row['offset']}: ")
    for shape in (row["before"], row["after"]):
        if shape:
            loads(TableSchema, shape)


# -- the cases' own form -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, path in REPORTS.items() if path.parent.name == "reports"])
def test_a_report_has_its_address(name: str) -> None:
    case = read_case(name, REPORTS[name].read_text(encoding="utf-8"))
    assert case.reports
    assert all(address.startswith("https://") for address in case.reports)


def test_a_case_says_which_servers_know_it() -> None:
    case = read_case("a/b", "-- servers mysql >= 8.0.13, mariadb\nSELECT 1;\n")
    assert [case.is_known_to("mysql", version) for version in [(8, 0, 12), (8, 0, 13), (9, 7)]] == [False, True, True]
    assert case.is_known_to("mariadb", (10, 5))
    assert not read_case("a/b", "-- servers mysql\n").is_known_to("mariadb", (11, 8))
    assert read_case("a/b", "SELECT 1;\n").is_known_to("mariadb", (10, 5))


def test_a_case_says_which_columns_a_lake_lacks_for_which_servers() -> None:
    case = read_case("a/b", "-- without t.a t.b\n-- without t.c for mariadb >= 11.5\n")
    assert case.columns_without("t", "mariadb", (11, 4)) == case.columns_without("t", "mysql", (9, 7)) == {"a", "b"}
    assert case.columns_without("t", "mariadb", (11, 8)) == {"a", "b", "c"}


def test_a_refused_statement_fails_its_case_alone(server: Server) -> None:
    unknown = read_case(
        "form/unknown", "CREATE TABLE t (a INT);\nNO SUCH STATEMENT;\nCREATE TABLE u (a INT);\n-- sync\n"
    )
    allowed = read_case("form/allowed", "-- fails\nSELECT 1;\n")
    sound = read_case("form/sound", "-- fails\nNO SUCH STATEMENT;\nCREATE TABLE t (a INT);\n")
    chosen = [unknown, allowed, sound]
    try:
        _run(server, chosen, 0)
        _run(server, chosen, 1)
        assert unknown.refusal.startswith("form/unknown: NO SUCH STATEMENT\n(1064, ")
        assert allowed.refusal == "form/allowed: SELECT 1\ndoes not fail"
        assert not sound.refusal
        made = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE 'case\\_form%'"
        assert set(server.execute(made)) == {("case_form_unknown", "t"), ("case_form_sound", "t")}
    finally:
        server.execute(*(f"DROP DATABASE {case.database}" for case in chosen))
