"""The format ``specific``: Avro with a record for each table, operation and version of its shape.

    wire confluent   0 | id 4 bytes, big-endian | record          any reader of Confluent's format finds the schema
    wire mypipe      0 | 1, 2, 3 | id 2 bytes, big-endian | record

The subject is ``{db}_{table}_{insert|update|delete}``, as in mypipe, unless ``subjects`` sets another strategy. An
ALTER TABLE makes the subject's next version. Records have database, table, tableId, txid and the table's columns, for
an update as ``old_`` and ``new_``. Every column may be null, with null as its default, so that columns can be added and
dropped under any compatibility; a registry only refuses changes of type.

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

Whole columns are encoded at once (avro.py).

Source: Avro's specification, "Logical Types" and "Binary Encoding".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, OPERATIONS, UPDATE
from binlake.config.feed_config import SpecificFormat
from binlake.errors import FeedError
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, Register, one_each
from binlake.feeds.formats import avro
from binlake.feeds.formats.connect_avro import subject_of
from binlake.feeds.formats.generic import guids, identity, keys, number, string
from binlake.feeds.formats.joining import joined, listed
from binlake.feeds.formats.topics import Topics
from binlake.schema.table import Column

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_MOST_OF_MYPIPE = 2**15 - 1


@dataclass(frozen=True)
class _AvroType:
    """A column's type in Avro. schema: of values that aren't null. write: encodes values; null stays null."""

    schema: Any
    write: Callable[[pa.Array], pa.BinaryArray]


def _whole(kind: pa.DataType) -> Callable[[pa.Array], pa.BinaryArray]:
    """Return an encoder of values that are integers in Arrow."""
    return lambda values: avro.whole(values.cast(kind))


def _logical(kind: str, logical: str) -> dict[str, str]:
    return {"type": kind, "logicalType": logical}


def _type(column: Column, arrow: pa.DataType) -> _AvroType:
    types = pa.types
    if types.is_boolean(arrow):
        return _AvroType("boolean", avro.flags)
    if types.is_integer(arrow):
        return _AvroType("long" if arrow.bit_width == 64 else "int", avro.whole)
    if types.is_decimal(arrow):
        digits = {"precision": arrow.precision, "scale": arrow.scale}
        return _AvroType({**_logical("bytes", "decimal"), **digits}, avro.decimals)
    if types.is_floating(arrow):
        return _AvroType("float" if arrow.bit_width == 32 else "double", avro.floats)
    if types.is_date32(arrow):
        return _AvroType(_logical("int", "date"), _whole(pa.int32()))
    if types.is_timestamp(arrow):
        name = "timestamp-micros" if arrow.tz else "local-timestamp-micros"
        return _AvroType(_logical("long", name), _whole(pa.int64()))
    if types.is_binary(arrow):
        return _AvroType("bytes", avro.strings)
    if types.is_list(arrow):
        return _AvroType({"type": "array", "items": "float"}, avro.vectors)
    return _AvroType("string", avro.strings)


def _name(text: str) -> str:
    """Return a name as Avro allows it."""
    made = _NOT_IN_NAMES.sub("_", text)
    return f"_{made}" if made[:1].isdigit() else made


def schema_of(table: FeedTable, types: Sequence[_AvroType], op: int) -> dict[str, Any]:
    """Return the Avro schema of one operation's record."""
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
    name = _name(f"{table.name.table}_{OPERATIONS[op]}")
    fields = [*head, {"name": "txid", "type": ["null", guid], "default": None}, *columns]
    return {"type": "record", "name": name, "namespace": f"mypipe.{_name(table.name.database)}", "fields": fields}


class Specific(Format):
    """The format ``specific``. The key is the primary key's values as JSON."""

    def __init__(self, config: SpecificFormat, context: FeedContext, register: Register) -> None:
        self._config, self._register = config, register
        self._topics = Topics(config.topic, context)
        self._heads: dict[tuple[FeedTable, int], bytes] = {}

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return an Avro record for each row, of its operation's schema; an update has both images."""
        table, rows = changes.table, changes.rows
        topic = self._topics.of(table.name)
        image = rows.schema.field("after").type
        types = [_type(column, image.field(column.name).type) for column in table.columns]
        old, new = (_records(table, types, rows.column(which)) for which in ("before", "after"))
        op = rows.column("op")
        heads: list[bytes | None] = [None] * (max(OPERATIONS) + 1)
        for operation in pc.unique(op).to_pylist():
            heads[operation] = self._head(table, types, operation)
        data = pc.if_else(pc.equal(op, DELETE), old, new)
        if heads[UPDATE] is not None:
            data = pc.if_else(pc.equal(op, UPDATE), joined(old, new), data)
        values = joined(pa.array(heads, pa.binary()).take(op), guids(rows.column("gtid")), data)
        return one_each(topic, keys(table, rows), listed(values))

    def _head(self, table: FeedTable, types: Sequence[_AvroType], op: int) -> bytes:
        """Return the bytes before txid. Raises FeedError if the registry refuses the schema."""
        if (table, op) not in self._heads:
            name, schema, strategy = table.name, schema_of(table, types, op), self._config.subjects
            subject = f"{name.database}_{name.table}_{OPERATIONS[op]}"
            if strategy != "mypipe":
                subject = subject_of(strategy, self._topics.of(name), schema, "value")
            made = self._wire(op, self._register(subject, schema))
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


def _records(table: FeedTable, types: Sequence[_AvroType], image: pa.StructArray) -> pa.BinaryArray:
    """Return the columns of each row: for each, the union's branch and the value."""
    columns = (
        pc.fill_null(joined(b"\x02", kind.write(image.field(column.name))), b"\x00")
        for column, kind in zip(table.columns, types, strict=True)
    )
    return joined(*columns)
