"""Reading a batch's staged mutations in log order, all tables together.

The merge reads table by table; here the files between two statements of a slice are read together and merged by
sequence, in portions. Rows of XA transactions come where they were committed, in their own order; rows that were
rolled back are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import Statement, XaEvent
from binlake.errors import FeedError
from binlake.feeds.contract import FeedChanges, FeedTable
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.prepared import PreparedTransactions
from binlake.planner.rolled_back_rows import is_void
from binlake.planner.steps import PreparedXa, XaCommit
from binlake.position import Range
from binlake.records.feed_watermarks import FeedPlace
from binlake.schema.table import TableName
from binlake.staging.staged_files import check_file
from binlake.storage import parquet_files

_MOST_ROWS, _MOST_OF_ONE, _FEWEST_ROWS = 1 << 17, 1 << 15, 1 << 10
"""The most rows read at a time of all open files, and the most and fewest of one file: few enough that messages are
made while the processor's cache still has the rows."""
_AFTER_ALL = 1 << 62
_END = (_AFTER_ALL, 0, 0)

Sequenced = tuple[int, int, int]
"""A row's place between two statements: event offset, offset of a prepared row in it, row number."""
Prepare = Callable[[FeedTable, pa.RecordBatch], pa.RecordBatch]
"""A function that returns the rows that the feed wants, as the server shows them, from a table's staged rows."""
TableOf = Callable[[StagedFile], FeedTable | None]
"""A function that returns the table of a staged file; None if the feed doesn't want it."""


@dataclass(frozen=True)
class LogWindow:
    """Consecutive mutations of some tables.

    order: for each row in log order, its number in the concatenated parts. The others are in that order: starts, the
    numbers of the rows that begin another transaction than the row before; gtids and committed_us of each row; places,
    where each row is (slice, statements, offset, place, row).
    """

    parts: tuple[FeedChanges, ...]
    order: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    gtids: pa.StringArray
    committed_us: np.ndarray[Any, Any]
    places: np.ndarray[Any, Any]

    def place(self, number: int) -> FeedPlace:
        """Return the place of the row with this number in log order."""
        place = self.places[number].tolist()
        return place[0], place[1], place[2], place[3], place[4]

    def first(self, count: int) -> LogWindow:
        """Return a window of the first ``count`` rows: its parts have no others, which formats would see."""
        kept = np.zeros(len(self), bool)
        kept[self.order[:count]] = True
        renumbered = np.cumsum(kept) - 1
        parts, start = [], 0
        for part in self.parts:
            end = start + part.rows.num_rows
            rows = int(np.count_nonzero(kept[start:end]))  # the first of the part, whose rows are in log order
            parts += [replace(part, rows=part.rows.slice(0, rows))] if rows else []
            start = end
        return replace(
            self,
            parts=tuple(parts),
            order=renumbered[self.order[:count]],
            starts=self.starts[self.starts < count],
            gtids=self.gtids[:count],
            committed_us=self.committed_us[:count],
            places=self.places[:count],
        )

    def __len__(self) -> int:
        return len(self.order)


@dataclass(frozen=True)
class StatementHere:
    """A statement between mutations, and its place. servers: of the slice, see border.SliceSummary."""

    statement: Statement
    place: FeedPlace
    servers: Mapping[str, int]


