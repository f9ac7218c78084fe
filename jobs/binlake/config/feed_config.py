"""Settings of feeds in the YAML: which mutations go where, in which format. Checked once, when the YAML is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from string import Template
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from binlake.config.section import Section, TablePattern
from binlake.config.yaml_file import NAME, WEB

Operation = Literal["insert", "update", "delete"]
Compatibility = Literal["NONE", "BACKWARD", "FORWARD", "FULL"]
Subjects = Literal["TopicName", "RecordName", "TopicRecordName"]
SINK_SCHEMES = ("file", "kafka", "https", "http", "binlog")

KEEP_POSITIONS = frozenset({"file", "kafka", "binlog"})
"""Schemes of the sinks that keep a feed's position together with its messages, see feeds.contract.Sink."""
TOPIC_WORDS = {"source": "", "feed": "", "db": "", "table": ""}
"""Placeholders that a topic's name may hold, written as ``${db}``."""
_PLACEHOLDER = re.compile(r"\$\{(source|feed)\}")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


def _is_own(name: str) -> bool:
    """Return whether a name can be a class of the user's own: ``module:Class``, or an entry point's."""
    return re.fullmatch(NAME, name) is not None or _CLASS.match(name) is not None


def _own_sink(url: str) -> str:
    """Return the name in ``module:Class``, ``NAME`` or ``NAME://…``."""
    return url if _CLASS.match(url) else url.partition("://")[0]


def _is_topic(topic: str, words: Mapping[str, str] = TOPIC_WORDS) -> str:
    try:
        Template(topic).substitute(words)
    except (KeyError, ValueError):
        known = ", ".join(f"${{{word}}}" for word in words)
        raise ValueError(f"{topic!r} may hold {known}, and no other $") from None
    return topic


def _is_topic_or_prefixed(topic: str) -> str:
    return _is_topic(topic, {"prefix": "", **TOPIC_WORDS})


def _is_topic_prefix(prefix: str) -> str:
    if not re.fullmatch(r"[\w.-]+", _PLACEHOLDER.sub("x", prefix), re.ASCII):
        raise ValueError(f"{prefix!r} may hold letters, digits, '.', '_' and '-', ${{source}} and ${{feed}}")
    return prefix


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ValueError("the registry's address holds a user or a password; name a registry_connection instead")
    return url


RegistryUrl = Annotated[str, Field(pattern=WEB), AfterValidator(_without_login)]


class TextFormat(Section):
    """One line for people: the operation, the table, the row before and after as JSON, the position."""

    type: Literal["text"]
    topic: str = "${db}.${table}"

    _topic = field_validator("topic")(_is_topic)


class DebeziumFormat(Section):
    """Debezium's envelope.

    topic_prefix: Debezium's topic.prefix, the namespace of topics and schemas, and the source's name in messages; a
    topic may hold it as ``${prefix}``. encoding: JSON, or Avro by a schema registry (registry and what belongs to it:
    see SpecificFormat). schemas: each message in JSON carries its schema beside the payload. tombstones: a delete is
    followed by its key without a value. transactions: BEGIN and END on the topic ``{topic_prefix}.transaction``, and
    the order inside the transaction in each message. schema_changes: DDL on the topic ``{topic_prefix}``. truncates:
    TRUNCATE is a message of the operation t on the table's topic. heartbeat: a message if a run had nothing to carry.
    decimals, bigint_unsigned, binary: as Debezium's decimal.handling.mode, bigint.unsigned.handling.mode and
    binary.handling.mode.
    """

    type: Literal["debezium"]
    topic_prefix: str = "${source}"
    topic: str = "${prefix}.${db}.${table}"
    encoding: Literal["json", "avro"] = "json"
    registry: RegistryUrl | None = None
    registry_connection: Annotated[str, Field(min_length=1)] | None = None
    compatibility: Compatibility | None = None
    subjects: Subjects = "TopicName"
    schemas: bool = False
    tombstones: bool = True
    transactions: bool = False
    schema_changes: bool = True
    truncates: bool = False
    heartbeat: bool = True
    decimals: Literal["precise", "string", "double"] = "precise"
    bigint_unsigned: Literal["long", "precise"] = "long"
    binary: Literal["bytes", "base64", "hex"] = "bytes"

    _topic = field_validator("topic")(_is_topic_or_prefixed)
    _prefix = field_validator("topic_prefix")(_is_topic_prefix)

    @model_validator(mode="after")
    def _registry_for_avro(self) -> Self:
        if self.encoding == "json":
            if self.registry or self.registry_connection or self.compatibility or self.subjects != "TopicName":
                raise ValueError("a registry and what belongs to it are Avro's; write encoding: avro")
            return self
        if not self.registry:
            raise ValueError("encoding: avro needs registry: http://host:port")
        if self.schemas:
            raise ValueError("schemas are JSON's; encoding: avro has them in the registry")
        return self


