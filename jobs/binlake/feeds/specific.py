"""The format ``specific``: Avro with a record for each table, operation and version of its shape.

    wire confluent   0 | id 4 bytes, big-endian | record          any reader of Confluent's format finds the schema
    wire mypipe      0 | 1, 2, 3 | id 2 bytes, big-endian | record

The subject is ``{db}_{table}_{insert|update|delete}``, as mypipe has it; a shape that an ALTER made is the subject's
next version. Records hold database, table, tableId, txid and the table's columns, of an update as ``old_`` and
``new_``. Every column may be null, with null as its default: so columns can come and go under any compatibility, and a
change of type is what a registry refuses.

| MySQL                    | Avro |
|--------------------------|------|
| TINYINT to INT, YEAR     | int; INT UNSIGNED long |
| BIGINT                   | long; unsigned bytes, decimal(20,0) |
| DECIMAL                  | bytes, decimal; beyond 38 digits string |
| FLOAT, DOUBLE, BIT(1)    | float, double, boolean |
| DATE, DATETIME, TIMESTAMP | int date; long local-timestamp-micros, timestamp-micros |
| TIME                     | long, microseconds, which may be negative |
| BINARY, BLOB, BIT(n), geometry | bytes |
| VECTOR                   | array of float |
| everything else          | string |

Source: Avro's specification, "Logical Types" and "Binary Encoding".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.errors import FeedError
from binlake.feed_config import SpecificFormat
from binlake.feeds.connect import unscaled
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, Register
from binlake.feeds.generic import guids, identity, keys, number, string
from binlake.schema.table import Column

_WORDS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_MOST_OF_MYPIPE = 2**15 - 1
Written = Sequence[bytes | None]


@dataclass(frozen=True)
class _AvroType:
    """schema: of a value that is there. write: the values."""

    schema: Any
    write: Callable[[pa.Array], Written]


def _each(write: Callable[[Any], bytes]) -> Callable[[pa.Array], Written]:
    return lambda values: [None if value is None else write(value) for value in values.to_pylist()]


def _whole(kind: pa.DataType | None = None) -> Callable[[pa.Array], Written]:
    """Numbers, and what is one in Arrow."""
    write = _each(number)
    return lambda values: write(values if kind is None else values.cast(kind))


def _floats(value: list[float]) -> bytes:
    body = b"".join(struct.pack("<f", one) for one in value)
    return (number(len(value)) + body if value else b"") + b"\x00"


def _decimal(precision: int, scale: int) -> _AvroType:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return _AvroType(schema, _each(lambda value: string(unscaled(value, scale))))


def _logical(kind: str, logical: str) -> dict[str, str]:
    return {"type": kind, "logicalType": logical}


def _type(column: Column, arrow: pa.DataType) -> _AvroType:
    types = pa.types
    if types.is_boolean(arrow):
        return _AvroType("boolean", _each(lambda value: b"\x01" if value else b"\x00"))
    if types.is_integer(arrow):
        return _AvroType("long" if arrow.bit_width == 64 else "int", _whole())
    if types.is_decimal(arrow):
        return _decimal(arrow.precision, arrow.scale)
    if types.is_floating(arrow):
        letter, name = ("<f", "float") if arrow.bit_width == 32 else ("<d", "double")
        return _AvroType(name, _each(lambda value: struct.pack(letter, value)))
    if types.is_date32(arrow):
        return _AvroType(_logical("int", "date"), _whole(pa.int32()))
    if types.is_timestamp(arrow):
        name = "timestamp-micros" if arrow.tz else "local-timestamp-micros"
        return _AvroType(_logical("long", name), _whole(pa.int64()))
    if types.is_binary(arrow):
        return _AvroType("bytes", _each(string))
    if types.is_list(arrow):
        return _AvroType({"type": "array", "items": "float"}, _each(_floats))
    return _AvroType("string", _each(lambda value: string(value.encode())))


def _name(text: str) -> str:
    """As Avro allows it."""
    made = _NOT_IN_NAMES.sub("_", text)
    return f"_{made}" if made[:1].isdigit() else made


def schema_of(table: FeedTable, types: Sequence[_AvroType], op: int) -> dict[str, Any]:
    """The record of one operation."""
    guid = {"name": "Guid", "namespace": "mypipe.avro", "type": "fixed", "size": 16}
    head = [
        {"name": "database", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "tableId", "type": "long"},
    ]
    columns = [
        {"name": prefix + _name(column.name), "type": ["null", kind.schema], "default": None}
        for prefix in (("old_", "new_") if op == UPDATE else ("",))
        for column, kind in zip(table.columns, types, strict=True)
    ]
    name = _name(f"{table.name.table}_{_WORDS[op]}")
    fields = [*head, {"name": "txid", "type": ["null", guid], "default": None}, *columns]
    return {"type": "record", "name": name, "namespace": f"mypipe.{_name(table.name.database)}", "fields": fields}


class Specific(Format):
    """See above. The key is the primary key's values as JSON."""

    def __init__(self, config: SpecificFormat, context: FeedContext, register: Register) -> None:
        self._config, self._context, self._register = config, context, register
        self._topic = Template(config.topic)
        self._heads: dict[tuple[FeedTable, int], bytes] = {}

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        table, rows = changes.table, changes.rows
        told, name = self._context, table.name
        topic = self._topic.substitute(source=told.source, feed=told.feed, db=name.database, table=name.table)
        image = rows.schema.field("after").type
        types = [_type(column, image.field(column.name).type) for column in table.columns]
        old, new = (_records(table, types, rows.column(which)) for which in ("before", "after"))
        ops = rows.column("op").to_pylist()
        heads = {op: self._head(table, types, op) for op in dict.fromkeys(ops)}
        made = []
        for op, txid, before, after, key in zip(
            ops, guids(rows.column("gtid")), old, new, keys(table, rows), strict=True
        ):
            data = before + after if op == UPDATE else before if op == DELETE else after
            made.append([Message(topic, key, heads[op] + txid + data)])
        return made

    def _head(self, table: FeedTable, types: Sequence[_AvroType], op: int) -> bytes:
        """All before txid. Raises FeedError where the registry refuses the shape."""
        if (table, op) not in self._heads:
            name = table.name
            subject = f"{name.database}_{name.table}_{_WORDS[op]}"
            made = self._wire(op, self._register(subject, schema_of(table, types, op)))
            made += string(name.database.encode()) + string(name.table.encode()) + number(identity(table))
            self._heads[table, op] = made
        return self._heads[table, op]

    def _wire(self, op: int, schema: int) -> bytes:
        if self._config.wire == "confluent":
            return b"\x00" + schema.to_bytes(4, "big")
        if schema > _MOST_OF_MYPIPE:
            raise FeedError(
                f"the schema's id {schema} has no room in mypipe's two bytes",
                remedy="write wire: confluent in the YAML",
            )
        return bytes([0, op]) + schema.to_bytes(2, "big")


def _records(table: FeedTable, types: Sequence[_AvroType], image: pa.StructArray) -> list[bytes]:
    """Of each row its columns: the union's branch, and the value."""
    columns = [
        [b"\x00" if value is None else b"\x02" + value for value in kind.write(image.field(column.name))]
        for column, kind in zip(table.columns, types, strict=True)
    ]
    return list(map(b"".join, zip(*columns, strict=True)))
