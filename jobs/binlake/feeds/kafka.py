"""The sink ``kafka://``: messages and the feed's place in one transaction of Kafka's.

The place is the last message on a compacted topic of the feed's own, ``_binlake.{source}.{feed}``, written by the same
transactional producer as the messages: either both are there for a reader of committed messages, or neither. A topic
that feeds share would hide a place behind what another feed has open. Offsets of a consumer group would do the same
(send_offsets_to_transaction), but the broker forgets those of a group that nobody reads with after a week, and caps
what may stand beside one at 4 kB.

The producer's transactional id is the feed's and the source's: opening it ends whatever an earlier run left open, and
fences that run off should it wake. Only then the place is read, up to the end of its topic.

Source: Kafka's documentation, "Transactions" and "KIP-98"; librdkafka's of ``transactional.id``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from binlake.errors import ConfigurationError, FeedError, SinkFailed
from binlake.faults import fault
from binlake.feed_config import SinkConfig
from binlake.feeds.contract import Message, MessageRefused
from binlake.source.connection import fields_of
from binlake.state import formats
from binlake.state.feed_watermarks import FeedPosition

if TYPE_CHECKING:
    from confluent_kafka import Producer

_PATIENCE = 60.0
"""Seconds for the broker to answer."""
_POLL_EVERY = 500
_SILENT: dict[str, Any] = {"log_level": 2, "error_cb": lambda error: None}
_TIMEOUT, _TIMEOUT_MS = "transaction.timeout.ms", 600_000
"""After which the broker takes a transaction back; its own default allows 15 minutes."""
_OURS = {"transactional.id", "enable.idempotence", "bootstrap.servers", "acks", "isolation.level", "enable.auto.commit"}


def _client() -> Any:
    """Raises ConfigurationError where the package isn't installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise ConfigurationError(
            "feeds to Kafka need the package confluent-kafka", remedy="pip install 'binlake[kafka]'"
        ) from error
    return confluent_kafka


def settings_of(sink: SinkConfig) -> dict[str, Any]:
    """The client's: the brokers, the YAML's own, and the connection's login, password and extra.

    Raises ConfigurationError.
    """
    if wrong := sorted(_OURS & sink.settings.keys()):
        raise ConfigurationError(f"sink.settings: {wrong[0]} keeps feeds exact", remedy="take it out of the YAML")
    return {**sink.settings, "bootstrap.servers": sink.address, **credentials(sink.connection)}


def credentials(connection: str | None) -> dict[str, Any]:
    """Of an Airflow connection: login and password as SASL's, and the client's settings in its extra.

    Raises ConfigurationError.
    """
    if connection is None:
        return {}
    told = fields_of(connection)
    found = {str(key): value for key, value in told["extra"].items()}
    if told["login"]:
        found |= {"sasl.username": told["login"], "sasl.password": told["password"] or ""}
    return found


def brokers(sink: SinkConfig) -> int:
    """How many there are. Raises ConfigurationError, SinkFailed where none answers or a setting isn't known."""
    kafka = _client()
    try:
        admin = kafka.admin.AdminClient({**settings_of(sink), **_SILENT})
        return len(admin.list_topics(timeout=_PATIENCE / 4).brokers)
    except kafka.KafkaException as error:
        raise SinkFailed(
            f"Kafka at {sink.address} didn't answer: {error.args[0].str()}",
            remedy="see whether the broker runs and lets this account in, and the settings in the YAML and connection",
        ) from None


