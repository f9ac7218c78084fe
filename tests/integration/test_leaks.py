"""Secrets in withheld columns, carried through all that binlake does with a table: nothing that is written or said by
anything shows one."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pymysql
import pytest

from binlake import faults, pipeline
from binlake.cli import command_line
from binlake.errors import BinlakeError
from binlake.faults import FaultPoint
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.phases.follow import FollowPace
from binlake.phases.replay import ReplayRequest
from binlake.phases.watch import watch
from binlake.report import Report
from binlake.store.rows import QuarantineRow
from binlake_airflow.page import app
from ended_followers import EndAtHead
from fake_registry import FakeRegistry
from feeding import carried, feed, kept
from mirror import Mirror, in_the_soak, sync_alone
from no_session import NoSession
from own_relay import SECRET, over_http
from planted_secrets import COLUMNS, NAMES, SECRETS, found_in, row, withheld
from servers import Server, die_with_parent
from without_spark import no_spark, put, repair, rows, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    caplog.set_level(logging.INFO, "py4j")  # each call of the JVM
    mirror = Mirror(server, database, lake, None, include=[f"{database}.*"], reader="direct")  # type: ignore[arg-type]
    mirror.options = {"columns": withheld(f"{database}.p*")}
    mirror.modes = [{"tables": f"{database}.people", "log": {}, "history": {}}]
    made = Watched(mirror)
    yield made
    with suppress(pymysql.MySQLError):
        server.execute("XA ROLLBACK 'leaks'")  # of a test that failed: the database couldn't be dropped
    made.said.write(caplog.text)
    made.assert_none_shown()


def make_tables(mirror: Mirror) -> None:
    for table in ("people", "pets"):
        mirror.execute(
            f"CREATE TABLE {table} ({COLUMNS})", f"INSERT INTO {table} ({NAMES}) VALUES ({row(10)}), ({row(11)})"
        )


def begin(watched: Watched) -> None:
    mirror = watched.mirror
    make_tables(mirror)
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


def page(mirror: Mirror) -> Iterator[str]:
    """What Airflow's page answers to somebody who may see all."""
    loaded, everyone = (mirror.write_yaml(), mirror.config), mock.Mock(**{"may_edit.return_value": True})
    for name in ("people", "pets"):
        table = f"{mirror.database}.{name}"
        yield body(app.one_table("tests", table, loaded, everyone, UTC))
        yield body(app.differing("tests", table, loaded, everyone))
    for answer in (app.tables, app.replays, app.feeds, app.events, app.newest_runs):
        yield body(answer(loaded))
    yield body(app.charts(loaded, UTC, "day"))
    for batch in range(1, lease.read(mirror.metadata).batch + 1):
        yield body(app.one_run(batch, loaded))


def body(answer: Any) -> str:
    return bytes(answer.body).decode()


@pytest.mark.parametrize("server", ["mysql", *in_the_soak("mariadb")], indirect=True)
def test_a_subscription_the_page_a_follower_and_the_quarantine(watched: Watched) -> None:
    mirror = watched.mirror
    begin(watched)
    feed(mirror)  # keeps staging
    wanted = {"schema": mirror.database, "table": "people", "operations": 7}
    asked = {"Authorization": f"Bearer {SECRET.decode()}"}
    with over_http(mirror.config) as (relay, client):
        registered = client.post("/clients", json={"name": "web", "filters": [wanted]}, headers=asked).json()
        mirror.execute(
            f"INSERT INTO people ({NAMES}) VALUES ({row(12)})", "DELETE FROM people WHERE id = 11",
            "UPDATE people SET token = 'zq13-is-the-token', plain = 'plain 13' WHERE id = 10",
        )  # fmt: skip
        watched.sync()
        relay.arrive()
        events = client.post("/poll?limit=9", headers={"Authorization": f"Bearer {registered['key']}"})
        assert len(events.json()["events"]) == 3
        relay.save()
        for answer in (events, client.get("/clients", headers=asked)):
            assert answer.status_code == 200
            watched.said.write(answer.text)
    mirror.execute(f"INSERT INTO pets ({NAMES}) VALUES ({row(14)})", "ALTER TABLE pets CHANGE token tok TEXT",
                   f"INSERT INTO pets ({NAMES.replace('token', 'tok')}) VALUES ({row(15)})")  # fmt: skip
    pace, ending = FollowPace(every=0.1, spark_idle=60, duration=120), Ending()
    followed = pipeline.follow(
        lambda: mirror.config, mirror.origin, NoSession(), Report(watched.said), pace, ending,
        [EndAtHead(mirror, ending)],
    )  # fmt: skip
    assert followed.batches
    assert "the column 'token', which the YAML masks" in QuarantineRow.read(mirror.metadata)[0].reason
    watched.said.write(repr(watch(mirror.config, mirror.origin)))
    for answer in page(mirror):
        watched.said.write(answer)
    log = feed(mirror, name="log", format="binlog", sink=f"binlog://{mirror.folder}/feed")
    with pytest.raises(BinlakeError) as refused:
        carried(mirror, log)
    watched.said.write(str(refused.value))


