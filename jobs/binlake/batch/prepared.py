"""XA transactions in the walk through a batch: their rows wait for the outcome, and take its place in the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from binlake.batch.manifest import StagedFile, StagedSlice
from binlake.batch.steps import PreparedXa, XaCommit
from binlake.binlog.border import XaEvent
from binlake.position import file_number


class PreparedTransactions:
    """Those without an outcome, from earlier batches and in this one."""

    def __init__(self, batch: int, waiting: Sequence[PreparedXa]) -> None:
        self._batch = batch
        self._waiting = {one.xid: one for one in waiting}
        self._files: dict[str, list[StagedFile]] = {}
        self._after: dict[str, int] = {}

    def enter(self, part: StagedSlice) -> None:
        """The next slice begins; a transaction up to its XA PREPARE lies in one."""
        self._after = {}
        self._files = defaultdict(list)
        for file in part.files:
            for xid in file.xids:
                self._files[xid].append(file)

    def follow(self, events: Iterable[XaEvent]) -> tuple[list[tuple[StagedFile, XaCommit]], list[XaEvent]]:
        """Some events of the slice in the order of the log: the rows that were committed, by file, and the commits of
        transactions that were prepared before anything this lake has read."""
        commits: list[tuple[StagedFile, XaCommit]] = []
        unknown: list[XaEvent] = []
        for event in events:
            if event.what == "prepared":
                self._waiting[event.xid] = self._prepared(event)
                continue
            found = self._waiting.pop(event.xid, None)
            if event.what == "rolled back":
                continue
            if found is None:
                unknown.append(event)
                continue
            commit = found.commit((file_number(event.file), event.offset))
            commits += [(file, commit) for file in found.files]
        return commits, unknown

    def _prepared(self, event: XaEvent) -> PreparedXa:
        after = self._after.get(event.xid, 0)
        self._after[event.xid] = event.offset
        files = [
            file for file in self._files.get(event.xid, ()) if file.first[1] <= event.offset and file.last[1] > after
        ]
        number = file_number(event.file)
        return PreparedXa(event.xid, self._batch, number, after, event.offset, tuple(files))

    @property
    def waiting(self) -> tuple[PreparedXa, ...]:
        return tuple(self._waiting.values())
