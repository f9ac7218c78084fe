"""Sending of mutations through a feed's format into its sink, with commits between source transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from binlake.faults import fault
from binlake.feeds.contract import FeedChanges, FeedTable, Format, Message, MessageRefused, SchemaChange, Sink
from binlake.feeds.error_layers import FeedErrors, FeedFailure
from binlake.feeds.source_transactions import SourceTransactions
from binlake.feeds.staged import LogWindow
from binlake.records.feed_watermarks import FeedPlace, FeedPosition
from binlake.report import counted
from binlake.store.metadata import now_us

COMMIT_EVERY, COMMIT_BYTES = 100_000, 256 << 20
"""Number of mutations, and of their staged bytes, after which the sink commits at the end of a transaction."""
LOAD_EVERY = 100_000
"""Number of the lake's rows after which the sink commits; they have no transactions."""
CAREFULLY_EVERY = 500
"""The same as COMMIT_EVERY after the sink refused a transaction: another refusal repeats at most this many."""


class Outlet:
    """A format with its sink: takes mutations, sends messages, and commits at the ends of transactions.

    committed: called with each committed position and the number of messages sent until then. errors: decides about
    what the format or the sink refuses. careful: for how many mutations to commit often.

    messages: how many were sent. mutations: how many of the source, or rows of the lake, were committed.
    """

    def __init__(
        self,
        form: Format,
        sink: Sink,
        committed: Callable[[FeedPosition, int], None],
        place: FeedPosition,
        errors: FeedErrors,
        careful: int = 0,
    ) -> None:
        self._format, self._sink, self._committed, self._errors = form, sink, committed, errors
        self._place = place
        self._begun = False
        self._pending = self._pending_bytes = 0
        self._last: FeedPlace | None = place.place
        self._transactions = SourceTransactions(form) if form.wants_transactions else None
        self._current: tuple[str | None, int] | None = None
        self.messages = self.mutations = 0
        self._careful = careful

    def enter(self, place: FeedPosition) -> None:
        """Expect the part of a batch after ``place``."""
        self._place, self._last = place, place.place

    def window(self, window: LogWindow) -> None:
        """Send all rows of a window, in log order."""
        bounds = self._bounds(window)
        each = max(
            1, sum(part.rows.nbytes for part in window.parts) // sum(part.rows.num_rows for part in window.parts)
        )
        if self._pending and 0 in bounds[:1] and self._room(each) <= 0:
            self._commit_here()
        parts = self._transactions.number(window) if self._transactions else window.parts
        flat = list(chain.from_iterable(map(self._formatted, parts)))
        rows: list[Sequence[Message]] = [flat[number] for number in window.order.tolist()]
        if self._transactions:
            rows = self._transactions.surround(rows)
        at = 0
        while at < len(rows):
            enough = bounds[bounds >= at + max(1, self._room(each))]
            end = int(enough[0]) if len(enough) else len(rows)
            self.send(list(chain.from_iterable(rows[at:end])))
            self._pending += end - at
            self._pending_bytes += (end - at) * each
            self._last = window.place(end - 1)
            if end < len(rows):
                self._commit_here()
            at = end

    def _room(self, each: int) -> int:
        """Return how many mutations of ``each`` bytes may still be sent before a commit."""
        every = CAREFULLY_EVERY if self._careful else COMMIT_EVERY
        return min(every - self._pending, (COMMIT_BYTES - self._pending_bytes) // each)

    @property
    def refused(self) -> int:
        """Number of mutations to send with frequent commits after a TransactionRefused."""
        return max(1, self._careful, self._pending)

    def _bounds(self, window: LogWindow) -> np.ndarray[Any, Any]:
        """Return the numbers of the rows that begin a transaction, including the first row if it does."""
        first = window.gtids[0].as_py(), int(window.committed_us[0])
        begins = self._current != first
        if begins:
            self._end_transaction()
        self._current = window.gtids[len(window) - 1].as_py(), int(window.committed_us[-1])
        return np.concatenate(([0], window.starts)) if begins else window.starts

    def load(self, changes: FeedTable | FeedChanges | None, behind: FeedPosition) -> None:
        """Send a table of the lake: first the table, then its rows, committed in portions, then None for its end."""
        if isinstance(changes, FeedTable):
            with self._errors.guarded("table_map", changes.name, f"the table {changes.name}", 0):
                self.send(list(self._format.table(changes)))
            return
        if changes is not None:
            self.send(list(chain.from_iterable(self._formatted(changes))))
            self._pending += changes.rows.num_rows
            self._pending_bytes += changes.rows.nbytes
        if changes is None or self._careful or self._pending >= LOAD_EVERY or self._pending_bytes >= COMMIT_BYTES:
            self.commit(behind)

    def _formatted(self, changes: FeedChanges) -> list[Sequence[Message]]:
        """Return the messages of each row; none for rows that are left out."""
        messages: list[Sequence[Message]] = []
        for piece in changes.pieces():
            count, name = piece.rows.num_rows, piece.table.name
            place = f"{piece.file}:{piece.rows.column('offset')[0]}, {counted(count, 'row')} of {name}" if count else ""
            made: Sequence[Sequence[Message]] = [()] * count
            with self._errors.guarded("mutation", name, place, count):
                made = self._format.changes(piece)
            messages.extend(made)
        return messages

    def schema_change(self, change: SchemaChange, place: FeedPlace) -> None:
        """Send a statement, after the end of the transaction before it."""
        self._end_transaction()
        table, where = change.tables[0][0], f"{change.statement.file}:{change.statement.offset}, {change.kind}"
        if change.kind == "DML":
            with self._errors.guarded("empty_commit", table, f"{where} of {table}", 0):
                raise self._errors.unlogged_rows()
        with self._errors.guarded("alter", table, f"{where} of {table}", 0):
            self.send(list(self._format.schema_change(change)))
        self._last = place

    def _end_transaction(self) -> None:
        self._current = None
        if self._transactions:
            self.send(self._transactions.end())

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages, without those that the sink refuses and the error handlers leave out.

        Raises FeedError, SinkFailed.
        """
        while messages:
            self._begin()
            refused = -1
            try:
                self._sink.send(messages)
            except MessageRefused as error:
                refused = error.number
                place = f"batch {self._place.batch + 1}, a message to {messages[refused].topic}"
                self._errors.decide(FeedFailure("mutation", None, place, 1, error.message, error.remedy), error)
            self.messages += len(messages) if refused < 0 else refused
            messages = messages[refused + 1 :] if refused >= 0 else ()

    def _begin(self) -> None:
        if not self._begun:
            self._sink.begin()
            self._begun = True

    def _commit_here(self) -> None:
        assert self._last is not None
        self.commit(FeedPosition(self._place.batch, self._last, self._place.prepared))

    def pause(self) -> FeedPosition:
        """Commit in the middle of a batch, where the feed stops for now; return the position."""
        self._end_transaction()
        position = FeedPosition(self._place.batch, self._last, self._place.prepared)
        self.commit(position)
        return position

    def end_batch(self, position: FeedPosition) -> None:
        """End the open transaction, and commit at the batch's end."""
        self._end_transaction()
        self.commit(position)

    def heartbeat(self, place: FeedPosition) -> None:
        """Send and commit the format's heartbeat, if it has one. place: the position to commit with it."""
        if messages := self._format.heartbeat(now_us()):
            self.send(list(messages))
            self.commit(place)

    def commit(self, position: FeedPosition) -> None:
        """Commit what was sent at a position, after writing down what was left out.

        Raises TransactionRefused, SinkFailed.
        """
        self._begin()
        self._errors.record()
        fault("feed sent")
        self._sink.commit(position)
        fault("sink committed")
        self._errors.commit()
        self.mutations += self._pending
        self._careful = max(0, self._careful - self._pending)
        self._begun, self._pending, self._pending_bytes = False, 0, 0
        self._committed(position, self.messages)
