"""The rows of a table's history that one epoch changes, as Arrow: pure, for rows of any origin.

A history has a row for each version of a row, from the mutation that made it to the mutation that ended it. The open
rows are the current versions; their ends are NULL. Only the open rows of changed keys are looked at and replaced.

Columns of binlake's own end with a space here, as no name of the server's does:

| column           | in open rows and results                    | in changes                              |
|------------------|---------------------------------------------|-----------------------------------------|
| ``valid_from ``  | commit time of the version's first mutation | commit time                             |
| ``valid_to ``    | commit time of its end, NULL while current  |                                         |
| ``from ``        | position of its first mutation              | position                                |
| ``to ``          | position of its end, NULL while current     |                                         |
| ``gone ``        |                                             | the row isn't there behind the change   |
| ``transaction `` |                                             | changes of one number become one change |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

VALID_FROM, VALID_TO, FROM, TO = "valid_from ", "valid_to ", "from ", "to "
GONE, TRANSACTION = "gone ", "transaction "
TIME = pa.timestamp("us", "UTC")
END_FIELDS = (
    pa.field(VALID_FROM, TIME),
    pa.field(VALID_TO, TIME),
    pa.field(FROM, pa.string()),
    pa.field(TO, pa.string()),
)
"""The columns of a version's ends."""
CHANGE_FIELDS = (
    pa.field(VALID_FROM, TIME), pa.field(FROM, pa.string()), pa.field(GONE, pa.bool_()),
    pa.field(TRANSACTION, pa.int64()),
)  # fmt: skip
"""The columns of a change beside the row's."""

Places = NDArray[np.intp]
RowFlags = NDArray[np.bool_]


@dataclass(frozen=True)
class VersionRules:
    """The rules by which a row gets a new version.

    key: columns by whose bytes rows are the same. columns: all columns of the mirror. tracked: those of which another
    value makes a new version; others are updated in the version that is there.
    """

    key: Sequence[str]
    columns: Sequence[str]
    tracked: Sequence[str]


@dataclass(frozen=True)
class HistoryChanges:
    """The changes to a history. replaced: the open rows that go. rows: those that come, closed and current ones."""

    replaced: RowFlags
    rows: pa.Table


class TwoOpenRows(Exception):
    """Two open rows have one key."""


def changed_versions(open_rows: pa.Table, changes: pa.Table, rules: VersionRules) -> HistoryChanges:
    """Return the history's changes for the log's.

    open_rows: at least those whose keys occur in ``changes``; the mirror's columns, others that the history keeps, and
    END_FIELDS. changes: in the order of the log; the mirror's columns, of which a change that takes a row away needs
    the key alone, and CHANGE_FIELDS. Raises TwoOpenRows.
    """
    images = pa.concat_tables([open_rows.select(rules.columns), changes.select(rules.columns)]).combine_chunks()
    walk = _Walk.of(open_rows, changes, images, rules)
    starts = walk.starts()
    ends, closed = walk.ends(starts)
    first, last, end = walk.places[starts], walk.places[ends - 1], walk.places[np.where(closed, ends, 0)]
    was_open = first < open_rows.num_rows
    same = was_open & ~closed & _are_equal(images, rules.columns, first, last)
    began, ended = walk.positions.take(pa.array(first)), walk.positions.take(pa.array(end, mask=~closed))
    empty = pc.fill_null(pc.equal(began, ended), False).to_numpy(zero_copy_only=False)
    written = ~same & ~empty
    replaced = np.zeros(open_rows.num_rows, np.bool_)
    replaced[first[was_open & ~same]] = True
    kept = open_rows.drop_columns([*rules.columns, *(field.name for field in END_FIELDS)])
    rows = images.take(pa.array(last[written]))
    origin = pa.array(first[written], mask=~was_open[written])
    for name in kept.column_names:
        rows = rows.append_column(kept.schema.field(name), kept[name].take(origin))
    times = walk.times.take(pa.array(first)), walk.times.take(pa.array(end, mask=~closed))
    for field, values in zip(END_FIELDS, (*times, began, ended), strict=True):
        rows = rows.append_column(field, values.filter(pa.array(written)))
    return HistoryChanges(replaced, rows.select(open_rows.column_names))


def closed_rows(open_rows: pa.Table, position: str, committed_us: int | None) -> pa.Table:
    """Return open rows as a statement ends them that takes all rows of the table away."""
    ends = {TO: pa.scalar(position), VALID_TO: pa.scalar(committed_us, pa.int64()).cast(TIME)}
    for name, value in ends.items():
        place = open_rows.column_names.index(name)
        open_rows = open_rows.set_column(place, open_rows.schema.field(name), pa.repeat(value, open_rows.num_rows))
    return open_rows


