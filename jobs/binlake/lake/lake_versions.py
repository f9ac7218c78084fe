"""Lake versions: for each batch the Delta version of every table at the batch's position. Needs neither server nor JVM.

Tables that belong to a version, and tables that don't:

- those that follow the log, also where the batch didn't change them: they equal the server's at the batch's position
- tables that are stopped, paused, catching up, excluded or to be snapshotted again don't: they are at an earlier
  position
- a table that was snapshotted ahead of the batch doesn't, until a batch reaches the snapshot's position
- a renamed table belongs to it under the name that it had at the batch

Batches that an older binlake recorded, without their Delta versions, aren't listed.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from binlake.config.units import HOUR_US
from binlake.errors import FIRST_BATCH, UsageError
from binlake.lake.purged_versions import purges_in, why_purged
from binlake.lake.table_at import unknown_table
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from binlake.store.rows import KINDS, PinRow, ReadableRow, VersionRow

if TYPE_CHECKING:
    import pyarrow as pa

    from binlake.lake.foreign_vacuums import ForeignVacuum

REMOVED = "maintain removed files of it, as maintain.history_hours says, or a table of it was dropped"
_LIST = "binlake versions lists those that are known"
_BATCHES = 1 << 40
"""More than there are batches: a life's number times it, plus a batch, orders rows by both."""

_OF_BATCHES = ("batch", "kind", "position", "gtid_set", "committed_us", "at_us")
_OF_TABLES = (
    "batch", "kind", "table_id", "database", "table", "status", "delta_version", "position", "began_us", "folder",
)  # fmt: skip
_NONE, _NEVER = -1, (1 << 62)
_AHEAD = "ahead of the batch"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BatchNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VersionedTable:
    """A table at a lake version. name: as it was called then. table_id: of its life. folder: in the lake, of a table
    that several sources fill; empty for others."""

    name: TableName
    table_id: str
    delta_version: int
    folder: str = ""


@dataclass(frozen=True)
class LakeVersion:
    """A version of all tables, as a batch left them.

    name: under which it is pinned, if it is. position: up to which all transactions of the log are in its tables, and
    no other; gtid_set: the same, empty without GTID. committed: when the newest of these transactions committed, by the
    server's clock as the log has it; of a batch without transactions, or recorded by an older binlake, when it was
    planned. recorded: when the batch was recorded. tables: Delta versions by ``database.table``. readable: all files
    that it needs are there. why: why they aren't; empty where they are. until: before this time maintain removes none
    of them; None while nothing ends that, as for the newest version and pinned ones.
    """

    batch: int
    name: str | None
    position: str
    gtid_set: str
    committed: datetime
    recorded: datetime
    why: str
    until: datetime | None
    _rows: _TableRows = field(repr=False, compare=False)

    @property
    def readable(self) -> bool:
        """Return whether the version can be read."""
        return not self.why

    @property
    def tables(self) -> Mapping[str, int]:
        """Return the Delta version of each table at the batch, by ``database.table``."""
        return self._rows.versions(self.batch)

    @property
    def table_count(self) -> int:
        """Return the number of its tables; a list of many versions needs no names."""
        return len(self._rows.rows_at(self.batch))

    @property
    def contents(self) -> Mapping[str, VersionedTable]:
        """Return the tables of the version by ``database.table``, in this order."""
        return self._rows.at(self.batch)

    @property
    def listed(self) -> Sequence[VersionedTable]:
        """Return the tables of the version. Two may have one ``database.table``, as the table c of a.b and b.c of a."""
        return self._rows.listed(self.batch)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Return the status of each table that is known but isn't at the version's position, by ``database.table``."""
        return self._rows.left_out(self.batch)

    def ends(self, history_hours: float) -> dict[int, float]:
        """Return of the batches that are known, but for those that nothing ended, until when their files are kept, in
        seconds since 1970."""
        return {batch: us / 1e6 for batch, us in self._rows.ends(round(history_hours * HOUR_US)).items()}

    def table(self, name: str) -> VersionedTable:
        """Return a table by ``database.table``. Raises UsageError where it doesn't belong to the version, or where the
        version can't be read any more."""
        self.refuse_unreadable()
        if table := self.contents.get(name):
            return table
        if status := self.left_out.get(name):
            raise UsageError(
                f"{name} isn't part of batch {self.batch}: it is {status}, so it is at another position",
                remedy="read it by itself, or take a batch that has it",
            )
        raise unknown_table(name, self.contents)

    def refuse_unreadable(self, others: Sequence[LakeVersion] = ()) -> None:
        """Raise UsageError where files that the version needs are gone. others: of which the nearest is named that can
        be read."""
        if not self.readable:
            readable = [version.batch for version in others if version.readable and version.batch != self.batch]
            nearest = min(readable, key=lambda batch: abs(batch - self.batch), default=None)
            named = "take a later batch" if nearest is None else f"take batch {nearest}, which is the nearest"
            raise UsageError(
                f"batch {self.batch} can't be read any more: {self.why}",
                remedy=f"{named}; binlake versions shows which are readable, and pin keeps one",
            )

    def looked_at(self, root: str) -> LakeVersion:
        """Return the version once VACUUMs that weren't binlake's are looked for in its tables. root: the source's
        folder. Raises LakeError."""
        if self.why:
            return self
        taken = next(iter(_vacuums(root, self._rows, self._rows.rows_at(self.batch)).values()), None)
        return replace(self, why=taken.why) if taken else self


