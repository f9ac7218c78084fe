"""The format ``debezium``: Debezium's envelope as JSON, with or without its schema.

    topic {source}.{db}.{table}, key from the primary key (null without one)
    before, after, source {version, connector, name, ts_ms, snapshot, db, table, server_id, gtid, file, pos, row …},
    transaction, op (c, u, d, r, t), ts_ms

An update that changes the key is a delete of the old, its tombstone, and an insert of the new. What differs from a
real connector: ``source.server_id`` is 0 and ``thread`` is null, which staging doesn't have; ``pos`` is the offset of
the row's event (in a compressed transaction that of the whole), ``row`` counts through the events there; schemas carry
no default values.

Source: Debezium's documentation of the MySQL connector, "Data change events".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, UPDATE, Statement
from binlake.feed_config import DebeziumFormat
from binlake.feeds import debezium_schemas as schemas
from binlake.feeds.connect import ConnectType, Fragments, as_json, joined, quoted, quoted_json, type_of
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, SchemaChange, TransactionEnd
from binlake.schema.table import TableName

_WORDS = ("r", "c", "u", "d")
"""By the operation; 0 is a row of the lake."""
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_VERSION = version("binlake")


@dataclass(frozen=True)
class _Shape:
    """How one table's rows in one shape are written."""

    table: FeedTable
    types: tuple[ConnectType, ...]
    topic: str
    schema_name: str

    @cached_property
    def key_numbers(self) -> list[int]:
        names = [column.name for column in self.table.columns]
        return [names.index(name) for name in self.table.key]


