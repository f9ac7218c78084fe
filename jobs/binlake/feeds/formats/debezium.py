"""The format ``debezium``: Debezium's envelope, as JSON with or without its schema, or as Avro by a schema registry.

    topic {prefix}.{db}.{table}, key from the primary key (null without one)
    before, after, source {version, connector, name, ts_ms, snapshot, db, table, server_id, gtid, file, pos, row …},
    transaction, op (c, u, d, r, t), ts_ms

An update that changes the key is sent as a delete of the old key, its tombstone, and an insert of the new one; it
counts as two events of its transaction. Differences from the real connector (test_feed_beside_debezium.py compares
them):

- ``source.version`` is binlake's. ``thread`` is null, as staging doesn't have it. MySQL's ``server_id`` is found by the
  GTID's uuid. In a compressed transaction ``pos`` is the offset of the whole, and ``row`` counts through its events.
  There are no ``__debezium.context`` headers, as no task of Connect runs.
- Schemas have no default values of columns, and NULL is null where the connector's JSON has the default.
- JSON is the server's own text, with its spaces. DATE and DATETIME of the years 1 to 99 keep their year; the connector
  moves them to 1970 and later. YEAR 0 isn't 1900. Text is decoded as the server decodes it; the connector differs in
  swe7 and in latin1's C1 range. FLOAT has its shortest text.
- A table without a key has no tombstones.
- DDL has its time in microseconds, its text as it was logged, and ``row`` 0. Type names are without ZEROFILL, and
  GEOMCOLLECTION is named as by the server. ``length`` is null for times without fraction. ``generated`` is true for
  generated columns, not for AUTO_INCREMENT ones. Defaults are the server's text.
- All rows of the lake have ``snapshot`` ``true``, and no message describes the tables before them. Their time is the
  feed's. Their values are written like those of the log, unlike the connector's.
- MariaDB, compared with its own connector: JSON is LONGTEXT, as in the server. Comments of tables and columns are
  missing. A zero TIMESTAMP is null in a nullable column. UUIDs and text in cp932 are the server's; the connector reads
  them wrongly. A statement's GTID has no BEGIN, and TRUNCATE no transaction. The connector stops at COMPRESSED and
  INET6 columns.

A Writer makes bytes of the values (connect_json.py, connect_avro.py).

Source: Debezium's documentation of the MySQL connector, "Data change events".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import repeat
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, UPDATE
from binlake.config.feed_config import DebeziumFormat
from binlake.feeds.contract import (
    FeedChanges,
    FeedContext,
    FeedTable,
    Format,
    Message,
    SchemaChange,
    TransactionEnd,
    one_each,
)
from binlake.feeds.formats import debezium_schemas as schemas
from binlake.feeds.formats.connect import Schema, Writer, type_of
from binlake.feeds.formats.joining import Part, listed
from binlake.feeds.formats.topics import Topics
from binlake.schema.table import TableName, TableSchema
from binlake.schema.types.connect_form import ConnectType

_WORDS = ("r", "c", "u", "d")
"""Debezium's ``op`` by the number of the operation; 0 is a row of the lake."""
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_VERSION = version("binlake")
_UUID_LETTERS = 36


def _valid_topic(topic: str) -> str:
    return _NOT_IN_TOPICS.sub("_", topic)


@dataclass(frozen=True)
class _Shape:
    """One table in one shape, with its types, topic and schemas."""

    table: FeedTable
    types: tuple[ConnectType, ...]
    topic: str
    name: str
    connector: str

    @cached_property
    def key_numbers(self) -> list[int]:
        names = [column.name for column in self.table.columns]
        return [names.index(name) for name in self.table.key]

    @cached_property
    def key(self) -> Schema:
        return schemas.key(self.table, self.types, self.name)

    @cached_property
    def envelope(self) -> Schema:
        return schemas.envelope(self.table, self.types, self.name, self.connector)

    def images(self) -> tuple[Schema, Schema]:
        """Return the schemas of before and after."""
        before, after, *_ = self.envelope["fields"]
        return before, after