def _vacuums(root: str, rows: _TableRows, looked_at: BatchNumbers | None = None) -> dict[TableName, ForeignVacuum]:
    from binlake.lake.foreign_vacuums import foreign_vacuums  # every sync imports this module, and looks for none

    return foreign_vacuums(root, rows.earlier(looked_at), rows.folders)


def lake_versions(metadata: Metadata, history_hours: float | None = None, *, looks: bool = False) -> list[LakeVersion]:
    """Return the versions that are known, oldest first.

    history_hours: as the YAML promises; without it ``until`` is None. looks: look into the tables' logs, too, for
    VACUUMs that weren't binlake's. Raises LakeError.
    """
    names = {row.batch: row.name for row in PinRow.read(metadata, "batch", "name")}
    rows = _read(metadata)
    ends = {} if history_hours is None else rows.ends(round(history_hours * HOUR_US))
    gone = rows.unreadable()
    purges = purges_in(metadata) if gone - names.keys() else ()
    taken = rows.taken(_vacuums(root_of(metadata), rows)) if looks else {}
    return [
        LakeVersion(
            batch=batch,
            name=names.get(batch),
            position=own.position or "",
            gtid_set=own.gtid_set or "",
            committed=_moment(own.committed_us or 0),
            recorded=_moment(own.at_us),
            why=why_purged(purges, batch, rows.versions) or REMOVED
            if batch in gone and batch not in names
            else taken.get(batch, ""),
            until=_moment(ends[batch]) if batch in ends and batch not in names else None,
            _rows=rows,
        )
        for batch, own in rows.batches.items()
    ]


def root_of(metadata: Metadata) -> str:
    """Return the source's folder, in which its metadata are."""
    return metadata.path.rpartition("/")[0]


def unreadable_batches(metadata: Metadata) -> set[int]:
    """Return the batches that can't be read any more, were they not pinned. Raises LakeError."""
    return _read(metadata).unreadable()


def versions_read(metadata: Metadata) -> list[tuple[VersionedTable, int]]:
    """Return the versions of tables that known batches read and that can be read, each with the time at which another
    took its place, in microseconds since 1970. Raises LakeError."""
    return _read(metadata).readable()


def _read(metadata: Metadata) -> _TableRows:
    own = VersionRow.read(metadata, *_OF_BATCHES, where="table_id IS NULL")
    tables = metadata.read_columns(VersionRow.TABLE, _OF_TABLES, where="table_id IS NOT NULL")
    return _TableRows(own, tables, ReadableRow.read(metadata))


def version_at(
    versions: Sequence[LakeVersion],
    *,
    batch: int | None = None,
    time: datetime | None = None,
    name: str | None = None,
) -> LakeVersion:
    """Return the version of a batch, of a name, or of a time; without any of them the newest.

    time: the newest version is returned none of whose transactions committed later. Later commits than the newest
    version's aren't known yet, so a later time is refused. Raises UsageError.
    """
    if not versions:
        remedy = f"{FIRST_BATCH}; until then read the tables at their Delta paths"
        raise UsageError("the lake has no version yet, as no batch is recorded", remedy=remedy)
    if sum(asked is not None for asked in (batch, time, name)) > 1:
        raise UsageError("a version is found by its batch, a time or its name", remedy="give one of them")
    if batch is not None:
        return _of_batch(versions, batch)
    if name is not None:
        return _of_name(versions, name)
    return versions[-1] if time is None else _of_time(versions, time)


