"""Events as clients get them: a mutation with each column's text before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from binlake.binlog.border import DELETE, INSERT
from binlake.feeds.contract import FeedChanges
from binlake.schema.datatypes import delta_type, entry
from binlake.schema.lake_columns import side_names
from binlake.schema.table import Column, TableName


@dataclass(frozen=True)
class EventColumn:
    """A column of an event. before, after: the value's text, or its bytes if it isn't text; None for NULL or no row."""

    name: str
    before: bytes | None
    after: bytes | None
    is_text: bool


@dataclass(frozen=True)
class RelayEvent:
    """A row's mutation. operation: 1 insert, 2 update, 4 delete. file, position: the event's file and byte offset."""

    operation: int
    file: str
    position: int
    name: TableName
    committed_us: int
    gtid: str | None
    columns: tuple[EventColumn, ...]


def events_of(changes: FeedChanges) -> Iterator[RelayEvent]:
    """Yield the event of each row."""
    table = changes.table
    sides = side_names(table.columns)
    for row in changes.rows.to_pylist():
        op = row["op"]
        before = None if op == INSERT else row["before"]
        after = None if op == DELETE else row["after"]
        columns = tuple(
            EventColumn(
                column.name,
                _side(column, before, sides[column.name]),
                _side(column, after, sides[column.name]),
                _is_text(column),
            )
            for column in table.columns
        )
        yield RelayEvent(
            1 << (op - 1), changes.file, row["offset"], table.name, row["committed_us"], row["gtid"], columns
        )


def _is_text(column: Column) -> bool:
    return delta_type(column) != "BINARY"


def _side(column: Column, row: dict[str, Any] | None, sides: Sequence[str]) -> bytes | None:
    return None if row is None else text_in(row, column, sides)


def text_in(image: Mapping[str, Any], column: Column, sides: Sequence[str]) -> bytes | None:
    """Return a column's value in an image as ``value_text`` does, an invalid one as it was kept; None for NULL.

    sides: the names under which invalid values are kept.
    """
    if (value := image[column.name]) is not None:
        return value_text(column, value)
    kept = next((image[side] for side in sides if image.get(side) is not None), None)
    return kept.encode() if isinstance(kept, str) else kept


def value_text(column: Column, value: Any) -> bytes:
    """Return a value as the server sends it to a client in UTC: ``1.50``, ``2026-01-31 13:00:00.5``, ``-01:02:03``."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return entry(column).text_of(column, value).encode()
