"""The transactions of row events that wait to be decoded, numbered as the kernels refer to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from binlake.binlog import events, scan
from binlake.binlog.columns import Decoded
from binlake.errors import Malformed
from binlake.gtid import GtidPosition, GtidSet, Interval
from binlake.kernels import layouts
from binlake.kernels.arrays import numbers, texts
from binlake.kernels.layouts import SLACK
from binlake.kernels.memory import pool

MOST = 1 << 16
"""The most transactions before their row events are decoded."""
_LONGEST_GTID = 128


class Transactions:
    """Commit times, GTIDs and XA ids of transactions; the last is the open one. ``scan`` adds ordinary ones itself.

    places: the arrays into which ``scan`` writes.
    """

    def __init__(self, state: Any, *, mariadb: bool) -> None:
        self._state = state
        self._mariadb = mariadb
        self.has_foreign = False
        """A transaction has a GTID of the other flavour, which ``executed`` leaves out."""
        self.committed = np.zeros(MOST, np.int64)
        self.text_ends = np.zeros(MOST, np.int64)
        self.servers = np.zeros(MOST, np.int64)
        self.text = np.zeros(MOST * _LONGEST_GTID, np.uint8)
        self.places = scan.Committed(self.committed, self.text_ends, self.servers, self.text.ctypes.data)
        self._xids: list[str | None] = [None]
        self._executed: dict[str, list[Interval]] = {}
        self._last_of_domain: dict[str, str] = {}  # MariaDB's GTIDs
        self.server_ids: dict[str, int] = {}
        """The id of the server where transactions were committed, by the part before the number in their GTIDs."""
        self.newest_us = 0
        """The commit time of the newest transaction that ``executed`` counted, in µs since 1970 UTC."""

    def open(self, transaction: events.Transaction, server_id: int = 0) -> None:
        """Begin a transaction. server_id: its event's. Raises Malformed if there are too many."""
        state = self._state
        number, used = int(state.transactions), int(state.text_used)
        if number >= MOST:  # scan keeps a place free by coming back with ROWS_FULL; an XA id may take it
            raise Malformed("too many transactions between two drains")
        text = (transaction.gtid or "").encode()
        if len(text) > _LONGEST_GTID:  # the kernels write behind it, without a look at the end
            raise Malformed("a GTID that is too long")
        self.text[used : used + len(text)] = np.frombuffer(text, np.uint8)
        self.committed[number], self.text_ends[number] = transaction.committed_us, used + len(text)
        self.servers[number] = server_id
        state.transactions, state.text_used = number + 1, used + len(text)
        state.mapped = 0
        state.began = transaction.offset
        self.prepare(transaction.xid if transaction.prepares else None)

    def prepare(self, xid: str | None) -> None:
        """Set the open transaction's XA id; None if it isn't an XA transaction."""
        if xid is not None:
            self._xids.append(xid)
        self._state.xa = 0 if xid is None else len(self._xids) - 1

    def current(self) -> tuple[int, str | None]:
        """Return commit time and GTID of the open transaction."""
        number = int(self._state.transactions) - 1
        start = int(self.text_ends[number - 1]) if number else 0
        text = self.text[start : int(self.text_ends[number])].tobytes().decode("ascii")
        return int(self.committed[number]), text or None

    def forget(self) -> None:
        """Forget all transactions but the open one, once no row refers to them."""
        state = self._state
        self._note_executed(int(state.transactions) - 1)
        self.servers[0] = self.servers[int(state.transactions) - 1]
        committed, gtid = self.current()
        text = (gtid or "").encode()
        self.text[: len(text)] = np.frombuffer(text, np.uint8)
        self.committed[0], self.text_ends[0] = committed, len(text)
        state.transactions, state.text_used = 1, len(text)
        xid = self._xids[int(state.xa)]
        self._xids = [None]
        self.prepare(xid)

    def executed(self) -> str:
        """Return the GTIDs of all transactions, including the open one, as the server writes a set."""
        self._note_executed(int(self._state.transactions))
        if self._mariadb:
            return str(GtidPosition().adding(self._last_of_domain.values()))
        return str(GtidSet.of({prefix[:-1]: intervals for prefix, intervals in self._executed.items()}))

    def _note_executed(self, count: int) -> None:
        self.newest_us = max(self.newest_us, int(self.committed[:count].max(initial=0)))
        runs = layouts.many(count, layouts.GTID_RUN)
        total = scan.gtid_runs(count, self.text_ends, self.text.ctypes.data, runs)
        if not total and count:
            self.server_ids[""] = int(self.servers[count - 1])
        for start, size, first, last, transaction in runs[:total].tolist():
            prefix = self.text[start : start + size].tobytes().decode("ascii")
            if (":" in prefix) == self._mariadb:
                self.has_foreign = True
                continue
            self.server_ids[prefix] = int(self.servers[transaction])
            if self._mariadb:
                self._last_of_domain[prefix.partition("-")[0]] = f"{prefix}{last}"
            intervals = self._executed.setdefault(prefix, [])
            if intervals and intervals[-1][1] + 1 == first:
                intervals[-1] = intervals[-1][0], last
            else:
                intervals.append((first, last))

    def columns(self, decoded: Decoded) -> list[pa.Array]:
        """Return the columns committed_us, gtid and xid of decoded rows."""
        committed = numbers(self.committed[decoded.transaction], pa.int64())
        nothing = pa.nulls(decoded.rows, pa.string())
        xids = texts(self._xids).take(numbers(decoded.xa, pa.int32())) if decoded.xa.any() else nothing
        size = scan.texts_size(decoded.transaction, self.text_ends)
        if not size:
            return [committed, nothing, xids]
        text, offsets = pool.take(size + SLACK), np.zeros(decoded.rows + 1, np.int32)
        empty = np.empty(decoded.rows, np.bool_)
        scan.gather_texts(decoded.transaction, self.text_ends, self.text.ctypes.data, text.ctypes.data, offsets, empty)
        absent = int(empty.sum())
        validity = pa.py_buffer(np.packbits(~empty, bitorder="little")) if absent else None
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(text)]
        return [committed, pa.Array.from_buffers(pa.string(), decoded.rows, buffers, absent), xids]