@dataclass(frozen=True)
class _Walk:
    """The open rows and the changes, put in the order of their keys and of the log.

    places: numbers of rows in ``images``, open rows first; of the changes of a key within a transaction the last alone.
    is_first: the first of a key. gone: the row isn't there behind it. is_other: its tracked columns differ from the
    row before. positions, times: of all rows in ``images``.
    """

    places: Places
    is_first: RowFlags
    gone: RowFlags
    is_other: RowFlags
    positions: pa.ChunkedArray
    times: pa.ChunkedArray

    @classmethod
    def of(cls, open_rows: pa.Table, changes: pa.Table, images: pa.Table, rules: VersionRules) -> _Walk:
        is_open = np.arange(images.num_rows) < open_rows.num_rows
        codes = key_codes(images.select(rules.key))
        transaction = np.concatenate([np.full(open_rows.num_rows, -1), changes[TRANSACTION].to_numpy()])
        places = np.argsort(codes, kind="stable")
        ended = (codes[places][1:] != codes[places][:-1]) | (transaction[places][1:] != transaction[places][:-1])
        if not np.all(ended[is_open[places][:-1]]):
            raise TwoOpenRows
        places = places[np.append(ended, np.ones(min(1, len(places)), np.bool_))]
        is_first = np.append(np.ones(min(1, len(places)), np.bool_), codes[places][1:] != codes[places][:-1])
        gone = np.concatenate([np.zeros(open_rows.num_rows, np.bool_), changes[GONE].to_numpy()])[places]
        both = np.flatnonzero(~is_first[1:] & ~gone[1:] & ~gone[:-1]) + 1
        is_other = np.ones(len(places), np.bool_)
        is_other[both] = ~_are_equal(images, rules.tracked, places[both - 1], places[both])
        positions, times = (
            pa.chunked_array([*open_rows[name].chunks, *changes[name].chunks], kind)
            for name, kind in ((FROM, pa.string()), (VALID_FROM, TIME))
        )
        return cls(places, is_first, gone, is_other, positions, times)

    def starts(self) -> Places:
        """Return where versions begin; an open row is the beginning of its own."""
        return np.flatnonzero(~self.gone & (self.is_first | np.roll(self.gone, 1) | self.is_other))

    def ends(self, starts: Places) -> tuple[Places, RowFlags]:
        """Return where the version that begins at each start has ended, and whether a change ended it."""
        is_end = self.is_first | self.gone
        is_end[starts] = True
        ends = np.append(np.flatnonzero(is_end), len(self.places))
        behind = ends[np.searchsorted(ends, starts, side="right")]
        return behind, ~np.append(self.is_first, True)[behind]


def key_codes(keys: pa.Table) -> NDArray[np.int64]:
    """Return a number for each row, the same for rows whose values are the same."""
    if keys.num_columns == 1 and pa.types.is_integer(keys.schema.types[0]) and not keys.column(0).null_count:
        values: NDArray[np.int64] = keys.column(0).to_numpy().astype(np.int64)
        return values
    codes = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_floating(array.type):
            array = pc.add(array, pa.scalar(0, array.type))  # zeros of two signs are one key
        numbers = array.dictionary_encode(null_encoding="encode").indices.to_numpy()
        codes = codes * (int(numbers.max(initial=0)) + 1) + numbers
        if keys.num_columns > 1:
            codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _are_equal(images: pa.Table, names: Sequence[str], former_places: Places, latter_places: Places) -> RowFlags:
    """Return for pairs of rows whether their values in these columns are the same; NULL is the same as NULL."""
    equal = np.ones(len(former_places), np.bool_)
    differing = np.flatnonzero(former_places != latter_places)
    for name in names:
        column = images[name]
        former, latter = (column.take(pa.array(places[differing])) for places in (former_places, latter_places))
        equal[differing] &= _same_values(former, latter)
    return equal


def _same_values(former: pa.ChunkedArray, latter: pa.ChunkedArray) -> RowFlags:
    if pa.types.is_nested(former.type):
        pairs = zip(former.to_pylist(), latter.to_pylist(), strict=True)
        return np.array([before == after for before, after in pairs], np.bool_)
    if pa.types.is_floating(former.type):  # zeros of two signs are two values
        bits = pa.int32() if former.type.bit_width == 32 else pa.int64()
        former, latter = (values.combine_chunks().view(bits) for values in (former, latter))
    same = pc.fill_null(pc.equal(former, latter), False)
    both: RowFlags = pc.or_(same, pc.and_(pc.is_null(former), pc.is_null(latter))).to_numpy(zero_copy_only=False)
    return both