class Debezium(Format):
    """See above."""

    def __init__(self, config: DebeziumFormat, context: FeedContext) -> None:
        self.wants_transactions = config.transactions
        self._config, self._context = config, context
        self._topic = Template(config.topic)
        self._shapes: dict[FeedTable, _Shape] = {}

    # mutations --------------------------------------------------------------------------------------------------------
    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        shape, rows = self._shape(changes.table), changes.rows
        old, new = (_columns(shape, rows.column(image)) for image in ("before", "after"))
        before = _image(shape, old, rows.column("before"))
        after = _image(shape, new, rows.column("after"))
        op = rows.column("op") if not changes.snapshot else pa.array(np.zeros(rows.num_rows, np.int8))
        row = _Rows(before, after, self._sources(changes), self._transaction_blocks(changes), self._tail())
        values = self._values(shape, row, pa.array(_WORDS).take(op))
        deleted = pc.equal(op, DELETE)
        if not shape.table.key:
            return [[Message(shape.topic, None, value)] for value in values]
        old_keys, new_keys = (self._keys(shape, columns) for columns in (old, new))
        keys = pc.if_else(deleted, old_keys, new_keys).cast(pa.binary()).to_pylist()
        messages = [[Message(shape.topic, key, value)] for key, value in zip(keys, values, strict=True)]
        if self._config.tombstones:
            for number in np.flatnonzero(deleted).tolist():
                messages[number].append(Message(shape.topic, keys[number], None))
        moved = np.flatnonzero(pc.and_(pc.equal(op, UPDATE), pc.not_equal(old_keys, new_keys)))
        if len(moved):
            former = old_keys.take(moved).cast(pa.binary()).to_pylist()
            for number, told in zip(moved.tolist(), self._moved(shape, row.take(moved), former), strict=True):
                messages[number] = told(keys[number])
        return messages

    def _moved(self, shape: _Shape, row: _Rows, former: Sequence[bytes]) -> Iterator[Callable[[bytes], list[Message]]]:
        """Of updates that change the key: what is told of each, given its new key."""
        gone, made = (
            self._values(shape, replace(row, after="null"), "d"),
            self._values(shape, replace(row, before="null"), "c"),
        )

        def told(key: bytes, was: bytes, end: bytes, begin: bytes) -> list[Message]:
            delete = Message(shape.topic, was, end, (("__debezium.newkey", key),))
            create = Message(shape.topic, key, begin, (("__debezium.oldkey", was),))
            return [delete, Message(shape.topic, was, None), create] if self._config.tombstones else [delete, create]

        for was, end, begin in zip(former, gone, made, strict=True):
            yield partial(told, was=was, end=end, begin=begin)

    def _shape(self, table: FeedTable) -> _Shape:
        if table not in self._shapes:
            types = tuple(type_of(column, self._config) for column in table.columns)
            topic = self._topic_of(self._topic, table.name)
            name = schemas.valid_name(f"{self._context.source}.{table.name.database}.{table.name.table}")
            self._shapes[table] = _Shape(table, types, topic, name)
        return self._shapes[table]

    def _topic_of(self, template: Template, name: TableName) -> str:
        told = self._context
        topic = template.substitute(source=told.source, feed=told.feed, db=name.database, table=name.table)
        return _NOT_IN_TOPICS.sub("_", topic)

    def _keys(self, shape: _Shape, columns: Sequence[Fragments]) -> pa.StringArray:
        head, foot = "", ""
        if self._config.schemas:
            told = as_json(schemas.key(shape.table, shape.types, shape.schema_name))
            head, foot = f'{{"schema":{told},"payload":', "}"
        return _objects(shape.table.key, [columns[number] for number in shape.key_numbers], head, foot)

    def _values(self, shape: _Shape, row: _Rows, words: pa.StringArray | str) -> list[bytes]:
        """The envelopes."""
        head, foot = "", ""
        if self._config.schemas:
            told = as_json(schemas.envelope(shape.table, shape.types, shape.schema_name))
            head, foot = f'{{"schema":{told},"payload":', "}"
        images = (f'{head}{{"before":', row.before, ',"after":', row.after)
        rest = (',"source":', row.sources, ',"transaction":', row.transactions, ',"op":"', words)
        found: list[bytes] = joined(*images, *rest, f'",{row.tail}}}{foot}').cast(pa.binary()).to_pylist()
        return found

    def _tail(self) -> str:
        now = time.time_ns()
        return f'"ts_ms":{now // 1_000_000},"ts_us":{now // 1000},"ts_ns":{now}'

    def _sources(self, changes: FeedChanges) -> pa.StringArray:
        rows, name = changes.rows, changes.table.name
        head, foot = self._source_parts(name.database, name.table, changes.file, snapshot=changes.snapshot)
        us, offset, row = (rows.column(column) for column in ("committed_us", "offset", "row"))
        moment = (f'{head}"ts_ms":', _text(pc.divide(us, 1000)), ',"ts_us":', _text(us), ',"ts_ns":', _text(us))
        gtid = pc.fill_null(quoted(rows.column("gtid").cast(pa.string())), "null")
        return joined(*moment, '000,"gtid":', gtid, ',"pos":', _text(offset), ',"row":', _text(row), f",{foot}")

    def _source_parts(self, database: str, table: str | None, file: str, *, snapshot: bool = False) -> tuple[str, str]:
        told = {"version": _VERSION, "connector": self._context.flavour, "name": self._context.source}
        told |= {"snapshot": "true" if snapshot else "false", "db": database}
        rest = {"sequence": None, "table": table, "server_id": 0, "file": file, "thread": None, "query": None}
        return as_json(told)[:-1] + ",", as_json(rest)[1:]

    def _transaction_blocks(self, changes: FeedChanges) -> pa.StringArray | str:
        if not changes.transactions:
            return "null"
        return pa.array(
            f'{{"id":{quoted_json(transaction)},"total_order":{total},"data_collection_order":{own}}}'
            for transaction, total, own in changes.transactions
        )

    # what lies between ------------------------------------------------------------------------------------------------
    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        messages = []
        if change.kind == "TRUNCATE TABLE" and self._config.truncates:
            messages += [self._truncated(change.statement, name) for name, _ in change.tables]
        if self._config.schema_changes:
            messages.append(self._told(change))
        return messages

    def _truncated(self, statement: Statement, name: TableName) -> Message:
        source = self._statement_source(statement, name.database, name.table)
        value = f'{{"before":null,"after":null,"source":{source},"transaction":null,"op":"t",{self._tail()}}}'
        return Message(self._topic_of(self._topic, name), None, value.encode())

    def _statement_source(self, statement: Statement, database: str, table: str | None) -> str:
        head, foot = self._source_parts(database, table, statement.file)
        us, gtid = statement.committed_us, statement.gtid
        moment = f'"ts_ms":{us // 1000},"ts_us":{us},"ts_ns":{us}000'
        return f'{head}{moment},"gtid":{quoted_json(gtid) if gtid else "null"},"pos":{statement.offset},"row":0,{foot}'

    def _told(self, change: SchemaChange) -> Message:
        first = change.tables[0][0]
        value = (
            f'{{"source":{self._statement_source(change.statement, first.database, first.table)},'
            f'"ts_ms":{time.time_ns() // 1_000_000},"databaseName":{quoted_json(first.database)},"schemaName":null,'
            f'"ddl":{quoted_json(change.text)},"tableChanges":{as_json(schemas.table_changes(change))}}}'
        )
        key = as_json({"databaseName": first.database})
        return Message(_NOT_IN_TOPICS.sub("_", self._context.source), key.encode(), value.encode())

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        return [self._boundary("BEGIN", transaction, committed_us, None, None)]

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        tables = [{"data_collection": str(name), "event_count": count} for name, count in transaction.tables.items()]
        return [self._boundary("END", transaction.id, transaction.committed_us, transaction.mutations, tables)]

    def _boundary(
        self,
        status: str,
        transaction: str,
        committed_us: int,
        count: int | None,
        tables: Sequence[Mapping[str, Any]] | None,
    ) -> Message:
        value = {"status": status, "id": transaction, "event_count": count, "data_collections": tables}
        topic = _NOT_IN_TOPICS.sub("_", f"{self._context.source}.transaction")
        told = as_json({**value, "ts_ms": committed_us // 1000})
        return Message(topic, as_json({"id": transaction}).encode(), told.encode())

    def heartbeat(self, at_us: int) -> Sequence[Message]:
        if not self._config.heartbeat:
            return ()
        topic = _NOT_IN_TOPICS.sub("_", f"__debezium-heartbeat.{self._context.source}")
        key, value = {"serverName": self._context.source}, {"ts_ms": at_us // 1000}
        return [Message(topic, as_json(key).encode(), as_json(value).encode())]


@dataclass(frozen=True)
class _Rows:
    """What envelopes are made of, row by row; a text is one for all. tail: the time."""

    before: pa.StringArray | str
    after: pa.StringArray | str
    sources: pa.StringArray
    transactions: pa.StringArray | str
    tail: str

    def take(self, numbers: np.ndarray[Any, Any]) -> _Rows:
        parts = (self.before, self.after, self.sources, self.transactions)
        before, after, sources, transactions = (
            one if isinstance(one, str) else one.take(pa.array(numbers)) for one in parts
        )
        return _Rows(before, after, sources, transactions, self.tail)


def _columns(shape: _Shape, image: pa.StructArray) -> list[Fragments]:
    """Each column's values of an image as JSON."""
    return [
        kind.render(image.field(column.name)) for column, kind in zip(shape.table.columns, shape.types, strict=True)
    ]


def _image(shape: _Shape, columns: Sequence[Fragments], image: pa.StructArray) -> pa.StringArray:
    objects = _objects([column.name for column in shape.table.columns], columns)
    return objects if not image.null_count else pc.if_else(image.is_valid(), objects, "null")


def _objects(names: Sequence[str], columns: Sequence[Fragments], head: str = "", foot: str = "") -> pa.StringArray:
    parts: list[pa.StringArray | str] = []
    for name, values in zip(names, columns, strict=True):
        parts += [f"{',' if parts else head + '{'}{quoted_json(name)}:", values]
    return joined(*parts, f"}}{foot}")


def _text(numbers: pa.Array) -> pa.StringArray:
    return numbers.cast(pa.string())