class KafkaSink:
    """One feed's transactional producer. Raises SinkFailed where the broker can't be reached."""

    keeps_position = True

    def __init__(self, sink: SinkConfig, owner: str) -> None:
        """owner: source and feed."""
        self._kafka = _client()
        self._owner = owner
        self._places = f"_binlake.{owner.replace('/', '.')}"
        self._settings = settings_of(sink)
        self._where = sink.address
        self._allowed = float(self._settings.get(_TIMEOUT, _TIMEOUT_MS)) / 1000
        self._failed: list[str] = []
        self._begun: float | None = None
        self._producer: Producer = self._asked("open the producer", self._new_producer)
        known = self._topics()  # without a connection, opening would ask again after half a second
        self._asked("open the producer", lambda: self._producer.init_transactions(_PATIENCE))
        if self._places not in known:
            self._make_topic()

    def _new_producer(self) -> Producer:
        made: Producer = self._kafka.Producer(
            {
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                _TIMEOUT: _TIMEOUT_MS,
                **self._settings,
                "transactional.id": f"binlake-{self._owner.replace('/', '-')}",
                "enable.idempotence": True,
                "delivery.report.only.error": True,  # telling of those that arrived took a fifth of the CPU time
                "error_cb": lambda error: None,  # what matters is raised by the call that it fails
                "log_level": 2,
            }
        )
        return made

    def _asked(self, doing: str, ask: Callable[[], Any]) -> Any:
        """What the broker refuses is told in our tree; what may pass by itself is tried again for a while."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as error:
                cause = error.args[0]
                if not cause.retriable() or time.monotonic() > until:
                    raise self._refused(doing, cause) from None
            time.sleep(0.2)

    def _waited(self, wait: Callable[[], Any]) -> None:
        """For the broker, by poll or flush. The client raises what is fatal before it calls back for messages, of which
        Python makes a SystemError; the next call is told again."""
        with suppress(SystemError):
            self._asked("take messages", wait)

    def _refused(self, doing: str, cause: Any) -> FeedError:
        errors = self._kafka.KafkaError
        if cause.code() in (errors._FENCED, errors.INVALID_PRODUCER_EPOCH):
            if self._is_late():
                return SinkFailed(
                    f"Kafka at {self._where} took a transaction back that wasn't done within {self._allowed:g} s",
                    remedy=f"a transaction of the source is one of Kafka's: raise {_TIMEOUT} in sink.settings, at most"
                    " to the broker's transaction.max.timeout.ms; then run again, nothing is lost",
                )
            return FeedError(
                f"another run of the feed {self._owner} took its place in Kafka", remedy="nothing: that one goes on"
            )
        if cause.code() == errors.INVALID_TRANSACTION_TIMEOUT:
            remedy = f"lower {_TIMEOUT} in sink.settings, or raise transaction.max.timeout.ms there; then run again"
        else:
            remedy = "see whether the broker runs and lets this account in; then run again, nothing is lost"
        return SinkFailed(f"Kafka at {self._where} didn't {doing}: {cause.str()}", remedy=remedy)

    def _topics(self) -> set[str]:
        """Those that are there."""
        try:
            return set(self._producer.list_topics(timeout=_PATIENCE / 4).topics)
        except self._kafka.KafkaException as error:
            raise self._refused("answer", error.args[0]) from None

    def _make_topic(self) -> None:
        """Of the feed's places. How often it is kept is the broker's default."""
        admin = self._kafka.admin.AdminClient({**self._settings, **_SILENT})
        topic = self._kafka.admin.NewTopic(self._places, num_partitions=1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([topic])[self._places].result(_PATIENCE)
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused(f"make the topic {self._places}", error.args[0]) from None

    def position(self) -> FeedPosition | None:
        consumer = self._kafka.Consumer(
            {
                **{
                    key: value for key, value in self._settings.items() if not key.startswith(("linger", "compression"))
                },
                "group.id": f"binlake-{self._owner.replace('/', '-')}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the broker holds an answer back for half a second where there is no more
                "log_level": 2,
            }
        )
        try:
            consumer.assign([self._kafka.TopicPartition(self._places, 0, 0)])
            text = self._newest(consumer)
        finally:
            consumer.close()
        return formats.read(FeedPosition, text) if text else None

    def _newest(self, consumer: Any) -> str | None:
        """Of our own messages up to the end of the topic."""
        text: str | None = None
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                if message.key() == self._owner.encode():
                    text = message.value().decode() if message.value() else None
            elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                return text
            elif not message.error().retriable():
                raise self._refused("tell the feed's place", message.error())
        raise SinkFailed(f"Kafka at {self._where} didn't tell the feed's place in time", remedy="run again")

    def begin(self) -> None:
        self._begun = time.monotonic()
        self._asked("begin", self._producer.begin_transaction)

    def send(self, messages: Sequence[Message]) -> None:
        produce, delivered, refused = self._producer.produce, self._delivered, self._kafka.KafkaException
        for number, (topic, key, value, headers) in enumerate(messages):  # a call less for each is a tenth of the time
            if number % _POLL_EVERY == 0:
                self._waited(lambda: self._producer.poll(0))
            try:
                if headers:
                    produce(topic, value, key, headers=list(headers), on_delivery=delivered)
                else:
                    produce(topic, value, key, on_delivery=delivered)
            except BufferError:
                self._produce_slowly(topic, key, value, headers, number)
            except refused as error:
                raise self._not_taken(topic, error.args[0], number) from None

    def _produce_slowly(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Any = (), number: int = 0
    ) -> None:
        """Waits while the queue is full: the broker is slower than we."""
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers) or None, on_delivery=self._delivered)
                return
            except BufferError:
                self._waited(lambda: self._producer.poll(0.1))
            except self._kafka.KafkaException as error:
                raise self._not_taken(topic, error.args[0], number) from None

    def _not_taken(self, topic: str, cause: Any, number: int) -> FeedError:
        """number: of the message, of those that were sent at once."""
        if self._broken(cause):
            return self._refused("take messages", cause)
        refused = self._message_refused(topic, cause.str())
        refused.number = number
        return refused

    def _broken(self, cause: Any) -> bool:
        """It isn't about one message."""
        errors = self._kafka.KafkaError
        return cause.fatal() or cause.code() in (errors._FATAL, errors._FENCED, errors.INVALID_PRODUCER_EPOCH)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and not self._failed:
            self._failed.append(f"{message.topic()}: {error.str()}")

    def _message_refused(self, topic: str, why: str) -> MessageRefused:
        return MessageRefused(
            f"Kafka at {self._where} refused a message to {topic}: {why}",
            remedy="raise message.max.bytes there and in sink.settings, or mend what it says; then run again",
        )

    def commit(self, position: FeedPosition) -> None:
        self._produce_slowly(self._places, self._owner.encode(), formats.written(position).encode())
        self._waited(lambda: self._producer.flush(_PATIENCE))
        fault("feed flushed")
        try:
            self._asked("commit", lambda: self._producer.commit_transaction(_PATIENCE))
        except FeedError:
            if self._failed and not self._is_late():
                topic, _, why = self._failed[0].partition(": ")
                refused = self._message_refused(topic, why)
                raise SinkFailed(refused.message, remedy=refused.remedy) from None  # with the whole transaction
            raise
        self._begun = None

    def _is_late(self) -> bool:
        """The broker took the transaction back, or will."""
        return self._begun is not None and time.monotonic() - self._begun >= self._allowed

    def close(self) -> None:
        """What wasn't committed is taken back."""
        if self._begun is not None:
            with suppress(self._kafka.KafkaException, SystemError):  # the next run's producer takes it back
                self._producer.abort_transaction(_PATIENCE / 4)
            self._begun = None


def consumer_of(bootstrap: str, settings: Mapping[str, Any]) -> Any:
    """A reader of committed messages from the first on, for ``console-consumer``."""
    told = {
        "bootstrap.servers": bootstrap,
        "group.id": f"binlake-console-{os.getpid()}",
        "isolation.level": "read_committed",
    }
    own = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 2}
    return _client().Consumer({**told, **own, **settings})