class GenericFormat(Section):
    """mypipe's generic Avro: a record for each operation, with the columns in maps by their kind."""

    type: Literal["generic"]
    topic: str = "${db}_${table}_generic"

    _topic = field_validator("topic")(_is_topic)


class SpecificFormat(Section):
    """Avro with a record for each table and version of its shape, in a schema registry.

    wire: Confluent's five bytes before the record, or mypipe's four. compatibility: set for each subject; None: as the
    registry has it. registry_connection: an Airflow connection's id (see feeds.schema_registry). subjects: how they are
    named: as mypipe does it (``{db}_{table}_{operation}``), or by Confluent's strategies of these names.
    """

    type: Literal["specific"]
    registry: RegistryUrl
    registry_connection: Annotated[str, Field(min_length=1)] | None = None
    subjects: Literal["mypipe"] | Subjects = "mypipe"
    topic: str = "${db}_${table}_specific"
    wire: Literal["confluent", "mypipe"] = "confluent"
    compatibility: Compatibility | None = None

    _topic = field_validator("topic")(_is_topic)


class CsvFormat(Section):
    """A line for each mutation. topic: with ``${hour}`` each hour of commits has a file of its own."""

    type: Literal["csv"]
    topic: str = "${db}.${hour}"

    @field_validator("topic")
    @classmethod
    def _is_one(cls, topic: str) -> str:
        _is_topic(topic.replace("${hour}", ""))
        return topic


class BinlogFormat(Section):
    """Row events, for the sink binlog:// alone."""

    type: Literal["binlog"]


FormatConfig = Annotated[
    TextFormat | DebeziumFormat | GenericFormat | SpecificFormat | BinlogFormat | CsvFormat,
    Field(discriminator="type"),
]