@dataclass
class _Source:
    """The rows of one staged file, or of one XA transaction in it, in order; read when they are needed.

    commit: the XA transaction's; None for the other rows. first: a lower bound of the rows' sequence. rows, sequence:
    the portion at hand. unread: how many of the file's rows are still to be read.
    """

    file: StagedFile
    table: FeedTable
    commit: XaCommit | None
    first: Sequenced
    slice_file: str
    servers: Mapping[str, int]
    parts: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    rows: pa.RecordBatch | None = None
    sequence: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty((0, 3), np.int64))
    unread: int = 0

    @property
    def last(self) -> Sequenced:
        """The sequence of the last row at hand."""
        sequence = self.sequence[-1].tolist()
        return sequence[0], sequence[1], sequence[2]

    @property
    def bound(self) -> Sequenced:
        """The place up to which no other rows than those at hand can come."""
        return self.last if self.unread else _END

    def open(self, at_once: int, after: Sequenced | None, prepare: Prepare) -> bool:
        check_file(self.file)
        self.unread = self.file.rows
        self.parts = parquet_files.staged_batches(self.file.path, at_once)
        return self.advance(after, prepare)

    def advance(self, after: Sequenced | None, prepare: Prepare) -> bool:
        """Read the next portion that has wanted rows after ``after``; return False at the end."""
        for part in self.parts:
            self.unread -= part.num_rows
            rows = part.filter(self._belongs(part)) if (self.file.xids or self.file.void or self.commit) else part
            rows = prepare(self.table, rows)
            sequence = self._sequence(rows)
            if after is not None:
                behind = _up_to(sequence, after)
                rows, sequence = rows.slice(behind), sequence[behind:]
            if rows.num_rows:
                self.rows, self.sequence = rows, sequence
                return True
        self.rows = None
        return False

    def _belongs(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        offset = rows.column("offset")
        if self.commit is not None:
            low, high = pc.greater(offset, self.commit.after), pc.less_equal(offset, self.commit.prepared)
            belongs = pc.and_(pc.equal(rows.column("xid"), self.commit.xid), pc.and_(low, high))
        else:
            belongs = pc.is_null(rows.column("xid"))
        if self.file.void:
            void = is_void(self.file, offset.to_numpy(), rows.column("row").to_numpy())
            belongs = pc.and_(belongs, pa.array(~void))
        return pc.fill_null(belongs, False)

    def _sequence(self, rows: pa.RecordBatch) -> np.ndarray[Any, Any]:
        offset, row = (rows.column(name).to_numpy() for name in ("offset", "row"))
        if self.commit is None:
            return np.column_stack((offset, np.zeros_like(offset), row))
        return np.column_stack((np.full_like(offset, self.commit.committed[1]), offset, row))

    def take(self, bound: Sequenced) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
        """Take the rows at hand up to and including the bound."""
        assert self.rows is not None
        count = _up_to(self.sequence, bound)
        part = self.rows.slice(0, count), self.sequence[:count]
        self.rows, self.sequence = self.rows.slice(count), self.sequence[count:]
        return part


def _up_to(sequence: np.ndarray[Any, Any], bound: Sequenced) -> int:
    """Return how many of the ascending sequences are up to and including the bound."""
    offset, place, row = sequence[:, 0], sequence[:, 1], sequence[:, 2]
    inside = (place < bound[1]) | ((place == bound[1]) & (row <= bound[2]))
    return int(np.count_nonzero((offset < bound[0]) | ((offset == bound[0]) & inside)))


class StagedBatch:
    """One batch's log for one feed.

    of: the batch's range. prepared: XA transactions that were prepared before it. table_of, prepare: see TableOf and
    Prepare. unknown: called for the commit of rows that came before the feed; unless it raises, they are left out.
    """

    def __init__(
        self,
        manifest: Manifest,
        of: Range,
        prepared: Sequence[PreparedXa],
        table_of: TableOf,
        prepare: Prepare,
        unknown: Callable[[XaEvent, FeedError], None] | None = None,
    ) -> None:
        self._manifest, self._range = manifest, of
        self._prepared = PreparedTransactions(manifest.batch, prepared)
        self._table_of, self._prepare, self._unknown = table_of, prepare, unknown or _refuse

    @property
    def waiting(self) -> tuple[PreparedXa, ...]:
        """XA transactions without an outcome; those at the batch's stop, once it is read to its end."""
        return self._prepared.waiting

    @property
    def undecoded(self) -> set[TableName]:
        """The tables of which the log has events that couldn't be decoded, and so aren't staged."""
        return {event.name for part in self._manifest.slices for event in part.stopped}

    def read(self, after: FeedPlace | None = None) -> Iterator[LogWindow | StatementHere]:
        """Yield everything after a place. Raises StagingError if staged rows are missing or damaged."""
        for part, sliced in zip(self._manifest.slices, self._range.slices, strict=True):
            yield from self._slice(part, sliced.file, after)

    def _slice(self, part: StagedSlice, file: str, after: FeedPlace | None) -> Iterator[LogWindow | StatementHere]:
        self._prepared.enter(part)
        xa = sorted(part.xa, key=lambda event: event.offset)  # stable: a one-phase commit comes after its prepare
        by_epoch: dict[int, list[StagedFile]] = {}
        for staged in part.files:
            by_epoch.setdefault(staged.statements_before, []).append(staged)
        for ordinal in range(len(part.statements) + 1):
            statement = part.statements[ordinal] if ordinal < len(part.statements) else None
            count = len(xa) if statement is None else sum(event.offset < statement.offset for event in xa)
            commits, unknown = self._prepared.follow(xa[:count])
            if after is None or after[:2] <= (part.slice, ordinal):
                for event in unknown:
                    self._unknown(event, _unknown_rows(event))
            xa = xa[count:]
            if after is None or after[:2] <= (part.slice, ordinal):
                within = after[2:] if after and after[:2] == (part.slice, ordinal) else None
                servers = dict(part.servers)
                sources = self._sources(by_epoch.get(ordinal, ()), commits, file, servers)
                yield from _merged(sources, within, self._prepare, (part.slice, ordinal))
                here = (part.slice, ordinal, _AFTER_ALL, 0, 0)
                if statement is not None and (after is None or after < here):
                    yield StatementHere(statement, here, servers)

    def _sources(
        self,
        plain: Iterable[StagedFile],
        commits: Iterable[tuple[StagedFile, XaCommit]],
        slice_file: str,
        servers: Mapping[str, int],
    ) -> list[_Source]:
        sources: list[_Source] = []
        for file in plain:
            table = self._table_of(file) if file.inserted + file.updated + file.deleted else None
            if table is not None:
                sources.append(_Source(file, table, None, (file.first[1], 0, file.first[2]), slice_file, servers))
        for file, commit in commits:
            if (table := self._table_of(file)) is not None:
                sources.append(_Source(file, table, commit, (commit.committed[1], 0, 0), slice_file, servers))
        return sources


def _refuse(event: XaEvent, error: FeedError) -> None:
    raise error


def _unknown_rows(event: XaEvent) -> FeedError:
    """Return the error of an XA COMMIT whose rows were prepared before the feed began."""
    return FeedError(
        f"{event.file}:{event.offset}: XA COMMIT of {event.xid}, which was prepared before the feed began",
        remedy="begin the feed again, with --restart-from lake or --restart-from now",
    )


def _merged(
    sources: list[_Source], after: Sequenced | None, prepare: Prepare, epoch: tuple[int, int]
) -> Iterator[LogWindow]:
    waiting = sorted(sources, key=lambda source: source.first, reverse=True)
    at_once = min(_MOST_OF_ONE, max(_FEWEST_ROWS, _MOST_ROWS // max(1, len(sources))))
    opened: list[_Source] = []
    while waiting or opened:
        at_hand = sum(len(source.sequence) for source in opened)
        bound = _bound(opened, at_hand)
        while waiting and waiting[-1].first <= bound:
            source = waiting.pop()
            if source.open(at_once, after, prepare):
                opened.append(source)
                was_enough, at_hand = at_hand >= _MOST_ROWS, at_hand + len(source.sequence)
                if was_enough or at_hand < _MOST_ROWS:
                    bound = min(bound, _bound([source], at_hand))
                else:
                    bound = _bound(opened, at_hand)
        taken = [(source, *source.take(bound)) for source in opened]
        if taken := [portion for portion in taken if portion[1].num_rows]:
            yield _window(taken, epoch)
        opened = [source for source in opened if len(source.sequence) or source.advance(after, prepare)]


def _bound(opened: Sequence[_Source], at_hand: int) -> Sequenced:
    """Return the place up to which rows are taken: where enough are at hand, no further files are opened for it."""
    return min((source.last if at_hand >= _MOST_ROWS else source.bound for source in opened), default=_END)


def _window(taken: Sequence[tuple[_Source, pa.RecordBatch, np.ndarray[Any, Any]]], epoch: tuple[int, int]) -> LogWindow:
    sequence = np.concatenate([sequences for _, _, sequences in taken])
    order = np.lexsort((sequence[:, 2], sequence[:, 1], sequence[:, 0]))
    sequence = sequence[order]
    gtids = pa.concat_arrays([_as_strings(rows.column("gtid")) for _, rows, _ in taken]).take(pa.array(order))
    committed = np.concatenate([rows.column("committed_us").to_numpy() for _, rows, _ in taken])[order]
    places = np.column_stack((np.full(len(order), epoch[0]), np.full(len(order), epoch[1]), sequence))
    return LogWindow(
        tuple(FeedChanges(source.table, rows, source.slice_file, servers=source.servers) for source, rows, _ in taken),
        order,
        _starts(gtids, committed),
        gtids,
        committed,
        places,
    )


def _as_strings(strings: pa.Array) -> pa.StringArray:
    return pc.cast(strings, pa.string())


def _starts(gtids: pa.StringArray, committed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the numbers of the rows that belong to another transaction than the row before; never the first row.

    Transactions differ in GTID or in commit time, which is in microseconds.
    """
    codes = pc.fill_null(gtids.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
    return np.flatnonzero((codes[1:] != codes[:-1]) | (committed[1:] != committed[:-1])) + 1
