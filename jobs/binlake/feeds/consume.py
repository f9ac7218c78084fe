"""``binlake console-consumer``: print a Kafka topic's messages, one per line, in whatever format feeds write them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from binlake.caches import remembered
from binlake.errors import ConfigurationError, SinkFailed
from binlake.feeds.formats import generic
from binlake.feeds.formats.text import plain
from binlake.feeds.sinks.kafka import consumer_of

_PATIENCE = 15.0
_HEAD = 5
"""Bytes before the record in Confluent's wire format."""
SchemaOf = Callable[[int], Any]
"""A function that returns the schema with an id, None if there is none."""
_OPERATIONS = {1: "insert", 2: "update", 3: "delete"}


@dataclass(frozen=True)
class Consuming:
    """Options. most: number of messages to print, None for all. follow: wait for more at the topic's end.

    schema_of: looks up a registry's schemas, for messages in Confluent's wire format.
    """

    topic: str
    most: int | None = None
    follow: bool = False
    schema_of: SchemaOf | None = None


def consume(bootstrap: str, asked: Consuming, out: TextIO, settings: Mapping[str, Any] | None = None) -> None:
    """Print committed messages from the first on. Raises SinkFailed if the broker or the topic can't be read."""
    consumer = consumer_of(bootstrap, settings or {})
    try:
        partitions = _partitions(consumer, bootstrap, asked.topic)
        ended: set[int] = set()
        printed = 0
        while (asked.most is None or printed < asked.most) and (asked.follow or len(ended) < partitions):
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == error._PARTITION_EOF:
                    ended.add(message.partition())
                elif not error.retriable():
                    raise SinkFailed(
                        f"Kafka at {bootstrap} didn't send {asked.topic}: {error.str()}",
                        remedy="see whether the broker runs and lets this account read there",
                    )
                continue
            key, value = readable_key(message.key(), asked.schema_of), readable(message.value(), asked.schema_of)
            out.write(f"{message.partition()}:{message.offset()} {key} {value}\n")
            printed += 1
        out.flush()
    finally:
        consumer.close()


def _partitions(consumer: Any, bootstrap: str, topic: str) -> int:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        metadata = consumer.list_topics(topic, _PATIENCE).topics[topic]
    except KafkaException as error:
        raise SinkFailed(
            f"Kafka at {bootstrap} didn't answer: {error.args[0].str()}", remedy="see whether the broker runs there"
        ) from None
    if metadata.error is not None or not metadata.partitions:
        raise SinkFailed(f"there is no topic {topic!r} at {bootstrap}", remedy="see how the feed names its topics")
    consumer.assign([TopicPartition(topic, number, 0) for number in metadata.partitions])
    return len(metadata.partitions)


def readable(value: bytes | None, schema_of: SchemaOf | None = None) -> str:
    """Return a message as text: Avro as JSON, texts (Debezium's too) as they are, anything else as hexadecimal.

    schema_of: looks up a registry's schemas, for Confluent's wire format and mypipe's; its errors are raised.
    """
    if value is None:
        return "(tombstone)"
    if len(value) <= _HEAD or value[0] != generic.MAGIC:
        return _shown(value)
    op = _OPERATIONS.get(value[1])
    if op and value[2:4] == bytes(2):
        return _avro(value, 4, generic.schema(value[1]), op=op) or _shown(value)
    text = None
    if schema_of is not None:
        text = _avro(value, _HEAD, schema_of(int.from_bytes(value[1:_HEAD], "big")))
        if text is None and op:  # mypipe's wire format: two bytes for the schema
            text = _avro(value, 4, schema_of(int.from_bytes(value[2:4], "big")), op=op)
    return text or _shown(value)


def readable_key(key: bytes | None, schema_of: SchemaOf | None) -> str:
    """Return a message's key as text, and ``-`` for a message without one.

    schema_of: returns Avro schemas by their ids.
    """
    return "-" if key is None else readable(key, schema_of)


def _shown(data: bytes | None) -> str:
    if data is None:
        return "-"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _avro(value: bytes, head: int, schema: Any, **more: str) -> str | None:
    """Return an Avro record as JSON; None if it isn't one: other messages may begin with the same bytes."""
    if schema is None:
        return None
    rest = io.BytesIO(value[head:])
    try:
        record = _reader(json.dumps(schema))(rest)
    except ConfigurationError:
        raise
    except Exception:  # foreign bytes make a reader of Avro fail in many ways
        return None
    if rest.read(1) or not isinstance(record, dict):
        return None
    fields = {**more, **record}
    if "txid" in record:
        fields["txid"] = (record["txid"] or b"").hex() or None
    return json.dumps(fields, ensure_ascii=False, default=plain)


@remembered("readers of Avro")
def _reader(schema: str) -> Callable[[io.BytesIO], Any]:
    """Return a reader of records with a schema. Raises ConfigurationError if fastavro isn't installed."""
    try:
        import fastavro
    except ImportError as error:
        raise ConfigurationError("Avro's messages need fastavro", remedy="pip install 'binlake[kafka]'") from error
    parsed = fastavro.parse_schema(json.loads(schema))
    return lambda data: fastavro.schemaless_reader(data, parsed, None)
