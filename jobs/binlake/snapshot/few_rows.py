"""Tables of few rows, read one after the other by one connection, in one read view.

A connection for each, in a Spark task or a thread, costs up to a hundred times as much as reading such a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Any, Protocol

from binlake.snapshot.chunks import TableSnapshot
from binlake.snapshot.copying import Copying, Member, Selected
from binlake.source.locks import Gate

MOST_ROWS = 1000
"""The most rows of a table read this way."""
MOST_BYTES = 1 << 20
"""The most bytes of such a table, both as the server stores it and as sent: the driver holds a whole wave."""
MOST_TABLES = 50
"""The most tables of a wave: it bounds what a killed run copies again, and how long writes wait for the views."""


def fits(table: TableSnapshot) -> bool:
    """Return whether a table can be read this way, by the server's estimates."""
    return (
        table.transactional
        and not table.many_rows
        and len(table.chunks) == 1
        and table.estimate <= MOST_ROWS
        and table.size <= MOST_BYTES
    )


class QueryReader(Protocol):
    """One connection for many queries. ``read`` takes the result of ``prepared``."""

    def execute(self, statement: str) -> None:
        """Run a statement whose rows aren't read."""
        ...

    def prepared(self, table: TableSnapshot) -> Any:
        """Return the table's query, for ``read``."""
        ...

    def read(self, query: Any) -> Selected | None:
        """Return the rows, None if there are more than a few."""
        ...


class FewRows(ABC):
    """The connection that reads the tables of a wave, and its gate."""

    def __init__(self, copying: Copying, wave: Sequence[Member]) -> None:
        self._copying = copying
        self._wave = wave
        self._view_seen = Event()
        self.gate = Gate(tuple(member.table.name for member in wave))

    @abstractmethod
    def _reader(self) -> AbstractContextManager[QueryReader]:
        """Connect; the connection ends with the context."""

    @abstractmethod
    def _translated(self, member: Member, error: Exception) -> Exception:
        """Return an error as one of binlake's, of this member."""

    def run(self) -> list[Selected | None]:
        """Read each table's rows, in the wave's order; None for a table that has more than a few. Runs in its own
        thread, until ``end`` is called.

        A table that can't be read raises when its rows are asked for; an error before the view is open is raised here.
        """
        with self._reader() as reader:
            queries = [self._prepared(reader, member) for member in self._wave]
            self._open_view(reader)
            rows = [self._read(reader, member, query) for member, query in zip(self._wave, queries, strict=True)]
            self._view_seen.wait()  # its lock goes with the connection
            return rows

    def end(self) -> None:
        """Let the connection end once its rows are read: its view was seen, or the wave failed."""
        self._view_seen.set()

    @contextmanager
    def _translating(self, member: Member) -> Iterator[None]:
        """Translate errors as errors of this member."""
        try:
            yield
        except Exception as error:
            raise self._translated(member, error) from None

    def _prepared(self, reader: QueryReader, member: Member) -> Any:
        with self._translating(member):
            return reader.prepared(member.table)

    def _open_view(self, reader: QueryReader) -> None:
        by_name = {member.table.name: member for member in self._wave}
        for name, statement in self.gate.statements(mariadb=self._copying.source.is_mariadb):
            with self._translating(by_name[name] if name else self._wave[0]):
                reader.execute(statement)

    def _read(self, reader: QueryReader, member: Member, query: Any) -> Selected | None:
        try:
            with self._translating(member):
                return reader.read(query)
        except Exception as error:
            failure = error

        def failed(*_: object) -> Any:
            raise failure

        return failed
