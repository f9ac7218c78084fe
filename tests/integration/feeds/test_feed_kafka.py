"""Feeds into a real broker: each mutation once for a reader of committed messages, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake import faults
from binlake.cli import command_line
from binlake.config.feed_config import SinkConfig
from binlake.delta import data_rows
from binlake.errors import SinkFailed
from binlake.faults import FaultPoint
from binlake.feeds import outlet as carrying
from binlake.feeds.contract import Message
from binlake.feeds.sinks.kafka import KafkaSink
from binlake.merge import merge
from binlake.planner.steps import TableOutcome
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedPosition
from broker import Broker, payloads
from fake_registry import FakeRegistry
from feeding import carried, feed
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from collections.abc import Iterator


KILLED = Path(__file__).parents[2] / "faults" / "killed.py"
POINTS: tuple[FaultPoint, ...] = ("feed sent", "feed flushed", "sink committed", "feed committed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def killed(mirror: Mirror, point: FaultPoint, count: int) -> None:
    command = [sys.executable, str(KILLED), point, str(count), "feed", "--config", str(mirror.write_yaml())]
    died = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr


def to_kafka(mirror: Mirror, broker: Broker, topic: str, **settings: Any) -> Any:
    made = {"type": "debezium", "topic": topic, "schema_changes": False, "heartbeat": False}
    return feed(mirror, name=topic, format=made, sink={"url": f"kafka://{broker.address}"}, **settings)


@on_mysql
def test_kill_9_at_any_point_and_each_mutation_stands_once_in_order(mirror: Mirror, broker: Broker) -> None:
    config = to_kafka(mirror, broker, "killed")
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
    for number in range(1, 13):
        mirror.execute("BEGIN", *(f"UPDATE t SET v = {number} WHERE id = {key}" for key in (1, 2, 3)), "COMMIT")
        mirror.sync()
    for point in POINTS:
        killed(mirror, point, 2)
    carried(mirror, config)
    messages = broker.read("killed")
    assert len(messages) == 3 * 13
    by_key: dict[int, list[int]] = defaultdict(list)
    for payload in payloads(messages):
        by_key[payload["after"]["id"]].append(payload["after"]["v"])
    assert by_key == {key: list(range(13)) for key in (1, 2, 3)}
    assert len(broker.read("killed", committed=False)) > len(messages), "a killed run had sent what was taken back"


@on_mariadb
def test_cut_off_between_commits_of_one_batch(mirror: Mirror, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "COMMIT_EVERY", 5)
    config = to_kafka(mirror, broker, "cut_off")
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", *(f"INSERT INTO t VALUES ({n}), ({n + 100})" for n in range(30))
    )
    mirror.sync()
    for point in POINTS:
        with mirror.cut_off_at(point):
            carried(mirror, config)
    carried(mirror, config)
    assert sorted(payload["after"]["id"] for payload in payloads(broker.read("cut_off"))) == [
        *range(30),
        *range(100, 130),
    ]


@on_mysql
def test_what_the_broker_refuses_is_told_and_the_feed_goes_on_later(mirror: Mirror, broker: Broker) -> None:
    config = to_kafka(mirror, broker, "refused")
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", "INSERT INTO t VALUES (1, REPEAT('x', 3000000))")
    mirror.sync()
    with pytest.raises(SinkFailed, match=r"refused a message to refused"):
        carried(mirror, config)
    (status,) = feed_watermarks.statuses(mirror.config, mirror.metadata)
    assert (status.status, status.behind) == ("stopped", 1)
    assert "message.max.bytes" in status.remedy
    mirror.execute("INSERT INTO t VALUES (2, 'y')")
    mirror.sync()
    config = to_kafka(mirror, broker, "refused", errors={"quit_on_listener_failure": False})
    assert carried(mirror, config).mutations == 2
    assert [payload["after"]["id"] for payload in payloads(broker.read("refused"))] == [2]
    (status,) = feed_watermarks.statuses(mirror.config, mirror.metadata)
    assert (status.left_out, "refused a message" in status.last_left_out) == (1, True)


@on_mysql
def test_a_message_that_the_broker_refuses_is_left_out_and_each_other_stands_once(
    mirror: Mirror, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One over its topic's limit, and one without a key to a compacted topic. Others go in the same request."""
    monkeypatch.setattr(carrying, "CAREFULLY_EVERY", 40)
    broker.make_topic("t_picky", **{"max.message.bytes": "2000"})
    broker.make_topic("n_picky", **{"cleanup.policy": "compact"})
    settings = {"topic": "${table}_picky", "schema_changes": False, "heartbeat": False, "type": "debezium"}
    sink = f"kafka://{broker.address}"
    config = feed(mirror, name="picky", format=settings, sink=sink)
    mirror.follow_from_here()
    large, ids = (5, 6, 57), range(1, 121)
    values = {number: os.urandom(1500 if number in large else 5).hex() for number in ids}
    rows = [f"INSERT INTO t VALUES ({number}, '{value}')" for number, value in values.items()]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE n (id INT)")
    mirror.execute(*rows[:3], "BEGIN", *rows[3:8], "COMMIT", *rows[8:20], "INSERT INTO n VALUES (1)", *rows[20:])
    mirror.sync()
    with pytest.raises(SinkFailed, match=r"refused a message to (t_picky: .*too large|n_picky: .*validate)") as caught:
        carried(mirror, config)
    assert "max.message.bytes" in caught.value.remedy
    assert "quit_on_listener_failure" in caught.value.remedy
    assert broker.read("t_picky") == []
    (stopped,) = feed_watermarks.statuses(mirror.config, mirror.metadata)
    assert (stopped.status, stopped.behind) == ("stopped", 1)
    errors = {"quit_on_listener_failure": False}
    config = feed(mirror, name="picky", format=settings, sink=sink, errors=errors)
    run = carried(mirror, config)
    assert (run.mutations, run.messages) == (121, 117)
    assert [payload["after"]["id"] for payload in payloads(broker.read("t_picky"))] == [
        payload for payload in ids if payload not in large
    ]
    assert broker.read("n_picky") == []
    (status,) = feed_watermarks.statuses(mirror.config, mirror.metadata)
    assert status.left_out == 4
    assert "t_picky" in run.message
    assert "n_picky" in run.message
    mirror.execute("INSERT INTO t VALUES (121, 'x')")
    mirror.sync()
    assert carried(mirror, config).messages == 1
    assert len(broker.read("t_picky")) == 118


