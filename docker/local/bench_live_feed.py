"""How soon a change is in Kafka: bench_live_feed.py [SECONDS] [CHANGES A SECOND] [TABLES]

``binlake follow`` as a process of its own with a feed of Debezium's JSON, while a writer changes rows of many tables at
a steady pace, and a consumer of committed messages beside. For each message it prints how long after its commit on the
server it came. The figures are added to .binlake/bench.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import bench_follow
import broker
from bench_figures import Figure, keep, show
from binlake.report import Report
from side_thread import beside

TOPIC = "changes"
_FEEDS = """
feeds:
  - name: live
    format: {type: debezium, topic: changes, tombstones: false, heartbeat: false, schema_changes: false}
    sink: kafka://ADDRESS
"""


class Arrivals:
    """Committed messages as a consumer gets them. delays: when each change committed, and after how many seconds it
    came. places: where each is in the log."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.delays: list[tuple[float, float]] = []
        self.places: list[tuple[str, int, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
                "enable.auto.commit": False, "fetch.wait.max.ms": 20,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    @contextmanager
    def taken(self) -> Iterator[None]:
        with closing(self._consumer), beside(self._take):
            yield

    def _take(self, over: threading.Event) -> None:
        while not over.is_set():
            messages = self._consumer.consume(10_000, timeout=0.05)
            now = time.time()
            for message in messages:
                assert message.error() is None, message.error()
                source = json.loads(message.value() or b"")["source"]
                committed = source["ts_us"] / 1e6
                self.delays.append((committed, now - committed))
                self.places.append((source["file"], source["pos"], source["row"]))


def figures(seconds: float, pace: float, tables: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, broker.Broker(Path(folder) / "broker") as running:
        running.make_topic(TOPIC)
        arrivals = Arrivals(running.address)
        with arrivals.taken():
            feeds = _FEEDS.replace("ADDRESS", running.address)
            measured = bench_follow.measure(seconds, pace, tables, Report(), feeds=feeds)
            time.sleep(2)
    began = measured.delays[0][0]
    came = bench_follow.Freshness([delay for delay in arrivals.delays if delay[0] >= began])
    assert len(set(arrivals.places)) == len(arrivals.places), "a change came twice"
    assert len(came.delays) == measured.changes, f"{len(came.delays)} of {measured.changes} changes came"
    what = f"followed, {tables} tables, log to Kafka"
    return [
        (f"{what}: changes", measured.changes / seconds, "/s"),
        (f"{what}: commit to consumer, p50", came.percentile(0.5), "s"),
        (f"{what}: commit to consumer, p95", came.percentile(0.95), "s"),
        (f"{what}: commit to consumer, p99", came.percentile(0.99), "s"),
        *bench_follow.figures(measured, tables, seconds),
    ]


if __name__ == "__main__":
    asked = [float(text) for text in sys.argv[1:]]
    seconds, pace, tables = (*asked, *(120.0, 1000.0, 50.0)[len(asked) :])
    measured = figures(seconds, pace, int(tables))
    show("following, with a feed into Kafka", measured)
    print("load of the machine:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
    keep(measured)
