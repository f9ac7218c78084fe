"""The format ``text``: one line per mutation, for people and for grep.

2026-01-31 13:00:00.000000 binlog.000002:1234+0 update shop.orders {"id": 7} {"status": "new" → "paid"} gtid
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import OPERATIONS, UPDATE
from binlake.config.feed_config import TextFormat
from binlake.feeds.contract import FeedChanges, FeedContext, Format, Message, SchemaChange
from binlake.feeds.formats.topics import Topics

PLAIN_SCALE = 6
"""The most decimal places with which Arrow prints small decimals without an exponent."""


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: bytes as hexadecimal, times and decimals as text."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return value.isoformat() if isinstance(value, date) else f"{value:f}" if isinstance(value, Decimal) else value


def rows_of(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python has them, but single-precision numbers as ``shortest`` does."""
    columns = [shortest(column) for column in rows.columns]
    made: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, rows.schema.names).to_pylist()
    return made


def shortest(values: pa.Array) -> pa.Array:
    """Return single-precision numbers, also those in structs and lists, as the numbers that their shortest texts mean:
    as a double FLOAT's 1.1 would be 1.100000023841858."""
    kind = values.type
    if pa.types.is_float32(kind):
        return values.cast(pa.string()).cast(pa.float64())
    if pa.types.is_list(kind) and pa.types.is_float32(kind.value_type):
        return values.cast(pa.list_(pa.string())).cast(pa.list_(pa.float64()))
    if pa.types.is_struct(kind) and any(_is_single(field.type) for field in kind):
        fields = [shortest(values.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, [field.name for field in kind], mask=pc.is_null(values))
    return values


def _is_single(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or (pa.types.is_list(kind) and pa.types.is_float32(kind.value_type)))


def moment(us: int) -> str:
    """Return a time as ``2026-01-31 12:00:00.000000``, in UTC. us: µs since 1970."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=plain)


class Text(Format):
    """The format ``text``. The key is the primary key's values as JSON."""

    def __init__(self, config: TextFormat, context: FeedContext) -> None:
        self._topics = Topics(config.topic, context)

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return a line for each row."""
        topic = self._topics.of(changes.table.name)
        return [[self._message(changes, topic, row)] for row in rows_of(changes.rows)]

    def _message(self, changes: FeedChanges, topic: str, row: dict[str, Any]) -> Message:
        before, after = row["before"], row["after"]
        shown = after or before
        key = _json({column: shown[column] for column in changes.table.key}) if changes.table.key else ""
        word = "read" if changes.snapshot else OPERATIONS[row["op"]]
        place = f"{changes.file}:{row['offset']}+{row['row']}"
        values = _changed(before, after) if row["op"] == UPDATE else _json(shown)
        parts = (moment(row["committed_us"]), place, word, f"{changes.table.name}", key, values, row["gtid"] or "")
        return Message(topic, key.encode() or None, " ".join(part for part in parts if part).encode())

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        """Return a line with the statement, its white space made single spaces."""
        statement = change.statement
        place = f"{moment(statement.committed_us)} {statement.file}:{statement.offset}"
        line = f"{place} {change.kind}: {' '.join(change.text.split())}"
        return [Message(self._topics.of(change.tables[0][0]), None, line.encode())]


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    texts = ((name, _json(before.get(name)), _json(value)) for name, value in after.items())
    pairs = (f"{_json(name)}: {old} → {new}" for name, old, new in texts if old != new)  # as texts 0.0 and -0.0 differ
    return "{" + ", ".join(pairs) + "}"
