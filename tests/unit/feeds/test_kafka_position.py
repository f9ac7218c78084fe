"""A feed's place in Kafka, by the client's own double of a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from binlake.config.feed_config import SinkConfig
from binlake.feeds.sinks.kafka import KafkaSink
from binlake.records.feed_watermarks import FeedPosition
from binlake.store import formats

PLACES = "_binlake.tests.out"
SEGMENT = 1 << 20
"""Bytes of the large messages; the broker's double keeps 5 MB of a partition."""


@pytest.fixture
def broker() -> Producer:
    """A broker that lives as long as this producer."""
    return Producer({"test.mock.num.brokers": 1, "message.max.bytes": 2 * SEGMENT, "log_level": 2})


def test_the_place_is_found_though_the_head_of_its_topic_was_deleted(broker: Producer) -> None:
    for _ in range(8):
        broker.produce(PLACES, b"x" * SEGMENT, b"tests/other", 0)
        broker.flush(10)
    broker.produce(PLACES, formats.written(FeedPosition(7)).encode(), b"tests/out", 0)
    broker.flush(10)
    (address,) = (f"{node.host}:{node.port}" for node in broker.list_topics(timeout=10).brokers.values())
    sink = KafkaSink(SinkConfig(url=f"kafka://{address}"), "tests/out")
    assert sink.position() == FeedPosition(7)
    sink.close()
