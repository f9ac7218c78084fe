"""The sink ``kafka://``: messages and the feed's position in one transaction of Kafka.

The position is the last message on the feed's own compacted topic, ``_binlake.{source}.{feed}``, written by the same
transactional producer as the messages: a reader of committed messages sees both or neither. On a shared topic, another
feed's open transaction could hide a position. Offsets of a consumer group (send_offsets_to_transaction) would also do,
but the broker deletes those of an unused group after a week, and limits their metadata to 4 kB.

The producer's transactional id is made of source and feed: opening it ends a transaction that an earlier run left open,
and fences that run, should it still live. Only then is the position read, up to the end of its topic.

A message that the broker refuses (one over its topic's max.message.bytes, one without a key on a compacted topic, one
to a topic that this account may not write to) aborts the whole transaction, and the broker refuses everything in the
same request with it. So the transaction must be sent again, each message in a request of its own, which shows the
refused one; then again without it. It is then a MessageRefused like those that the client refuses.

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
from binlake.records.feed_watermarks import FeedPosition
from binlake.retries import Retries, steady
from binlake.source.connection import fields_of
from binlake.store import formats

if TYPE_CHECKING:
    from confluent_kafka import Producer

_PATIENCE = 60.0
"""Seconds to wait for the broker."""
_POLL_EVERY = 500
_SILENT: dict[str, Any] = {"log_level": 2, "error_cb": lambda error: None}
_TIMEOUT, _TIMEOUT_MS = "transaction.timeout.ms", 600_000
"""Time in milliseconds after which the broker aborts a transaction; by default it allows at most 15 minutes."""
_ONE_PER_REQUEST: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight.requests.per.connection": 1}
"""Settings that send each message in its own request, one at a time: those after a refused one may get no answer."""
_OURS = {"transactional.id", "enable.idempotence", "bootstrap.servers", "acks", "isolation.level", "enable.auto.commit"}


def _client() -> Any:
    """Import the client. Raises ConfigurationError if the package isn't installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise ConfigurationError(
            "feeds to Kafka need the package confluent-kafka", remedy="pip install 'binlake[kafka]'"
        ) from error
    return confluent_kafka


def settings_of(sink: SinkConfig) -> dict[str, Any]:
    """Return the client's settings: the brokers, the YAML's settings, and the connection's credentials.

    Raises ConfigurationError.
    """
    if wrong := sorted(_OURS & sink.settings.keys()):
        raise ConfigurationError(f"sink.settings: {wrong[0]} keeps feeds exact", remedy="take it out of the YAML")
    return {**sink.settings, "bootstrap.servers": sink.address, **credentials(sink.connection)}


def credentials(connection: str | None) -> dict[str, Any]:
    """Return an Airflow connection's login and password as SASL settings, and the settings in its extra.

    Raises ConfigurationError.
    """
    if connection is None:
        return {}
    fields = fields_of(connection)
    settings = {str(key): value for key, value in fields["extra"].items()}
    if fields["login"]:
        settings |= {"sasl.username": fields["login"], "sasl.password": fields["password"] or ""}
    return settings


def brokers(sink: SinkConfig) -> int:
    """Return the number of brokers. Raises ConfigurationError; SinkFailed if none answers or a setting is unknown."""
    kafka = _client()
    try:
        admin = kafka.admin.AdminClient({**settings_of(sink), **_SILENT})
        return len(admin.list_topics(timeout=_PATIENCE / 4).brokers)
    except kafka.KafkaException as error:
        raise SinkFailed(
            f"Kafka at {sink.address} didn't answer: {error.args[0].str()}",
            remedy="see whether the broker runs and lets this account in, and the settings in the YAML and connection",
        ) from None


def transactional_id(owner: str) -> str:
    """Return the id of a feed's producer. owner: ``source/feed``.

    Only a source whose name has a hyphen is set off by a slash: ``a-b/c`` and ``a/b-c`` must not fence each other.
    """
    source, _, feed = owner.partition("/")
    return f"binlake-{source}{'/' if '-' in source else '-'}{feed}"


