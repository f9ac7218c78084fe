"""The source's transactions as a feed meets them: where each begins and ends, and each mutation's ordinals in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from binlake.feeds.contract import FeedChanges, Format, Message, TransactionEnd
from binlake.feeds.staged import LogWindow
from binlake.schema.table import TableName


@dataclass
class _Open:
    """The transaction under way."""

    id: str
    committed_us: int
    tables: Counter[TableName] = field(default_factory=Counter)
    total: int = 0


class SourceTransactions:
    """Of one run. ``end`` is asked before a window whose first row begins a transaction; then ``number``, then
    ``surround``."""

    def __init__(self, form: Format) -> None:
        self._format = form
        self._open: _Open | None = None
        self._before: dict[int, list[Message]] = {}
        self._behind: dict[int, list[Message]] = {}

    def number(self, window: LogWindow) -> list[FeedChanges]:
        """The window's parts with the ordinals of their rows."""
        tables = [part.table.name for part in window.parts for _ in range(part.rows.num_rows)]
        told: list[tuple[str, int, int]] = [("", 0, 0)] * len(window)
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
            told[number] = self._open.id, self._open.total, self._open.tables[name]
            self._open.total += events[number] - 1
            self._open.tables[name] += events[number] - 1
        parts, start = [], 0
        for part in window.parts:
            end = start + part.rows.num_rows
            parts.append(replace(part, transactions=tuple(told[start:end])))
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
        """The rows' messages in order, with what begins before and ends behind each."""
        return [[*self._before.get(at, ()), *row, *self._behind.get(at, ())] for at, row in enumerate(rows)]

    def end(self) -> list[Message]:
        """The transaction under way is over."""
        if self._open is None:
            return []
        ended = TransactionEnd(self._open.id, self._open.committed_us, dict(self._open.tables))
        self._open = None
        return list(self._format.transaction_ended(ended))
