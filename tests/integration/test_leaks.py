"""Secrets in withheld columns, carried through all that binlake does with a table: nothing that is written or said by
anything shows one. Nothing here starts Spark."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pymysql
import pytest

from binlake import faults, pipeline
from binlake.cli import command_line
from binlake.errors import BinlakeError
from binlake.faults import FaultPoint
from binlake.phases.replay import ReplayRequest
from binlake.report import Report
from fake_registry import FakeRegistry
from feeding import carried, feed, kept
from mirror import Mirror, in_the_soak, sync_alone
from planted_secrets import found_in
from servers import Server
from without_spark import no_spark, put, repair, rows, verify

COLUMNS = (
    "id INT PRIMARY KEY, email VARCHAR(80) DEFAULT 'zq01-in-a-default' COMMENT 'zq02-in-a-comment', phone VARCHAR(30),"
    " born DATE, card BIGINT, token TEXT, doc JSON, kind ENUM('a', 'zq03-in-members'), password VARBINARY(60),"
    " wide VARCHAR(60) CHARACTER SET utf16, plain VARCHAR(40), grade ENUM('a', 'zq04-in-members') DEFAULT 'a',"
    " tags SET('a', 'zq06-in-members'), loud VARCHAR(99) AS (CONCAT(email, 'zq09-in-a-formula')) STORED,"
    " known INT AS (password = 'zq00-in-a-formula') STORED, CHECK (email <> 'zq00-in-a-check')"
)
NAMES = "id, email, phone, born, card, token, doc, kind, password, wide, plain"


def row(number: int) -> str:
    """Values of a row whose secrets have its number, from 10 on."""
    return (
        f"{number}, 'zq{number}-email@mail', '555-zq{number}-1234', '1987-06-{number}', 918273645000{number},"
        f' \'zq{number}-is-the-token\', \'{{"k": {{"inner": "zq{number}-in-the-doc", "n": 1}}}}\', \'a\','
        f" 'zq{number}-is-the-password', 'zq{number}-is-wide-text', 'plain {number}'"
    )


def secrets() -> list[Any]:
    texts, numbers = [f"zq0{number}-in-" for number in range(10)], range(10, 21)
    for n in numbers:
        texts += [f"zq{n}-email", f"555-zq{n}", f"zq{n}-is-the-token", f"zq{n}-in-the-doc", f"zq{n}-is-the-password"]
        texts += [f"zq{n}-is-wide-text", f"1987-06-{n}", f"918273645000{n}"]
    return [*texts, *(date(1987, 6, n) for n in numbers), *(int(f"918273645000{n}") for n in numbers)]


SECRETS = secrets()


@dataclass
class Watched:
    """A mirror, and all that was said while it was worked with."""

    mirror: Mirror
    said: io.StringIO = field(default_factory=io.StringIO)

    def assert_none_shown(self) -> None:
        assert not found_in(Path(self.mirror.folder), SECRETS, self.said.getvalue())

    def sync(self) -> None:
        """Carry a batch, and look at what is staged before it is merged."""

        def look(reached: FaultPoint) -> None:
            if reached == "manifest written":
                assert not found_in(Path(self.mirror.config.staging_path("")), SECRETS)

        with mock.patch.object(faults, "at_point", look):
            self.said.write(sync_alone(self.mirror))

    def command(self, *words: str) -> None:
        """Run a command, which says something."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            command_line.run([*words, "--config", str(self.mirror.write_yaml())])
        assert said.getvalue(), words
        assert "usage: binlake" not in said.getvalue(), words
        self.said.write(said.getvalue())


@pytest.fixture
def watched(
    server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Watched]:
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "a key that nobody knows"}))
    caplog.set_level(logging.DEBUG)
    mirror = Mirror(server, database, lake, None, include=[f"{database}.*"], reader="direct")  # type: ignore[arg-type]
    hashed = {"hash": {"key": "pii_key", "length": 32}}
    mirror.options = {
        "columns": [
            {"columns": f"{database}.p*.email", **hashed}, {"columns": f"{database}.p*.card", **hashed},
            {"columns": f"{database}.p*.doc", **hashed}, {"columns": f"{database}.p*.wide", **hashed},
            {"columns": f"{database}.p*.phone", "mask": {"keep_last": 4}},
            {"columns": f"{database}.p*.born", "truncate": "year"}, {"columns": f"{database}.p*.token", "null": True},
            {"columns": f"{database}.p*.kind", "null": True}, {"columns": f"{database}.p*.password", "exclude": True},
            {"columns": f"{database}.p*.grade", **hashed}, {"columns": f"{database}.p*.tags", "exclude": True},
        ]
    }  # fmt: skip
    mirror.modes = [{"tables": f"{database}.people", "log": {}, "history": {}}]
    made = Watched(mirror)
    yield made
    with suppress(pymysql.MySQLError):
        server.execute("XA ROLLBACK 'leaks'")  # of a test that failed: the database couldn't be dropped
    made.said.write(caplog.text)
    made.assert_none_shown()


def begin(watched: Watched) -> None:
    mirror = watched.mirror
    for table in ("people", "pets"):
        mirror.execute(
            f"CREATE TABLE {table} ({COLUMNS})", f"INSERT INTO {table} ({NAMES}) VALUES ({row(10)}), ({row(11)})"
        )
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(watched.said))


