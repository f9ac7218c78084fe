"""A Delta table that is composed of others, its parts: it has their rows, and a column that tells them apart.

The parts' tables lie in its folder, each in one of its own. The composed table's log names their data files, with the
part's value of the source column as Delta's partition value. So each part is written as any other table is, and one
commit shows what all of them have become.

    all/orders/_delta_log               names the data files below, one commit for all parts
    all/orders/tenant=7/_delta_log      the part's own
    all/orders/tenant=7/part-….parquet  has no column tenant
    all/orders/_converted/tenant=7/…    a data file in other columns: see ``composed_layout``

A data file is named as it is where its columns are those of the composed table, or fewer: what it lacks is NULL. Where
a part's column has another type, or another name inside of the file, the file is written again beside, once, row by row
in its order, so that the part's deletion vectors count for it, too.

What a commit shows is worked out of the parts' logs and the table's own. A repetition changes nothing, and one that
comes late meets the version that another took, and looks again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.caches import Cache
from binlake.delta import delta_commits, log_files, opened_tables, plain_files, plain_tables
from binlake.delta.composed_layout import ComposedColumn, DeltaField, columns_of, physical_of, refused, signature
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_schema import (
    COMMENT,
    FIELD_ID,
    MAPPING_MODE,
    MOST_ID,
    is_widened,
    table_properties,
    type_features,
)
from binlake.delta.file_statistics import without_tight_bounds
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.errors import LakeError, LakeTableChanged
from binlake.faults import fault
from binlake.storage import files, parquet_files, storage_errors

CONVERTED = "_converted"
"""The folder for data files that are written in the composed table's columns."""
PARTS = "binlake-part:"
"""What the application ids begin with under which the table records the Delta version of a part that it shows; behind
it stands the part's table id."""
_GONE = -1
"""Is recorded of a part that was shown."""
_TRIES = 10
"""How often a commit is tried while others commit."""
_CHECKPOINT_EACH = 10
_NUMBERS: dict[str, pa.DataType] = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "double": pa.float64(),
}  # fmt: skip
"""The types that hold values of other types, but for decimals."""
_names: Cache[str, frozenset[str]] = Cache("columns of data files")


@dataclass(frozen=True)
class TablePart:
    """A table that is a part. name: as messages call it. folder: below the composed table's. value: of the source
    column. follows: whether its newest version is shown, or the one that was."""

    name: str
    folder: str
    value: str
    follows: bool = True
    is_gone: bool = False


@dataclass(frozen=True)
class Composed:
    """A composed table as it is. changed: by this call. standing: by the names of parts that aren't shown as they are,
    why. lacking: the columns that a part lacks and others have, by the parts' names."""

    version: int
    table_id: str
    changed: bool
    standing: Mapping[str, str]
    lacking: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class _Shown:
    """A part at the version that is shown."""

    part: TablePart
    path: str
    table: DeltaTable

    @property
    def version(self) -> int:
        return int(self.table.version())

    @cached_property
    def app(self) -> str:
        return f"{PARTS}{self.table.metadata().id}"

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        return plain_tables.fields_of(self.table)

    @property
    def may_have_former_columns(self) -> bool:
        """Return whether data files may have columns that the table has no more."""
        return self.table.metadata().configuration.get(MAPPING_MODE, "none") != "none"

    @cached_property
    def added(self) -> list[Add]:
        paths = pa.table(self.table.get_add_actions())["path"].to_pylist()
        return _added(self.path, self.version, paths)


def _added(path: str, version: int, paths: Sequence[str]) -> list[Add]:
    added = opened_tables.added(path, version, paths) if paths else {}
    if added is None:  # an old version is behind the newest checkpoint
        there = log_files.files_at(path, version)
        added = {name: there[name] for name in paths if name in there}
    if len(added) < len(paths):
        raise LakeError(f"{path}: its log is in a form that isn't read here", remedy="let nobody else write the table")
    return [*added.values()]


