"""Comparison of both readers' rows in a part of a log, value by value."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from binlake.binlog.border import Mutations, Stopped, Wanted
from binlake.binlog.reader import Emitted
from binlake.caches import remembered
from binlake.position import file_number
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import side_columns
from binlake.schema.table import Column, TableName
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.border_values import same
from binlake.second_opinion.misread import MISREADINGS, Misreading
from binlake.second_opinion.stream import Image, Rows, Unread

SHOWN = 5
"""How many differences a table's report names; the others are counted."""

EventPlace = tuple[int, int]
"""(file number, offset in bytes)."""


@dataclass(frozen=True)
class Difference:
    """The place where the readers differ, without values. row: its number in the event, from 0. column: None if the
    difference isn't in a column."""

    file: str
    offset: int
    row: int
    what: str
    column: str | None = None
    type: str | None = None

    def __str__(self) -> str:
        named = f" column {self.column}" if self.column else ""
        named += f" ({self.type})" if self.type else ""
        return f"{self.file}:{self.offset} row {self.row}{named}: {self.what}"


@dataclass
class Tally:
    """Counts of what was compared in one table, and what wasn't.

    left: how many values were left out, by column and misreading. unread: how many rows weren't read, by reason.
    stopped: where and why binlake's own decoder stopped the table.
    """

    events: int = 0
    rows: int = 0
    values: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    left: Counter[tuple[str, Misreading]] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    stopped: str = ""

    def differs(self, difference: Difference) -> None:
        """Count a difference; the first SHOWN of them are kept."""
        self.differing += 1
        if len(self.differences) < SHOWN:
            self.differences.append(difference)


@dataclass
class Theirs:
    """Events that the package read in a part of the log.

    files: file names by number. rows: row events by place. unread: parts that it left out, in the order of the log.
    stop: (file, offset) at which reading was ended; None if it went to the end.
    """

    files: dict[int, str]
    rows: dict[EventPlace, Rows] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    stop: tuple[str, int] | None = None

    def why_unread(self, place: EventPlace) -> str | None:
        """Return why the package left out the event at a place; None where it didn't."""
        following = bisect_right(self.unread, place, key=lambda part: (file_number(part.file), part.first))
        part = self.unread[following - 1] if following else None
        return part.why if part and file_number(part.file) == place[0] and place[1] < part.stop else None

    def reaches(self, place: EventPlace) -> bool:
        """Return whether a place is before the end of what the package read."""
        return self.stop is None or place < (file_number(self.stop[0]), self.stop[1])


def compare(ours: Iterable[Emitted], theirs: Theirs, wanted: Wanted) -> dict[TableName, Tally]:
    """Compare both readers' rows. Returns a tally by table. wanted: what binlake's own reader was asked for."""
    compared = _Comparison(theirs, wanted)
    for item in ours:
        if isinstance(item, Stopped):
            compared.stopped(item)
        elif isinstance(item, Mutations):
            compared.mutations(item)
    compared.ended()
    return compared.tallies