@pytest.mark.parametrize("server", ["mysql", *in_the_soak("mariadb")], indirect=True)
def test_rows_statements_and_a_tools_copy(watched: Watched) -> None:
    mirror = watched.mirror
    begin(watched)
    feed(mirror)  # keeps staging
    mirror.execute(
        f"INSERT INTO people ({NAMES}) VALUES ({row(12)})", f"INSERT INTO pets ({NAMES}) VALUES ({row(12)})",
        "UPDATE people SET doc = JSON_SET(doc, '$.k.inner', 'zq13-in-the-doc') WHERE id = 10",
        "UPDATE people SET email = 'zq13-email@mail', card = 91827364500013 WHERE id = 11",
        "DELETE FROM pets WHERE id = 10",
        "XA START 'leaks'", f"INSERT INTO people ({NAMES}) VALUES ({row(14)})", "XA END 'leaks'", "XA PREPARE 'leaks'",
    )  # fmt: skip
    watched.sync()
    mirror.execute(
        "XA COMMIT 'leaks'",
        "ALTER TABLE people ADD later INT DEFAULT 5, ALTER email SET DEFAULT 'zq05-in-a-default'",
        "ALTER TABLE people MODIFY token TEXT FIRST",
        "ALTER TABLE pets MODIFY kind ENUM('a', 'zq03-in-members', 'c') COMMENT 'zq07-in-a-comment'",
        "CREATE TABLE _pets_gho LIKE pets", "ALTER TABLE _pets_gho ADD more INT DEFAULT 3",
        f"INSERT INTO _pets_gho ({NAMES}) SELECT {NAMES} FROM pets",
        f"INSERT INTO _pets_gho ({NAMES}) VALUES ({row(15)})",
        "RENAME TABLE pets TO _pets_del, _pets_gho TO pets", f"INSERT INTO pets ({NAMES}) VALUES ({row(16)})",
        "UPDATE _pets_del SET email = 'zq17-email@mail'", "DROP TABLE _pets_del",
        "SET SESSION binlog_format = 'STATEMENT'", "UPDATE pets SET email = 'zq18-email@mail' WHERE id = 11",
        "SET SESSION binlog_format = 'ROW'",
    )  # fmt: skip
    for _ in range(3):
        watched.sync()
    assert sorted(rows(mirror, "people")["id"].to_pylist()) == [10, 11, 12, 14]
    assert sorted(rows(mirror, "pets")["id"].to_pylist()) == [11, 12, 15, 16], "it was copied again"
    assert verify(mirror).equal
    wrong = rows(mirror, "people")
    put(
        mirror, "people", pa.Table.from_pylist([{**each, "email": "wrong"} for each in wrong.to_pylist()], wrong.schema)
    )
    assert not verify(mirror).equal
    watched.command("verify", "--json")
    repair(mirror)
    assert verify(mirror).equal
    with suppress(BinlakeError):
        pipeline.replay(mirror.config, no_spark, Report(watched.said), ReplayRequest([f"{mirror.database}.people"]))
    mirror.execute(
        "ALTER TABLE people CHANGE token tok TEXT", "UPDATE people SET tok = 'zq19-is-the-token'",
        "ALTER TABLE people ALTER COLUMN plain SET DEFAULT 'plain', MODIFY tok VARCHAR(90) DEFAULT 'zq08-in-a-default'",
        "RENAME TABLE pets TO other", f"INSERT INTO other ({NAMES}) VALUES ({row(20)})",
    )  # fmt: skip
    watched.sync()
    assert [mirror.watermark(name)["status"] for name in ("people", "other")] == ["stopped", "stopped"]
    for words in (
        ["status", "--json"], ["status"], ["verify"], ["metrics", "--by-table"], ["dictionary"], ["doctor"],
        ["history", "--json"], ["history"],
    ):  # fmt: skip
        watched.command(*words)


@pytest.mark.parametrize("server", ["mariadb", *in_the_soak("mysql")], indirect=True)
def test_feeds_of_each_format(watched: Watched) -> None:
    mirror = watched.mirror
    begin(watched)
    sent = feed(mirror)
    mirror.execute(
        f"INSERT INTO people ({NAMES}) VALUES ({row(12)})",
        "UPDATE people SET token = 'zq13-is-the-token' WHERE id = 10",
        "ALTER TABLE people ALTER email SET DEFAULT 'zq05-in-a-default'", "DELETE FROM people WHERE id = 11",
    )  # fmt: skip
    watched.sync()
    carried(mirror, sent)
    with FakeRegistry() as registry:
        for kind in (
            {"type": "text"}, {"type": "csv"}, {"type": "debezium"}, {"type": "debezium", "schemas": True},
            {"type": "debezium", "encoding": "avro", "registry": registry.url}, {"type": "generic"},
            {"type": "specific", "registry": registry.url},
        ):  # fmt: skip
            name = f"out{kind}".translate(str.maketrans("", "", "{}': /.,"))[:40]
            messages = kept(mirror, feed(mirror, name=name, format=kind))
            assert messages, kind
            watched.said.write(repr([(each.key, each.value) for each in messages]))
            for each in messages:
                (Path(mirror.folder) / "sent").open("ab").write((each.key or b"") + (each.value or b""))
        watched.said.write(repr(registry.schemas))
