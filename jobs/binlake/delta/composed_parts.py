"""The parts of a composed table as it shows them: each at its newest version, as it was, or by its data files alone.

A part whose log or files can't be read holds no other back: the composed table continues to name the data files that it
has of it. So it does for a part whose log lacks commits that are shown, as after its folder was restored from a backup.
That is seen by Delta versions and by the transactions of the part's life: both are recorded in the composed table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.delta import log_files, opened_tables, plain_tables
from binlake.delta.composed_layout import refused
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_log import LakeLog, changes_rows, note_of
from binlake.delta.delta_schema import MAPPING_MODE
from binlake.errors import OF_CODE, BinlakeError, LakeError, LogUnreadable, unexpected
from binlake.storage import storage_errors

CONVERTED = "_converted"
"""The folder for data files that are written in the composed table's columns."""
PARTS = "binlake-part:"
"""What the application ids begin with under which the table records the Delta version of a part that it shows; behind
it is the part's table id."""
GONE = -1
"""Is recorded of a part that was shown."""
_AT_ONCE = 16
"""Parts that are opened at once where the storage answers slowly."""
Refusing = Callable[[DeltaTable], str]
"""Returns why a table can't be a part as it is; an empty text where it can."""


@dataclass(frozen=True)
class TablePart:
    """A table that is a part.

    name: as messages call it. folder: below the composed table's. value: of the source column. follows: whether its
    newest version is shown, or the one that was. app: the application id of the life that it has; without one nothing
    is known of its transactions. delta_version: its last commit that was recorded elsewhere, None for none.
    """

    name: str
    folder: str
    value: str
    follows: bool = True
    is_gone: bool = False
    app: str = ""
    delta_version: int | None = None


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
    """A part at the version that is shown. name, folder, value: as of TablePart."""

    part: TablePart
    path: str
    table: DeltaTable

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
        paths = pa.table(self.table.get_add_actions())["path"].to_pylist()
        return [self._moved(add) for add in _added(self.path, self.version, paths)]

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
        """Return whether data files may have columns that the table has no more."""
        return self.table.settings.get(MAPPING_MODE, "none") != "none"

    @property
    def added(self) -> list[Add]:
        """Return the actions that add its data files."""
        return self.table.of_part(self.part.folder)


AnyPart = ShownPart | KeptPart


class ComposedLog:
    """The composed table as it is now; version -1 where there is none. Raises LogUnreadable where it can't be read."""

    def __init__(self, path: str, column: str) -> None:
        self.path, self.column = path, column
        try:
            self.opened = opened_tables.newest(path) if opened_tables.is_table(path) else None
        except (DeltaError, ValueError) as error:
            raise self._unreadable(storage_errors.cause_of(error)) from error
        self.version = int(self.opened.version()) if self.opened else -1
        self.settings = dict(self.opened.metadata().configuration) if self.opened else {}
        self.all_fields = plain_tables.fields_of(self.opened) if self.opened else []
        sources = self.opened.metadata().partition_columns if self.opened else []
        self.fields = [field for field in self.all_fields if field["name"] not in sources]

    def recorded(self, app: str) -> int | None:
        """Return the version that it shows of a part; None where it shows none."""
        version = opened_tables.transaction_version(self.path, self.opened, app) if self.opened and app else None
        return None if version == GONE else version

    @cached_property
    def paths(self) -> list[str]:
        """Return the data files that it names."""
        paths: list[str] = pa.table(self.opened.get_add_actions())["path"].to_pylist() if self.opened else []
        return paths

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


@dataclass
class PartsShown:
    """The parts as they are shown, by name.

    kept: parts that are shown by their data files alone. standing: why parts aren't shown as they are. broken: those
    of them that can't be read, and of these ``lost`` those whose logs lack commits that are shown.
    """

    shown: dict[str, ShownPart] = field(default_factory=dict)
    kept: dict[str, KeptPart] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    gone: list[ShownPart] = field(default_factory=list)

    @property
    def all(self) -> list[AnyPart]:
        """Return the parts in the order of their names."""
        both: dict[str, AnyPart] = {**self.shown, **self.kept}
        return [both[name] for name in sorted(both)]

    def keep(self, table: ComposedLog, part: TablePart, why: str) -> None:
        """Let the table name a part's data files as it does."""
        self.standing.setdefault(part.name, why)
        self.broken.add(part.name)
        if table.has_files_of(part.folder):
            self.kept[part.name] = KeptPart(part, table)

    def before(self, table: ComposedLog, newest: ShownPart) -> ShownPart | None:
        """Return a part at the version that the table shows; None where it shows none of this table, or that version
        can't be read."""
        version = table.recorded(newest.app)
        if version is None or version == newest.version:
            return None if version is None else newest
        try:
            return replace(newest, table=opened_tables.opened(newest.path, version))
        except DeltaError:
            self.keep(table, newest.part, f"Delta version {version}, which is shown, can't be read")
            return None