class Debezium(Format):
    """The format ``debezium``."""

    def __init__(self, config: DebeziumFormat, context: FeedContext, writer: Writer) -> None:
        self.wants_transactions = config.transactions
        self._config, self._context, self._writer = config, context, writer
        self._prefix = Template(config.topic_prefix).substitute(source=context.source, feed=context.feed)
        self._topics = Topics(config.topic, context, _valid_topic, prefix=self._prefix)
        names = Topics("${prefix}.${db}.${table}", context, schemas.valid_name, prefix=self._prefix)
        self._subjects = names if config.registry and config.subjects != "TopicName" else None
        self._shapes: dict[FeedTable, _Shape] = {}
        self._source_schema = schemas.source(context.flavour)
        self._change_schemas = schemas.schema_change_key(context.flavour), schemas.schema_change(context.flavour)

    # mutations --------------------------------------------------------------------------------------------------------
    def events(self, changes: FeedChanges) -> Sequence[int]:
        """Return 2 for updates that change the key as it is written, else 1."""
        counted: list[int] = []
        for piece in changes.pieces():
            shape, count = self._shape(piece.table), np.ones(piece.rows.num_rows, np.int64)
            updates = np.flatnonzero(pc.equal(piece.rows.column("op"), UPDATE))
            if shape.table.key and len(updates):
                rows = piece.rows.take(pa.array(updates))
                old, new = (self._key_bodies(shape, rows.column(image)) for image in ("before", "after"))
                count[updates[np.flatnonzero(_differ(old, new))]] = 2
            counted += count.tolist()
        return counted

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return the envelope of each row.

        A deleted row is followed by a tombstone if the YAML asks for them. An update that changes the key is a delete
        and a create, as Debezium sends it.
        """
        shape, rows = self._shape(changes.table), changes.rows
        old, new = (self._columns(shape, rows.column(image)) for image in ("before", "after"))
        before, after = (
            self._writer.struct(schema, columns, rows.column(schema["field"]))
            for schema, columns in zip(shape.images(), (old, new), strict=True)
        )
        op = rows.column("op") if not changes.snapshot else pa.array(np.zeros(rows.num_rows, np.int8))
        row = _Rows(
            before, after, self._sources(changes), self._transaction_blocks(changes.transactions), time.time_ns()
        )
        values = self._values(shape, row, pa.array(_WORDS).take(op))
        deleted = pc.equal(op, DELETE)
        if not shape.table.key:
            return one_each(shape.topic, repeat(None), values)
        old_keys = self._keys(shape, rows.column("before"), old)
        new_keys = self._keys(shape, rows.column("after"), new)
        keys = listed(pc.if_else(deleted, old_keys, new_keys))
        messages = one_each(shape.topic, keys, values)
        if self._config.tombstones:
            for number in np.flatnonzero(deleted).tolist():
                messages[number] = (*messages[number], Message(shape.topic, keys[number], None))
        moved = np.flatnonzero(pc.and_(pc.equal(op, UPDATE), _differ(old_keys, new_keys)))
        if len(moved):
            former, place = old_keys.take(moved).to_pylist(), moved.tolist()
            behind = self._transaction_blocks([changes.transactions[n] for n in place if changes.transactions], 1)
            for number, message_of in zip(place, self._moved(shape, row.take(moved), former, behind), strict=True):
                messages[number] = message_of(keys[number])
        return messages

    def _moved(
        self, shape: _Shape, row: _Rows, former: Sequence[bytes], behind: Part
    ) -> Iterator[Callable[[bytes], list[Message]]]:
        """Yield, for each update that changes the key, a function that makes its messages, given the new key.

        former: the old keys. behind: the transaction blocks of the inserts.
        """
        before, after = (self._writer.constant(schema, None) for schema in shape.images())
        deletes = self._values(shape, replace(row, after=after), "d")
        inserts = self._values(shape, replace(row, before=before, transactions=behind), "c")

        def messages_of(key: bytes, was: bytes, end: bytes, begin: bytes) -> list[Message]:
            newer, older = (("__debezium.newkey", key),), (("__debezium.oldkey", was),)
            gone = [end, None] if self._config.tombstones else [end]
            return [
                *(Message(shape.topic, was, value, newer) for value in gone),
                Message(shape.topic, key, begin, older),
            ]

        for was, end, begin in zip(former, deletes, inserts, strict=True):
            yield partial(messages_of, was=was, end=end, begin=begin)

    def _shape(self, table: FeedTable) -> _Shape:
        if table not in self._shapes:
            types = tuple(type_of(column, self._config) for column in table.columns)
            topic = self._topics.of(table.name)
            if self._subjects:  # schemas that are registered by their names may not meet either
                self._subjects.of(table.name)
            name = schemas.valid_name(f"{self._prefix}.{table.name.database}.{table.name.table}")
            self._shapes[table] = _Shape(table, types, topic, name, self._context.flavour)
        return self._shapes[table]

    def _columns(self, shape: _Shape, image: pa.StructArray) -> list[pa.Array]:
        """Return the written values of each column of an image."""
        fields = shape.images()[0]["fields"]
        return [
            self._writer.column(field, kind.values(image.field(column.name)))
            for field, column, kind in zip(fields, shape.table.columns, shape.types, strict=True)
        ]

    def _keys(self, shape: _Shape, image: pa.StructArray, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """Return the keys of an image's rows. columns: from ``_columns``."""
        return self._writer.message(shape.topic, shape.key, self._key_bodies(shape, image, columns), key=True)

    def _key_bodies(self, shape: _Shape, image: pa.StructArray, columns: Sequence[pa.Array] = ()) -> Part:
        """Return the keys without the message around them. columns: written already; those that are NOT NULL are taken
        as they are."""
        parts = []
        for number, field in zip(shape.key_numbers, shape.key["fields"], strict=True):
            column, kind = shape.table.columns[number], shape.types[number]
            if column.nullable or not columns:
                parts.append(self._writer.column(field, kind.values(image.field(column.name))))
            else:
                parts.append(columns[number])
        return self._writer.struct(shape.key, parts)

    def _values(self, shape: _Shape, row: _Rows, words: pa.StringArray | str) -> list[bytes]:
        """Return the envelopes. words: Debezium's ``op`` of each row, or of all."""
        last = zip(shape.envelope["fields"][4:], (words, *_times(row.now_ns)), strict=True)
        rest = [self._written(field, value) for field, value in last]
        parts = [row.before, row.after, row.sources, row.transactions, *rest]
        body = self._writer.struct(shape.envelope, parts)
        return listed(self._writer.message(shape.topic, shape.envelope, body))

    def _written(self, schema: Schema, value: Any) -> Part:
        """Write a column of values, or one value for all rows."""
        return (
            self._writer.column(schema, value) if isinstance(value, pa.Array) else self._writer.constant(schema, value)
        )

    def _sources(self, changes: FeedChanges) -> Part:
        rows, name = changes.rows, changes.table.name
        us, gtid = rows.column("committed_us"), rows.column("gtid").cast(pa.string())
        source = self._source_fields(name.database, name.table, changes.file, snapshot=changes.snapshot)
        source |= {"ts_ms": pc.divide(us, 1000), "ts_us": us, "ts_ns": pc.multiply(us, 1000), "gtid": gtid}
        ids_of = _ids_in_gtids if self._context.flavour == "mariadb" else _ids_by_uuid
        source["server_id"] = ids_of(gtid, changes.servers)
        source |= {"pos": rows.column("offset"), "row": 0 if changes.snapshot else rows.column("row")}
        fields = self._source_schema["fields"]
        return self._writer.struct(
            self._source_schema, [self._written(field, source[field["field"]]) for field in fields]
        )

    def _source_fields(self, database: str, table: str | None, file: str, *, snapshot: bool = False) -> dict[str, Any]:
        fields: dict[str, Any] = {"version": _VERSION, "connector": self._context.flavour, "name": self._prefix}
        fields |= {"snapshot": "true" if snapshot else "false", "db": database, "table": table, "file": file}
        return fields | {"sequence": None, "server_id": 0, "thread": None, "query": None}

    def _transaction_blocks(self, ordinals: Sequence[tuple[str, int, int]], later: int = 0) -> Part:
        """Write the transaction blocks of rows. later: how many events after the given ordinals."""
        if not ordinals:
            return self._writer.constant(schemas.TRANSACTION, None)
        columns = zip(*((name, total + later, count + later) for name, total, count in ordinals), strict=True)
        parts = [
            self._writer.column(field, pa.array(values))
            for field, values in zip(schemas.TRANSACTION["fields"], columns, strict=True)
        ]
        return self._writer.struct(schemas.TRANSACTION, parts)

    # what lies between ------------------------------------------------------------------------------------------------
    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        """Return the messages of a statement, as far as the YAML asks for them.

        There is one for each truncated table, and for other statements a schema change.
        """
        if change.kind == "TRUNCATE TABLE":
            tables = change.tables if self._config.truncates else ()
            return [self._truncated(change, name, schema) for name, schema in tables if schema]
        return [self._schema_change_message(change)] if self._config.schema_changes else []

    def _truncated(self, change: SchemaChange, name: TableName, schema: TableSchema) -> Message:
        shape = self._shape(FeedTable(name, schema.mirrored, schema.key, schema))
        ms, us, ns = _times(time.time_ns())
        value: dict[str, Any] = {"before": None, "after": None}
        value |= {"source": self._statement_source(change, name.database, name.table), "transaction": None}
        value |= {"op": "t", "ts_ms": ms, "ts_us": us, "ts_ns": ns}
        return Message(shape.topic, None, self._writer.single(shape.topic, shape.envelope, value))

    def _statement_source(self, change: SchemaChange, database: str, table: str | None) -> dict[str, Any]:
        statement = change.statement
        us = statement.committed_us
        source = self._source_fields(database, table, statement.file)
        source |= {"ts_ms": us // 1000, "ts_us": us, "ts_ns": us * 1000, "gtid": statement.gtid or None}
        if self._context.flavour == "mariadb" and statement.gtid:
            source["server_id"] = int(statement.gtid.split("-")[1])
        elif change.servers:
            uuid = (statement.gtid or "")[:_UUID_LETTERS]
            source["server_id"] = change.servers.get(uuid, 0)
        return source | {"pos": statement.offset, "row": 0}

    def _schema_change_message(self, change: SchemaChange) -> Message:
        first = change.tables[0][0]
        value = {
            "source": self._statement_source(change, first.database, first.table),
            "ts_ms": time.time_ns() // 1_000_000,
            "databaseName": first.database,
            "schemaName": None,
            "ddl": change.text,
            "tableChanges": schemas.table_changes(change),
        }
        return self._message(self._prefix, self._change_schemas, {"databaseName": first.database}, value)

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        """Return the BEGIN message of the transaction's topic."""
        return [self._boundary("BEGIN", transaction, committed_us, None, None)]

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        """Return the END message of the transaction's topic, with the counts of events by table."""
        tables = [{"data_collection": str(name), "event_count": count} for name, count in transaction.tables.items()]
        return [self._boundary("END", transaction.id, transaction.committed_us, transaction.events, tables)]

    def _boundary(
        self,
        status: str,
        transaction: str,
        committed_us: int,
        count: int | None,
        tables: Sequence[Mapping[str, Any]] | None,
    ) -> Message:
        value = {"status": status, "id": transaction, "event_count": count, "data_collections": tables}
        timed = {**value, "ts_ms": committed_us // 1000}
        topic = f"{self._prefix}.transaction"
        return self._message(topic, (schemas.BOUNDARY_KEY, schemas.BOUNDARY), {"id": transaction}, timed)

    def heartbeat(self, at_us: int) -> Sequence[Message]:
        """Return a heartbeat if the YAML asks for them. at_us: µs since 1970 UTC; Debezium has milliseconds."""
        if not self._config.heartbeat:
            return ()
        both = schemas.HEARTBEAT_KEY, schemas.HEARTBEAT
        return [
            self._message(
                f"__debezium-heartbeat.{self._prefix}", both, {"serverName": self._prefix}, {"ts_ms": at_us // 1000}
            )
        ]

    def _message(self, topic: str, both: tuple[Schema, Schema], key: Mapping[str, Any], value: Any) -> Message:
        topic = _valid_topic(topic)
        key_schema, schema = both
        whole_key = self._writer.single(topic, key_schema, key, key=True)
        return Message(topic, whole_key, self._writer.single(topic, schema, value))


@dataclass(frozen=True)
class _Rows:
    """Written parts of envelopes, one per row or one for all. now_ns: the time when they are made."""

    before: Part
    after: Part
    sources: Part
    transactions: Part
    now_ns: int

    def take(self, numbers: np.ndarray[Any, Any]) -> _Rows:
        parts = (self.before, self.after, self.sources, self.transactions)
        before, after, sources, transactions = (
            part.take(pa.array(numbers)) if isinstance(part, pa.Array) else part for part in parts
        )
        return _Rows(before, after, sources, transactions, self.now_ns)


def _differ(old: Part, new: Part) -> pa.BooleanArray:
    """Return which keys differ; none that is missing."""
    return pc.fill_null(pc.not_equal(old, new), False)


def _ids_by_uuid(gtids: pa.StringArray, servers: Mapping[str, int]) -> pa.Array | int:
    """Return the server ids of MySQL's GTIDs, by uuid; 0 if unknown, as for rows of the lake."""
    if len(servers) < 2:
        return next(iter(servers.values()), 0)
    uuids = pc.utf8_slice_codeunits(pc.fill_null(gtids, ""), 0, _UUID_LETTERS).dictionary_encode()
    ids = pa.array([servers.get(uuid, 0) for uuid in uuids.dictionary.to_pylist()], pa.int64())
    return ids.take(uuids.indices)


def _ids_in_gtids(gtids: pa.StringArray, servers: Mapping[str, int]) -> pa.Array:
    """Return the server ids in MariaDB's GTIDs (domain-server-sequence); 0 without one, as for rows of the lake."""
    servers = pc.list_element(pc.split_pattern(pc.fill_null(gtids, "0-0-0"), "-"), 1)
    return pc.cast(servers, pa.int64())


def _times(ns: int) -> tuple[int, int, int]:
    """Return a time as ts_ms, ts_us and ts_ns."""
    return ns // 1_000_000, ns // 1000, ns
