"""A server with a few tables and their lake, on which operations happen: the command line works in this process, as an
account with the grants that the project gives, and may not start Spark."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pyarrow as pa
import pymysql
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

import comparison
from binlake import config as configuration
from binlake.cli import command_line
from binlake.delta import checkpoints, opened_tables
from binlake.names import mysql_quote
from binlake.schema.table import TableName
from binlake.source import lineage, read_lock
from binlake.spark import session
from binlake.store import known_files, plain_rows
from servers import Kind, Server

DATABASES = ("shop", "crm")
HISTORY, LOG = "crm.people", "shop.items"
"""Tables that have a history and a log beside their mirror."""
TABLES = {
    "shop.orders": "id INT PRIMARY KEY, customer VARCHAR(30), amount DECIMAL(10,2), secret TEXT, placed DATETIME",
    "shop.items": "id INT, line INT, item VARCHAR(30), PRIMARY KEY (id, line)",
    "shop.visits": "id INT, page VARCHAR(30)",
    "shop.parts": "id INT PRIMARY KEY, part VARCHAR(30) PARTITIONED",
    "crm.people": "id INT PRIMARY KEY, email VARCHAR(30), note TEXT",
    "crm.Ödd table": "id VARCHAR(30) PRIMARY KEY, n BIGINT",
}
PARTITIONS = (
    "PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (40), PARTITION middle VALUES LESS THAN (90),"
    " PARTITION high VALUES LESS THAN MAXVALUE)"
)
ACCOUNT = "'binlake'@'%'"
SQL = Path(__file__).parents[2] / "sql"


class Difference(AssertionError):
    """The lake isn't the server's equal, though a command said that all is well; or no remedy helped."""


@dataclass(frozen=True)
class Ran:
    """A command that ran. said: what it printed, errors as well."""

    arguments: tuple[str, ...]
    code: int
    said: str

    @property
    def is_well(self) -> bool:
        return self.code == 0 and not re.search(r"^\s*→", self.said, re.M)

    def __str__(self) -> str:
        return f"binlake {' '.join(self.arguments)} ended with {self.code}:\n{self.said}"


class OperatedSource:
    """One lake of a server that may be replaced by another, as replicas are promoted.

    server: the one behind the connection. log: what was done since the last proof, for whoever reads a difference.
    """

    def __init__(self, kind: Kind, release: str, chance: random.Random) -> None:
        self.kind, self.release, self.random = kind, release, chance
        self.log: list[str] = []
        self.password = "x"
        self._life = ExitStack()
        self.writes_to: Server | None = None
        """Another server, whose writes reach this one."""
        self.comes_to: Callable[[], object] = lambda: None
        """Waits until they have."""
        self.is_unseen = False
        """Whether only a comparison can see what the operation did."""
        self._effect: Iterator[None] = iter(())
        self._number = 0
        self._servers = 0

    def __enter__(self) -> OperatedSource:
        try:
            self._begin()
        except BaseException:
            self._life.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._life.close()

    def _begin(self) -> None:
        self.folder = Path(self._life.enter_context(tempfile.TemporaryDirectory(prefix="binlake-operated-")))
        self._life.enter_context(mock.patch.object(session, "build", _no_spark))
        self._life.enter_context(mock.patch.object(lineage, "_PATIENCE", 1))
        self._life.enter_context(mock.patch.object(read_lock, "_LONGEST_PAUSE", 1.0))
        self.server = self.new_server()
        self.server.execute(*(f"CREATE DATABASE {name} CHARACTER SET utf8mb4" for name in DATABASES))
        for table, columns in TABLES.items():
            partitions = f" {PARTITIONS}" if "PARTITIONED" in columns else ""
            self.server.execute(f"CREATE TABLE {quoted(table)} ({columns.replace(' PARTITIONED', '')}){partitions}")
        self.server.execute(f"CREATE USER {ACCOUNT} IDENTIFIED BY '{self.password}'")
        self.grant()
        self._write_yaml()
        self.write(30)
        self.expect("snapshot")
        self.write()
        self.expect("sync")
        self.assert_equal()

    def _write_yaml(self) -> None:
        self.yaml = self.folder / "source.yaml"
        modes = [{"tables": HISTORY, "history": {}}, {"tables": LOG, "log": {}}]
        settings = {
            "source": {"name": "operated", "connection": "operated", "server_id": 7600},
            "tables": {"include": [f"{name}.*" for name in DATABASES], "modes": modes},
            "lake": {"path": str(self.folder / "lake")},
            "snapshot": {"reader": "direct"},
            "merge": {"without_spark_mb": 64},
            "verify": {"by": "read"},
        }
        (self.folder / "lake").mkdir()
        self.yaml.write_text(json.dumps(settings))  # JSON is YAML

    # servers ---------------------------------------------------------------------------------------------------------

    def new_server(self, datadir: Path | None = None, **settings: Any) -> Server:
        """Start another server of the same release, which ends with this source."""
        self._servers += 1
        server = Server(self.kind, datadir, release=self.release, **{"server_id": self._servers, **settings})
        self._life.callback(server.close)
        return server.start()

    def point_at(self, server: Server) -> None:
        """Let the connection lead to another server."""
        self.log.append(f"the connection leads to server {server.settings['server_id']}")
        self.server = server

    def grant(self) -> None:
        """Give the account what the project's grants give."""
        text = re.sub(r"^--.*", "", (SQL / f"grants_{self.kind}.sql").read_text(), flags=re.M)
        for statement in filter(None, map(str.strip, text.split(";"))):
            for database in DATABASES if "`shop`" in statement else ("",):
                self.server.execute(statement.replace("`shop`", f"`{database}`"))

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        self.log += [statement[:200] for statement in statements]
        return self.server.execute(*statements)

    def logging(self, *, is_on: bool) -> dict[str, bool]:
        """Return the setting by which a replica logs what it applies."""
        return {"log_replica_updates" if self.kind == "mysql" else "log_slave_updates": is_on}

    # operations ------------------------------------------------------------------------------------------------------

    def begin_operation(self, effect: Iterator[None]) -> None:
        self._effect = effect
        self.is_unseen = False
        next(effect)

    def end_operation(self) -> None:
        """End what is in effect, if it still is."""
        for _ in self._effect:
            raise AssertionError("an operation yields once")

    @property
    def backup(self) -> Path:
        """Return the folder of a copy of the metadata that an operation made before it damaged them."""
        return self.folder / "backup of metadata"

    def number(self) -> int:
        """Return a number that was never given out."""
        self._number += 1
        return self._number

    # rows ------------------------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Return the tables that the lake is to have, as the server names them."""
        listed = ", ".join(f"'{name}'" for name in DATABASES)
        rows = self.server.execute(
            "SELECT table_schema, table_name FROM information_schema.tables"
            f" WHERE table_type = 'BASE TABLE' AND table_schema IN ({listed}) ORDER BY 1, 2"
        )
        return [f"{database}.{table}" for database, table in rows]

    def write(self, count: int = 6, *, server: Server | None = None) -> None:
        """Insert, change and delete rows of all tables, in transactions of random length."""
        where = server or self.writes_to or self.server
        for table in self.tables():
            where.execute(*self._changes(table, count))
        self.log.append(f"rows of all tables change on server {where.settings['server_id']}")
        if where is self.writes_to:
            self.comes_to()

    def _changes(self, table: str, count: int) -> Iterator[str]:
        place, chance, columns = quoted(table), self.random, self.columns(table)
        is_text = columns.pop("id") == "varchar"
        yield "BEGIN"
        for _ in range(chance.randint(1, count)):
            key = self.number()
            values = [f"'key {key}'" if is_text else str(key), *map(self._value, columns.values())]
            yield f"INSERT INTO {place} ({', '.join(map(mysql_quote, ['id', *columns]))}) VALUES ({', '.join(values)})"
            if chance.random() < 0.2:
                yield "COMMIT"
                yield "BEGIN"
        by, column = "CRC32(id)" if is_text else "id", chance.choice([*columns])
        some = f"{by} % {chance.randint(2, 5)} = {chance.randint(0, 1)}"
        yield f"UPDATE {place} SET {mysql_quote(column)} = {self._value(columns[column])} WHERE {some}"
        yield f"DELETE FROM {place} WHERE {by} % {chance.randint(5, 9)} = 1"
        yield "COMMIT"

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns that can be written, and the type of each."""
        database, _, name = table.partition(".")
        rows = self.server.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE COALESCE(generation_expression, '') = ''"
            f" AND table_schema = '{database}' AND table_name = '{name}' ORDER BY ordinal_position"
        )
        return {column: str(kind).lower() for column, kind in rows}

    def _value(self, kind: str) -> str:
        chance = self.random
        if kind in ("int", "bigint"):
            return str(chance.randint(-(2**31), 2**31 - 1))
        if kind == "decimal":
            return f"{chance.randint(0, 10**6)}.{chance.randint(0, 99):02d}"
        if kind == "datetime":
            return f"'20{chance.randint(10, 30)}-0{chance.randint(1, 9)}-11 10:00:{chance.randint(0, 59):02d}'"
        return f"'{''.join(chance.choice('abcä漢 ') for _ in range(chance.randint(0, 9)))}x'"

    # commands --------------------------------------------------------------------------------------------------------

    def run(self, *arguments: str) -> Ran:
        """Run a command of the command line. Raises Difference for an unexpected error."""
        if self.random.random() < 0.7:
            forget_what_is_in_memory()  # as a new process; else as one that continues
        out = io.StringIO()
        environment = {
            "AIRFLOW_CONN_OPERATED": self.server.uri("binlake", self.password),
            "XDG_STATE_HOME": str(self.folder),
        }
        verbs = 2 if arguments[0] in ("table", "versions") else 1
        given = [*arguments[:verbs], "--config", str(self.yaml), *arguments[verbs:]]
        with (
            mock.patch.dict("os.environ", environment),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            try:
                code = command_line.run(given)
            except SystemExit as ended:
                code = int(ended.code or 0)
        ran = Ran(arguments, code, out.getvalue())
        self.log.append(f"binlake {' '.join(arguments)}: {code}")
        self.log += [f"    {line[:300]}" for line in ran.said.split("\n") if line.startswith(("binlake: ", "  →"))]
        if "Spark was asked for" in ran.said and arguments[0] == "maintain":
            return Ran(arguments, 0, "")  # some upkeep is Spark's; a run that is cut off there is a part of the course
        if "binlake: unexpected" in ran.said or "Spark was asked for" in ran.said:
            raise Difference(str(ran))
        return ran

    def expect(self, *arguments: str) -> Ran:
        """Run a command that must succeed. Raises Difference."""
        ran = self.run(*arguments)
        if ran.code:
            raise Difference(str(ran))
        return ran

    def status(self) -> dict[str, Any]:
        ran = self.run("status", "--json")
        if ran.code:
            return {"tables": [], "poison": [], "beside": [], "said": ran.said}
        answer: dict[str, Any] = json.loads(ran.said[ran.said.index("{") :])
        return answer

    # the lake --------------------------------------------------------------------------------------------------------

    def path(self, table: str) -> Path:
        """Return the folder of a table in the lake."""
        database, _, name = table.partition(".")
        return Path(configuration.load(self.yaml).table_path(TableName(database, name)))

    @property
    def metadata(self) -> Path:
        """Return the folder of the metadata tables."""
        return Path(configuration.load(self.yaml).metadata_path("lease")).parent

    def assert_equal(self, *, following: bool = True, with_history: bool = False) -> int:
        """Compare the tables with the server's, by what shares no code with the engine. Return the rows.

        following: all must follow the log; else those are compared of which status says so. with_history: compare the
        history's current rows, too; a snapshot's are there with the next batch. Raises Difference.
        """
        tables, status = self.tables(), self.status()
        good = [row["table"] for row in status["tables"] if row["status"] == "following" and not row.get("problem")]
        not_following = [problem["table"] for problem in status["beside"]]
        if following and (wrong := [*sorted({*tables} - {*good}), *not_following]):
            raise Difference(f"these don't follow the log: {wrong}\n{self.run('status').said}")
        try:
            if with_history:
                self._compare_history()
            return sum(self._compare(table) for table in tables if table in good)
        except (AssertionError, DeltaError) as error:
            raise Difference(f"{type(error).__name__}: {error}") from error

    def _compare(self, table: str) -> int:
        database, _, name = table.partition(".")
        return comparison.assert_equal(self.server, database, name, str(self.path(table)))

    def _compare_history(self) -> None:
        """Compare the current rows of the history with the server's."""
        database, _, name = HISTORY.partition(".")
        columns, rows = comparison.read_server(self.server, database, name)
        history = DeltaTable(f"{self.path(HISTORY)}__history")
        query = "SELECT * FROM history WHERE is_current"
        current = pa.table(QueryBuilder().register("history", history).execute(query).read_all())
        lake = Counter(comparison.comparable(columns, current))
        source = Counter(rows)
        assert lake == source, (
            f"{(lake - source).total()} rows are current in the history alone, {(source - lake).total()} on the server"
        )


def quoted(table: str) -> str:
    database, _, name = table.partition(".")
    return f"{mysql_quote(database)}.{mysql_quote(name)}"


def forget_what_is_in_memory() -> None:
    """Let the next command find what a new process finds."""
    kept: list[Any] = [
        known_files._known, plain_rows._answers, plain_rows._kept, opened_tables._lent, opened_tables._logs,
        checkpoints._by_deltalake,
    ]  # fmt: skip
    for each in kept:
        each.clear()


def _no_spark(*_: object, **__: object) -> NoReturn:
    raise AssertionError("Spark was asked for")


@contextlib.contextmanager
def session_that(server: Server, *statements: str, user: str = "root") -> Iterator[Callable[[], None]]:
    """Hold what statements take in a session of its own; yields what ends it."""
    connection = server.connect(user=user, autocommit=False)
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)

    def end() -> None:
        with suppress(pymysql.err.MySQLError):
            connection.close()

    try:
        yield end
    finally:
        end()


def copy_folder(origin: Path, target: Path) -> None:
    """Put a copy of a folder in the place of another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(origin, target, symlinks=True)