def _of_batch(versions: Sequence[LakeVersion], batch: int) -> LakeVersion:
    for version in versions:
        if version.batch == batch:
            return version
    if versions[0].batch < batch < versions[-1].batch:
        place = bisect(versions, batch, key=lambda version: version.batch)
        raise UsageError(
            f"batch {batch} is no version any more: of the batches of seconds that are older than "
            "maintain.every_version_hours the newest of each hour stays",
            remedy=f"take batch {versions[place - 1].batch} or {versions[place].batch}; {_LIST}",
        )
    known = f"batches {versions[0].batch} to {versions[-1].batch}"
    nearest = versions[0 if batch < versions[0].batch else -1].batch
    remedy = f"the nearest is batch {nearest}; {_LIST}"
    raise UsageError(f"batch {batch} isn't known as a version: the lake has {known}", remedy=remedy)


def _of_name(versions: Sequence[LakeVersion], name: str) -> LakeVersion:
    for version in versions:
        if version.name == name:
            return version
    names = [version.name for version in versions if version.name]
    raise UsageError(f"no version is called {name!r}", remedy=f"names are {', '.join(names)}" if names else _LIST)


def _of_time(versions: Sequence[LakeVersion], time: datetime) -> LakeVersion:
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    first, newest = versions[0], max(version.committed for version in versions)
    if moment > newest:
        raise UsageError(
            f"what the lake was at {moment:%Y-%m-%d %H:%M:%S.%f %Z} isn't known yet: its newest transaction committed "
            f"at {newest:%Y-%m-%d %H:%M:%S.%f} UTC",
            remedy="run binlake sync first, or ask for an earlier time",
        )
    before: LakeVersion | None = None
    for version in versions:
        if version.committed > moment:
            break
        before = version
    if before is None:
        raise UsageError(
            f"no version is as old as {moment:%Y-%m-%d %H:%M:%S.%f %Z}: batch {first.batch} is the first, of "
            f"{first.committed:%Y-%m-%d %H:%M:%S.%f} UTC",
            remedy="ask for a later time",
        )
    return before


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _codes(column: pa.ChunkedArray, order: BatchNumbers | None = None) -> tuple[list[str], BatchNumbers]:
    """Return a dictionary-encoded column's words, and their numbers row by row; _NONE for NULL."""
    if not column.num_chunks:
        return [], np.zeros(0, np.int64)
    chunk = column.chunk(0)
    codes = chunk.indices.fill_null(_NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return chunk.dictionary.to_pylist(), codes if order is None else codes[order]


class _TableRows:
    """The tables' rows of ``lake_versions``, ordered by life, batch and kind, as columns.

    Each is in effect for the batches from its start (its own batch, or the first that reaches its position) to its end
    (exclusive): the life's next row, or a batch of kind base.
    """

    def __init__(self, own: list[VersionRow], tables: pa.Table, readable_since: Sequence[ReadableRow]) -> None:
        own.sort(key=lambda row: row.batch)
        self.batches: dict[int, VersionRow] = {row.batch: row for row in own}
        self._numbers = np.array(list(self.batches), np.int64)
        self._load(tables.combine_chunks().unify_dictionaries())
        self._bound(np.array([row.batch for row in own if row.kind == "base"], np.int64))
        self._gone = self._before(readable_since)

    def _load(self, rows: pa.Table) -> None:
        self._lives, life = _codes(rows["table_id"])
        kinds, kind = _codes(rows["kind"])
        rank = np.array([KINDS.index(word) for word in kinds], np.int64)
        order = np.lexsort((rank[kind], rows["batch"].to_numpy(), life))
        self._life, self._batch = life[order], rows["batch"].to_numpy()[order]
        self._key = self._life * _BATCHES + self._batch
        self._version = rows["delta_version"].fill_null(_NONE).to_numpy()[order]
        self._began = rows["began_us"].to_numpy()[order]
        columns = ("database", "table", "status", "position", "folder")
        self._texts = {column: _codes(rows[column], order) for column in columns}

    def _bound(self, bases: BatchNumbers) -> None:
        """Set from which batch on and up to which each row is in effect, and before what time nothing ended that."""
        has_next = np.append(self._life[1:] == self._life[:-1], False) if len(self._life) else np.zeros(0, bool)
        places = np.searchsorted(bases, self._batch, side="right")
        base = np.append(bases, _NEVER)[places]
        following = np.where(has_next, np.append(self._batch[1:], _NEVER)[: len(self._batch)], _NEVER)
        began = np.append(self._began[1:], _NEVER)[: len(self._began)]
        self._end = np.minimum(following, base)
        self._ended_us = np.where(following < base, began, self._before_bases(bases)[places])
        self._start = self._batch.copy()
        for row in np.flatnonzero(self._texts["position"][1] != _NONE):
            self._start[row] = self._first_reaching(int(row))

    def _before_bases(self, bases: BatchNumbers) -> BatchNumbers:
        """Return for each batch of kind base when the batch noted before it was recorded: others may have followed."""
        recorded = np.array([row.at_us for row in self.batches.values()], np.int64)
        before = np.searchsorted(self._numbers, bases) - 1
        return np.append(np.where(before >= 0, recorded[before], 0) if len(bases) else bases, _NEVER)

    def _first_reaching(self, row: int) -> int:
        """Return the first batch that reaches a row's position."""
        position = Position.parse(self._text("position", row))
        for batch, own in self.batches.items():
            if batch >= self._batch[row] and Position.parse(own.position or "").reaches(position):
                return batch
        return _NEVER

    def _text(self, column: str, row: int) -> str:
        words, codes = self._texts[column]
        return words[int(codes[row])]

    @cached_property
    def _names(self) -> tuple[list[TableName], BatchNumbers]:
        """Return the names of tables in their order, and the number of each row's."""
        (databases, database), (tables, table) = (self._texts[column] for column in ("database", "table"))
        pairs, places = np.unique(database * (len(tables) + 1) + table, return_inverse=True)
        names = [TableName(databases[pair // (len(tables) + 1)], tables[pair % (len(tables) + 1)]) for pair in pairs]
        ordered = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), np.int64)
        rank[ordered] = np.arange(len(names))
        return [names[place] for place in ordered], rank[places]

    def _in_effect(self, batch: int) -> BatchNumbers:
        """Return the row of each life that counts at a batch, in the order of the tables' names."""
        keys = np.arange(len(self._lives)) * _BATCHES + batch
        last = np.searchsorted(self._key, keys, side="right") - 1
        known = (last >= 0) & (self._life[last] == np.arange(len(self._lives))) if len(self._life) else last < 0
        rows: BatchNumbers = last[known]
        rows = rows[self._end[rows] > batch]
        return rows[np.argsort(self._names[1][rows], kind="stable")]

    def rows_at(self, batch: int) -> BatchNumbers:
        """Return the rows of the tables that belong to a batch's version, in the order of the tables' names."""
        rows = self._in_effect(batch)
        at_version: BatchNumbers = rows[(self._version[rows] >= 0) & (self._start[rows] <= batch)]
        return at_version

    def _at(self, batch: int) -> tuple[list[TableName], BatchNumbers]:
        """Return the tables that belong to a batch's version, and their rows."""
        rows = self.rows_at(batch)
        names, places = self._names
        return [names[place] for place in places[rows].tolist()], rows

    def versions(self, batch: int) -> dict[str, int]:
        names, rows = self._at(batch)
        return {
            f"{name.database}.{name.table}": version
            for name, version in zip(names, self._version[rows].tolist(), strict=True)
        }

    def listed(self, batch: int) -> list[VersionedTable]:
        names, rows = self._at(batch)
        return [self._table(name, row) for name, row in zip(names, rows.tolist(), strict=True)]

    def _table(self, name: TableName, row: int) -> VersionedTable:
        folder = "" if self._texts["folder"][1][row] == _NONE else self._text("folder", row)
        return VersionedTable(name, self._lives[self._life[row]], int(self._version[row]), folder)

    @cached_property
    def folders(self) -> dict[TableName, str]:
        """Return the folders in the lake of tables that several sources fill, as their newest batches have them."""
        names, places = self._names
        rows = np.flatnonzero(self._version >= 0)
        rows = rows[np.argsort(self._batch[rows], kind="stable")]
        newest = np.full(len(names), _NONE)
        newest[places[rows]] = rows  # of several rows of a name the last one stays
        newest = newest[newest != _NONE]
        of_several = newest[self._texts["folder"][1][newest] != _NONE].tolist()
        return {names[places[row]]: self._text("folder", row) for row in of_several}

    def at(self, batch: int) -> dict[str, VersionedTable]:
        return {f"{table.name.database}.{table.name.table}": table for table in self.listed(batch)}

    def left_out(self, batch: int) -> dict[str, str]:
        rows = self._in_effect(batch)
        left = rows[(self._version[rows] < 0) | (self._start[rows] > batch)].tolist()
        names, places = self._names
        status = {
            f"{names[places[row]].database}.{names[places[row]].table}": self._text("status", row) for row in left
        }
        return {name: _AHEAD if word == "following" else word for name, word in status.items() if word != "dropped"}

    def _before(self, readable_since: Sequence[ReadableRow]) -> npt.NDArray[np.bool_]:
        """Return for each row whether its Delta version is before the first that can be read of the life's table."""
        gone = np.zeros(len(self._life), bool)
        numbers = {life: number for number, life in enumerate(self._lives)}
        names = [self._texts[column] for column in ("database", "table")]
        for since in readable_since:
            life = numbers.get(since.table_id, _NONE)
            rows = slice(*np.searchsorted(self._life, (life, life + 1)))
            before = self._version[rows] < since.delta_version
            for (words, codes), word in zip(names, (since.database, since.table), strict=True):
                before &= codes[rows] == (words.index(word) if word in words else _NEVER)
            gone[rows] |= before
        return gone

    def readable(self) -> list[tuple[VersionedTable, int]]:
        """Return the tables' versions that are in effect for some batch and can be read, and when that ended."""
        first, last = (np.searchsorted(self._numbers, ends) for ends in (self._start, self._end))
        rows = np.flatnonzero(~self._gone & (self._version >= 0) & (first < last))
        names, places = self._names
        return [
            (self._table(names[places[row]], row), int(ended_us))
            for row, ended_us in zip(rows.tolist(), self._ended_us[rows].tolist(), strict=True)
        ]

    def unreadable(self) -> set[int]:
        """Return the batches that need files of a table that are gone."""
        return self._batches(self._gone & (self._version >= 0) & (self._start < self._end))

    def earlier(self, rows: BatchNumbers | None = None) -> dict[TableName, set[int]]:
        """Return the Delta versions of tables that some batch reads, without the newest of each table. rows: those that
        are looked at; all by default."""
        in_effect = (self._version >= 0) & (self._start < self._end)
        names, places = self._names
        newest = np.full(len(names), _NONE)
        np.maximum.at(newest, places, self._version)
        chosen = np.flatnonzero(in_effect & (self._version < newest[places]))
        if rows is not None:
            chosen = np.intersect1d(chosen, rows)
        earlier: dict[TableName, set[int]] = defaultdict(set)
        for place, version in zip(places[chosen].tolist(), self._version[chosen].tolist(), strict=True):
            earlier[names[place]].add(version)
        return dict(earlier)

    def taken(self, vacuums: Mapping[TableName, ForeignVacuum]) -> dict[int, str]:
        """Return why batches can't be read of whose tables VACUUMs took files."""
        names, places = self._names
        taken: dict[int, str] = {}
        for name, vacuum in vacuums.items():
            lost = np.isin(self._version, list(vacuum.lost)) & (places == names.index(name))
            taken.update(dict.fromkeys(self._batches(lost & (self._start < self._end)) - taken.keys(), vacuum.why))
        return taken

    def _batches(self, rows: npt.NDArray[np.bool_]) -> set[int]:
        """Return the batches for which some of the rows are in effect."""
        counts = np.zeros(len(self._numbers) + 1, np.int64)
        np.add.at(counts, np.searchsorted(self._numbers, self._start[rows]), 1)
        np.add.at(counts, np.searchsorted(self._numbers, self._end[rows]), -1)
        return set(self._numbers[np.cumsum(counts)[:-1] > 0].tolist())

    def ends(self, kept_us: int) -> dict[int, int]:
        """Return for each batch before what time all its files are kept, microseconds since 1970; nothing for those
        whose tables all are as they were."""
        rows = (self._version >= 0) & (self._start < self._end) & (self._end < _NEVER)
        ends, places = np.unique(self._end[rows], return_inverse=True)
        starts, times = np.full(len(ends), _NEVER), np.full(len(ends), _NEVER)
        np.minimum.at(starts, places, self._start[rows])
        np.minimum.at(times, places, self._ended_us[rows])
        ended: dict[int, int] = {}
        for batch in self.batches:
            place = int(np.searchsorted(ends, batch, side="right"))
            while place < len(ends) and starts[place] > batch:
                place += 1
            if place < len(ends):
                ended[batch] = int(times[place]) + kept_us
        return ended
