"""A server's log for a follower: its connections stay open from one batch to the next.

A batch opens six connections otherwise: to ask for the log's end and its files, to read the files' format descriptions,
and to read the slice. Here one connection asks, a file is described once, and one dump continues behind each slice.
Where another server takes over the name meanwhile, open connections stay with the former one, and a dump that is begun
then meets a file with another description, which is refused. The follower opens all of them again each minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice

import pymysql
from pymysql.cursors import Cursor

from binlake.binlog.transport import LogChunk
from binlake.errors import SourceError
from binlake.position import FIRST_OFFSET, Slice
from binlake.source.dump import Dump, ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source


@dataclass(frozen=True)
class DescribingTransport(ServerTransport):
    """Transport that reads the format description of each file once.

    descriptions: these events, by file. Several transports share them.
    """

    descriptions: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        """Yield the slice's events in chunks. A slice that holds only the format description is read once a file."""
        known = self.descriptions.get(part.file)
        if known and part.stop == FIRST_OFFSET:
            yield LogChunk.of(FIRST_OFFSET, known)
            return
        for number, chunk in enumerate(self._read(part)):
            if number == 0:
                self.descriptions[part.file] = bytes(chunk)
            yield chunk

    def _read(self, part: Slice) -> Iterator[LogChunk]:
        return super().chunks(part)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process opens connections of its own.
        return (ServerTransport, (self.endpoint, self.server_id, self.flavour, self.name))


@dataclass(frozen=True)
class KeptTransport(DescribingTransport):
    """Transport whose dump continues with the slice that begins where the last one ended. One thread reads at a time.

    kept: the dump, while nobody reads.
    """

    kept: list[Dump] = field(default_factory=list, repr=False, compare=False)

    def close(self) -> None:
        """Hang up."""
        while self.kept:
            self.kept.pop().close()

    def _read(self, part: Slice) -> Iterator[LogChunk]:
        if part.stop == FIRST_OFFSET:
            yield from super()._read(part)
            return
        with self.failing(part):
            dump, chunks = self._going_on(part) or self._begun(part)
            try:
                yield from chunks
                if dump.file == part.file:
                    self.kept.append(dump)
            finally:
                if dump not in self.kept:
                    dump.close()

    def _going_on(self, part: Slice) -> tuple[Dump, Iterator[LogChunk]] | None:
        """Return the kept dump with the slice's chunks; None, and hang up, where it is at another place or has ended.

        A server ends a dump when a replica with the same id connects, such as another run's, or when somebody kills it.
        """
        if not self.kept:
            return None
        dump = self.kept.pop()
        if (dump.file, dump.offset) == (part.file, part.start):
            chunks = dump.chunks(part)
            with suppress(SourceError, pymysql.err.MySQLError, OSError):
                begun = list(islice(chunks, 2))  # the description, and what came
                return dump, chain(begun, chunks)
        dump.close()
        return None

    def _begun(self, part: Slice) -> tuple[Dump, Iterator[LogChunk]]:
        dump = self.dump(part, blocks=True)
        return dump, dump.chunks(part)


class KeptSource(Source):
    """A control connection whose transports share the files' format descriptions. The dump of the first replica stays
    open until all is closed."""

    def __init__(self, endpoint: Endpoint, connection: pymysql.Connection[Cursor]) -> None:
        super().__init__(endpoint, connection)
        self._descriptions: dict[str, bytes] = {}
        self._kept: KeptTransport | None = None

    def transport(self, server_id: int = 0, name: str = "binlake") -> ServerTransport:
        """Return the kept transport where it has that server_id; else a new one. The first with a server_id is kept."""
        plain = super().transport(server_id, name)
        if self._kept and self._kept.server_id == server_id:
            return self._kept
        what = (plain.endpoint, plain.server_id, plain.flavour, plain.name, self._descriptions)
        if server_id and not self._kept:
            self._kept = KeptTransport(*what)
            return self._kept
        return DescribingTransport(*what)

    def close(self) -> None:
        """Close the kept transport and the control connection."""
        if self._kept:
            self._kept.close()
        super().close()