class _Comparison:
    def __init__(self, theirs: Theirs, wanted: Wanted) -> None:
        self.tallies: dict[TableName, Tally] = {}
        self._theirs, self._wanted = theirs, wanted
        self._seen: Counter[EventPlace] = Counter()
        self._stopped: dict[TableName, EventPlace] = {}

    def _tally(self, name: TableName) -> Tally:
        return self.tallies.setdefault(name, Tally())

    def stopped(self, item: Stopped) -> None:
        place = file_number(item.file), item.offset
        if self._theirs.reaches(place) and item.name not in self._stopped:
            self._stopped[item.name] = place
            self._tally(item.name).stopped = f"{item.file}:{item.offset}: {item.reason}"

    def mutations(self, item: Mutations) -> None:
        for place, rows in groupby(item.batch.to_pylist(), lambda row: (row["file"], row["offset"])):
            if not self._theirs.reaches(place):
                continue
            event = self._theirs.rows.get(place)
            if event is None:
                self._only_ours(item.name, place, list(rows))
                continue
            tally = self._tally(item.name)
            tally.events += not self._seen[place]
            for row in rows:
                tally.rows += 1
                self._seen[place] += 1
                self._row(tally, item, event, row)

    def _only_ours(self, name: TableName, place: EventPlace, rows: list[dict[str, Any]]) -> None:
        tally = self._tally(name)
        if why := self._theirs.why_unread(place):
            tally.unread[why] += len(rows)
            return
        for row in rows:
            tally.differs(Difference(self._theirs.files[place[0]], place[1], row["row"], "only binlake has the row"))

    def _row(self, tally: Tally, item: Mutations, event: Rows, row: dict[str, Any]) -> None:
        number = row["row"]
        if number >= len(event.rows) or (event.op, event.name) != (row["op"], item.name):
            tally.differs(Difference(event.file, event.offset, number, "another operation or table, or no such row"))
            return
        for side, theirs in zip(("before", "after"), event.rows[number], strict=True):
            ours = row[side]
            if ours is not None and theirs is not None:
                for column, kind, what in self._image(tally, item, ours, theirs):
                    said = f"{what} ({side} the change)"
                    tally.differs(Difference(event.file, event.offset, number, said, column, kind))

    def _image(self, tally: Tally, item: Mutations, ours: Image, theirs: Image) -> list[tuple[str, str | None, str]]:
        """Return (column, type, what) for each difference of two images."""
        names = {column.name for column in item.columns}
        excluded = self._wanted(item.name.database, item.name.table) or frozenset()
        differences: list[tuple[str, str | None, str]] = [
            (name, None, f"only {PACKAGE} has it")
            for name in theirs.keys() - names
            if excluded is True or name.lower() not in excluded
        ]
        for column in item.columns:
            verdict = _verdict(column, _with_text(column, ours, names), theirs)
            if isinstance(verdict, Misreading):
                tally.left[column.name, verdict] += 1
                continue
            tally.values += 1
            if verdict:
                differences.append((column.name, declared(column), verdict))
        return differences

    def ended(self) -> None:
        """Note the rows that only the package has, once all of binlake's own were compared."""
        for place, event in self._theirs.rows.items():
            since = self._stopped.get(event.name)
            if since is not None and place >= since:
                continue
            for number in range(self._seen[place], len(event.rows)):
                what = f"only {PACKAGE} has the row"
                self._tally(event.name).differs(Difference(event.file, event.offset, number, what))


@remembered("misreadings of columns")
def _known(column: Column) -> tuple[Misreading, ...]:
    return tuple(misreading for misreading in MISREADINGS if misreading.columns(column))


def _verdict(column: Column, mine: Any, theirs: Image) -> str | Misreading:
    """Return an empty text if the values are the same; else what is wrong, or the known misreading."""
    for known in _known(column):
        if known.values is None:
            return known
    if column.name not in theirs:
        return "only binlake has the column"
    its = theirs[column.name]
    if same(column, mine, its):
        return ""
    known_as = (
        misreading for misreading in _known(column) if misreading.values and misreading.values(column, mine, its)
    )
    return next(known_as, "the values differ")


def _with_text(column: Column, image: Image, names: set[str]) -> Any:
    """Return a column's value in an image; for an invalid date its text, which the reader keeps in a side column."""
    value = image[column.name]
    if value is None and (side := _side_column(column)) and side not in names:
        return image.get(side)
    return value


@remembered("side columns of columns")
def _side_column(column: Column) -> str | None:
    return next((side.name for side in side_columns([column], KEEP_ALL)), None)


def declared(column: Column) -> str:
    """Return a column's type for messages."""
    digits = f"({column.precision},{column.scale})" if column.type == "decimal" else ""
    digits = digits or (f"({column.length})" if column.length else f"({column.fraction})" if column.fraction else "")
    return f"{column.type.upper()}{digits}{' UNSIGNED' if column.unsigned else ''}"