class SinkConfig(Section):
    """The sink that messages go to.

    url: file:///folder, kafka://host:port[,host:port], https://…, binlog:///folder; for a class of one's own
    ``module:Class``, or an entry point's name, alone or as a scheme. connection: an Airflow connection's
    id, whose login, password and extra are the credentials. settings: of the sink's own client (librdkafka's for
    Kafka), which hold no secret.
    """

    url: str
    connection: Annotated[str, Field(min_length=1)] | None = None
    settings: dict[str, str | bool | int | float] = {}

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise ValueError("the address holds a user or a password; name a connection instead")
        if parts.scheme not in SINK_SCHEMES:
            if not _is_own(_own_sink(url)):
                known = ", ".join(SINK_SCHEMES)
                raise ValueError(f"{url!r} is no sink; there are {known}, module:Class, and names of entry points")
            return url
        if parts.scheme in ("file", "binlog") and (parts.netloc or len(parts.path) < 2):
            raise ValueError(f"{url!r} names no folder; write {parts.scheme}:///folder")
        if parts.scheme not in ("file", "binlog") and not parts.netloc:
            raise ValueError(f"{url!r} names no host")
        return url

    @field_validator("settings")
    @classmethod
    def _has_no_secret(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for key in settings:
            if re.search(r"(?i)(password|secret|token)", key):
                raise ValueError(f"{key!r} is a secret, and this file is none; name a connection that has it")
        return settings

    @property
    def scheme(self) -> str:
        """Return the URL's scheme, which names the kind of sink."""
        return urlsplit(self.url).scheme

    @property
    def own(self) -> str | None:
        """Return the name of a sink of the user's own, as feeds.plugins has it; None for one of binlake's."""
        return None if self.scheme in SINK_SCHEMES else _own_sink(self.url)

    @property
    def address(self) -> str:
        """Return the host and port in the URL; kafka:// may have several, with commas between them."""
        return urlsplit(self.url).netloc

    @property
    def folder(self) -> str:
        """Return the folder of file:// and binlog://."""
        return urlsplit(self.url).path


class FeedErrorsConfig(Section):
    """mypipe's flags for the failures at which a feed stops (see feeds.error_layers).

    They may be written with hyphens, as in mypipe. None: as ``on_error`` says. handler: an entry point's name, or
    ``module:Class``; it decides instead of the flags.
    """

    model_config = ConfigDict(validate_by_name=True, alias_generator=lambda name: name.replace("_", "-"))

    quit_on_event_decode_failure: bool | None = None
    quit_on_empty_mutation_commit_failure: bool | None = None
    quit_on_listener_failure: bool = True
    quit_on_event_handler_failure: bool = True
    handler: Annotated[str, Field(min_length=1)] | None = None


@dataclass(frozen=True)
class FeedStops:
    """The layers of feeds.error_layers at whose failures a feed stops. listener: table_map, mutation and alter."""

    decode: bool
    empty_commit: bool
    listener: bool
    event: bool


class FeedConfig(Section):
    """One feed: the mutations that match, in one format, to one sink, from a watermark of its own.

    sources: in a file of feeds, the YAML files of the sources; in a source's own YAML that source. where: a condition
    over ``db``, ``table``, ``op`` and columns (see feeds.condition). position: where the feed's position is kept: the
    lake's metadata, ``file:/path``, ``mysql:CONNECTION/database.table``, or a class of one's own (see feeds.plugins).
    begin: what a feed without a position begins with: the oldest batch that is staged, what comes from now on, or the
    tables' rows in the lake. on_error: at an event of the feed's tables that can't be decoded, the feed stops before
    the event's batch, or leaves the event out and says so; other failures stop it, unless ``errors`` says otherwise.
    keep_gb: so many gigabytes (10**9 bytes) of log are kept staged for the feed; keep_hours: for so many hours; a feed
    further behind stops. enabled: a feed that isn't is carried by nobody; it keeps its position, and staging within its
    limits.
    """

    name: Annotated[str, Field(pattern=NAME)]
    enabled: bool = True
    sources: list[str] = []
    include: Annotated[list[TablePattern], Field(min_length=1)] = ["*.*"]
    exclude: list[TablePattern] = []
    operations: Annotated[list[Operation], Field(min_length=1)] = ["insert", "update", "delete"]
    where: Annotated[str, Field(min_length=1)] | None = None
    format: FormatConfig
    sink: SinkConfig
    on_error: Literal["stop", "skip"] = "stop"
    errors: FeedErrorsConfig = FeedErrorsConfig()
    position: str = "metadata"
    begin: Literal["oldest", "now", "lake"] = "oldest"
    keep_gb: Annotated[float, Field(gt=0)] = 50
    keep_hours: Annotated[float, Field(gt=0)] = 168

    @property
    def own_position(self) -> str | None:
        """Return the name of a store of the user's own, as feeds.plugins has it; None for one of binlake's."""
        known = self.position == "metadata" or self.position.startswith(("file:", "mysql:"))
        return None if known else self.position

    @property
    def registry(self) -> tuple[str, str | None] | None:
        """Return the address of the format's schema registry and its connection, if any; None without a registry."""
        form = self.format
        if not isinstance(form, DebeziumFormat | SpecificFormat) or form.registry is None:
            return None
        return form.registry, form.registry_connection

    @field_validator("format", mode="before")
    @classmethod
    def _by_its_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @field_validator("sink", mode="before")
    @classmethod
    def _by_its_url(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _binlog_to_binlog(self) -> Self:
        if (self.format.type == "binlog") != (self.sink.scheme == "binlog"):
            raise ValueError("format: binlog and a sink binlog:///folder go together")
        return self

    @model_validator(mode="after")
    def _position_is_asked(self) -> Self:
        """Refuse a store of positions that the sink's own position would overrule."""
        if self.position != "metadata" and self.sink.scheme in KEEP_POSITIONS:
            raise ValueError(
                f"position: {self.position} would have no effect: a sink {self.sink.scheme}:// keeps the position with"
                " the messages; take position away"
            )
        return self

    @property
    def stops(self) -> FeedStops:
        """Return the layers at whose failures the feed stops, by ``on_error`` and the flags."""
        flags, stop = self.errors, self.on_error == "stop"
        decode, empty = flags.quit_on_event_decode_failure, flags.quit_on_empty_mutation_commit_failure
        return FeedStops(
            decode=stop if decode is None else decode,
            empty_commit=stop if empty is None else empty,
            listener=flags.quit_on_listener_failure,
            event=flags.quit_on_event_handler_failure,
        )

    def leaving_out(self, what: Literal["event_decode", "empty_mutation_commit"]) -> str:
        """Return the setting under which the feed leaves out events of a kind at which it stops."""
        flag = f"quit_on_{what}_failure"
        return f"errors: {{{flag}: false}}" if flag in self.errors.model_fields_set else "on_error: skip"

    @model_validator(mode="after")
    def _errors_agree(self) -> Self:
        """Refuse settings that were written, and that another overrules."""
        written = {name: getattr(self.errors, name) for name in self.errors.model_fields_set}
        if "on_error" in self.model_fields_set:
            for name in ("quit_on_event_decode_failure", "quit_on_empty_mutation_commit_failure"):
                if written.get(name) is (self.on_error == "skip"):
                    raise ValueError(_contradiction(f"on_error: {self.on_error}", name, written[name]))
        if not self.errors.quit_on_event_handler_failure:
            for name, value in written.items():
                if value is True:
                    raise ValueError(_contradiction("errors: quit_on_event_handler_failure: false", name, value))
            if "on_error" in self.model_fields_set and self.on_error == "stop":
                raise ValueError(_contradiction("on_error: stop", "quit_on_event_handler_failure", False))
        return self

    @field_validator("position")
    @classmethod
    def _is_a_store(cls, position: str) -> str:
        if not position.startswith(("file:/", "mysql:")) and not _is_own(position):
            raise ValueError(
                f"{position!r} is none of metadata, file:/path, mysql:CONNECTION/db.table, module:Class, nor the name"
                " of an entry point"
            )
        return position


def _contradiction(setting: str, flag: str, value: bool) -> str:
    return f"{setting} and errors: {flag}: {str(value).lower()} contradict each other; take one of them away"


def names_once(feeds: list[FeedConfig]) -> list[FeedConfig]:
    """Return the feeds. Raises ValueError if two have the same name, as they would share a position, or write one topic
    in two encodings."""
    names = [feed.name for feed in feeds]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two feeds are named {twice!r}; each needs a name of its own")
    for feed, other in combinations(feeds, 2):
        if feed.sink.url == other.sink.url and (set(feed.sources) & set(other.sources) or not feed.sources):
            _refuse_two_encodings(feed, other)
    return feeds


def _refuse_two_encodings(feed: FeedConfig, other: FeedConfig) -> None:
    """Raise ValueError if both write to a topic of their source that has one name whatever the feed, see
    DebeziumFormat, and in different encodings."""
    form, others = feed.format, other.format
    if not isinstance(form, DebeziumFormat) or not isinstance(others, DebeziumFormat):
        return
    if (form.encoding, form.schemas) == (others.encoding, others.schemas) or form.topic_prefix != others.topic_prefix:
        return
    both = [name for name in ("schema_changes", "transactions", "heartbeat") if getattr(form, name)]
    if shared := [f"{name}: false" for name in both if getattr(others, name)]:
        raise ValueError(
            f"feeds {feed.name!r} and {other.name!r} would write the source's own topics in two encodings; give one of"
            f" them {', '.join(shared)}"
        )


class FeedsFile(Section):
    """A file of feeds over several sources."""

    feeds: Annotated[list[FeedConfig], Field(min_length=1)]

    @field_validator("feeds")
    @classmethod
    def _have_sources(cls, feeds: list[FeedConfig]) -> list[FeedConfig]:
        for feed in feeds:
            if not feed.sources:
                raise ValueError(f"feed {feed.name!r} names no sources; write sources: [shop.yaml]")
        return names_once(feeds)
