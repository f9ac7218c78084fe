"""The parts of a composed table as it shows them: each at its newest version, as it was, or by its data files alone.

A part whose log or files can't be read holds no other back: the composed table continues to name the data files that it
has of it. So it does for a part whose log lacks commits that are shown, as after its folder was restored from a backup.
That is seen by Delta versions and by the transactions of the part's life: both are recorded in the composed table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.delta import log_files, opened_tables, plain_tables
from binlake.delta.composed_layout import physical_of
from binlake.delta.composed_sources import (
    NotedShape,
    PartSources,
    SourceNote,
    WaitingPart,
    noted_fields,
    notes_in,
    unread_in,
)
from binlake.delta.continued_table import paths_of
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_schema import MAPPING_MODE, OWN_ID
from binlake.errors import OF_CODE, BinlakeError, LakeError, LakeTableChanged, LogUnreadable, unexpected
from binlake.storage import storage_errors

CONVERTED = "_converted"
"""The folder for data files that are written in the composed table's columns."""
PARTS = "binlake-part:"
"""The prefix of the application ids under which the table records the Delta version of a part that it shows; the part's
table id follows."""
GONE = -1
"""Is recorded of a part that was shown."""


@dataclass(frozen=True)
class ColumnIds:
    """Ids of columns, as readers of Iceberg need them. asked: whether columns get them that have none. former: returns
    those that columns have or had outside of the table's schema, by their names in data files."""

    asked: bool
    former: Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class TablePart:
    """A table that is a part.

    name: as messages call it. folder: below the composed table's. value: of the source column. follows: whether its
    newest version is shown, or the one that was. app: the application id of the life that it has; without one nothing
    is known of its transactions. delta_version: its last commit that was recorded elsewhere, None for none.
    hides: returns whether what it had at a time (microseconds since 1970) or since is withheld by now; None where
    nothing is.
    """

    name: str
    folder: str
    value: str
    follows: bool = True
    is_gone: bool = False
    app: str = ""
    delta_version: int | None = None
    hides: Callable[[int], bool] | None = field(default=None, compare=False)


_OF_A_FOLDER = (storage_errors.ALLOW, storage_errors.ACCOUNT, storage_errors.UNLINK)
"""Remedies of errors that one folder alone can have."""


