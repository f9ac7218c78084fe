"""XA transactions in the walk through a batch: their rows are merged at the place of the XA COMMIT."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from binlake.binlog.border import XaEvent
from binlake.planner.manifest import StagedFile, StagedSlice
from binlake.planner.steps import PreparedXa, XaCommit
from binlake.position import file_number
from binlake.schema.table import TableName


class PreparedTransactions:
    """XA transactions without an outcome, from earlier batches and this one."""

    def __init__(self, batch: int, waiting: Sequence[PreparedXa]) -> None:
        self._batch = batch
        self._waiting = {transaction.xid: transaction for transaction in waiting}
        self._files: dict[str, list[StagedFile]] = {}
        self._after: dict[str, int] = {}
        self._left_out: tuple[TableName, ...] = ()

    def enter(self, part: StagedSlice) -> None:
        """Begin the next slice. A transaction lies in one slice up to its XA PREPARE."""
        self._after = {}
        self._files = defaultdict(list)
        self._left_out = tuple(name for name, _ in part.left_out)
        for file in part.files:
            for xid in file.xids:
                self._files[xid].append(file)

    def follow(self, events: Iterable[XaEvent]) -> tuple[list[tuple[StagedFile, XaCommit]], list[XaEvent]]:
        """Follow events of the slice in the order of the log.

        Returns the commits with the files that hold their rows, and the commit events of transactions that were
        prepared before anything that this lake has read.
        """
        commits: list[tuple[StagedFile, XaCommit]] = []
        unknown: list[XaEvent] = []
        for event in events:
            if event.what == "prepared":
                self._waiting[event.xid] = self._prepared(event)
                continue
            transaction = self._waiting.pop(event.xid, None)
            if event.what == "rolled back":
                continue
            if transaction is None:
                unknown.append(event)
                continue
            commit = transaction.commit(event)
            commits += [(file, commit) for file in transaction.files]
        return commits, unknown

    def of_earlier_batches(self, events: Iterable[XaEvent]) -> list[tuple[PreparedXa, XaEvent]]:
        """Return the transactions of earlier batches that these events commit, each with its event."""
        ends = ((self._waiting.get(event.xid), event) for event in events if event.what == "committed")
        return [(waiting, event) for waiting, event in ends if waiting is not None and waiting.batch != self._batch]

    def _prepared(self, event: XaEvent) -> PreparedXa:
        after = self._after.get(event.xid, 0)
        self._after[event.xid] = event.offset
        files = [
            file for file in self._files.get(event.xid, ()) if file.first[1] <= event.offset and file.last[1] > after
        ]
        number = file_number(event.file)
        return PreparedXa(event.xid, self._batch, number, after, event.offset, tuple(files), self._left_out)

    @property
    def waiting(self) -> tuple[PreparedXa, ...]:
        """Return the transactions that have no outcome so far."""
        return tuple(self._waiting.values())
