"""The format ``generic``: mypipe's generic Avro, which needs no schema repository.

    MAGIC 1 byte (0) | MTYPE 1 byte (1 insert, 2 update, 3 delete) | SCMID 2 bytes, big-endian | DATA

SCMID is 0: each of the three records is the first schema of a subject of its own. DATA is the record as Avro writes it;
columns stand in maps by their kind, and NULL in none of them:

| map      | columns |
|----------|---------|
| integers | TINYINT to INT that fit 32 bits, YEAR, BIT(1) |
| longs    | INT UNSIGNED, BIGINT, TIME in microseconds |
| bytes    | BINARY, BLOB, BIT(n), geometry |
| strings  | everything else, as the server prints it; BIGINT UNSIGNED among them, which no long holds |

tableId is a number of the table's name and shape, for the log's own means nothing outside of it; txid is made of the
GTID. Whole columns are encoded at once (avro.py).

Source: mypipe's README ("Kafka message format") and schemas; Avro's specification, "Binary Encoding".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config.feed_config import GenericFormat
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, one_each
from binlake.feeds.formats import avro
from binlake.feeds.formats.joining import joined, listed, quoted
from binlake.feeds.formats.text import PLAIN_SCALE, plain
from binlake.schema.table import Column

MAGIC, SCHEMA_ID = 0, 0
_MAPS = ("bytes", "integers", "strings", "longs")
_VALUES = {"bytes": "bytes", "integers": "int", "strings": "string", "longs": "long"}
_NAMES = {INSERT: "InsertMutation", UPDATE: "UpdateMutation", DELETE: "DeleteMutation"}


def schema(op: int) -> dict[str, Any]:
    """The Avro schema of an operation's record."""
    guid = {"namespace": "mypipe.avro", "name": "Guid", "type": "fixed", "size": 16}
    prefixes = ("old_", "new_") if op == UPDATE else ("",)
    maps = [
        {"name": prefix + name, "type": {"type": "map", "values": _VALUES[name]}}
        for prefix in prefixes
        for name in _MAPS
    ]
    head = [
        {"name": "database", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "tableId", "type": "long"},
    ]
    fields = [*head, {"name": "txid", "type": ["null", guid], "default": None}, *maps]
    return {"namespace": "mypipe.avro", "type": "record", "name": _NAMES[op], "fields": fields}


# Avro's numbers -------------------------------------------------------------------------------------------------------
_ONE = [bytes([value]) for value in range(128)]
_TWO = [bytes([value & 127 | 128, value >> 7]) for value in range(1 << 14)]
_MORE = [bytes([value & 127 | 128, value >> 7 | 128]) for value in range(1 << 14)]


def number(value: int) -> bytes:
    """A whole number: zigzag, seven bits a byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    made = b""
    while rest >= 1 << 14:
        made += _MORE[rest & 0x3FFF]
        rest >>= 14
    return made + (_ONE[rest] if rest < 128 else _TWO[rest])


def string(data: bytes) -> bytes:
    """Text in UTF-8, or bytes: its length before it."""
    return number(len(data)) + data


@dataclass(frozen=True)
class _Kind:
    """Which map a column stands in, and how its values are written, in parts that follow each other; null stays
    null."""

    map: str
    write: Callable[[pa.Array], Sequence[pa.BinaryArray]]


def _whole(values: pa.Array) -> Sequence[pa.BinaryArray]:
    return (avro.whole(values),)


def _flags(values: pa.Array) -> Sequence[pa.BinaryArray]:
    return _whole(values.cast(pa.int8()))


def _printed(values: pa.Array) -> Sequence[pa.BinaryArray]:
    """As the server prints them."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.string())
    elif pa.types.is_date(values.type) or (pa.types.is_decimal(values.type) and values.type.scale <= PLAIN_SCALE):
        values = values.cast(pa.string())
    else:
        values = pa.array([None if value is None else str(plain(value)) for value in values.to_pylist()], pa.string())
    return avro.string_parts(values)


def _kind(column: Column, arrow: pa.DataType) -> _Kind:
    if pa.types.is_boolean(arrow):
        return _Kind("integers", _flags)
    if pa.types.is_integer(arrow):
        return _Kind("longs" if arrow.bit_width == 64 else "integers", _whole)
    if pa.types.is_binary(arrow):
        return _Kind("bytes", avro.string_parts)
    return _Kind("strings", avro.string_parts if pa.types.is_string(arrow) else _printed)


