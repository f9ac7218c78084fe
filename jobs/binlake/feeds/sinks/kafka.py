"""The sink ``kafka://``: messages and the feed's place in one transaction of Kafka's.

The place is the last message on a compacted topic of the feed's own, ``_binlake.{source}.{feed}``, written by the same
transactional producer as the messages: either both are there for a reader of committed messages, or neither. A topic
that feeds share would hide a place behind what another feed has open. Offsets of a consumer group would do the same
(send_offsets_to_transaction), but the broker forgets those of a group that nobody reads with after a week, and caps
what may stand beside one at 4 kB.

The producer's transactional id is the feed's and the source's: opening it ends whatever an earlier run left open, and
fences that run off should it wake. Only then the place is read, up to the end of its topic.

A message that the broker refuses (one over its topic's max.message.bytes, one without a key on a compacted topic, one
to a topic that this account may not write to) breaks the whole transaction, and with it the broker refuses all that
came in the same request. So the transaction is taken back and wanted again, each message in a request of its own, which
tells the one it was; and again without that one. It is then a MessageRefused like those that the client refuses.

Source: Kafka's documentation, "Transactions" and "KIP-98"; librdkafka's of ``transactional.id``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from binlake.config.feed_config import SinkConfig
from binlake.errors import ConfigurationError, FeedError, SinkFailed
from binlake.faults import fault
from binlake.feeds.contract import Message, MessageRefused, TransactionRefused
from binlake.metadata import formats
from binlake.metadata.feed_watermarks import FeedPosition
from binlake.source.connection import fields_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

_PATIENCE = 60.0
"""Seconds for the broker to answer."""
_POLL_EVERY = 500
_SILENT: dict[str, Any] = {"log_level": 2, "error_cb": lambda error: None}
_TIMEOUT, _TIMEOUT_MS = "transaction.timeout.ms", 600_000
"""After which the broker takes a transaction back; its own default allows 15 minutes."""
_ALONE: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight.requests.per.connection": 1}
"""Each message in a request of its own, one after the other: what follows a refused one may never be answered."""
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
        errors = self._kafka.KafkaError
        self._refusals = {
            errors.MSG_SIZE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE, errors.INVALID_RECORD, errors.INVALID_TIMESTAMP,
            errors.POLICY_VIOLATION, errors.TOPIC_EXCEPTION, errors.TOPIC_AUTHORIZATION_FAILED,
            errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_TOPIC, errors._UNKNOWN_PARTITION,
        }  # fmt: skip
        self._swept = {errors._PURGE_QUEUE, errors._PURGE_INFLIGHT}  # away with the transaction that another broke
        self._failed: list[tuple[int | None, str, Any]] = []
        self._begun: float | None = None
        self._count = self._alone = 0
        self._refused_before: dict[int, MessageRefused] = {}
        self._producer: Producer = self._opened()
        if self._places not in self._topics(self._producer):
            self._make_topic()

    def _opened(self) -> Producer:
        made: Producer = self._asked("open the producer", self._new_producer)
        self._topics(made)  # without a connection, opening would ask again after half a second
        self._asked("open the producer", lambda: made.init_transactions(_PATIENCE))
        return made

    def _new_producer(self) -> Producer:
        made: Producer = self._kafka.Producer(
            {
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                _TIMEOUT: _TIMEOUT_MS,
                **self._settings,
                **(_ALONE if self._alone else {}),
                "transactional.id": f"binlake-{self._owner.replace('/', '-')}",
                "enable.idempotence": True,
                "delivery.report.only.error": True,  # telling of those that arrived took a fifth of the CPU time
                "error_cb": lambda error: None,  # what matters is raised by the call that it fails
                "log_level": 2,
            }
        )
        return made

    def _open_anew(self) -> None:
        """What the producer has open is taken back. To abort isn't enough: the client's numbers would go on as if the
        broker had taken what it refused."""
        self._begun = None
        self._producer = self._opened()

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

    def _topics(self, producer: Producer) -> set[str]:
        """Those that are there."""
        try:
            return set(producer.list_topics(timeout=_PATIENCE / 4).topics)
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
        self._begun, self._failed, self._count = time.monotonic(), [], 0
        self._asked("begin", self._producer.begin_transaction)

    def send(self, messages: Sequence[Message]) -> None:
        if self._alone:
            return self._send_alone(messages)
        self._count += len(messages)
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

    def _send_alone(self, messages: Sequence[Message]) -> None:
        """Returns once they have arrived. Those that the broker refused before aren't asked of it again."""
        for number, message in enumerate(messages):
            here, self._count = self._count, self._count + 1
            if known := self._refused_before.get(here):
                known.number = number
                raise known
            self._produce_slowly(*message, number=number, delivered=partial(self._delivered, number=here))
        self._arrive()
        if taken_back := self._taken_back():
            raise taken_back

    def _produce_slowly(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any = (),
        number: int = 0,
        delivered: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Waits while the queue is full: the broker is slower than we."""
        told = delivered or self._delivered
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers) or None, on_delivery=told)
                return
            except BufferError:
                self._waited(lambda: self._producer.poll(0.1))
            except self._kafka.KafkaException as error:
                raise self._not_taken(topic, error.args[0], number) from None

    def _not_taken(self, topic: str, cause: Any, number: int) -> FeedError:
        """number: of the message, of those that were sent at once."""
        if self._broken(cause):
            return self._refused("take messages", cause)
        if cause.code() == self._kafka.KafkaError._STATE:  # the transaction is broken; a report tells by what
            self._arrive()
            return self._taken_back() or self._refused("take messages", cause)
        refused = self._message_refused(topic, cause.str())
        refused.number = number
        return refused

    def _broken(self, cause: Any) -> bool:
        """It isn't about one message."""
        errors = self._kafka.KafkaError
        return cause.fatal() or cause.code() in (errors._FATAL, errors._FENCED, errors.INVALID_PRODUCER_EPOCH)

    def _delivered(self, error: Any, message: Any, number: int | None = None) -> None:
        """number: of the message in its transaction, where each goes alone."""
        if error is not None and error.code() not in self._swept:
            self._failed.append((number, message.topic(), error))

    def _arrive(self) -> None:
        """Waits for what was sent; no longer once one of them failed, for then the others may never go."""
        until = time.monotonic() + _PATIENCE
        while not self._failed and len(self._producer) and time.monotonic() < until:
            self._waited(lambda: self._producer.flush(0.1))

    def _taken_back(self) -> TransactionRefused | None:
        """The transaction, where a message of it was refused: it is wanted again, message by message."""
        refused = [one for one in self._failed if one[2].code() in self._refusals]
        known = {
            number: self._message_refused(topic, error.str()) for number, topic, error in refused if number is not None
        }
        if not refused or (self._alone and not known):
            return None
        self._refused_before |= known
        self._alone = self._alone or max(1, self._count)
        self._open_anew()
        first = self._message_refused(refused[0][1], refused[0][2].str())
        return TransactionRefused(first.message, remedy=first.remedy)

    def _message_refused(self, topic: str, why: str) -> MessageRefused:
        return MessageRefused(
            f"Kafka at {self._where} refused a message to {topic}: {why}",
            remedy="raise message.max.bytes there (a topic's max.message.bytes) and in sink.settings, or mend what it"
            " says; or leave such messages out: errors: {quit_on_listener_failure: false}; then run again",
        )

    def commit(self, position: FeedPosition) -> None:
        self._produce_slowly(self._places, self._owner.encode(), formats.written(position).encode())
        self._arrive()
        fault("feed flushed")
        try:
            self._asked("commit", lambda: self._producer.commit_transaction(_PATIENCE))
        except FeedError:
            if self._failed and not self._is_late():
                _, topic, error = self._failed[0]
                refused = self._message_refused(topic, error.str())
                raise self._taken_back() or SinkFailed(refused.message, remedy=refused.remedy) from None
            raise
        self._begun = None
        if self._alone:
            self._go_on_after(self._count)

    def _go_on_after(self, count: int) -> None:
        """So many messages stand; once all of the transaction that was refused do, they go together again."""
        self._refused_before = {number - count: one for number, one in self._refused_before.items() if number >= count}
        self._alone = max(0, self._alone - count)
        if not self._alone:
            self._open_anew()

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
