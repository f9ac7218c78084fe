"""The format ``debezium``: Debezium's envelope, as JSON with or without its schema, or as Avro by a schema registry.

    topic {source}.{db}.{table}, key from the primary key (null without one)
    before, after, source {version, connector, name, ts_ms, snapshot, db, table, server_id, gtid, file, pos, row …},
    transaction, op (c, u, d, r, t), ts_ms

An update that changes the key is a delete of the old, its tombstone, and an insert of the new; it counts as two events
of its transaction. What differs from a real connector, beside which a test stands (test_feed_beside_debezium.py):

- ``source.version`` is ours, ``thread`` null, which staging doesn't have, and MySQL's ``server_id`` that of the server
  of the GTID's uuid, which in a slice has one; in a compressed transaction ``pos`` is the offset of the whole, and
  ``row`` counts through its events. There are no ``__debezium.context`` headers, for no task of Connect runs.
- Schemas carry no columns' default values, and NULL is told as null, where the connector's JSON has the default.
- JSON is the server's own text, with its blanks; DATE and DATETIME of the years 1 to 99 stay there, where the connector
  moves them to 1970 and on, and YEAR 0 isn't 1900; text is what the server reads in it (in swe7, and in latin1's C1, it
  isn't in the connector's); FLOAT has its shortest text.
- A table without a key has no tombstones.
- DDL has its time in microseconds, its text as it was logged, and ``row`` 0; of columns the types' names are without
  ZEROFILL, and GEOMCOLLECTION as the server says it; ``length`` is null without digits of a fraction; ``generated`` are
  generated columns, not those with AUTO_INCREMENT; defaults are the server's text.
- Rows of the lake are all ``snapshot`` ``true``, and nothing tells the tables' structure before them; their time is the
  feed's; their values are told as those of the log, which the connector's aren't.
- Of MariaDB, beside its own connector: JSON is the LONGTEXT that the server has; no comments of tables and columns; a
  TIMESTAMP of zeros is null where NULL may be; UUID is the server's, which the connector reads as other bytes, as it
  does text in cp932; a statement's GTID has no BEGIN, and TRUNCATE no transaction. It ends at COMPRESSED and INET6.

How values become bytes is a Writer's (connect_json.py, connect_avro.py).

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
from binlake.feeds.formats.connect import ConnectType, Schema, Writer, type_of
from binlake.feeds.formats.joining import Part, listed
from binlake.schema.table import TableName, TableSchema

_WORDS = ("r", "c", "u", "d")
"""By the operation; 0 is a row of the lake."""
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_VERSION = version("binlake")
_UUID_LETTERS = 36


@dataclass(frozen=True)
class _Shape:
    """How one table's rows in one shape are written."""

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
        """The schemas of before and after."""
        before, after, *_ = self.envelope["fields"]
        return before, after


