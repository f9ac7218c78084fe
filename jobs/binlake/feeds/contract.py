"""What formats and sinks are to the one who carries a feed (carry.py).

A format is pure: staged mutations in Arrow go in, messages come out. A sink takes messages between ``begin`` and
``commit``; what it kept of a feed's place it tells again when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from binlake.binlog.border import Statement
from binlake.errors import SinkFailed
from binlake.metadata.feed_watermarks import FeedPosition
from binlake.position import Flavour, Position
from binlake.schema.table import Column, TableName, TableSchema

Register = Callable[[str, dict[str, Any]], int]
"""A subject of a schema registry and a schema → the schema's id."""
_MOST_BYTES = 64 << 20


class Message(NamedTuple):
    """One message. key: what of it is compared (order is kept for each key of a topic); None: none.

    value: None is a tombstone. headers: names and values.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def one_each(topic: str, keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[Sequence[Message]]:
    """For each row its one message to a topic; the shorter ends it."""
    parts = zip(repeat(topic), keys, values, repeat(()))
    return list(zip(map(_AS_MESSAGE, parts)))  # without a step of Python's: there are 100,000 a second


_AS_MESSAGE: Callable[[Iterable[Any]], Message] = partial(tuple.__new__, Message)


@dataclass(frozen=True)
class FeedTable:
    """A table in one shape, as its mutations were logged.

    columns: those staged, as the table map and what is recorded of the table tell them. key: names of the primary
    key's, empty without one. schema: as recorded for the place in the log, None where nothing is.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    schema: TableSchema | None = field(default=None, compare=False)


@dataclass(frozen=True)
class FeedChanges:
    """Some mutations of one table in one shape, in the order of the log.

    rows: with the columns of binlog.border.staged_schema; ``before`` and ``after`` hold ``table.columns`` by name, each
    perhaps followed by its side column. Rows of an XA transaction stand at its commit. file: the binlog file's name.
    transactions: where the format asks for it, of each row its ordinals, from 1, in its transaction and, of that, in
    its table; else empty.
    """

    table: FeedTable
    rows: pa.RecordBatch
    file: str
    transactions: Sequence[tuple[str, int, int]] = ()
    snapshot: bool = False
    """The rows are the lake's at a batch: ``op`` is an insert, and means a read."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """See border.SliceSummary."""

    def pieces(self) -> Iterator[FeedChanges]:
        """Slices, in order, of 64 MB at most: formats make whole columns of text, and Arrow's hold 2 GB."""
        if self.rows.nbytes <= _MOST_BYTES or self.rows.num_rows < 2:
            yield self
            return
        half = self.rows.num_rows // 2
        for there in (slice(0, half), slice(half, self.rows.num_rows)):
            rows = self.rows.slice(there.start, there.stop - there.start)
            yield from replace(self, rows=rows, transactions=self.transactions[there]).pieces()


@dataclass(frozen=True)
class SchemaChange:
    """A statement between mutations. text: of one that changes rows no more than its verb, for it holds their values.
    kind: such as ALTER TABLE. tables: the shapes of the feed's tables that it left, None for one that went.
    servers: see border.SliceSummary."""

    statement: Statement
    text: str
    kind: str
    tables: tuple[tuple[TableName, TableSchema | None], ...]
    servers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TransactionEnd:
    """A source transaction, seen to its end. tables: how many of its events are in the feed, by table."""

    id: str
    committed_us: int
    tables: Mapping[TableName, int]

    @property
    def events(self) -> int:
        return sum(self.tables.values())


@dataclass(frozen=True)
class FeedContext:
    """What a format knows of its feed. server: as positions name it. standing: where the newest recorded batch ends,
    None where nobody asks; charsets: the databases' default character sets there."""

    feed: str
    source: str
    server: str
    flavour: Flavour
    standing: Position | None = None
    charsets: Mapping[str, str] = field(default_factory=dict)


class Format(Protocol):
    """Mutations and what lies between them, as messages.

    A format says only what it has to say: the rest gives no message.

    wants_transactions: ``transaction_began`` and ``transaction_ended`` are asked, and FeedChanges tells the ordinals.
    """

    wants_transactions: bool = False

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """For each row its messages, in order; none or many."""
        ...

    def events(self, changes: FeedChanges) -> Sequence[int]:
        """As how many events each row counts in its transaction."""
        return [1] * changes.rows.num_rows

    def table(self, table: FeedTable) -> Sequence[Message]:
        """Before its rows come from the lake, though there be none."""
        return ()

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        return ()

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        return ()

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        return ()

    def heartbeat(self, at_us: int) -> Sequence[Message]:
        """Where a run found nothing to carry."""
        return ()


class MessageRefused(SinkFailed):
    """A sink takes the others, but not this message.

    number: of the message, in what was sent at once; those before it were taken, those behind it are to be sent anew.
    """

    def __init__(self, message: str, *, remedy: str, number: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.number = number


class TransactionRefused(SinkFailed):
    """A sink took back all since its last commit, over a message that it can't name yet, and wants it again, from there
    on and in the same order: then ``send`` raises MessageRefused for that one."""


class Sink(Protocol):
    """Takes messages. Whatever was sent since the last commit may be told again after a crash, unless the sink keeps
    the place itself, together with the messages: then exactly what was committed is there.
    """

    keeps_position: bool

    def begin(self) -> None:
        """Messages follow, which the next ``commit`` ends."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Raises MessageRefused, after which the rest may still be sent, TransactionRefused and SinkFailed."""
        ...

    def commit(self, position: FeedPosition) -> None:
        """All that was sent stands, and the feed's place with it, where the sink keeps it. Returns once it is safe.

        Raises TransactionRefused, SinkFailed."""
        ...

    def position(self) -> FeedPosition | None:
        """The place kept with the messages; None where there is none, or where the sink keeps none."""
        ...

    def close(self) -> None:
        """What wasn't committed is given up."""
        ...