def test_a_transaction_that_takes_longer_than_the_broker_lets_it_is_told(broker: Broker) -> None:
    settings: dict[str, Any] = {"transaction.timeout.ms": 1000}
    sink = KafkaSink(SinkConfig(url=f"kafka://{broker.address}", settings=settings), "tests/slow")
    sink.begin()
    sink.send([Message("slow", None, b"taken back")])
    sink._producer.flush(5)
    deadline = time.monotonic() + 60
    while not broker.committed("slow"):  # the mark that takes it back counts, too
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(SinkFailed, match="wasn't done within 1 s") as caught:
        sink.commit(FeedPosition(1))
    assert "raise transaction.timeout.ms" in caught.value.remedy
    sink.close()
    again = KafkaSink(SinkConfig(url=f"kafka://{broker.address}"), "tests/slow")
    assert again.position() is None
    again.close()
    assert not broker.read("slow")


@on_mysql
def test_a_broker_that_isnt_there_is_told(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    from binlake.feeds.sinks import kafka

    monkeypatch.setattr(kafka, "_PATIENCE", 4.0)
    config = feed(mirror, format="debezium", sink="kafka://127.0.0.1:1")
    mirror.follow_from_here()
    with pytest.raises(SinkFailed, match=r"Kafka at 127\.0\.0\.1:1 didn't answer"):
        carried(mirror, config)


@on_mariadb
def test_a_pipe_of_generic_avro_and_its_console(
    mirror: Mirror, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(mirror, name="pipe", format={"type": "generic", "topic": "${table}_generic"}, sink=f"kafka://{broker.address}")
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE user (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO user VALUES (1, 'ann')",
        "UPDATE user SET name = 'bob' WHERE id = 1", "DELETE FROM user",
    )  # fmt: skip
    mirror.sync()
    assert command_line.run(["feed", "--config", str(mirror.write_yaml()), "--quiet"]) == 0
    capsys.readouterr()
    assert command_line.run(["console-consumer", "--bootstrap", broker.address, "user_generic"]) == 0
    place = re.compile(r"^\d+:\d+ (\S+) ")
    printed = [json.loads(place.sub("", line)) for line in capsys.readouterr().out.splitlines()]
    assert [(line["op"], line["database"], line["table"]) for line in printed] == [
        (op, mirror.database, "user") for op in ("insert", "update", "delete")
    ]
    assert (printed[0]["integers"], printed[0]["strings"]) == ({"id": 1}, {"name": "ann"})
    assert (printed[1]["old_strings"], printed[1]["new_strings"]) == ({"name": "ann"}, {"name": "bob"})
    assert command_line.run(["console-consumer", "--bootstrap", broker.address, "no_such_topic"]) == 3
    assert "there is no topic 'no_such_topic'" in capsys.readouterr().err


@on_mysql
def test_avro_of_both_kinds_and_the_lakes_rows_across_a_death_of_the_broker(
    mirror: Mirror, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of the lake is a portion; the broker is killed while the second is sent, and comes back."""

    def merged(config: Any, session: Any, batch: Any, steps: Any, report: Any, newest: Any) -> list[TableOutcome]:
        lives = [replace(table.life, delta_version=0) for table in steps.tables if table.steps]
        return [TableOutcome(life, 0, 0, 0, 0, 0.0) for life in lives]

    monkeypatch.setattr(merge, "apply_steps", merged)
    monkeypatch.setattr(merge, "changed_by_others", lambda *_: [])
    monkeypatch.setattr(data_rows, "_MOST_ROWS", 1)
    monkeypatch.setattr(carrying, "LOAD_EVERY", 1)
    mirror.options["maintain"] = {"staging_hours": 1}
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    mirror.sync()
    write_deltalake(mirror.path("t"), pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", None]}))
    sent: list[str] = []

    def dies(point: FaultPoint) -> None:
        sent.append(point)
        if point == "feed sent" and sent.count("feed sent") == 3:
            broker.stop()
            broker.start()

    with FakeRegistry() as registry:
        avro = {"registry": registry.url, "topic": "rows"}
        sink = f"kafka://{broker.address}"
        rows = feed(mirror, name="rows", begin="lake", format={"type": "specific", **avro}, sink=sink)
        with monkeypatch.context() as patched, suppress(SinkFailed):
            patched.setattr(faults, "at_point", dies)
            carried(mirror, rows)
        assert sent.count("feed sent") >= 3
        carried(mirror, rows)
        mirror.execute("UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2")
        mirror.sync()
        carried(mirror, rows)
        values = [decoded(registry, value) for _, value, _ in broker.read("rows")]
        standing = sorted((row["id"], row["v"] or "") for row in values if "v" in row and "new_v" not in row)
        assert standing == [(1, "a"), (2, "b"), (2, "b"), (3, "")], "three rows, and the one that was deleted"
        assert [(row["old_v"], row["new_v"]) for row in values if "new_v" in row] == [("a", "c")]
        plain = {"schema_changes": False, "heartbeat": False, "topic": "envelopes"}
        made = {"type": "debezium", "encoding": "avro", "registry": registry.url, **plain}
        carried(mirror, feed(mirror, name="envelopes", format=made, sink=sink))
        envelopes = [(decoded(registry, key), decoded(registry, value)) for key, value, _ in broker.read("envelopes")]
    assert all(key["id"] == (value["after"] or value["before"])["id"] for key, value in envelopes if value)
    assert sorted(value["op"] if value else "-" for _, value in envelopes) == ["-", "c", "c", "c", "d", "u"]


def decoded(registry: FakeRegistry, data: bytes | None) -> Any:
    """By a stock reader; a tombstone is None."""
    if data is None:
        return None
    schema = fastavro.parse_schema(json.loads(registry.schemas[int.from_bytes(data[1:5], "big") - 1]))
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