class Debezium(Format):
    """See above."""

    def __init__(self, config: DebeziumFormat, context: FeedContext, writer: Writer) -> None:
        self.wants_transactions = config.transactions
        self._config, self._context, self._writer = config, context, writer
        self._topic = Template(config.topic)
        self._shapes: dict[FeedTable, _Shape] = {}
        self._source_schema = schemas.source(context.flavour)
        self._change_schemas = schemas.schema_change_key(context.flavour), schemas.schema_change(context.flavour)

    # mutations --------------------------------------------------------------------------------------------------------
    def events(self, changes: FeedChanges) -> Sequence[int]:
        """An update that changes the key is two."""
        before, after = (changes.rows.column(image) for image in ("before", "after"))
        moved = np.zeros(changes.rows.num_rows, bool)
        for name in changes.table.key:
            old, new = before.field(name), after.field(name)
            other = pc.coalesce(pc.not_equal(old, new), pc.not_equal(old.is_null(), new.is_null()))
            moved |= other.to_numpy(zero_copy_only=False)
        moved &= pc.equal(changes.rows.column("op"), UPDATE).to_numpy(zero_copy_only=False)
        counted: list[int] = (moved + 1).tolist()
        return counted

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
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
        other = pc.fill_null(pc.not_equal(old_keys, new_keys), False)
        moved = np.flatnonzero(pc.and_(pc.equal(op, UPDATE), other))
        if len(moved):
            former, place = old_keys.take(moved).to_pylist(), moved.tolist()
            behind = self._transaction_blocks([changes.transactions[n] for n in place if changes.transactions], 1)
            for number, told in zip(place, self._moved(shape, row.take(moved), former, behind), strict=True):
                messages[number] = told(keys[number])
        return messages

    def _moved(
        self, shape: _Shape, row: _Rows, former: Sequence[bytes], behind: Part
    ) -> Iterator[Callable[[bytes], list[Message]]]:
        """Of updates that change the key: what is told of each, given its new key. behind: where the new rows stand in
        their transactions."""
        before, after = (self._writer.constant(schema, None) for schema in shape.images())
        deletes = self._values(shape, replace(row, after=after), "d")
        inserts = self._values(shape, replace(row, before=before, transactions=behind), "c")

        def told(key: bytes, was: bytes, end: bytes, begin: bytes) -> list[Message]:
            newer, older = (("__debezium.newkey", key),), (("__debezium.oldkey", was),)
            gone = [end, None] if self._config.tombstones else [end]
            return [
                *(Message(shape.topic, was, value, newer) for value in gone),
                Message(shape.topic, key, begin, older),
            ]

        for was, end, begin in zip(former, deletes, inserts, strict=True):
            yield partial(told, was=was, end=end, begin=begin)

    def _shape(self, table: FeedTable) -> _Shape:
        if table not in self._shapes:
            types = tuple(type_of(column, self._config) for column in table.columns)
            topic = self._topic_of(self._topic, table.name)
            name = schemas.valid_name(f"{self._context.source}.{table.name.database}.{table.name.table}")
            self._shapes[table] = _Shape(table, types, topic, name, self._context.flavour)
        return self._shapes[table]

    def _topic_of(self, template: Template, name: TableName) -> str:
        told = self._context
        topic = template.substitute(source=told.source, feed=told.feed, db=name.database, table=name.table)
        return _NOT_IN_TOPICS.sub("_", topic)

    def _columns(self, shape: _Shape, image: pa.StructArray) -> list[pa.Array]:
        """Each column's values of an image, written."""
        fields = shape.images()[0]["fields"]
        return [
            self._writer.column(field, kind.values(image.field(column.name)))
            for field, column, kind in zip(fields, shape.table.columns, shape.types, strict=True)
        ]

    def _keys(self, shape: _Shape, image: pa.StructArray, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """columns: the image's, as ``_columns`` made them; those that are NOT NULL are written the same in a key."""
        parts = []
        for number, field in zip(shape.key_numbers, shape.key["fields"], strict=True):
            column, kind = shape.table.columns[number], shape.types[number]
            if column.nullable:
                parts.append(self._writer.column(field, kind.values(image.field(column.name))))
            else:
                parts.append(columns[number])
        key = self._writer.struct(shape.key, parts)
        return self._writer.message(shape.topic, shape.key, key, key=True)

    def _values(self, shape: _Shape, row: _Rows, words: pa.StringArray | str) -> list[bytes]:
        """The envelopes."""
        told = (words, *_moment(row.now_ns))
        rest = [self._written(*one) for one in zip(shape.envelope["fields"][4:], told, strict=True)]
        parts = [row.before, row.after, row.sources, row.transactions, *rest]
        body = self._writer.struct(shape.envelope, parts)
        return listed(self._writer.message(shape.topic, shape.envelope, body))

    def _written(self, schema: Schema, value: Any) -> Part:
        """A column of values, or one for all."""
        return (
            self._writer.column(schema, value) if isinstance(value, pa.Array) else self._writer.constant(schema, value)
        )

    def _sources(self, changes: FeedChanges) -> Part:
        rows, name = changes.rows, changes.table.name
        us, gtid = rows.column("committed_us"), rows.column("gtid").cast(pa.string())
        told = self._told_source(name.database, name.table, changes.file, snapshot=changes.snapshot)
        told |= {"ts_ms": pc.divide(us, 1000), "ts_us": us, "ts_ns": pc.multiply(us, 1000), "gtid": gtid}
        told["server_id"] = (_server_ids if self._context.flavour == "mariadb" else _of_uuids)(gtid, changes.servers)
        told |= {"pos": rows.column("offset"), "row": 0 if changes.snapshot else rows.column("row")}
        fields = self._source_schema["fields"]
        return self._writer.struct(
            self._source_schema, [self._written(field, told[field["field"]]) for field in fields]
        )

    def _told_source(self, database: str, table: str | None, file: str, *, snapshot: bool = False) -> dict[str, Any]:
        told: dict[str, Any] = {"version": _VERSION, "connector": self._context.flavour, "name": self._context.source}
        told |= {"snapshot": "true" if snapshot else "false", "db": database, "table": table, "file": file}
        return told | {"sequence": None, "server_id": 0, "thread": None, "query": None}

    def _transaction_blocks(self, told: Sequence[tuple[str, int, int]], later: int = 0) -> Part:
        """later: events behind those that are told."""
        if not told:
            return self._writer.constant(schemas.TRANSACTION, None)
        columns = zip(*((name, total + later, count + later) for name, total, count in told), strict=True)
        parts = [
            self._writer.column(field, pa.array(values))
            for field, values in zip(schemas.TRANSACTION["fields"], columns, strict=True)
        ]
        return self._writer.struct(schemas.TRANSACTION, parts)

    # what lies between ------------------------------------------------------------------------------------------------
    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        if change.kind == "TRUNCATE TABLE":
            told = change.tables if self._config.truncates else ()
            return [self._truncated(change, name, schema) for name, schema in told if schema]
        return [self._told(change)] if self._config.schema_changes else []

    def _truncated(self, change: SchemaChange, name: TableName, schema: TableSchema) -> Message:
        shape = self._shape(FeedTable(name, schema.mirrored, schema.key, schema))
        ms, us, ns = _moment(time.time_ns())
        value: dict[str, Any] = {"before": None, "after": None}
        value |= {"source": self._statement_source(change, name.database, name.table), "transaction": None}
        value |= {"op": "t", "ts_ms": ms, "ts_us": us, "ts_ns": ns}
        return Message(shape.topic, None, self._writer.single(shape.topic, shape.envelope, value))

    def _statement_source(self, change: SchemaChange, database: str, table: str | None) -> dict[str, Any]:
        statement = change.statement
        us = statement.committed_us
        told = self._told_source(database, table, statement.file)
        told |= {"ts_ms": us // 1000, "ts_us": us, "ts_ns": us * 1000, "gtid": statement.gtid or None}
        if self._context.flavour == "mariadb" and statement.gtid:
            told["server_id"] = int(statement.gtid.split("-")[1])
        elif change.servers:
            uuid = (statement.gtid or "")[:_UUID_LETTERS]
            told["server_id"] = change.servers.get(uuid, 0)
        return told | {"pos": statement.offset, "row": 0}

    def _told(self, change: SchemaChange) -> Message:
        first = change.tables[0][0]
        value = {
            "source": self._statement_source(change, first.database, first.table),
            "ts_ms": time.time_ns() // 1_000_000,
            "databaseName": first.database,
            "schemaName": None,
            "ddl": change.text,
            "tableChanges": schemas.table_changes(change),
        }
        return self._message(self._context.source, self._change_schemas, {"databaseName": first.database}, value)

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        return [self._boundary("BEGIN", transaction, committed_us, None, None)]

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
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
        told = {**value, "ts_ms": committed_us // 1000}
        topic = f"{self._context.source}.transaction"
        return self._message(topic, (schemas.BOUNDARY_KEY, schemas.BOUNDARY), {"id": transaction}, told)

    def heartbeat(self, at_us: int) -> Sequence[Message]:
        if not self._config.heartbeat:
            return ()
        source = self._context.source
        both = schemas.HEARTBEAT_KEY, schemas.HEARTBEAT
        return [self._message(f"__debezium-heartbeat.{source}", both, {"serverName": source}, {"ts_ms": at_us // 1000})]

    def _message(self, topic: str, both: tuple[Schema, Schema], key: Mapping[str, Any], value: Any) -> Message:
        topic = _NOT_IN_TOPICS.sub("_", topic)
        key_schema, schema = both
        whole_key = self._writer.single(topic, key_schema, key, key=True)
        return Message(topic, whole_key, self._writer.single(topic, schema, value))


@dataclass(frozen=True)
class _Rows:
    """What envelopes are made of, row by row or one for all. now_ns: when they are."""

    before: Part
    after: Part
    sources: Part
    transactions: Part
    now_ns: int

    def take(self, numbers: np.ndarray[Any, Any]) -> _Rows:
        parts = (self.before, self.after, self.sources, self.transactions)
        before, after, sources, transactions = (
            one.take(pa.array(numbers)) if isinstance(one, pa.Array) else one for one in parts
        )
        return _Rows(before, after, sources, transactions, self.now_ns)


def _of_uuids(gtids: pa.StringArray, servers: Mapping[str, int]) -> pa.Array | int:
    """Of MySQL's GTIDs, by the servers' uuids; 0 of one that isn't known, as a row of the lake is."""
    if len(servers) < 2:
        return next(iter(servers.values()), 0)
    uuids = pc.utf8_slice_codeunits(pc.fill_null(gtids, ""), 0, _UUID_LETTERS).dictionary_encode()
    ids = pa.array([servers.get(one, 0) for one in uuids.dictionary.to_pylist()], pa.int64())
    return ids.take(uuids.indices)


def _server_ids(gtids: pa.StringArray, servers: Mapping[str, int]) -> pa.Array:
    """Of MariaDB's GTIDs (domain-server-sequence); 0 without one, as a row of the lake is."""
    servers = pc.list_element(pc.split_pattern(pc.fill_null(gtids, "0-0-0"), "-"), 1)
    return pc.cast(servers, pa.int64())


def _moment(ns: int) -> tuple[int, int, int]:
    """As ts_ms, ts_us and ts_ns."""
    return ns // 1_000_000, ns // 1000, ns
