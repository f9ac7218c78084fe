"""A process follows, and the lake is the server's at each of its batches: beside others, killed, taken over, ended."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.config import PipelineConfig
from binlake.interrupts import Ending
from binlake.lake.opened_lake import place_of
from binlake.lease import followers, lease
from binlake.lease.followers import FollowerStatus
from binlake.phases.follow import FollowPace
from binlake.records import feed_watermarks
from binlake.report import Report
from binlake.source.server import Source
from feeding import feed, lines
from mirror import Mirror, in_the_soak, sync_alone
from no_session import NoSession
from servers import die_with_parent
from writers import writing

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

TABLES = ("a", "b", "c")
MONEY = 3 * 5 * 100
FOLLOW = (sys.executable, "-m", "binlake.cli.command_line", "follow")
SECONDS = 60


class Followers:
    """Processes that follow a mirror's server."""

    def __init__(self, mirror: Mirror, folder: Path, life: ExitStack) -> None:
        self._yaml, self._folder, self._life = mirror.write_yaml(), folder, life
        self._environment = {**os.environ, "AIRFLOW_CONN_TESTS": mirror.server.uri(), "SPARK_MASTER": "local[2]"}

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        with open(self._folder / name, "wb") as said:
            process = subprocess.Popen(
                [*FOLLOW, "--config", str(self._yaml), "--every", "300ms", *options],
                env=self._environment, stdout=said, stderr=said, preexec_fn=die_with_parent,
            )  # fmt: skip
        self._life.callback(process.wait)
        self._life.callback(process.kill)
        return process

    def said(self, name: str) -> str:
        return (self._folder / name).read_text()


