"""The manifest of a batch's staging: its files of mutations, and the other events of its slices of the log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from binlake.binlog.border import RolledBack, Statement, Stopped, XaEvent
from binlake.config import RowFilter, TablesConfig
from binlake.config.column_policies import ColumnPolicies
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import Column, TableName
from binlake.serialization import dump, load


@dataclass(frozen=True)
class StagedFile:
    """One Parquet file of staging.

    slice: number of the slice in the range. first, last: sequence of the first and last row. bytes: the file's size.
    ranges: least and greatest value of each key column, old and new keys alike. inserted, updated, deleted: counts of
    the rows outside XA transactions. xids: the same three counts by XA id. void: ranges of rows that were rolled back,
    as (offset, row) of the first and (offset, row) behind the last; the counts include them. statements_before,
    absent: see border.Mutations.
    """

    path: str
    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    slice: int
    statements_before: int
    inserted: int
    updated: int
    deleted: int
    first: tuple[int, int, int]
    last: tuple[int, int, int]
    bytes: int
    checksum: str
    ranges: dict[str, tuple[int, int]]
    xids: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    void: tuple[tuple[int, int, int, int], ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Return the number of mutations in the file, those of XA transactions included."""
        return self.inserted + self.updated + self.deleted + sum(sum(counts) for counts in self.xids.values())


@dataclass(frozen=True)
class StagedSlice:
    """The staged content of one slice. gtid_set, unchecked, servers, committed_us, ends_open: see border.SliceSummary.

    withheld: tables with the name of a ghost table whose rows weren't read. left_out: tables of which a condition left
    rows out (``rows`` in the YAML), each with the offset of the first.
    """

    slice: int
    files: tuple[StagedFile, ...]
    statements: tuple[Statement, ...]
    stopped: tuple[Stopped, ...]
    xa: tuple[XaEvent, ...] = ()
    gtid_set: str = ""
    unchecked: tuple[TableName, ...] = ()
    servers: tuple[tuple[str, int], ...] = ()
    committed_us: int = 0
    withheld: tuple[TableName, ...] = ()
    ends_open: bool = False
    left_out: tuple[tuple[TableName, int], ...] = ()


@dataclass(frozen=True)
class GhostSpan:
    """A part of the log in which a name is that of a followed ghost table.

    begin: place of the statement that made it, as (file number, offset); (0, 0) where an earlier batch followed it.
    end: of the statement that dropped or renamed it; None where none did.
    """

    name: TableName
    begin: tuple[int, int] = (0, 0)
    end: tuple[int, int] | None = None

    def holds(self, place: tuple[int, int]) -> bool:
        """Return whether a place, as (file number, offset), lies in the span."""
        return self.begin <= place and (self.end is None or place < self.end)


def is_held(spans: Iterable[GhostSpan], name: TableName, place: tuple[int, int]) -> bool:
    """Return whether a name is a followed ghost table's at a place of the log."""
    return any(span.name == name and span.holds(place) for span in spans)


@dataclass(frozen=True)
class Manifest:
    """The staging of a batch: its slices in the order of the log.

    tables, invalid, rows, columns: the YAML's settings under which it was read; None or empty if an older binlake wrote
    it. ghosts: where the rows of ghost tables were read; None likewise.
    """

    batch: int
    attempt: str
    slices: tuple[StagedSlice, ...]
    tables: TablesConfig | None = None
    invalid: InvalidValues | None = None
    ghosts: tuple[GhostSpan, ...] | None = None
    rows: tuple[RowFilter, ...] = ()
    columns: ColumnPolicies = field(default_factory=list)

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """Return the files of all slices, in the order of the log."""
        return tuple(file for part in self.slices for file in part.files)

    @property
    def mutations(self) -> int:
        """Return the number of mutations in all files."""
        return sum(file.rows for file in self.files)

    @property
    def committed_us(self) -> int:
        """Return when the newest of its transactions committed, by the log; 0 without a transaction."""
        return max((part.committed_us for part in self.slices), default=0)

    @property
    def nothing(self) -> bool:
        """Return whether the merge has nothing to do: no mutation, statement, stopped table or XA transaction."""
        return not any(part.files or part.statements or part.stopped or part.xa for part in self.slices)

    @property
    def content(self) -> str:
        """Return a digest of the staged content. Staging a batch again gives the same, wherever its files lie."""
        staged = [dump(replace(file, path="", bytes=0, checksum="")) for file in self.files]
        for file in staged:
            if not file["absent"]:
                del file["absent"]  # an older binlake, which may have staged the batch before, doesn't write it
            for column in file["columns"]:
                del column["stored"], column["comment"]
                for later in ("mask", "server_name", "lake_type"):
                    if not column[later]:
                        del column[later]  # as above
        slices = [dump(replace(part, files=())) for part in self.slices]
        for part in slices:
            del part["servers"], part["committed_us"], part["withheld"], part["ends_open"], part["left_out"]
            for statement in part["statements"]:
                del statement["session"]["unlogged"], statement["needs_session"]
            for event in part["xa"]:
                del event["committed_us"], event["gtid"]
        return _digest({"files": staged, "slices": slices})

    def to_json(self) -> str:
        """Return the manifest as JSON, with a checksum of its content."""
        value = dump(self)
        return json.dumps({"checksum": _digest(value), **value}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what ``to_json`` wrote. Raises ValueError if its checksum differs."""
        value = json.loads(text)
        if not isinstance(value, dict) or value.pop("checksum", None) != _digest(value):
            raise ValueError("the checksum differs")
        return load(cls, value)


def _digest(value: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def without(file: StagedFile, rolled_back: Iterable[RolledBack]) -> StagedFile:
    """Return the file with its rows that were rolled back marked as void."""
    void = [
        (*rows.first, *rows.last) for rows in rolled_back if rows.first <= file.last[1:] and file.first[1:] < rows.last
    ]
    return replace(file, void=tuple(void)) if void else file
