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
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from string import Template
from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, UPDATE, Statement
from binlake.feed_config import DebeziumFormat
from binlake.feeds import debezium_schemas as schemas
from binlake.feeds.connect import ConnectType, as_json, quoted_json, type_of
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, SchemaChange, TransactionEnd
from binlake.schema.table import TableName

_OPS = {INSERT: "c", UPDATE: "u", DELETE: "d"}
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
    def template(self) -> str:
        names = (quoted_json(column.name).replace("%", "%%") for column in self.table.columns)
        return "{" + ",".join(f"{name}:%s" for name in names) + "}"

    @cached_property
    def key_template(self) -> str:
        return "{" + ",".join(f"{quoted_json(name).replace('%', '%%')}:%s" for name in self.table.key) + "}"

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
        shape = self._shape(changes.table)
        rows = changes.rows
        old, new = (_columns(shape, rows.column(image)) for image in ("before", "after"))
        before, after = (
            _images(shape, columns, rows.column(image).is_valid().to_pylist())
            for image, columns in (("before", old), ("after", new))
        )
        ops = rows.column("op").to_pylist()
        keys = self._keys(shape, ops, old, new)
        sources, transactions = self._sources(changes), self._transaction_blocks(changes)
        tail = self._tail()
        write = self._writer(shape)
        if changes.snapshot:
            ops = [0] * len(ops)
        return [
            self._messages(shape, write, one)
            for one in zip(ops, keys, before, after, sources, transactions, [tail] * len(ops), strict=True)
        ]

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

    def _keys(
        self, shape: _Shape, ops: Sequence[int], old: Sequence[Sequence[str]], new: Sequence[Sequence[str]]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Of each row the key it has, and the one it had where that is another."""
        if not shape.table.key:
            return [(None, None)] * len(ops)
        write = self._key_writer(shape)
        before, after = (
            list(zip(*(columns[number] for number in shape.key_numbers), strict=True)) for columns in (old, new)
        )
        found: list[tuple[bytes | None, bytes | None]] = []
        for op, was, now in zip(ops, before, after, strict=True):
            if op == DELETE:
                found.append((write(was), None))
            else:
                found.append((write(now), write(was) if op == UPDATE and was != now else None))
        return found

    def _key_writer(self, shape: _Shape) -> Callable[[tuple[str, ...]], bytes]:
        head, foot = "", ""
        if self._config.schemas:
            head, foot = (
                f'{{"schema":{as_json(schemas.key(shape.table, shape.types, shape.schema_name))},"payload":',
                "}",
            )
        template = head.replace("%", "%%") + shape.key_template + foot
        return lambda values: (template % values).encode()

    def _writer(self, shape: _Shape) -> Callable[[str], bytes]:
        if not self._config.schemas:
            return str.encode
        head = f'{{"schema":{as_json(schemas.envelope(shape.table, shape.types, shape.schema_name))},"payload":'
        return lambda payload: f"{head}{payload}}}".encode()

    def _messages(self, shape: _Shape, write: Callable[[str], bytes], row: tuple[Any, ...]) -> list[Message]:
        op, (key, old_key), before, after, source, transaction, tail = row

        def value(word: str, before: str, after: str) -> bytes:
            block = f'"before":{before},"after":{after},"source":{source},"transaction":{transaction}'
            return write(f'{{{block},"op":"{word}",{tail}}}')

        topic = shape.topic
        if old_key is not None:
            gone = Message(topic, old_key, value("d", before, "null"), (("__debezium.newkey", key),))
            made = Message(topic, key, value("c", "null", after), (("__debezium.oldkey", old_key),))
            return [gone, Message(topic, old_key, None), made] if self._config.tombstones else [gone, made]
        messages = [Message(topic, key, value(_OPS.get(op, "r"), before, after))]
        if op == DELETE and key is not None and self._config.tombstones:
            messages.append(Message(topic, key, None))
        return messages

    def _tail(self) -> str:
        now = time.time_ns()
        return f'"ts_ms":{now // 1_000_000},"ts_us":{now // 1000},"ts_ns":{now}'

    def _sources(self, changes: FeedChanges) -> Iterator[str]:
        rows, name = changes.rows, changes.table.name
        head, foot = self._source_parts(name.database, name.table, changes.file, snapshot=changes.snapshot)
        columns = (rows.column(column).to_pylist() for column in ("committed_us", "gtid", "offset", "row"))
        for us, gtid, offset, row in zip(*columns, strict=True):
            moment = f'"ts_ms":{us // 1000},"ts_us":{us},"ts_ns":{us}000'
            yield f'{head}{moment},"gtid":{quoted_json(gtid) if gtid else "null"},"pos":{offset},"row":{row},{foot}'

    def _source_parts(self, database: str, table: str | None, file: str, *, snapshot: bool = False) -> tuple[str, str]:
        told = {"version": _VERSION, "connector": self._context.flavour, "name": self._context.source}
        told |= {"snapshot": "true" if snapshot else "false", "db": database}
        rest = {"sequence": None, "table": table, "server_id": 0, "file": file, "thread": None, "query": None}
        return as_json(told)[:-1] + ",", as_json(rest)[1:]

    def _transaction_blocks(self, changes: FeedChanges) -> Iterator[str]:
        if not changes.transactions:
            yield from ["null"] * changes.rows.num_rows
        for transaction, total, own in changes.transactions:
            yield f'{{"id":{quoted_json(transaction)},"total_order":{total},"data_collection_order":{own}}}'

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


def _columns(shape: _Shape, image: pa.StructArray) -> list[Sequence[str]]:
    """Each column's values of an image as JSON."""
    return [
        kind.render(image.field(column.name)) for column, kind in zip(shape.table.columns, shape.types, strict=True)
    ]


def _images(shape: _Shape, columns: Sequence[Sequence[str]], there: Sequence[bool]) -> list[str]:
    template = shape.template
    rows = zip(*columns, strict=True)
    return [template % row if is_there else "null" for row, is_there in zip(rows, there, strict=True)]
