"""The manifest of a batch's staging: which files hold which mutations, and what else its slices of the log held."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from binlake.binlog.border import RolledBack, Statement, Stopped, XaEvent
from binlake.config import TablesConfig
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import Column, TableName
from binlake.serialization import dump, load


@dataclass(frozen=True)
class StagedFile:
    """One Parquet file of staging.

    ranges: least and greatest value of each key column, old and new keys alike. inserted, updated, deleted: without
    the rows of XA transactions; of those ``xids`` has the three counts by XA id. void: rows that were rolled back, as
    (offset, row) of the first and (offset, row) behind the last; the counts have them. absent: see border.Mutations.
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
        return self.inserted + self.updated + self.deleted + sum(sum(counts) for counts in self.xids.values())


@dataclass(frozen=True)
class StagedSlice:
    """What one slice held for us. gtid_set, unchecked and servers: see border.SliceSummary."""

    slice: int
    files: tuple[StagedFile, ...]
    statements: tuple[Statement, ...]
    stopped: tuple[Stopped, ...]
    xa: tuple[XaEvent, ...] = ()
    gtid_set: str = ""
    unchecked: tuple[TableName, ...] = ()
    servers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The staging of a batch: its slices in the order of the log.

    tables, invalid: the YAML's settings by which it was read; None where an older binlake didn't say.
    """

    batch: int
    attempt: str
    slices: tuple[StagedSlice, ...]
    tables: TablesConfig | None = None
    invalid: InvalidValues | None = None

    @property
    def files(self) -> tuple[StagedFile, ...]:
        return tuple(file for part in self.slices for file in part.files)

    @property
    def mutations(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def nothing(self) -> bool:
        """No mutation, no statement, no stopped table, no XA transaction: merge has nothing to do."""
        return not any(part.files or part.statements or part.stopped or part.xa for part in self.slices)

    @property
    def content(self) -> str:
        """Digest of what the log told: the same however often the batch is staged, wherever its files lie."""
        staged = [dump(replace(file, path="", bytes=0, checksum="")) for file in self.files]
        for file in staged:
            if not file["absent"]:
                del file["absent"]  # an older binlake, which may have staged the batch before, doesn't tell it
            for column in file["columns"]:
                del column["stored"]
        slices = [dump(replace(part, files=())) for part in self.slices]
        for part in slices:
            del part["servers"]
            for statement in part["statements"]:
                del statement["session"]["unlogged"]
        return _digest({"files": staged, "slices": slices})

    def to_json(self) -> str:
        value = dump(self)
        return json.dumps({"checksum": _digest(value), **value}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError when it isn't what was written: key ranges and counts are as precious as rows."""
        value = json.loads(text)
        if not isinstance(value, dict) or value.pop("checksum", None) != _digest(value):
            raise ValueError("the checksum differs")
        return load(cls, value)


def _digest(value: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def without(file: StagedFile, rolled_back: Iterable[RolledBack]) -> StagedFile:
    """The file with what of it is void."""
    void = [(*one.first, *one.last) for one in rolled_back if one.first <= file.last[1:] and file.first[1:] < one.last]
    return replace(file, void=tuple(void)) if void else file
