"""A Kafka broker of the tests' and benches' own on loopback, in KRaft mode from Maven's jars."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

import servers

JARS = servers.PRIVATE / "kafka"
START_SECONDS = 90


class Broker:
    """One node that is broker and controller, with its log below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, controller = servers.free_port(), servers.free_port()
        self._settings = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(
            "\n".join(
                [
                    "process.roles=broker,controller", "node.id=1",
                    f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}", "controller.listener.names=CONTROLLER",
                    f"log.dirs={folder}/log", "num.partitions=2", "offsets.topic.replication.factor=1",
                    "offsets.topic.num.partitions=1", "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=1",
                    "group.initial.rebalance.delay.ms=0",
                    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
                ]
            )
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _java(self, program: str, *arguments: str) -> list[str]:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *options, "-cp", f"{JARS}/*", program, *arguments]

    def __enter__(self) -> Broker:
        assert JARS.is_dir(), f"no {JARS}: run docker/local/setup.sh tests"
        format_ = ("format", "--standalone", "-t", uuid.uuid4().hex[:22], "-c", str(self._settings))
        subprocess.run(self._java("kafka.tools.StorageTool", *format_), check=True, capture_output=True, timeout=60)
        self.start()
        return self

    def start(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)),
                stdout=log,
                stderr=log,
                preexec_fn=servers.die_with_parent,
            )
        settings: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 0, "error_cb": lambda error: None}
        admin = AdminClient(settings)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                admin.list_topics(timeout=2)
                return
            except KafkaException:
                assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "the broker doesn't answer"

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def make_topic(self, name: str, **settings: str) -> None:
        """Of one partition. settings: the topic's own."""
        from confluent_kafka import admin

        known: Any = admin
        client = known.AdminClient({"bootstrap.servers": self.address})
        client.create_topics([known.NewTopic(name, num_partitions=1, config=settings)])[name].result(30)

    def committed(self, topic: str) -> int:
        """Return the sum of the offsets up to which a topic's partitions hold nothing of open transactions."""
        from confluent_kafka import IsolationLevel, TopicPartition, admin

        known: Any = admin
        client, latest = known.AdminClient({"bootstrap.servers": self.address}), known.OffsetSpec.latest()
        partitions = client.list_topics(topic, 10).topics[topic].partitions
        asked = {TopicPartition(topic, number): latest for number in partitions}
        ends = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(end.result(30).offset for end in ends.values())

    def read(self, topic: str, *, committed: bool = True) -> list[tuple[bytes | None, bytes | None, int]]:
        """(key, value, partition) of all messages of a topic, each partition in its order."""
        from confluent_kafka import Consumer, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
        }
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            messages: list[tuple[bytes | None, bytes | None, int]] = []
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(10)
                assert message is not None, "the topic doesn't end"
                if message.error():
                    ended += 1
                else:
                    messages.append((message.key(), message.value(), message.partition() or 0))
            return messages
        finally:
            consumer.close()


def payloads(messages: list[tuple[bytes | None, bytes | None, int]]) -> list[Any]:
    """JSON values, those of one partition in order; a tombstone is None."""
    return [value and json.loads(value) for _, value, _ in messages]
