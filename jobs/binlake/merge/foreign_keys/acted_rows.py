"""The changes that foreign keys make to rows below the log: each event of a parent's row, in the order of the log, acts
on the rows that refer to it then."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from binlake.errors import UnfollowedStatement, snapshot_again
from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName

DEEPEST = 256
"""Levels of rows that refer to rows of their own table; InnoDB ends a cascade before (FK_MAX_CASCADE_DEL)."""

LogPlace = tuple[int, int, int, int, int]
"""Where something happened in the log, compared in this order: number of the file, offset, offset at which a row of an
XA transaction was logged (else 0), row, and part: 0 where the old row goes, 1 where the new one comes."""
BEFORE_ALL: LogPlace = (-1, -1, -1, -1, -1)
AFTER_ALL: LogPlace = (2**63 - 1, 0, 0, 0, 0)
JoinedValues = tuple[Any, ...]
"""Values of columns that foreign keys join."""


def deeper_than_known(name: TableName) -> UnfollowedStatement:
    """Return the error of a table whose rows refer to each other through too many levels."""
    return UnfollowedStatement(
        f"{name}: rows refer to each other through more than {DEEPEST} levels", remedy=snapshot_again(name)
    )


@dataclass(frozen=True)
class ParentEvent:
    """A row of a parent that was deleted (``gone``), or got another key.

    number: that of the foreign key. old, new: values of the columns to which it refers; ``new`` has no meaning where
    the row is gone.
    """

    at: LogPlace
    number: int
    gone: bool
    old: JoinedValues
    new: JoinedValues


@dataclass(frozen=True)
class ActingKey:
    """A foreign key by the places of its columns in a row's values. referenced: of the columns to which it refers,
    where they are of the same table."""

    cascade: Cascade
    columns: tuple[int, ...]
    referenced: tuple[int, ...] | None = None

    def refers_to(self, values: JoinedValues) -> JoinedValues | None:
        """Return the values by which a row refers to a parent; None where one is NULL, which refers to nothing."""
        reference = tuple(values[place] for place in self.columns)
        return None if None in reference else reference

    def after(self, values: JoinedValues, event: ParentEvent) -> tuple[JoinedValues, bool]:
        """Return a row's values after an event, and whether the row is gone."""
        if event.gone and self.cascade.delete == "CASCADE":
            return values, True
        action = self.cascade.delete if event.gone else self.cascade.update
        changed = list(values)
        for place, value in zip(self.columns, event.new, strict=True):
            changed[place] = value if action == "CASCADE" else None
        return tuple(changed), False


@dataclass(frozen=True)
class RowStretch:
    """A row as it is from a mutation to the next, both excluded. values: of the columns that are followed."""

    since: LogPlace
    upto: LogPlace
    values: JoinedValues


@dataclass(frozen=True)
class RowChange:
    """The change of a row at one place. stretch: its number. before, after: its values; those of a row that is gone
    stay."""

    stretch: int
    at: LogPlace
    gone: bool
    before: JoinedValues
    after: JoinedValues


def events_of(number: int, cascade: Cascade, referenced: Sequence[int], change: RowChange) -> Iterator[ParentEvent]:
    """Yield the event that a row's change is to the rows that refer to it. referenced: places of the columns to which
    they refer."""
    old, new = (tuple(values[place] for place in referenced) for values in (change.before, change.after))
    if (cascade.on_delete and change.gone) or (cascade.on_update and not change.gone and old != new):
        yield ParentEvent(change.at, number, change.gone, old, new)


def changes_of(
    name: TableName, stretches: Iterable[RowStretch], events: Iterable[ParentEvent], keys: Sequence[ActingKey]
) -> tuple[list[RowChange], list[ParentEvent]]:
    """Return the changes of the rows, at most one for each place, and the events that these changes were to the table
    itself. keys: by the numbers of the events. Raises UnfollowedStatement."""
    return _Play(name, stretches, keys).run(events)


@dataclass
class _Row:
    """A stretch and its changes. by: foreign keys that acted at the place of its last change."""

    stretch: RowStretch
    values: JoinedValues
    changes: list[RowChange] = field(default_factory=list)
    by: set[int] = field(default_factory=set)

    def meets(self, event: ParentEvent) -> bool:
        """Return whether the row is there at an event of its time, and its foreign key hasn't acted at that place."""
        if not self.changes:
            return True
        last = self.changes[-1]
        return not last.gone and not (last.at == event.at and event.number in self.by)

    def change(self, number: int, event: ParentEvent, after: JoinedValues, gone: bool) -> None:
        last = self.changes[-1] if self.changes else None
        if last and last.at == event.at:
            self.changes[-1] = RowChange(number, event.at, gone, last.before, after)
        else:
            self.changes.append(RowChange(number, event.at, gone, self.values, after))
            self.by = set()
        self.by.add(event.number)
        self.values = after


class _Play:
    """Rows and their changes. A row is looked at by the events of its own time alone: it comes when an event behind its
    beginning is due, and goes when it is met behind its end."""

    def __init__(self, name: TableName, stretches: Iterable[RowStretch], keys: Sequence[ActingKey]) -> None:
        self._name = name
        self._keys = keys
        self._rows = [_Row(stretch, stretch.values) for stretch in stretches]
        self._coming = sorted(range(len(self._rows)), key=lambda row: self._rows[row].stretch.since, reverse=True)
        self._referring: dict[tuple[int, JoinedValues], dict[int, None]] = defaultdict(dict)
        self._own: list[ParentEvent] = []

    def _refer(self, row: int) -> None:
        for place in self._references(row):
            self._referring[place][row] = None

    def _refer_no_more(self, row: int) -> None:
        for place in self._references(row):
            del self._referring[place][row]

    def _references(self, row: int) -> Iterator[tuple[int, JoinedValues]]:
        for number, key in enumerate(self._keys):
            reference = key.refers_to(self._rows[row].values)
            if reference is not None:
                yield number, reference

    def run(self, events: Iterable[ParentEvent]) -> tuple[list[RowChange], list[ParentEvent]]:
        waiting = [(event.at, 0, count, event) for count, event in enumerate(events)]
        heapq.heapify(waiting)
        count = len(waiting)
        while waiting:
            at, level, _, event = heapq.heappop(waiting)
            if level > DEEPEST:
                raise deeper_than_known(self._name)
            while self._coming and self._rows[self._coming[-1]].stretch.since < at:
                self._refer(self._coming.pop())
            for own in self._act(event):
                heapq.heappush(waiting, (own.at, level + 1, count, own))
                count += 1
        return [change for row in self._rows for change in row.changes], self._own

    def _act(self, event: ParentEvent) -> list[ParentEvent]:
        """Apply an event, and return the events that its changes are to the table itself."""
        caused: list[ParentEvent] = []
        for number in list(self._referring.get((event.number, event.old), ())):
            row = self._rows[number]
            if row.stretch.upto <= event.at:
                self._refer_no_more(number)
                continue
            if not row.meets(event):
                continue
            self._refer_no_more(number)
            before = row.values
            after, gone = self._keys[event.number].after(before, event)
            row.change(number, event, after, gone)
            if not gone:
                self._refer(number)
            step = RowChange(number, event.at, gone, before, after)
            for own, key in enumerate(self._keys):
                if key.referenced is not None:
                    caused += events_of(own, key.cascade, key.referenced, step)
        self._own += caused
        return caused
