"""Interfaces of formats and sinks, as a feed's run uses them (carry.py).

A format is pure: it turns staged mutations in Arrow into messages. A sink takes messages between ``begin`` and
``commit``; it returns the position that it kept when it is opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from binlake.binlog.border import Statement
from binlake.errors import SinkFailed
from binlake.position import Flavour, Position
from binlake.records.feed_watermarks import FeedPosition
from binlake.schema.table import Column, TableName, TableSchema

Register = Callable[[str, dict[str, Any]], int]
"""A function that registers a schema under a subject, and returns its id."""
_MOST_BYTES = 64 << 20


class Message(NamedTuple):
    """One message. key: messages of a topic with the same key stay in order; None for no key.

    value: None for a tombstone. headers: (name, value) pairs.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def one_each(topic: str, keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[Sequence[Message]]:
    """Return one message per row to a topic, as a sequence for each row; the shorter argument decides how many."""
    parts = zip(repeat(topic), keys, values, repeat(()))
    return list(zip(map(_AS_MESSAGE, parts)))  # without a step of Python's: there are 100,000 a second


_AS_MESSAGE: Callable[[Iterable[Any]], Message] = partial(tuple.__new__, Message)


@dataclass(frozen=True)
class FeedTable:
    """A table in one shape, as its mutations were logged.

    columns: the staged ones, as table map and recorded schema describe them. key: names of the primary key's columns,
    empty without one. schema: the one recorded for the place in the log, None if there is none.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    schema: TableSchema | None = field(default=None, compare=False)


@dataclass(frozen=True)
class FeedChanges:
    """Some mutations of one table in one shape, in the order of the log.

    rows: with the columns of binlog.staged_schema; ``before`` and ``after`` hold ``table.columns`` by name, each
    perhaps followed by its side column. Rows of an XA transaction come at its commit. file: the binlog file's name.
    transactions: if the format wants them, each row's transaction id and its ordinals, from 1, in the transaction and
    among the transaction's events of its table; else empty.
    """

    table: FeedTable
    rows: pa.RecordBatch
    file: str
    transactions: Sequence[tuple[str, int, int]] = ()
    snapshot: bool = False
    """Whether the rows are the lake's at a batch; then ``op`` is insert, and means a read."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """Ids of servers by uuid, see border.SliceSummary."""

    def pieces(self) -> Iterator[FeedChanges]:
        """Yield slices of at most 64 MiB, in order: formats make whole columns of text, which Arrow limits to 2 GB."""
        if self.rows.nbytes <= _MOST_BYTES or self.rows.num_rows < 2:
            yield self
            return
        half = self.rows.num_rows // 2
        for part in (slice(0, half), slice(half, self.rows.num_rows)):
            rows = self.rows.slice(part.start, part.stop - part.start)
            yield from replace(self, rows=rows, transactions=self.transactions[part]).pieces()


@dataclass(frozen=True)
class SchemaChange:
    """A statement between mutations.

    text: the statement; only its verb if it changes rows, as it contains their values. kind: such as ALTER TABLE.
    tables: the feed's tables with the schema after it, None for a dropped one. servers: see border.SliceSummary.
    """

    statement: Statement
    text: str
    kind: str
    tables: tuple[tuple[TableName, TableSchema | None], ...]
    servers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TransactionEnd:
    """The end of a source transaction. tables: how many of its events are in the feed, by table."""

    id: str
    committed_us: int
    tables: Mapping[TableName, int]

    @property
    def events(self) -> int:
        """Return how many of the transaction's events are in the feed, over all tables."""
        return sum(self.tables.values())


@dataclass(frozen=True)
class FeedContext:
    """A format's knowledge of its feed.

    server: as positions name it. standing: the position where the newest recorded batch ends, None if it isn't needed.
    charsets: the databases' default character sets there. living: returns the feed's tables that are in the lake now,
    the oldest first.
    """

    feed: str
    source: str
    server: str
    flavour: Flavour
    standing: Position | None = None
    charsets: Mapping[str, str] = field(default_factory=dict)
    living: Callable[[], Sequence[TableName]] = field(default=tuple, compare=False)


class Format(Protocol):
    """A format: turns mutations, and what lies between them, into messages.

    Methods that a format doesn't define return no message.

    wants_transactions: ``transaction_began`` and ``transaction_ended`` are called, and FeedChanges.transactions is set.
    """

    wants_transactions: bool = False

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return the messages of each row, in order; a row may have none or many."""
        ...

    def events(self, changes: FeedChanges) -> Sequence[int]:
        """Return, for each row, how many events it is in its transaction's count."""
        return [1] * changes.rows.num_rows

    def table(self, table: FeedTable) -> Sequence[Message]:
        """Return the messages before a table's rows from the lake, also if it has no rows."""
        return ()

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        """Return the messages of a statement."""
        return ()

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        """Return the messages before a transaction's first row."""
        return ()

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        """Return the messages after a transaction's last row."""
        return ()

    def heartbeat(self, at_us: int) -> Sequence[Message]:
        """Return the messages of a run that had nothing to carry."""
        return ()


class MessageRefused(SinkFailed):
    """A sink refuses this message, but takes others.

    number: of the message, among those sent at once; those before it were taken, those after it must be sent again.
    """

    def __init__(self, message: str, *, remedy: str, number: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.number = number


class TransactionRefused(SinkFailed):
    """A sink took back everything since its last commit because of one message that it can't name yet.

    Everything must be sent again in the same order; then ``send`` raises MessageRefused for that message.
    """


class Sink(Protocol):
    """A sink: takes messages.

    Messages sent since the last commit may be sent again after a crash, unless the sink keeps the position itself,
    together with the messages; then it holds exactly what was committed.
    """

    keeps_position: bool

    def begin(self) -> None:
        """Begin a series of messages, which the next ``commit`` ends."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages. Raises MessageRefused, after which the rest may be sent; TransactionRefused; SinkFailed."""
        ...

    def commit(self, position: FeedPosition) -> None:
        """Make durable what was sent, with the position if the sink keeps it. Raises TransactionRefused, SinkFailed."""
        ...

    def position(self) -> FeedPosition | None:
        """Return the position kept with the messages; None if there is none, or the sink keeps none."""
        ...

    def close(self) -> None:
        """Close the sink, and give up what wasn't committed."""
        ...


@runtime_checkable
class NotesPosition(Protocol):
    """A sink that doesn't keep the position itself, and takes note of the one after which the next messages come."""

    def stand(self, position: FeedPosition) -> None:
        """Take note of the position after which the next messages come."""
        ...
