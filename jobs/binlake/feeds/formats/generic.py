"""The format ``generic``: mypipe's generic Avro, which needs no schema repository.

    MAGIC 1 byte (0) | MTYPE 1 byte (1 insert, 2 update, 3 delete) | SCMID 2 bytes, big-endian | DATA

SCMID is 0: each of the three records is the first schema of its own subject. DATA is the record in Avro's binary
encoding. Columns are in maps by their kind; a column that is NULL is in none of them:

| map      | columns |
|----------|---------|
| integers | TINYINT to INT that fit 32 bits, YEAR, BIT(1) |
| longs    | INT UNSIGNED, BIGINT, TIME in microseconds |
| bytes    | BINARY, BLOB, BIT(n), geometry |
| strings  | everything else, as the server prints it; BIGINT UNSIGNED among them, which no long holds |

tableId is a hash of the table's name and shape, as the log's own number means nothing outside of the log; txid is a
hash of the GTID. Whole columns are encoded at once (avro.py).

Source: mypipe's README ("Kafka message format") and schemas; Avro's specification, "Binary Encoding".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config.feed_config import GenericFormat
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, one_each
from binlake.feeds.formats import avro
from binlake.feeds.formats.joining import joined, listed, quoted
from binlake.feeds.formats.text import PLAIN_SCALE, plain, shortest
from binlake.feeds.formats.topics import Topics
from binlake.schema.doubles import double_texts
from binlake.schema.table import Column

MAGIC, SCHEMA_ID = 0, 0
_SECONDS = len("2026-01-31 13:00:00")
_MAPS = ("bytes", "integers", "strings", "longs")
_VALUES = {"bytes": "bytes", "integers": "int", "strings": "string", "longs": "long"}
_NAMES = {INSERT: "InsertMutation", UPDATE: "UpdateMutation", DELETE: "DeleteMutation"}


def schema(op: int) -> dict[str, Any]:
    """Return the Avro schema of an operation's record."""
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
    """Encode an integer: zigzag, seven bits per byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    made = b""
    while rest >= 1 << 14:
        made += _MORE[rest & 0x3FFF]
        rest >>= 14
    return made + (_ONE[rest] if rest < 128 else _TWO[rest])


def string(data: bytes) -> bytes:
    """Encode text (UTF-8) or bytes, preceded by its length."""
    return number(len(data)) + data


@dataclass(frozen=True)
class _Kind:
    """The map that a column is in, and the writer of its values, as consecutive parts; null stays null."""

    map: str
    write: Callable[[pa.Array], Sequence[pa.BinaryArray]]


def _whole(values: pa.Array) -> Sequence[pa.BinaryArray]:
    return (avro.whole(values),)


def _flags(values: pa.Array) -> Sequence[pa.BinaryArray]:
    return _whole(values.cast(pa.int8()))


def _printed(values: pa.Array, fraction: int) -> Sequence[pa.BinaryArray]:
    """Write values as text, as the server prints them. fraction: digits of a time's seconds behind the point."""
    if pa.types.is_timestamp(values.type):
        texts = values.cast(pa.timestamp("us")).cast(pa.string())
        values = pc.utf8_slice_codeunits(texts, 0, _SECONDS + (fraction and fraction + 1))
    elif pa.types.is_floating(values.type):
        values = pa.array(double_texts(shortest(values).to_pylist()), pa.string())
    elif pa.types.is_date(values.type) or (pa.types.is_decimal(values.type) and values.type.scale <= PLAIN_SCALE):
        values = values.cast(pa.string())
    else:
        each = shortest(values).to_pylist()
        values = pa.array([None if value is None else str(plain(value)) for value in each], pa.string())
    return avro.string_parts(values)


def _kind(column: Column, arrow: pa.DataType) -> _Kind:
    if pa.types.is_boolean(arrow):
        return _Kind("integers", _flags)
    if pa.types.is_integer(arrow):
        return _Kind("longs" if arrow.bit_width == 64 else "integers", _whole)
    if pa.types.is_binary(arrow):
        return _Kind("bytes", avro.string_parts)
    printed = partial(_printed, fraction=column.fraction)
    return _Kind("strings", avro.string_parts if pa.types.is_string(arrow) else printed)