# rows -----------------------------------------------------------------------------------------------------------------
class Generic(Format):
    """See above. The key is the primary key's values as JSON, so that a topic may have many partitions."""

    def __init__(self, config: GenericFormat, context: FeedContext) -> None:
        self._topic = Template(config.topic)
        self._context = context

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        table, rows = changes.table, changes.rows
        told = self._context
        topic = self._topic.substitute(
            source=told.source, feed=told.feed, db=table.name.database, table=table.name.table
        )
        values = _records(table, rows)
        return one_each(topic, keys(table, rows), listed(values))


def _records(table: FeedTable, rows: pa.RecordBatch) -> pa.BinaryArray:
    """Of each row its message: the rows of an operation together, then in their order again."""
    op = rows.column("op").to_numpy()
    made, places = [], []
    for one in np.unique(op).tolist():
        there = np.flatnonzero(op == one)
        part = rows if len(there) == len(op) else rows.take(pa.array(there))
        images = {INSERT: ("after",), UPDATE: ("before", "after"), DELETE: ("before",)}[one]
        maps = [piece for image in images for piece in _maps(table, part.column(image))]
        made.append(joined(_head(table, one), guids(part.column("gtid")), *maps))
        places.append(there)
    if len(made) == 1:
        return made[0]
    order = np.argsort(np.concatenate(places or [op]), kind="stable")
    return pa.concat_arrays(made or [pa.array([], pa.binary())]).take(pa.array(order))


def _head(table: FeedTable, op: int) -> bytes:
    """All before txid."""
    name = table.name
    names = string(name.database.encode()) + string(name.table.encode())
    return bytes([MAGIC, op]) + SCHEMA_ID.to_bytes(2, "big") + names + number(identity(table))


def identity(table: FeedTable) -> int:
    """tableId: a number of 48 bits."""
    name = table.name
    shape = json.dumps([name.database, name.table, [(column.name, column.type) for column in table.columns]])
    return int.from_bytes(hashlib.blake2b(shape.encode(), digest_size=6).digest(), "big")


def guids(gtids: pa.Array) -> pa.BinaryArray:
    """txid: the union's branch, and sixteen bytes of the transaction."""
    known = gtids.dictionary_encode()
    digests = (hashlib.blake2b(gtid.encode(), digest_size=16).digest() for gtid in known.dictionary.to_pylist())
    made = pa.array([b"\x02" + one for one in digests], pa.binary())
    return pc.fill_null(made.take(known.indices), b"\x00")


def keys(table: FeedTable, rows: pa.RecordBatch) -> Iterable[bytes | None]:
    """Of each row its primary key's values as JSON."""
    if not table.key:
        return repeat(None, rows.num_rows)
    there = rows.column("after").is_valid()
    images = (
        pc.if_else(there, *(rows.column(image).field(name) for image in ("after", "before"))) for name in table.key
    )
    texts = [_as_json(image) for image in images]
    between = [part for text in texts for part in (b", ", text)][1:]
    return listed(joined(b"[", *between, b"]"))


def _as_json(values: pa.Array) -> pa.BinaryArray:
    if pa.types.is_integer(values.type):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_string(values.type) and not values.null_count:
        return quoted(values).cast(pa.binary())
    texts = [json.dumps(value, ensure_ascii=False, default=plain).encode() for value in values.to_pylist()]
    return pa.array(texts, pa.binary())


_Parts = Sequence[bytes | pa.BinaryArray]
"""What is written of each row, one behind the other; bytes are the same in all."""


def _maps(table: FeedTable, image: pa.StructArray) -> _Parts:
    """The four maps of rows that are there."""
    by_map: dict[str, list[tuple[bytes, Sequence[pa.BinaryArray]]]] = {name: [] for name in _MAPS}
    for column in table.columns:
        values = image.field(column.name)
        kind = _kind(column, values.type)
        by_map[kind.map].append((string(column.name.encode()), kind.write(values)))
    return [part for name in _MAPS for part in _map(by_map[name], len(image))]


def _map(entries: Sequence[tuple[bytes, Sequence[pa.BinaryArray]]], rows: int) -> _Parts:
    """One block with all entries, then the end; an empty map is its end alone, which a count of 0 is too."""
    always = [(name, written) for name, written in entries if not written[-1].null_count]
    at_times = [joined(name, *written) for name, written in entries if written[-1].null_count]
    told: list[bytes | pa.BinaryArray] = [part for name, written in always for part in (name, *written)]
    if not at_times:
        return [number(len(entries)), *told, b"\x00" if entries else b""]
    counts = np.full(rows, len(always), np.int64)
    for one in at_times:
        counts += one.is_valid().to_numpy(zero_copy_only=False)
    end = pc.if_else(pa.array(counts > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary()))
    return [avro.numbers(counts), *told, *(pc.fill_null(one, b"") for one in at_times), end]