class PartBroken(Exception):
    """A part of a composed table can't be read. Its text is the reason. is_refused: this account may not read it."""

    def __init__(self, part: str, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.part, self.reason, self.is_refused = part, reason, is_refused


class Unwritable(LakeError):
    """Files of the composed table's own can't be written."""


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raise Unwritable for errors of the storage in the block. path: of the composed table."""
    try:
        yield
    except (OSError, LakeError) as error:
        cause = error.message if isinstance(error, BinlakeError) else storage_errors.cause_of(error)
        raise Unwritable(f"composing {path} failed: {cause}", remedy=storage_errors.remedy_of(cause)) from error


@contextmanager
def reading(part: str) -> Iterator[None]:
    """Raise PartBroken for errors in the block, but for those of the storage as a whole, which aren't the part's."""
    try:
        yield
    except OF_CODE as error:
        if isinstance(error, pa.ArrowException):
            raise PartBroken(part, f"its files can't be read: {storage_errors.cause_of(error)}") from error
        raise PartBroken(part, f"its files can't be read: {unexpected(error)}") from error
    except Unwritable:
        raise
    except (DeltaError, OSError, pa.ArrowException, LakeError) as error:
        cause = error.message if isinstance(error, BinlakeError) else storage_errors.cause_of(error)
        remedy = storage_errors.remedy_of(cause)
        if remedy not in (*_OF_A_FOLDER, storage_errors.OTHER):
            raise
        is_refused = remedy in _OF_A_FOLDER
        raise PartBroken(part, f"its files can't be read: {cause}", is_refused=is_refused) from error


@dataclass(frozen=True)
class ShownPart:
    """A part at the version that is shown. source: of which it is, where it is another than the one that composes."""

    part: TablePart
    path: str
    table: DeltaTable
    source: str = ""

    @property
    def version(self) -> int:
        """Return the Delta version."""
        return int(self.table.version())

    @cached_property
    def app(self) -> str:
        """Return the application id under which the version is recorded."""
        return f"{PARTS}{self.table.metadata().id}"

    @cached_property
    def transaction(self) -> int | None:
        """Return the version that the part's life recorded last in its own table."""
        return opened_tables.transaction_version(self.path, self.table, self.part.app) if self.part.app else None

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """Return the fields of its schema."""
        return plain_tables.fields_of(self.table)

    @cached_property
    def may_have_former_columns(self) -> bool:
        """Return whether data files may have columns that the table has no more."""
        return self.table.metadata().configuration.get(MAPPING_MODE, "none") != "none"

    @cached_property
    def added(self) -> list[Add]:
        """Return the actions that add its data files, with their paths below the composed table."""
        return [self._moved(add) for add in _added(self.path, self.version, paths_of(self.table))]

    def _moved(self, add: Add) -> Add:
        folder = self.part.folder
        fields = {**add.fields, "path": f"{folder}/{add.path}"}
        if vector := add.vector:
            fields["deletionVector"] = _moved(vector, folder)
        return Add(fields)


@dataclass(frozen=True)
class KeptPart:
    """A part whose data files are named as they are. table: the composed one."""

    part: TablePart
    table: ComposedLog

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Return the fields of the composed table: which of them the part has isn't known."""
        return self.table.fields

    @property
    def may_have_former_columns(self) -> bool:
        """Return whether data files may have columns that the table has no more: the part's own may have had them."""
        return True

    @property
    def added(self) -> list[Add]:
        """Return the actions that add its data files."""
        return self.table.of_part(self.part.folder)


AnyPart = ShownPart | KeptPart


@dataclass(frozen=True)
class LatePart:
    """A part of another source that waited, at the version that is to be shown once the types go together."""

    source: str
    waiting: WaitingPart
    shown: ShownPart


class ComposedLog:
    """The composed table as it is now; version -1 where there is none. Raises LogUnreadable where it can't be read."""

    def __init__(
        self, path: str, column: str, sources: PartSources | None = None, ids: ColumnIds | None = None
    ) -> None:
        """sources: those that fill it; None where it is one alone. ids: see ``composed_table.compose``."""
        self.path, self.column, self.sources = path, column, sources
        self.columns = [sources.column, column] if sources else [column]
        try:
            self.opened = opened_tables.newest(path) if opened_tables.is_table(path) else None
        except (DeltaError, ValueError) as error:
            raise self._unreadable(storage_errors.cause_of(error)) from error
        self.version = int(self.opened.version()) if self.opened else -1
        self.settings = dict(self.opened.metadata().configuration) if self.opened else {}
        self.all_fields = plain_tables.fields_of(self.opened) if self.opened else []
        partitions = self.opened.metadata().partition_columns if self.opened else []
        if sources and self.opened and partitions != self.columns:
            raise LakeTableChanged(
                f"{path} has the source columns {', '.join(partitions)}, and is to have {', '.join(self.columns)}",
                remedy="give all sources the same entry of merge_tables; for other columns take another into or folder",
            )
        self.fields = [field for field in self.all_fields if field["name"] not in partitions]
        self._ids = ids
        self.has_ids = bool(ids and ids.asked) or any(OWN_ID in field["metadata"] for field in self.fields)
        """Whether its columns have ids, which its data files agree with. They stay once they are given."""

    @cached_property
    def known_ids(self) -> dict[str, int]:
        """Return the ids that columns have or had, by their names in data files, without the source columns'."""
        former = self._ids.former() if self._ids else {}
        ids = {name: number for name, number in former.items() if name not in self.columns}
        return ids | {
            physical_of(field): int(field["metadata"][OWN_ID]) for field in self.fields if OWN_ID in field["metadata"]
        }

    def recorded(self, app: str) -> int | None:
        """Return the version that it shows of a part; None where it shows none."""
        version = opened_tables.transaction_version(self.path, self.opened, app) if self.opened and app else None
        return None if version == GONE else version

    def partition_of(self, part: AnyPart, add: Add) -> dict[str, str]:
        """Return the values of the source columns in the rows of a part's data file."""
        if isinstance(part, KeptPart):
            return self._partitions[add.path]
        source = {self.sources.column: part.source or self.sources.own} if self.sources else {}
        return {**source, self.column: part.part.value}

    @cached_property
    def _partitions(self) -> dict[str, dict[str, str]]:
        """Return the values of the source columns by data file."""
        assert self.opened
        actions = pa.table(self.opened.get_add_actions(flatten=True))
        values = [actions[f"partition.{column}"].to_pylist() for column in self.columns]
        rows = zip(actions["path"].to_pylist(), *values, strict=True)
        return {path: dict(zip(self.columns, row, strict=True)) for path, *row in rows}

    @cached_property
    def notes(self) -> dict[str, SourceNote]:
        """Return what the sources that fill it noted, as it is."""
        return notes_in(self.settings) if self.sources else {}

    @cached_property
    def unread(self) -> dict[str, str]:
        """Return the notes of other sources that can't be read, as they are."""
        if self.sources is None:
            return {}
        others = [name for name in self.sources.names if name != self.sources.own]
        return {name: text for name, text in unread_in(self.settings).items() if name in others}

    @cached_property
    def of_others(self) -> dict[str, list[KeptPart]]:
        """Return the parts of the other sources whose data files it names, by source."""
        others: dict[str, list[KeptPart]] = {}
        for folder in sorted(self._paths_by_part) if self.sources else ():
            owner = self.sources.owner(folder) if self.sources else None
            if self.sources and owner and owner != self.sources.own:
                others.setdefault(owner, []).append(KeptPart(TablePart(folder, folder, ""), self))
        return others

    @cached_property
    def notes_of_others(self) -> dict[str, SourceNote]:
        """Return the notes of the other sources. Of one without a note, whose files are named, all columns count."""
        assert self.sources
        there = {name: self.notes[name] for name in self.sources.names if name in self.notes}
        without = {name for name in (*self.of_others, *self.unread) if name not in there}
        there |= {name: SourceNote(0, (NotedShape(1, noted_fields(self.fields)),)) for name in without}
        return {name: note for name, note in there.items() if name != self.sources.own}

    @cached_property
    def paths(self) -> Sequence[str]:
        """Return the data files that it names."""
        return paths_of(self.opened) if self.opened else []

    @cached_property
    def added(self) -> dict[str, Add]:
        """Return the actions that add them, by path."""
        added = log_files.added(self.path, self.version, self.paths) if self.paths else {}
        if added is None:
            raise self._unreadable("it is in a form that isn't read here")
        return added

    def of_part(self, folder: str) -> list[Add]:
        """Return the actions that add a part's data files."""
        return [self.added[path] for path in self._paths_by_part.get(folder, ())]

    def has_files_of(self, folder: str) -> bool:
        """Return whether it names data files of a part."""
        return folder in self._paths_by_part

    @cached_property
    def _paths_by_part(self) -> dict[str, list[str]]:
        paths: dict[str, list[str]] = {}
        for path in self.paths:
            paths.setdefault(folder_of(path), []).append(path)
        return paths

    def _unreadable(self, why: str) -> LogUnreadable:
        return LogUnreadable(
            f"the log of {self.path} can't be read: {why}",
            remedy=f"let nobody else write it; restore {self.path}/_delta_log from a backup, or move it away: the "
            "table is composed again",
        )


def folder_of(path: str) -> str:
    """Return the folder of the part that a data file of the composed table belongs to."""
    return path.removeprefix(f"{CONVERTED}/").partition("/")[0]


def _added(path: str, version: int, paths: Sequence[str]) -> list[Add]:
    added = opened_tables.added(path, version, paths) if paths else {}
    if added is None:  # an old version is behind the newest checkpoint
        there = log_files.files_at(path, version)
        added = {name: there[name] for name in paths if name in there}
    if len(added) < len(paths):
        raise LakeError(f"{path}: its log is in a form that isn't read here", remedy="let nobody else write the table")
    return [*added.values()]


def _moved(vector: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the descriptor of a part's deletion vector as the table above has it: the path's beginning is a prefix."""
    if vector["storageType"] != "u":
        return dict(vector)
    place = str(vector["pathOrInlineDv"])
    prefix, name = place[:-20], place[-20:]
    return {**vector, "pathOrInlineDv": f"{folder}/{prefix}{name}" if prefix else f"{folder}{name}"}


def removed(add: Add) -> DeltaAction:
    """Return the action that takes away a data file."""
    vector = {"deletionVector": add.fields["deletionVector"]} if add.vector else {}
    fields = {"path": add.path, "deletionTimestamp": plain_tables.now(), "dataChange": True, **vector}
    return {"remove": {**fields, "extendedFileMetadata": False}}