@pytest.mark.parametrize("server", ["mysql", *in_the_soak("mariadb")], indirect=True)
def test_a_snapshot_and_a_merge_by_spark(watched: Watched, spark: SparkSession) -> None:
    mirror = watched.mirror
    mirror.spark, mirror.reader, mirror.merges = spark, "jdbc", ("spark",)
    make_tables(mirror)
    mirror.snapshot()
    mirror.execute(
        f"INSERT INTO people ({NAMES}) VALUES ({row(12)})",
        "UPDATE people SET token = 'zq13-is-the-token', plain = 'plain 13' WHERE id = 10", "DELETE FROM pets",
    )  # fmt: skip
    mirror.sync()
    assert sorted(rows(mirror, "people")["plain"].to_pylist()) == ["plain 11", "plain 12", "plain 13"]
    assert rows(mirror, "pets").num_rows == 0


@pytest.mark.soak
@pytest.mark.parametrize("server", ["mysql", "mariadb"], indirect=True)
def test_what_spark_leaves_behind(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log of events and its folders, files in the folder for temporary ones, and arguments of processes."""
    mirror, folder = watched.mirror, Path(watched.mirror.folder)
    mirror.reader, mirror.options["merge"] = "jdbc", {"without_spark_mb": 0}
    for name in ("events", "local", "temporary", "settings"):
        (folder / name).mkdir()
    (folder / "settings" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{folder}/events\nspark.local.dir {folder}/local\n"
    )
    for name, value in {"SPARK_CONF_DIR": f"{folder}/settings", "TMPDIR": f"{folder}/temporary"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    make_tables(mirror)
    run_alone(watched, "snapshot")
    mirror.execute(f"INSERT INTO people ({NAMES}) VALUES ({row(12)})", "DELETE FROM pets")
    run_alone(watched, "sync")
    assert any((folder / "events").iterdir())
    assert sorted(rows(mirror, "people")["id"].to_pylist()) == [10, 11, 12]


def run_alone(watched: Watched, command: str) -> None:
    """Run a command in a process of its own, and note its arguments and those of processes that it begins."""
    folder, yaml = Path(watched.mirror.folder), str(watched.mirror.write_yaml())
    with (folder / f"said by {command}").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "binlake.cli.command_line", command, "--config", yaml],
            stdout=said, stderr=said, preexec_fn=die_with_parent,
        )  # fmt: skip
        while process.poll() is None:
            watched.said.write(arguments(process.pid))
            time.sleep(0.2)
    assert process.returncode == 0, (folder / f"said by {command}").read_text()


def arguments(of: int) -> str:
    """The arguments of a process and of those that it began."""
    read = ""
    with suppress(OSError):  # it has ended
        read = Path(f"/proc/{of}/cmdline").read_bytes().decode(errors="replace")
        for children in Path(f"/proc/{of}/task").glob("*/children"):
            read += "".join(arguments(int(child)) for child in children.read_text().split())
    return read


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
