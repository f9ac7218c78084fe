"""Source transactions in a feed: where each begins and ends, and the ordinals of its mutations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from binlake.feeds.contract import FeedChanges, Format, Message, TransactionEnd
from binlake.feeds.staged import LogWindow
from binlake.schema.table import TableName


@dataclass
class _Open:
    """The open transaction. tables: its events so far, by table. total: of all tables."""

    id: str
    committed_us: int
    tables: Counter[TableName] = field(default_factory=Counter)
    total: int = 0


class SourceTransactions:
    """The transactions of one run.

    For each window ``number`` is called, then ``surround``; before them ``end``, if the window's first row begins a
    transaction.
    """

    def __init__(self, form: Format) -> None:
        self._format = form
        self._open: _Open | None = None
        self._before: dict[int, list[Message]] = {}
        self._behind: dict[int, list[Message]] = {}

    def number(self, window: LogWindow) -> list[FeedChanges]:
        """Return the window's parts with the ordinals of their rows."""
        tables = [part.table.name for part in window.parts for _ in range(part.rows.num_rows)]
        ordinals: list[tuple[str, int, int]] = [("", 0, 0)] * len(window)
        events = [count for part in window.parts for count in self._format.events(part)]
        gtids, begins = window.gtids.to_pylist(), set(window.starts.tolist())
        self._before, self._behind = {}, {}
        for at, number in enumerate(window.order.tolist()):
            if self._open is None or at in begins:
                self._begin(at, window, gtids[at])
            assert self._open is not None
            name = tables[number]
            self._open.total += 1
            self._open.tables[name] += 1
            ordinals[number] = self._open.id, self._open.total, self._open.tables[name]
            self._open.total += events[number] - 1
            self._open.tables[name] += events[number] - 1
        parts, start = [], 0
        for part in window.parts:
            end = start + part.rows.num_rows
            parts.append(replace(part, transactions=tuple(ordinals[start:end])))
            start = end
        return parts

    def _begin(self, at: int, window: LogWindow, gtid: str | None) -> None:
        if self._open is not None:
            self._behind[at - 1] = self.end()
        committed_us = int(window.committed_us[at])
        place = window.place(at)
        self._open = _Open(gtid or f"file={window.parts[0].file},pos={place[2]}", committed_us)
        self._before[at] = list(self._format.transaction_began(self._open.id, committed_us))

    def surround(self, rows: Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
        """Return the rows' messages with those of transactions that begin before or end after each row."""
        return [[*self._before.get(at, ()), *row, *self._behind.get(at, ())] for at, row in enumerate(rows)]

    def end(self) -> list[Message]:
        """End the open transaction; return its messages."""
        if self._open is None:
            return []
        ended = TransactionEnd(self._open.id, self._open.committed_us, dict(self._open.tables))
        self._open = None
        return list(self._format.transaction_ended(ended))
