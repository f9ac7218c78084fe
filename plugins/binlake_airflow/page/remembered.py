"""Metadata with a cache: what was read from a table is kept until the table has another commit.

A repeated read only checks two files of the table's log, instead of reading log and data files. The newest commit's
size and time are compared as well, so that a new lake with the same versions at the same place is noticed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from binlake.delta import opened_tables
from binlake.storage import files
from binlake.storage.protocol import StoredFile
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata

if TYPE_CHECKING:
    import pyarrow as pa

_ANSWERS = 64
"""How many answers are kept of one table, the last used ones."""

_Question = tuple[tuple[str, ...], str | None, Newest | None]


@dataclass
class _Remembered:
    """A table at a version, with cached answers. commit: the log file of that version."""

    table: DeltaTable
    commit: StoredFile | None
    answers: OrderedDict[_Question, list[dict[str, Any]]] = field(default_factory=OrderedDict)


class RememberedMetadata(Metadata):
    """Metadata with cached reads, for any thread. Returned rows are copies."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._known: dict[str, _Remembered] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.reads = 0
        """How often a table was read instead of the cache."""

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        newest: Newest | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows as Metadata.read does, from memory while the table has no new commit."""
        question = (tuple(columns or ()), where, newest)
        with self._locks[name]:
            known = self._newest_known(name)
            if known is None or question not in known.answers:
                rows = super().read(name, columns, where=where, newest=newest)
                known = self._known.get(name)
                if known is None:  # the table doesn't exist
                    return rows
                known.answers[question] = rows
            known.answers.move_to_end(question)
            while len(known.answers) > _ANSWERS:
                known.answers.popitem(last=False)
            return [dict(row) for row in known.answers[question]]

    def read_columns(self, name: str, columns: Sequence[str], *, where: str | None = None) -> pa.Table:
        """Return columns as Metadata.read_columns does; they aren't kept."""
        with self._locks[name]:
            self._newest_known(name)
            return super().read_columns(name, columns, where=where)

    def _plain_files(self, name: str) -> None:
        """Leave no table to plain reads: answers are kept here."""

    @contextmanager
    def _reading(self, name: str) -> Iterator[DeltaTable]:
        self.reads += 1
        if name not in self._known:
            table = opened_tables.opened(self.location(name))
            self._known[name] = _Remembered(table, files.stat(self._commit(name, table.version())))
        yield self._known[name].table

    def _newest_known(self, name: str) -> _Remembered | None:
        """Return the table as it is known, and forget it where it has another commit by now."""
        known = self._known.get(name)
        if known is None or self._is_newest(name, known):
            return known
        del self._known[name]
        return None

    def _is_newest(self, name: str, known: _Remembered) -> bool:
        version = known.table.version()
        if known.commit is None or files.stat(self._commit(name, version)) != known.commit:
            return False
        return files.stat(self._commit(name, version + 1)) is None

    def _commit(self, name: str, version: int) -> str:
        return f"{self.location(name)}/_delta_log/{version:020}.json"