def until(is_so: Callable[[], Any]) -> float:
    """Wait until something is so; return the seconds that it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < SECONDS
        time.sleep(0.05)
    return time.monotonic() - began


def batch(mirror: Mirror) -> int:
    state = lease.read(mirror.metadata).recorded_state
    return state.batch if state else 0


def status(mirror: Mirror) -> FollowerStatus | None:
    return followers.read_status(mirror.metadata)


@contextmanager
def transfers(mirror: Mirror) -> Iterator[None]:
    """Money moves from table to table, while a row of another table comes and goes."""
    chance = random.Random(3)

    def work(cursor: Cursor, number: int) -> None:
        giver, taker = chance.sample(TABLES, 2)
        amount, account = chance.randrange(1, 50), chance.randrange(5)
        cursor.execute(f"UPDATE {giver} SET money = money - {amount} WHERE id = {account}")
        cursor.execute(f"UPDATE {taker} SET money = money + {amount} WHERE id = {account}")
        cursor.execute("REPLACE INTO other VALUES (%s, %s)", (number % 7, number))
        time.sleep(0.01)

    with writing(mirror, work):
        yield


@pytest.mark.parametrize("server", ["mysql", *in_the_soak("mariadb")], indirect=True)
def test_each_version_is_consistent_whoever_is_killed_or_works_beside(mirror: Mirror, tmp_path: Path) -> None:
    for table in TABLES:
        rows = ", ".join(f"({account}, 100)" for account in range(5))
        mirror.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, money INT)", f"INSERT INTO {table} VALUES {rows}")
    mirror.execute("CREATE TABLE other (id INT PRIMARY KEY, v INT)")
    feed(mirror, format={"type": "debezium", "topic": "all", "heartbeat": False}, begin="lake")
    mirror.snapshot()
    with ExitStack() as life:
        processes = Followers(mirror, tmp_path, life)
        with transfers(mirror):
            first = processes.start("first")
            until(lambda: batch(mirror) >= 2)
            second = processes.start("second")
            until(lambda: "waits to take over" in processes.said("second"))
            first.kill()
            killed_at = batch(mirror)
            assert until(lambda: batch(mirror) > killed_at) < 15
            assert "carried on" not in sync_alone(mirror)
            verified = pipeline.verify(mirror.config, mirror.origin, lambda _: mirror.spark, Report())
            assert verified.equal, verified.to_text()
            before = batch(mirror)
            until(lambda: batch(mirror) >= before + 2)
        until(lambda: stands_at_head(mirror))
        until(lambda: (now := status(mirror)) and now.behind_seconds is not None and now.behind_seconds < 1)
        until(lambda: feed_watermarks.statuses(mirror.config, mirror.metadata)[0].behind == 0)
        second.send_signal(signal.SIGTERM)
        assert second.wait(10) == 0
    assert status(mirror) is None
    mirror.assert_equal(*TABLES, "other")
    assert_consistent(mirror)
    assert_fed(mirror)


@dataclass
class EndAtHead:
    """Work beside a follower that lets it end where the lake is at the log's head."""

    mirror: Mirror
    ending: Ending

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        if stands_at_head(self.mirror):
            self.ending.ask()

    def end(self) -> None:
        """It has no thread."""


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_backlog_is_carried_in_batches_of_a_size(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, text MEDIUMTEXT)")
    mirror.snapshot()
    for number in range(20):
        mirror.execute(f"INSERT INTO a VALUES ({number}, REPEAT('{number % 10}', 30000))")
    mirror.options = {"follow": {"batch_mb": 0.1}}
    ending = Ending()
    until_head = EndAtHead(mirror, ending)
    pace = FollowPace(every=0.1, spark_idle=60, duration=SECONDS)
    followed = pipeline.follow(
        lambda: mirror.config, mirror.origin, NoSession(), Report(quiet=True), pace, ending, [until_head]
    )
    assert followed.batches == 5
    mirror.assert_equal("a")


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_table_that_stops_does_not_stop_the_others(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, day DATE)", "CREATE TABLE b (id INT PRIMARY KEY)")
    begin_alone(mirror)
    mirror.execute("SET sql_mode = ''", "INSERT INTO a VALUES (1, '0000-00-00')", "INSERT INTO b VALUES (1)")
    ending, said = Ending(), io.StringIO()
    pace = FollowPace(every=0.1, spark_idle=60, duration=SECONDS)
    later = iter(("INSERT INTO b VALUES (2)", "INSERT INTO a VALUES (2, NULL)", "INSERT INTO b VALUES (3)"))

    @dataclass
    class Changing(EndAtHead):
        def begin(self, config: PipelineConfig, batch: int | None) -> None:
            if stands_at_head(mirror) and (statement := next(later, "")):
                mirror.execute(statement)
            else:
                super().begin(config, batch)

    followed = pipeline.follow(
        lambda: mirror.config, mirror.origin, NoSession(), Report(said), pace, ending, [Changing(mirror, ending)]
    )
    assert followed.batches == 4
    mirror.assert_equal("b")
    assert mirror.watermark("a")["status"] == "stopped"
    assert said.getvalue().count(f"stopped: {mirror.database}.a: ") == 1


def assert_fed(mirror: Mirror) -> None:
    """The feed's messages, each once and in order, are what the tables became."""
    tables: dict[str, dict[int, Any]] = {}
    for line in filter(None, lines(mirror.folder / "out")):
        message = json.loads(line)
        rows = tables.setdefault(message["source"]["table"], {})
        for before in filter(None, [message["before"]]):
            assert rows.pop(before["id"]) == before
        for after in filter(None, [message["after"]]):
            assert after["id"] not in rows
            rows[after["id"]] = after
    with mirror.server.connect(database=mirror.database) as connection, connection.cursor() as cursor:
        for table in (*TABLES, "other"):
            cursor.execute(f"SELECT * FROM {table} ORDER BY id")
            wanted = sorted(tables[table].values(), key=lambda row: row["id"])
            assert [tuple(row.values()) for row in wanted] == list(cursor.fetchall())


def stands_at_head(mirror: Mirror) -> bool:
    position = lease.read(mirror.metadata).position
    with Source.open(mirror.endpoint) as source:
        return position is not None and (position.file, position.offset) == source.head()[:2]


def assert_consistent(mirror: Mirror) -> None:
    """Each version of the lake has all the money."""
    place = place_of(mirror.config)
    versions = place.versions()
    assert len(versions) >= 5
    names = ", ".join(f"(SELECT sum(money) FROM {mirror.database}.{table})" for table in TABLES)
    for version in versions:
        sums = place.at(batch=version.batch).sql(f"SELECT {names}").to_pylist()
        assert sum(sums[0].values()) == MONEY
