"""The claims of a table's log about its data files, compared with the rows that the files hold.

Readers leave files out by these statistics, count rows by them, and merges look for keys by them: a wrong bound hides
rows that every comparison of rows finds to be there. Source: Delta's protocol, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.delta.key_ranges import physical_names

_MILLISECOND = 1000
"""Microseconds. Delta's own writer cuts an upper bound of times to milliseconds, and its readers add one."""

ROWS = "numRecords"


@dataclass(frozen=True)
class WrongStatistics:
    """Statistics of one data file that its rows contradict. path: below the table's folder. what: ``numRecords``, and
    bounds and counts of NULLs with their columns, such as ``maxValues of id``; no value."""

    path: str
    what: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.what)} of {self.path}"


@dataclass(frozen=True)
class _Claim:
    """The claims about a column of one file; None where nothing is claimed. Bounds: see ``_plain``."""

    low: Any
    high: Any
    nulls: int | None
    kind: pa.DataType


@dataclass
class FileClaims:
    """The claims about one data file, and its rows as far as they were read. rows: how many it has; None where that
    isn't claimed. is_marked: whether rows of it are hidden. names: of the table's columns, by those in the file."""

    path: str
    rows: int | None
    is_marked: bool
    claims: Mapping[str, _Claim]
    names: Mapping[str, str]
    _rows: int = 0
    _nulls: dict[str, int] = field(default_factory=dict)
    _bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def columns(self) -> Collection[str]:
        """Return the columns of which something is claimed, by their names in the file."""
        return self.claims.keys()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that no deletion vector hides."""
        self._rows += rows.num_rows
        there = set(rows.schema.names)
        for name, claim in self.claims.items():
            column = rows.column(name) if name in there else pa.nulls(rows.num_rows)  # the file is older than it
            if pa.types.is_nested(column.type):
                continue  # writers count the NULLs of lists in several ways
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if (claim.low, claim.high) != (None, None) and column.null_count < len(column):
                ends = pc.min_max(column).values()
                if pa.types.is_date(column.type) and pa.types.is_timestamp(claim.kind):
                    ends = [end.cast(claim.kind) for end in ends]  # the column's type was widened
                low, high = map(_plain, ends)
                known = self._bounds.get(name, (low, high))
                self._bounds[name] = min(known[0], low), max(known[1], high)

    def wrong(self, stored_rows: int) -> WrongStatistics | None:
        """Return what is wrong; None where nothing is. stored_rows: of the whole file, with those that are hidden."""
        what = [ROWS] if self.rows is not None and self.rows != stored_rows else []
        for name, claim in self.claims.items():
            what += [f"{which} of {self.names.get(name, name)}" for which in self._wrong_of(name, claim, stored_rows)]
        return WrongStatistics(self.path, tuple(what)) if what else None

    def _wrong_of(self, name: str, claim: _Claim, stored_rows: int) -> list[str]:
        low, high = self._bounds.get(name, (claim.low, claim.high))
        # Of texts and times a bound may be wider than the values, and of any column of which rows are hidden.
        is_exact = not self.is_marked and (pa.types.is_integer(claim.kind) or pa.types.is_date(claim.kind))
        over = _MILLISECOND - 1 if pa.types.is_timestamp(claim.kind) else 0
        wrong = []
        if claim.low is not None and (claim.low > low or (is_exact and claim.low < low)):
            wrong.append("minValues")
        least = high - over if over and high is not None else high
        if claim.high is not None and (claim.high < least or (is_exact and claim.high > high)):
            wrong.append("maxValues")
        if claim.nulls is not None and name in self._nulls and self._lies(claim.nulls, self._nulls[name], stored_rows):
            wrong.append("nullCount")
        return wrong

    def _lies(self, claimed: int, nulls: int, stored_rows: int) -> bool:
        """Return whether a count of NULLs is wrong. If rows are hidden, it only shows whether there is none, or no
        other value."""
        if not self.is_marked:
            return nulls != claimed
        return (claimed == 0 and nulls > 0) or (claimed >= stored_rows and nulls < self._rows)


WrongFiles = dict[str, WrongStatistics]
"""Data files whose statistics are wrong, by their paths: one that is read again counts once."""


class ClaimedStatistics:
    """The claims of a table's log about its data files at a version. marked: names of the files, without their folders,
    of which deletion vectors hide rows. wrong: takes the files whose claims turn out wrong. Files may be read side by
    side, each as a whole."""

    def __init__(self, table: DeltaTable, marked: Collection[str], wrong: WrongFiles) -> None:
        self._added = pa.table(table.get_add_actions()).combine_chunks()
        self._places = {path: place for place, path in enumerate(self._added["path"].to_pylist())}
        self._names = {stored: name for name, stored in physical_names(table).items()}
        self._marked, self._wrong = marked, wrong

    def of(self, path: str) -> FileClaims:
        """Return what is claimed of a file, to be compared with its rows."""
        place = self._places[path]
        rows = self._added["num_records"][place].as_py()
        ends = {end: self._structure(end, place) for end in ("min", "max", "null_count")}
        claims: dict[str, _Claim] = {}
        for name in dict.fromkeys(name for values in ends.values() for name in values):
            low, high = ends["min"].get(name), ends["max"].get(name)
            nulls = ends["null_count"].get(name)
            kind = self._kind(name)
            if not pa.types.is_struct(kind):
                claims[name] = _Claim(_plain(low), _plain(high), nulls.as_py() if nulls is not None else None, kind)
        return FileClaims(path, rows, path.rpartition("/")[2] in self._marked, claims, self._names)

    def end(self, file: FileClaims, stored_rows: int) -> None:
        """Take a file that was read. stored_rows: see ``FileClaims.wrong``."""
        if wrong := file.wrong(stored_rows):
            self._wrong[file.path] = wrong

    def _kind(self, name: str) -> pa.DataType:
        for end in {"min", "max"} & set(self._added.column_names):
            bounds = self._added.schema.field(end).type
            if (at := bounds.get_field_index(name)) >= 0:
                return bounds.field(at).type
        return pa.null()

    def _structure(self, column: str, place: int) -> dict[str, pa.Scalar]:
        """Return the members of a structure in a row, without those that are NULL."""
        if column not in self._added.column_names:
            return {}
        values = self._added[column][place]
        return {name: value for name, value in values.items() if value.is_valid} if values.is_valid else {}


def _plain(bound: pa.Scalar | None) -> Any:
    """Return a bound as a value that orders as the column does: days and microseconds are whole numbers."""
    if bound is None or not bound.is_valid:
        return None
    if pa.types.is_timestamp(bound.type):
        return bound.cast(pa.timestamp("us", bound.type.tz)).value
    return bound.value if pa.types.is_date32(bound.type) else bound.as_py()