class KafkaSink:
    """One feed's transactional producer. Raises SinkFailed if the broker can't be reached."""

    keeps_position = True

    def __init__(self, sink: SinkConfig, owner: str) -> None:
        """owner: ``source/feed``."""
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
        self._swept = {errors._PURGE_QUEUE, errors._PURGE_INFLIGHT}  # purged as another message aborted the transaction
        self._failed: list[tuple[int | None, str, Any]] = []
        self._begun: float | None = None
        self._count = self._left_one_by_one = 0
        self._refused_before: dict[int, MessageRefused] = {}
        self._producer: Producer = self._open()
        if self._places not in self._topics(self._producer):
            self._make_topic()

    def _open(self) -> Producer:
        made: Producer = self._retrying("open the producer", self._new_producer)
        self._topics(made)  # connects first; init_transactions would otherwise retry after half a second
        self._retrying("open the producer", lambda: made.init_transactions(_PATIENCE))
        return made

    def _new_producer(self) -> Producer:
        made: Producer = self._kafka.Producer(
            {
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                _TIMEOUT: _TIMEOUT_MS,
                **self._settings,
                **(_ONE_PER_REQUEST if self._left_one_by_one else {}),
                "transactional.id": transactional_id(self._owner),
                "enable.idempotence": True,
                "delivery.report.only.error": True,  # reports of delivered messages took a fifth of the CPU time
                "error_cb": lambda error: None,  # what matters is raised by the call that it fails
                "log_level": 2,
            }
        )
        return made

    def _reopen(self) -> None:
        """Abort what is open with a new producer. abort_transaction isn't enough: the client's sequence numbers would
        continue as if the broker had accepted what it refused."""
        self._begun = None
        self._producer = self._open()

    def _retrying(self, doing: str, ask: Callable[[], Any]) -> Any:
        """Call ``ask``, and retry temporary errors for a minute. Raises SinkFailed or FeedError for others."""
        failure = self._kafka.KafkaException

        def is_temporary(error: Exception) -> bool:
            return isinstance(error, failure) and error.args[0].retriable()

        try:
            return Retries(steady(0.2), seconds=_PATIENCE).call(ask, is_temporary)
        except failure as error:
            raise self._refused(doing, error.args[0]) from None

    def _wait(self, wait: Callable[[], Any]) -> None:
        """Wait for the broker by poll or flush.

        The client raises a fatal error before its callbacks, which Python turns into a SystemError; it is ignored, as
        the next call raises the error again.
        """
        with suppress(SystemError):
            self._retrying("take messages", wait)

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
                f"another run of the feed {self._owner} took its place in Kafka",
                remedy="nothing to do: the other process continues",
            )
        if cause.code() == errors.INVALID_TRANSACTION_TIMEOUT:
            remedy = f"lower {_TIMEOUT} in sink.settings, or raise transaction.max.timeout.ms there; then run again"
        else:
            remedy = "see whether the broker runs and lets this account in; then run again, nothing is lost"
        return SinkFailed(f"Kafka at {self._where} didn't {doing}: {cause.str()}", remedy=remedy)

    def _topics(self, producer: Producer) -> set[str]:
        """Return the names of existing topics. Raises SinkFailed."""
        try:
            return set(producer.list_topics(timeout=_PATIENCE / 4).topics)
        except self._kafka.KafkaException as error:
            raise self._refused("answer", error.args[0]) from None

    def _make_topic(self) -> None:
        """Create the topic of the feed's position; its replication factor is the broker's default."""
        admin = self._kafka.admin.AdminClient({**self._settings, **_SILENT})
        topic = self._kafka.admin.NewTopic(self._places, num_partitions=1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([topic])[self._places].result(_PATIENCE)
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused(f"make the topic {self._places}", error.args[0]) from None

    def position(self) -> FeedPosition | None:
        """Return the position that the last committed transaction wrote to the topic of positions; None without one."""
        consumer = self._kafka.Consumer(
            {
                **{
                    key: value for key, value in self._settings.items() if not key.startswith(("linger", "compression"))
                },
                "group.id": f"binlake-{self._owner.replace('/', '-')}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # offset 0 is gone where a retention deletes the topic's head
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # at the end of the topic the broker delays its answer for half a second
                "log_level": 2,
            }
        )
        try:
            consumer.assign([self._kafka.TopicPartition(self._places, 0, 0)])
            text = self._last_position(consumer)
        finally:
            consumer.close()
        return formats.read(FeedPosition, text) if text else None

    def _last_position(self, consumer: Any) -> str | None:
        """Return the feed's last message before the end of the topic. Raises SinkFailed."""
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
                raise self._refused("say the feed's place", message.error())
        raise SinkFailed(f"Kafka at {self._where} didn't say the feed's place in time", remedy="run again")

    def begin(self) -> None:
        """Begin a transaction of Kafka. Raises SinkFailed."""
        self._begun, self._failed, self._count = time.monotonic(), [], 0
        self._retrying("begin", self._producer.begin_transaction)

    def send(self, messages: Sequence[Message]) -> None:
        """Produce messages in the open transaction. Raises MessageRefused, TransactionRefused, SinkFailed."""
        if self._left_one_by_one:
            return self._send_one_by_one(messages)
        self._count += len(messages)
        produce, delivered, refused = self._producer.produce, self._delivered, self._kafka.KafkaException
        for number, (topic, key, value, headers) in enumerate(messages):  # one call less per message
            if number % _POLL_EVERY == 0:
                self._wait(lambda: self._producer.poll(0))
            try:
                if headers:
                    produce(topic, value, key, headers=list(headers), on_delivery=delivered)
                else:
                    produce(topic, value, key, on_delivery=delivered)
            except BufferError:
                self._produce_slowly(topic, key, value, headers, number)
            except refused as error:
                raise self._not_taken(topic, error.args[0], number) from None

    def _send_one_by_one(self, messages: Sequence[Message]) -> None:
        """Send each message in its own request, and wait for them. Known refused messages raise without being sent."""
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
        """Queue a message; wait while the queue is full, as the broker is slower."""
        callback = delivered or self._delivered
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers) or None, on_delivery=callback)
                return
            except BufferError:
                self._wait(lambda: self._producer.poll(0.1))
            except self._kafka.KafkaException as error:
                raise self._not_taken(topic, error.args[0], number) from None

    def _not_taken(self, topic: str, cause: Any, number: int) -> FeedError:
        """Return the error of a message that the client refused. number: of the message, among those sent at once."""
        if self._broken(cause):
            return self._refused("take messages", cause)
        if cause.code() == self._kafka.KafkaError._STATE:  # the transaction is aborted; a delivery report has the cause
            self._arrive()
            return self._taken_back() or self._refused("take messages", cause)
        refused = self._message_refused(topic, cause.str())
        refused.number = number
        return refused

    def _broken(self, cause: Any) -> bool:
        """Return whether an error concerns the producer, not one message."""
        errors = self._kafka.KafkaError
        return cause.fatal() or cause.code() in (errors._FATAL, errors._FENCED, errors.INVALID_PRODUCER_EPOCH)

    def _delivered(self, error: Any, message: Any, number: int | None = None) -> None:
        """Note a failed delivery. number: of the message in its transaction, if each has its own request."""
        if error is not None and error.code() not in self._swept:
            self._failed.append((number, message.topic(), error))

    def _arrive(self) -> None:
        """Wait until all messages are delivered, or one failed: then the others may never be sent."""
        until = time.monotonic() + _PATIENCE
        while not self._failed and len(self._producer) and time.monotonic() < until:
            self._wait(lambda: self._producer.flush(0.1))

    def _taken_back(self) -> TransactionRefused | None:
        """Return TransactionRefused if a message was refused, so that all are sent again one by one; else None."""
        refused = [failure for failure in self._failed if failure[2].code() in self._refusals]
        known = {
            number: self._message_refused(topic, error.str()) for number, topic, error in refused if number is not None
        }
        if not refused or (self._left_one_by_one and not known):
            return None
        self._refused_before |= known
        self._left_one_by_one = self._left_one_by_one or max(1, self._count)
        self._reopen()
        first = self._message_refused(refused[0][1], refused[0][2].str())
        return TransactionRefused(first.message, remedy=first.remedy)

    def _message_refused(self, topic: str, why: str) -> MessageRefused:
        return MessageRefused(
            f"Kafka at {self._where} refused a message to {topic}: {why}",
            remedy="raise message.max.bytes there (a topic's max.message.bytes) and in sink.settings, or fix what it"
            " says; or leave such messages out: errors: {quit_on_listener_failure: false}; then run again",
        )

    def commit(self, position: FeedPosition) -> None:
        """Produce the position, wait until all messages have arrived, and commit.

        Raises TransactionRefused, SinkFailed.
        """
        self._produce_slowly(self._places, self._owner.encode(), formats.written(position).encode())
        self._arrive()
        fault("feed flushed")
        try:
            self._retrying("commit", lambda: self._producer.commit_transaction(_PATIENCE))
        except FeedError:
            if self._failed and not self._is_late():
                _, topic, error = self._failed[0]
                refused = self._message_refused(topic, error.str())
                raise self._taken_back() or SinkFailed(refused.message, remedy=refused.remedy) from None
            raise
        self._begun = None
        if self._left_one_by_one:
            self._go_on_after(self._count)

    def _go_on_after(self, count: int) -> None:
        """Note ``count`` committed messages; after all of the refused transaction, messages share requests again."""
        self._refused_before = {
            number - count: error for number, error in self._refused_before.items() if number >= count
        }
        self._left_one_by_one = max(0, self._left_one_by_one - count)
        if not self._left_one_by_one:
            self._reopen()

    def _is_late(self) -> bool:
        """Return whether the transaction has run into its timeout."""
        return self._begun is not None and time.monotonic() - self._begun >= self._allowed

    def close(self) -> None:
        """Abort what wasn't committed."""
        if self._begun is not None:
            with suppress(self._kafka.KafkaException, SystemError):  # the next run's producer aborts it
                self._producer.abort_transaction(_PATIENCE / 4)
            self._begun = None


def consumer_of(bootstrap: str, settings: Mapping[str, Any]) -> Any:
    """Return a consumer of committed messages from the first on, for ``console-consumer``."""
    fixed = {
        "bootstrap.servers": bootstrap,
        "group.id": f"binlake-console-{os.getpid()}",
        "isolation.level": "read_committed",
    }
    own = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 2}
    return _client().Consumer({**fixed, **own, **settings})