def choose(table: ComposedLog, parts: Sequence[TablePart], broken: Mapping[str, str], unfit: Refusing) -> PartsShown:
    """Return the parts as they are to be shown. broken: why parts can't be read, by name. Raises what
    ``reading`` lets through, and the error of the storage where this account may read no part."""
    choice = PartsShown()
    ordered = sorted(parts, key=lambda part: part.folder)
    for part, newest in zip(ordered, _opened(table.path, ordered, broken), strict=True):
        if isinstance(newest, PartBroken):
            if not part.is_gone:
                choice.keep(table, part, newest.reason)
        elif newest is None:
            if not part.is_gone and table.has_files_of(part.folder):
                choice.keep(table, part, "its folder isn't there")
        elif part.is_gone:
            choice.gone.append(newest)
        else:
            try:
                with reading(part.name):
                    _choose(table, newest, choice, unfit)
            except PartBroken as error:
                choice.keep(table, part, error.reason)
    while others := refused({each.part.name: each.fields for each in choice.all}, table.fields):
        for name, why in others.items():
            choice.standing.setdefault(name, why)
            _show_before(table, choice.shown.pop(name), choice)
    return choice


def _show_before(table: ComposedLog, now: ShownPart, choice: PartsShown) -> None:
    """Show a part as it was, unless that is as it is."""
    try:
        with reading(now.part.name):
            before = choice.before(table, now)
            if before is not None and before.version != now.version and before.fields:
                choice.shown[now.part.name] = before
    except PartBroken as error:
        choice.keep(table, now.part, error.reason)


_Opened = ShownPart | PartBroken | None
"""A part at its newest version, or why it can't be read; None where it isn't there."""


def _opened(path: str, parts: Sequence[TablePart], broken: Mapping[str, str]) -> list[_Opened]:
    """Return each part. Raises the error of the storage where this account may read none of them."""

    def opened(part: TablePart) -> _Opened:
        place = f"{path}/{part.folder}"
        if part.name in broken:
            return PartBroken(part.name, broken[part.name])
        try:
            with reading(part.name):
                there = opened_tables.is_table(place)
                return ShownPart(part, place, opened_tables.newest(place)) if there else None
        except PartBroken as error:
            return error

    if "://" not in path:
        there = [opened(part) for part in parts]
    else:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="compose") as pool:
            there = [*pool.map(opened, parts)]
    looked = [each for part, each in zip(parts, there, strict=True) if each is not None and part.name not in broken]
    refused = [error for error in looked if isinstance(error, PartBroken) and error.is_refused]
    if refused and len(refused) == len(looked) and refused[0].__cause__ is not None:
        raise refused[0].__cause__
    return there


def _choose(table: ComposedLog, newest: ShownPart, choice: PartsShown, unfit: Refusing) -> None:
    part = newest.part
    if why := _lost(table, newest):
        choice.lost.add(part.name)
        choice.keep(table, part, why)
        return
    if part.follows and (why := unfit(newest.table)):
        choice.standing[part.name] = why
    each = newest if part.follows and part.name not in choice.standing else choice.before(table, newest)
    if each is not None:
        _ = each.fields, each.app  # read here, where it costs this part alone if they can't be
        choice.shown[part.name] = each


def _lost(table: ComposedLog, newest: ShownPart) -> str:
    """Return why a part's log lacks commits that the table shows; empty where it has all.

    Where the loss was noticed and put right, what is recorded elsewhere is the version that the part was set to, or the
    life committed rows in the place of those that are lost.
    """
    version, part = table.recorded(newest.app), newest.part
    transaction = table.recorded(part.app)
    if version is None or transaction is None:
        return ""
    if newest.version < version:
        if part.delta_version is not None and part.delta_version <= newest.version:
            return ""
        return f"it is at Delta version {newest.version}, {version} was shown: commits are lost"
    if newest.transaction is not None and newest.transaction >= transaction:
        return ""
    for commit in LakeLog(newest.path, part.app).history(version - 1):
        if changes_rows(commit) and part.app.endswith(f":{note_of(commit).get('life')}"):
            return ""
    return "commits that were shown are lost, and others have their numbers"


def gone_apps(table: ComposedLog, choice: PartsShown, folders: Collection[str]) -> list[str]:
    """Return the application ids of what is no part any more: what is shown of it must not come back with its name."""
    gone = {each.part.folder: each.path for each in choice.gone}
    gone |= {folder: f"{table.path}/{folder}" for folder in map(folder_of, table.paths) if folder not in folders}
    apps = []
    for path in gone.values():
        try:
            with reading(path):
                if opened_tables.is_table(path):
                    apps.append(f"{PARTS}{opened_tables.newest(path).metadata().id}")
        except PartBroken:
            continue  # a table of the name that can be read is shown whole where no file of it is
    return apps


def removed(add: Add) -> DeltaAction:
    """Return the action that takes away a data file."""
    vector = {"deletionVector": add.fields["deletionVector"]} if add.vector else {}
    fields = {"path": add.path, "deletionTimestamp": plain_tables.now(), "dataChange": True, **vector}
    return {"remove": {**fields, "extendedFileMetadata": False}}