# rows -----------------------------------------------------------------------------------------------------------------
class Generic(Format):
    """The format ``generic``. The key is the primary key's values as JSON, so that a topic may have many partitions."""

    def __init__(self, config: GenericFormat, context: FeedContext) -> None:
        self._topics = Topics(config.topic, context)

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return a generic Avro record for each row."""
        table, rows = changes.table, changes.rows
        values = _records(table, rows)
        return one_each(self._topics.of(table.name), keys(table, rows), listed(values))


def _records(table: FeedTable, rows: pa.RecordBatch) -> pa.BinaryArray:
    """Return the message of each row. Rows are encoded by operation, then put back in order."""
    op = rows.column("op").to_numpy()
    made, places = [], []
    for operation in np.unique(op).tolist():
        rows_of_it = np.flatnonzero(op == operation)
        part = rows if len(rows_of_it) == len(op) else rows.take(pa.array(rows_of_it))
        images = {INSERT: ("after",), UPDATE: ("before", "after"), DELETE: ("before",)}[operation]
        maps = [piece for image in images for piece in _maps(table, part.column(image))]
        made.append(joined(_head(table, operation), guids(part.column("gtid")), *maps))
        places.append(rows_of_it)
    if len(made) == 1:
        return made[0]
    order = np.argsort(np.concatenate(places or [op]), kind="stable")
    return pa.concat_arrays(made or [pa.array([], pa.binary())]).take(pa.array(order))


def _head(table: FeedTable, op: int) -> bytes:
    """Return the bytes before txid."""
    name = table.name
    names = string(name.database.encode()) + string(name.table.encode())
    return bytes([MAGIC, op]) + SCHEMA_ID.to_bytes(2, "big") + names + number(identity(table))


def identity(table: FeedTable) -> int:
    """Return tableId: a hash of 48 bits of the table's name and columns."""
    name = table.name
    shape = json.dumps([name.database, name.table, [(column.name, column.type) for column in table.columns]])
    return int.from_bytes(hashlib.blake2b(shape.encode(), digest_size=6).digest(), "big")


def guids(gtids: pa.Array) -> pa.BinaryArray:
    """Return txid of each row: the union's branch, and a hash of 16 bytes of the GTID."""
    known = gtids.dictionary_encode()
    digests = (hashlib.blake2b(gtid.encode(), digest_size=16).digest() for gtid in known.dictionary.to_pylist())
    made = pa.array([b"\x02" + digest for digest in digests], pa.binary())
    return pc.fill_null(made.take(known.indices), b"\x00")


def keys(table: FeedTable, rows: pa.RecordBatch) -> Iterable[bytes | None]:
    """Return each row's primary key values as JSON; None without a key."""
    if not table.key:
        return repeat(None, rows.num_rows)
    has_after = rows.column("after").is_valid()
    images = (
        pc.if_else(has_after, *(rows.column(image).field(name) for image in ("after", "before"))) for name in table.key
    )
    texts = [_as_json(image) for image in images]
    between = [part for text in texts for part in (b", ", text)][1:]
    return listed(joined(b"[", *between, b"]"))


def _as_json(values: pa.Array) -> pa.BinaryArray:
    if pa.types.is_integer(values.type):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_string(values.type) and not values.null_count:
        return quoted(values).cast(pa.binary())
    texts = [json.dumps(value, ensure_ascii=False, default=plain).encode() for value in shortest(values).to_pylist()]
    return pa.array(texts, pa.binary())


_Parts = Sequence[bytes | pa.BinaryArray]
"""Consecutive parts of each row's record; bytes are the same in all rows."""


def _maps(table: FeedTable, image: pa.StructArray) -> _Parts:
    """Return the four maps of an image that no row lacks."""
    by_map: dict[str, list[tuple[bytes, Sequence[pa.BinaryArray]]]] = {name: [] for name in _MAPS}
    for column in table.columns:
        values = image.field(column.name)
        kind = _kind(column, values.type)
        by_map[kind.map].append((string(column.name.encode()), kind.write(values)))
    return [part for name in _MAPS for part in _map(by_map[name], len(image))]


def _map(entries: Sequence[tuple[bytes, Sequence[pa.BinaryArray]]], rows: int) -> _Parts:
    """Return a map: one block of all entries, then the end; a count of 0, as of an empty map, is the end itself."""
    always = [(name, written) for name, written in entries if not written[-1].null_count]
    at_times = [joined(name, *written) for name, written in entries if written[-1].null_count]
    parts: list[bytes | pa.BinaryArray] = [part for name, written in always for part in (name, *written)]
    if not at_times:
        return [number(len(entries)), *parts, b"\x00" if entries else b""]
    counts = np.full(rows, len(always), np.int64)
    for entry in at_times:
        counts += entry.is_valid().to_numpy(zero_copy_only=False)
    end = pc.if_else(pa.array(counts > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary()))
    return [avro.numbers(counts), *parts, *(pc.fill_null(entry, b"") for entry in at_times), end]
