"""Positions, ranges and slices of the log.

A position lies between two transactions. It is ordered by file number and offset, never by time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import CoreSchema, core_schema

from binlake.errors import UsageError

_TEXT = re.compile(r"(?P<server>.+)/(?P<file>[^/]+):(?P<offset>\d+)@(?P<created>\d+)\Z")
Flavour = Literal["mysql", "mariadb"]
"""The flavour of a server and of its log."""
FIRST_OFFSET = 4
"""Offset of the first event in a binlog file, after the magic number (bytes)."""


def file_number(file: str) -> int:
    """Return the number at the end of a binlog file's name, by which files compare: ``binlog.000042`` → 42."""
    stem, dot, number = file.rpartition(".")
    if not dot or not stem or not number.isdigit():
        raise UsageError(f"{file!r} is not the name of a binlog file", remedy="names end in a number: binlog.000042")
    return int(number)


@dataclass(frozen=True)
class Position:
    """A point between two transactions of one server's log.

    server: MySQL's server_uuid; on MariaDB ``mariadb-{server_id}-{hostname}``.
    offset: bytes from the start of ``file``.
    created: timestamp (seconds) of the file's format description event; a restarted numbering has another one.
    gtid_set: the GTIDs executed up to here, as the server writes them; empty without GTID.
    """

    server: str
    file: str
    offset: int
    created: int
    gtid_set: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Return file number and offset, by which positions of one server are ordered."""
        return file_number(self.file), self.offset

    def __lt__(self, other: Position) -> bool:
        if self.server != other.server:
            raise ValueError(f"positions of two servers don't compare: {self} and {other}")
        return self.order < other.order

    # By the place alone: the same one may come with another GTID set, which equality sees.
    def __gt__(self, other: Position) -> bool:
        return other < self

    def __le__(self, other: Position) -> bool:
        return not other < self

    def __ge__(self, other: Position) -> bool:
        return not self < other

    @property
    def flavour(self) -> Flavour:
        """Return the kind of server, by the position's server name."""
        return "mariadb" if self.server.startswith("mariadb-") else "mysql"

    @property
    def series(self) -> str:
        """Return the base name of the binlog files. A server may be restarted with another."""
        return self.file.rpartition(".")[0]

    def is_at(self, position: Position | None) -> bool:
        """Return whether another position is the same point of the same log. GTID sets aren't compared."""
        return position is not None and str(self) == str(position)

    def reaches(self, watermark: Position | None) -> bool:
        """Return whether a log that is read from ``watermark`` on has everything after this position."""
        if watermark is None:
            return True
        return (self.server, self.series) == (watermark.server, watermark.series) and self.order >= watermark.order

    def __str__(self) -> str:
        return f"{self.server}/{self.file}:{self.offset}@{self.created}"

    @property
    def short(self) -> str:
        """Return ``file:offset``, for messages."""
        return f"{self.file}:{self.offset}"

    @classmethod
    def parse(cls, text: str, gtid_set: str = "") -> Position:
        """Parse what ``str()`` returns. Raises UsageError."""
        match = _TEXT.match(text)
        if not match:
            raise UsageError(f"{text!r} is not a position", remedy="write server/file:offset@timestamp")
        file_number(match["file"])
        return cls(match["server"], match["file"], int(match["offset"]), int(match["created"]), gtid_set)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Return the schema of its JSON form: its text and the GTID set."""
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda position: {"position": str(position), "gtid_set": position.gtid_set}
            ),
        )

    @classmethod
    def _validated(cls, value: Any) -> Position:
        if not isinstance(value, dict) or not {"position", "gtid_set"} <= value.keys():
            raise ValueError("no position")
        return cls.parse(value["position"], value["gtid_set"])


@dataclass(frozen=True)
class Slice:
    """The part of a range inside one binlog file: the unit of parallel reading.

    start, stop: offsets in bytes; events with start <= offset < stop belong to it.
    whole: the slice reaches the end of its file, so that its reader must meet the file's end at ``stop``.
    """

    file: str
    start: int
    stop: int
    created: int
    whole: bool

    @property
    def size(self) -> int:
        """Return the slice's size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class Range:
    """A range (start, stop] of the log. It doesn't change once planned."""

    start: Position
    stop: Position
    slices: tuple[Slice, ...]

    @property
    def empty(self) -> bool:
        """Return whether the range holds no byte of the log."""
        return self.start.order == self.stop.order

    @property
    def size(self) -> int:
        """Return its size in bytes of log."""
        return sum(part.size for part in self.slices)


Sequence = tuple[int, int, int]
"""(file number, offset of the outer event, row ordinal inside it): the total order of mutations in a batch."""