class _Table:
    """The composed table as it is now; version -1 where there is none."""

    def __init__(self, path: str, column: str) -> None:
        self.path, self.column = path, column
        self.opened = opened_tables.newest(path) if opened_tables.is_table(path) else None
        self.version = int(self.opened.version()) if self.opened else -1
        self.settings = dict(self.opened.metadata().configuration) if self.opened else {}
        self.all_fields = plain_tables.fields_of(self.opened) if self.opened else []
        sources = self.opened.metadata().partition_columns if self.opened else []
        self.fields = [field for field in self.all_fields if field["name"] not in sources]

    def recorded(self, app: str) -> int | None:
        """The version that it shows of a part; None where it shows none."""
        version = opened_tables.transaction_version(self.path, self.opened, app) if self.opened else None
        return None if version == _GONE else version

    @cached_property
    def paths(self) -> list[str]:
        """The data files that it names."""
        paths: list[str] = pa.table(self.opened.get_add_actions())["path"].to_pylist() if self.opened else []
        return paths

    @cached_property
    def added(self) -> dict[str, Add]:
        """The actions that add them, by path."""
        added = log_files.added(self.path, self.version, self.paths) if self.paths else {}
        if added is None:
            raise LakeError(
                f"{self.path}: its log is in a form that isn't read here",
                remedy=f"let nobody else write it; move {self.path}/_delta_log away, and it is composed again",
            )
        return added

    def of_part(self, folder: str) -> list[Add]:
        """Return the actions that add a part's data files."""
        return [self.added[path] for path in self._paths_by_part.get(folder, ())]

    @cached_property
    def _paths_by_part(self) -> dict[str, list[str]]:
        paths: dict[str, list[str]] = {}
        for path in self.paths:
            paths.setdefault(folder_of(path), []).append(path)
        return paths


def folder_of(path: str) -> str:
    """Return the folder of the part that a data file of the composed table belongs to."""
    return path.removeprefix(f"{CONVERTED}/").partition("/")[0]


