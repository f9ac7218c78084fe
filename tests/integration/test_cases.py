"""tests/cases: what a schema change does, from the server's log to the lake.

A case is a file ``{family}/{name}.sql`` of statements in the order of the log, each ended by ``;`` at the end of its
line. Comments of one line say the rest:

    -- snapshot           what stands above is in the bootstrap's snapshot, what follows comes by the log
    -- sync               the lake is brought to here, then the case goes on
    -- only mysql         or mariadb
    -- fails              the next statement does
    -- resnapshot t       at the end a new snapshot of t has been asked and taken
    -- stopped t          or the table stopped
    -- gone t             no table of this name is mirrored any more
    -- without t.c        the lake goes without this column

The selected cases of a server are mirrored together, each in a database of its own: ``pytest -k NAME`` carries that
one alone. Merges are cut off after some of their Delta commits, and begun again: after every single one with
BINLAKE_CUT_OFF=1 (make soak), else once for each sync, each table after one of three. So each case proves as well
that a kill between two of its epochs does no harm.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import comparison
from binlake.names import mysql_quote
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.source import catalog
from binlake.source.server import Source
from binlake.state import metadata, watermarks
from mirror import Mirror
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2400)  # the first case of a server waits for all of them
CASES = Path(__file__).parents[1] / "cases"
SHARE, MOST = (float(os.environ["BINLAKE_CUT_OFF"]), None) if "BINLAKE_CUT_OFF" in os.environ else (0.34, 1)
"""Which part of the Delta commits ends a run, and how many runs of a sync are ended."""


@dataclass
class Case:
    """parts[0] is snapshotted, each later part ends with a sync."""

    name: str
    parts: list[list[str]] = field(default_factory=lambda: [[]])
    has_snapshot: bool = False
    only: str = ""
    failing: set[str] = field(default_factory=set)
    expected: dict[str, str] = field(default_factory=dict)
    without: set[tuple[str, str]] = field(default_factory=set)

    @property
    def database(self) -> str:
        return "case_" + self.name.replace("/", "_")


def read_case(path: Path) -> Case:
    case = Case(f"{path.parent.name}/{path.stem}")
    statement, fails = "", False
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, rest = (
            line.removeprefix("-- ").partition(" ") if line.startswith("-- ") and not statement else ("", "", "")
        )
        if word in ("snapshot", "sync"):
            case.has_snapshot |= word == "snapshot"
            case.parts.append([])
        elif word == "only":
            case.only = rest
        elif word == "fails":
            fails = True
        elif word in ("resnapshot", "stopped", "gone"):
            case.expected |= dict.fromkeys(rest.split(), word)
        elif word == "without":
            case.without |= {(table, column) for table, _, column in (one.partition(".") for one in rest.split())}
        elif not word and line.strip():
            statement += line + "\n"
            if line.endswith(";"):
                case.parts[-1].append(statement.rstrip().removesuffix(";"))
                case.failing |= {case.parts[-1][-1]} if fails else set()
                statement, fails = "", False
    assert not statement, f"{path}: a statement without end"
    if not case.has_snapshot:
        case.parts.insert(0, [])
    return case


def cases(names: Iterable[str], kind: str) -> list[Case]:
    found = [read_case(CASES / f"{name}.sql") for name in names]
    return [case for case in found if case.only in ("", kind)]


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
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    found = {case.name: case for case in cases(selected(request.session.items, request.param), server.kind)}
    folder = tmp_path_factory.mktemp(f"cases-{server.kind}")
    mirror = Mirror(server, "", folder, spark, include=["case_*.*"], exclude=["case_*.elsewhere*"])
    _run(server, list(found.values()), 0)
    mirror.follow_from_here()
    if any(case.has_snapshot for case in found.values()):
        mirror.snapshot()
    for part in range(1, max((len(case.parts) for case in found.values()), default=0)):
        _run(server, list(found.values()), part)
        mirror.sync_cut_off(random.Random(part), SHARE, MOST)
    yield Mirrored(mirror, found)
    for case in found.values():
        server.execute(f"DROP DATABASE IF EXISTS {mysql_quote(case.database)}")


def _run(server: Server, chosen: list[Case], part: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for case in chosen:
            if part == 0:
                cursor.execute(f"CREATE DATABASE {mysql_quote(case.database)}")
            if part >= len(case.parts):
                continue
            cursor.execute(
                "SET sql_mode = 'STRICT_TRANS_TABLES', time_zone = DEFAULT, timestamp = DEFAULT,"
                " explicit_defaults_for_timestamp = DEFAULT"
            )
            cursor.execute(f"USE {mysql_quote(case.database)}")
            for statement in case.parts[part]:
                try:
                    cursor.execute(statement)
                except Exception as error:
                    if statement not in case.failing:
                        raise AssertionError(f"{case.name}: {statement}\n{error}") from error
                else:
                    assert statement not in case.failing, f"{case.name}: {statement} doesn't fail"


def _case_ids() -> list[str]:
    return [f"{path.parent.name}/{path.stem}" for path in sorted(CASES.glob("*/*.sql"))]


@pytest.mark.parametrize("name", _case_ids())
def test_the_lake_is_what_the_server_is(mirrored: Mirrored, name: str) -> None:
    case = mirrored.cases.get(name)
    if case is None:
        pytest.skip("a case of the other server")
    mirror = mirrored.mirror
    rows = [row for row in mirror.metadata.read("watermarks") if row["database"] == case.database]
    living = {row["table"]: row for row in rows if row["status"] != "dropped"}
    reasons = {table: (row["status"], row["reason"]) for table, row in living.items() if row["status"] != "following"}
    expected = {table: "stopped" for table, what in case.expected.items() if what == "stopped"}
    assert {table: status for table, (status, _) in reasons.items()} == expected, reasons
    gone = {table for table, what in case.expected.items() if what == "gone"}
    assert not gone & living.keys()
    with Source.open(mirror.endpoint) as source:
        listed = catalog.included_tables(source, mirror.config)
        names = {found.table for found in listed if found.database == case.database}
        assert names == living.keys(), "tables on the server, and those followed"
        for table in sorted(names - expected.keys()):
            path = mirror.config.table_path(TableName(case.database, table))
            without = {column for of, column in case.without if of == table}
            comparison.assert_equal(mirror.server, case.database, table, path, without=without)
            _assert_shape(mirror, source, TableName(case.database, table))
            _assert_old_versions_can_be_read(path)
    _assert_history(mirror, case)


def _assert_shape(mirror: Mirror, source: Source, name: TableName) -> None:
    """What DDL made of the shape is what information_schema shows."""
    (life,) = [
        life for life in watermarks.read_lives(mirror.metadata) if life.name == name and life.status != "dropped"
    ]
    assert life.schema == catalog.read_schema(source, name)


def _assert_old_versions_can_be_read(path: str) -> None:
    for version in range(DeltaTable(path).version()):
        metadata.query(path, version=version)


def _assert_history(mirror: Mirror, case: Case) -> None:
    """Each statement stands in the history once for each table it concerns; asked and stopped as expected."""
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