def compose(
    path: str,
    column: str,
    parts: Sequence[TablePart],
    note: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> Composed | None:
    """Let the table at a path show its parts, in one commit; return None where no part can be shown yet.

    column: the source column. parts: all there are; rows of others go. note: what the commit says of itself. check: is
    asked before the commit, and raises where the run lost its lease. Raises LakeError, LakeTableChanged.
    """
    if not files.writes_if_absent(path):
        raise LakeError(
            f"{path} can't be written: two writers can't be kept apart in this store",
            remedy="leave merge_tables out, or take a store with conditional writes",
        )
    for _ in range(_TRIES):
        try:
            return _composed(_Table(path, column), parts, note, check)
        except CommitFailedError:
            continue
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise storage_errors.failed(f"composing {path} failed", error) from error
    raise LakeTableChanged(f"{path} was written by others again and again", remedy="let nobody else write it")


def shown_versions(path: str, version: int) -> dict[str, int]:
    """Return the Delta versions of the parts that a version of the composed table shows, by the parts' table ids.

    Raises LakeError where its log can't be read.
    """
    recorded = log_files.recorded(path, version)
    if recorded is None:
        raise LakeError(f"{path}: its log can't be read at {version}", remedy="restore its folder from a backup")
    ours = {app.removeprefix(PARTS): shown for app, shown in recorded.items() if app.startswith(PARTS)}
    return {table_id: shown for table_id, shown in ours.items() if shown != _GONE}


@dataclass
class _Choice:
    """The parts at the versions that are shown. standing: why others aren't shown as they are, by name. kept: folders
    of parts whose shown version can't be read any more; the table names their files as it does."""

    shown: dict[str, _Shown] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    gone: list[_Shown] = field(default_factory=list)

    def before(self, table: _Table, newest: _Shown) -> _Shown | None:
        """Return a part at the version that the table shows; None where it shows none of this table."""
        version = table.recorded(newest.app)
        if version is None or version == newest.version:
            return None if version is None else newest
        try:
            return replace(newest, table=opened_tables.opened(newest.path, version))
        except DeltaError:
            self.kept.add(newest.part.folder)
            self.standing.setdefault(newest.part.name, f"Delta version {version}, which is shown, can't be read")
            return None


def _chosen(table: _Table, parts: Sequence[TablePart]) -> _Choice:
    choice = _Choice()
    for part in sorted(parts, key=lambda part: part.folder):
        path = f"{table.path}/{part.folder}"
        if not opened_tables.is_table(path):
            continue
        newest = _Shown(part, path, opened_tables.newest(path))
        if part.is_gone:
            choice.gone.append(newest)
            continue
        if part.follows and (why := _unfit(newest.table)):
            choice.standing[part.name] = why
        each = newest if part.follows and part.name not in choice.standing else choice.before(table, newest)
        if each is not None:
            choice.shown[part.name] = each
    while others := refused({name: each.fields for name, each in choice.shown.items()}, table.fields):
        for name, why in others.items():
            choice.standing.setdefault(name, why)
            now = choice.shown.pop(name)
            before = choice.before(table, now)
            if before is not None and before.version != now.version:
                choice.shown[name] = before
    return choice


def _composed(
    table: _Table, parts: Sequence[TablePart], note: Mapping[str, Any], check: Callable[[], None]
) -> Composed | None:
    choice = _chosen(table, parts)
    shown = [choice.shown[name] for name in sorted(choice.shown)]
    if table.opened is None and not shown:
        return None
    columns = columns_of([each.fields for each in shown] or [table.fields], table.fields)
    fields, settings = _schema(table, columns)
    is_reshaped = (fields, settings) != (table.all_fields, table.settings)
    if is_reshaped and choice.kept and table.opened:
        name = next(name for name, why in choice.standing.items() if "can't be read" in why)
        raise LakeError(
            f"{name}: {choice.standing[name]}, and {table.path} gets other columns", remedy=f"snapshot {name} again"
        )
    folders = {each.part.folder for each in shown} | choice.kept
    actions = _gone(table, folders)
    moved = [each for each in shown if table.recorded(each.app) != each.version]
    recorded = {each.app: each.version for each in moved}
    recorded |= {app: _GONE for app in _apps_gone(table, choice, folders) if table.recorded(app) is not None}
    for each in shown if is_reshaped else moved:
        actions += _renewed(table, each, columns)
    if is_reshaped:
        actions = [*_reshape(table, fields, settings), *actions]
    opened = table.opened
    if changed := bool(actions or recorded):
        check()
        _commit(table, recorded, actions, note)
        opened = opened_tables.newest(table.path)
    assert opened is not None
    return Composed(
        int(opened.version()), str(opened.metadata().id), changed, choice.standing, _lacking(shown, columns)
    )


def _lacking(shown: Sequence[_Shown], columns: Sequence[ComposedColumn]) -> dict[str, list[str]]:
    """Return the columns that parts lack, by the parts' names; nothing of those that have all."""
    lacking: dict[str, list[str]] = {}
    for each in shown:
        own = {field["name"].lower() for field in each.fields}
        if missing := [column.name for column in columns if column.name.lower() not in own]:
            lacking[each.part.name] = missing
    return lacking


def _unfit(table: DeltaTable) -> str:
    """Return why a table can't be shown as a part; empty where it can."""
    if table.metadata().partition_columns:
        return "its Delta table has partitions"
    return "its Delta table has data files of narrower types (type widening)" if is_widened(table) else ""


def _schema(table: _Table, columns: Sequence[ComposedColumn]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the fields and settings that the table has with these columns."""
    settings = {**table_properties([column.name for column in columns]), **table.settings}
    if any(column.physical != column.name for column in columns):
        settings[MAPPING_MODE] = "name"
    is_mapped = settings.get(MAPPING_MODE, "none") != "none"
    known = {(field["name"], physical_of(field)): field["metadata"].get(FIELD_ID) for field in table.all_fields}
    most = int(settings.get(MOST_ID, "0"))
    fields: list[dict[str, Any]] = []
    for column in (ComposedColumn(table.column, "string", table.column), *columns):
        metadata: dict[str, Any] = {COMMENT: column.comment} if column.comment else {}
        if is_mapped:
            number = known.get((column.name, column.physical))
            if number is None:
                number = most = most + 1
            metadata |= {FIELD_ID: number, PHYSICAL_NAME: column.physical}
        fields.append({"name": column.name, "type": column.kind, "nullable": True, "metadata": metadata})
    if is_mapped:
        settings[MOST_ID] = str(most)
    return fields, settings


def _reshape(table: _Table, fields: Sequence[DeltaField], settings: Mapping[str, str]) -> list[DeltaAction]:
    """Return the actions that give the table its fields, and the features that these need; or that make it."""
    features = ["deletionVectors", *type_features(fields)]
    features += ["columnMapping"] if settings.get(MAPPING_MODE, "none") != "none" else []
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": [*features, "appendOnly", "invariants"],
    }  # fmt: skip
    before = table.opened.metadata() if table.opened else None
    metadata = {
        "id": str(before.id) if before else str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [*fields]}),
        "partitionColumns": [table.column],
        "configuration": dict(settings),
        "createdTime": before.created_time if before else plain_tables.now(),
    }
    actions: list[DeltaAction] = [{"metaData": metadata}]
    if table.opened is None:
        return [{"protocol": protocol}, *actions]
    return [*plain_tables.protocol_with(table.opened, features), *actions]


def _gone(table: _Table, folders: Collection[str]) -> list[DeltaAction]:
    """Return the actions that take away the rows of what is no part any more. folders: of the parts."""
    return [_removed(table.added[path]) for path in table.paths if folder_of(path) not in folders]


def _apps_gone(table: _Table, choice: _Choice, folders: Collection[str]) -> list[str]:
    """Return the application ids of what is no part any more: what is shown of it must not come back with its name."""
    gone = {each.part.folder: each.path for each in choice.gone}
    gone |= {folder: f"{table.path}/{folder}" for folder in map(folder_of, table.paths) if folder not in folders}
    paths = (path for path in gone.values() if opened_tables.is_table(path))
    return [f"{PARTS}{opened_tables.newest(path).metadata().id}" for path in paths]


def _removed(add: Add) -> DeltaAction:
    vector = {"deletionVector": add.fields["deletionVector"]} if add.vector else {}
    fields = {"path": add.path, "deletionTimestamp": plain_tables.now(), "dataChange": True, **vector}
    return {"remove": {**fields, "extendedFileMetadata": False}}


def _renewed(table: _Table, shown: _Shown, columns: Sequence[ComposedColumn]) -> list[DeltaAction]:
    """Return the actions by which the table names a part's data files."""
    named = [_named(table, shown, columns, add) for add in shown.added]
    come = {fields["path"]: fields for fields in named}
    there = table.of_part(shown.part.folder)
    same = {add.path for add in there if add.path in come and Add(come[add.path]).key == add.key}
    gone = [_removed(add) for add in there if add.path not in same]
    return [*gone, *({"add": fields} for path, fields in come.items() if path not in same)]


def _named(table: _Table, shown: _Shown, columns: Sequence[ComposedColumn], add: Add) -> DeltaAction:
    """Return the fields of the action that adds a part's data file to the composed table."""
    folder = shown.part.folder
    fields = {**add.fields, "path": f"{folder}/{add.path}", "dataChange": True}
    fields["partitionValues"] = {table.column: shown.part.value}
    if vector := add.vector:
        fields["deletionVector"] = _moved(vector, folder)
    if _is_as_composed(shown, columns, add):
        return fields
    digits = hashlib.sha256(signature(columns, shown.fields).encode()).hexdigest()[:12]
    stem = add.path.rpartition("/")[2].removesuffix(".parquet")
    name = f"{CONVERTED}/{folder}/{stem}-{digits}.parquet"
    known = table.added.get(name)
    size, stats = (known.size, known.stats or "{}") if known else _convert(table, name, shown, columns, add)
    return {**fields, "path": name, "size": size, "stats": without_tight_bounds(stats) if vector else stats}


def _moved(vector: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the descriptor of a part's deletion vector as the table above has it: the path's beginning is a prefix."""
    if vector["storageType"] != "u":
        return dict(vector)
    place = str(vector["pathOrInlineDv"])
    prefix, name = place[:-20], place[-20:]
    return {**vector, "pathOrInlineDv": f"{folder}/{prefix}{name}" if prefix else f"{folder}{name}"}


def _is_as_composed(shown: _Shown, columns: Sequence[ComposedColumn], add: Add) -> bool:
    """Return whether a data file can be read with the composed table's columns as with its own table's."""
    own = {field["name"].lower(): field for field in shown.fields}
    names: frozenset[str] | None = None
    if shown.may_have_former_columns:
        names = _names_in(f"{shown.path}/{add.path}")
    for column in columns:
        field = own.get(column.name.lower())
        physical = physical_of(field).lower() if field else None
        if field and physical == column.physical.lower():
            if field["type"] != column.kind:
                return False
        elif names is None:
            if field:
                return False
        elif column.physical.lower() in names or (physical and physical in names):
            return False
    return True


def _names_in(path: str) -> frozenset[str]:
    """Return the names of a data file's columns in lower case. It never changes, and each commit asks for it again."""
    names = _names.get(path)
    if names is None:
        with files.opened(path) as source:
            names = frozenset(name.lower() for name in pq.read_schema(source).names)
        _names.put(path, names)
    return names


def _convert(table: _Table, name: str, shown: _Shown, columns: Sequence[ComposedColumn], add: Add) -> tuple[int, str]:
    """Write a part's data file in the composed table's columns; return its bytes and its statistics."""
    own = {field["name"].lower(): field for field in shown.fields}
    with files.opened(f"{shown.path}/{add.path}") as source:
        rows = pq.ParquetFile(source, coerce_int96_timestamp_unit="us").read(use_threads=False)
    rows = parquet_files.without_views(rows)
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in columns:
        part_field = own.get(column.name.lower())
        if part_field is None or physical_of(part_field) not in rows.column_names:
            continue
        values = rows[physical_of(part_field)]
        arrays[column.physical] = values if part_field["type"] == column.kind else _cast(values, column.kind)
    if not arrays:  # a row has a column at least
        arrays[columns[0].physical] = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    written = plain_files.write_named(table.path, name, pa.table(arrays))
    fault("data file written")
    return written


def _cast(values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    if kind in _NUMBERS:
        return values.cast(_NUMBERS[kind])
    digits, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return values.cast(pa.decimal128(int(digits), int(scale)))


def _commit(
    table: _Table, recorded: Mapping[str, int], actions: Sequence[DeltaAction], note: Mapping[str, Any]
) -> None:
    added = sum("add" in action for action in actions)
    gone = sum("remove" in action for action in actions)
    metrics = {"numFiles": added, "numRemovedFiles": gone}
    read_version = table.version if table.opened else None
    info = plain_tables.commit_info("WRITE", {"mode": "Overwrite"}, note, metrics, read_version)
    at = info["timestamp"]
    transactions = [{"txn": {"appId": app, "version": new, "lastUpdated": at}} for app, new in recorded.items()]
    if table.opened is None:
        files.make_readers_folder(f"{table.path}/_delta_log")
    version = table.version + 1
    delta_commits.write(table.path, version, [{"commitInfo": info}, *transactions, *actions])
    fault("table composed")
    if version and version % _CHECKPOINT_EACH == 0:
        opened_tables.opened(table.path, version).create_checkpoint()
