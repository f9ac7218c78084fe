"""A Delta table that is composed of others, its parts: it has their rows, and a column that distinguishes them.

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
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.caches import Cache
from binlake.delta import delta_commits, log_files, opened_tables, plain_files, plain_tables
from binlake.delta.composed_choice import PartsShown, choose, gone_apps
from binlake.delta.composed_layout import ComposedColumn, DeltaField, columns_of, physical_of, signature, with_ids
from binlake.delta.composed_parts import (
    CONVERTED,
    GONE,
    PARTS,
    AnyPart,
    ColumnIds,
    ComposedLog,
    KeptPart,
    PartBroken,
    ShownPart,
    TablePart,
    folder_of,
    reading,
    removed,
    writing,
)
from binlake.delta.composed_sources import NOTE, PartSources, SourceNote
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_schema import (
    COMMENT,
    FIELD_ID,
    MAPPING_MODE,
    MOST_ID,
    OWN_ID,
    is_widened,
    table_properties,
    type_features,
)
from binlake.delta.file_columns import FileColumns
from binlake.delta.file_statistics import without_tight_bounds
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.errors import OF_CODE, LakeError, LakeTableChanged, LogUnreadable, unexpected
from binlake.faults import fault
from binlake.storage import files, parquet_files, storage_errors

_TRIES = 10
"""How often a commit is tried while others commit."""
_CHECKPOINT_EACH = 10
_NUMBERS: dict[str, pa.DataType] = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "double": pa.float64(),
}  # fmt: skip
"""The types that hold values of other types, but for decimals."""
_SOURCE_IDS = 2_000_000
"""The id of the first source column: more than those of other columns, and of the elements of lists."""
_columns: Cache[str, FileColumns] = Cache("columns of data files")


@dataclass(frozen=True)
class Composed:
    """A composed table as it is.

    changed: by this call. standing: by the names of parts that aren't shown as they are, why. broken: those that can't
    be read, and of these ``lost`` those whose logs lack commits that are shown. hidden: those that aren't shown at all,
    as what was shown of them is withheld by now. waiting: those whose types don't go together with others'. lacking:
    the columns that a part lacks and others have, by the parts' names.
    """

    version: int
    table_id: str
    changed: bool
    standing: Mapping[str, str]
    broken: Collection[str]
    lost: Collection[str]
    lacking: Mapping[str, Sequence[str]]
    hidden: Collection[str] = ()
    waiting: Collection[str] = ()


def compose(
    path: str,
    column: str,
    parts: Sequence[TablePart],
    note: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
    sources: PartSources | None = None,
    ids: ColumnIds | None = None,
) -> Composed | None:
    """Let the table at a path show its parts, in one commit; return None where no part can be shown yet.

    A part that can't be read is shown as it was. column: the source column. parts: all there are, of this source; rows
    of others go. note: what the commit says of itself. check: is asked before the commit, and raises where the run lost
    its lease. sources: those that fill the table, where they are several; the parts of the others stay. ids: as
    readers of Iceberg need them; data files that have others are converted.
    Raises LogUnreadable and LakeTableChanged where this table can't be composed, LakeError where the storage fails.
    """
    if not files.writes_if_absent(path):
        raise LakeTableChanged(
            f"{path} can't be written: two concurrent writers can't be excluded in this store",
            remedy="leave merge_tables out, or take a store with conditional writes",
        )
    broken: dict[str, str] = {}
    for _ in range(_TRIES + len(parts) + (_TRIES * len(sources.names) if sources else 0)):
        try:
            return _composed(ComposedLog(path, column, sources, ids), parts, broken, note, check)
        except CommitFailedError:
            continue
        except PartBroken as error:
            if error.part in broken:
                raise LakeTableChanged(
                    f"{path} gets other columns, and files of {error.part} that it shows can't be read: {error}",
                    remedy=f"restore them from a backup, or copy {error.part} again",
                ) from error
            broken[error.part] = error.reason
        except (DeltaError, OSError, pa.ArrowException, *OF_CODE) as error:
            raise _failed(path, error) from error
    raise LakeTableChanged(f"{path} was written by others again and again", remedy="let nobody else write it")


def _failed(path: str, error: Exception) -> LakeError:
    if isinstance(error, OF_CODE) and not isinstance(error, pa.ArrowException):
        cause, remedy = unexpected(error), storage_errors.OTHER
    else:
        cause = storage_errors.cause_of(error)
        remedy = storage_errors.remedy_of(cause)
    if remedy != storage_errors.OTHER:
        return LakeError(f"composing {path} failed: {cause}", remedy=remedy)
    return LogUnreadable(
        f"composing {path} failed: {cause}",
        remedy=f"restore files of {path}/_delta_log from a backup, or move it away: the table is composed again",
    )


def shown_versions(path: str, version: int) -> dict[str, int]:
    """Return the Delta versions of the parts that a version of the composed table shows, by the parts' table ids.

    Raises LakeError where its log can't be read.
    """
    recorded = log_files.recorded(path, version)
    if recorded is None:
        raise LakeError(f"{path}: its log can't be read at {version}", remedy="restore its folder from a backup")
    ours = {app.removeprefix(PARTS): shown for app, shown in recorded.items() if app.startswith(PARTS)}
    return {table_id: shown for table_id, shown in ours.items() if shown != GONE}


def shown_version(path: str, part: str) -> int | None:
    """Return the Delta version of a part that the newest version of a composed table shows; None for none. part: the
    path of the part. Raises LakeError, and what deltalake raises, where a log can't be read."""
    shown = shown_versions(path, int(opened_tables.newest(path).version()))
    return shown.get(str(opened_tables.newest(part).metadata().id))


def _composed(
    table: ComposedLog,
    parts: Sequence[TablePart],
    broken: Mapping[str, str],
    note: Mapping[str, Any],
    check: Callable[[], None],
) -> Composed | None:
    choice = choose(table, parts, broken, _unfit)
    if table.opened is None and not choice.shown:
        return None
    notes = choice.notes(table)
    noted = [fields for own in notes.values() for fields in own.columns]
    columns = columns_of(noted or [each.fields for each in choice.all] or [table.fields], table.fields)
    if table.has_ids:
        columns = with_ids(columns, table.known_ids, (each.fields for each in choice.newest))
    fields, settings = _schema(table, columns)
    is_reshaped = (fields, settings) != (table.all_fields, table.settings)
    settings = _with_notes(table, settings, notes)
    folders = {each.part.folder for each in choice.all}
    actions = _gone(table, folders)
    moved = [each for each in choice.newest if _is_moved(table, each)]
    recorded = _recorded(moved)
    recorded |= {app: GONE for app in gone_apps(table, choice, folders) if table.recorded(app) is not None}
    renewed: Sequence[AnyPart] = choice.all if is_reshaped else moved
    _ = table.added if renewed else None  # where it can't be read, that is no part's fault
    for each in renewed:
        with reading(each.part.name):
            actions += _renewed(table, each, columns)
    if is_reshaped or settings != table.settings:
        actions = [*_reshape(table, fields, settings), *actions]
    opened = table.opened
    if changed := bool(actions or recorded):
        check()
        _commit(table, recorded, actions, note)
        opened = opened_tables.newest(table.path)
    assert opened is not None
    return Composed(
        int(opened.version()),
        str(opened.metadata().id),
        changed,
        choice.standing,
        choice.broken,
        choice.lost,
        _lacking(choice, columns),
        choice.hidden,
        choice.waiting,
    )


def _with_notes(table: ComposedLog, settings: Mapping[str, str], notes: Mapping[str, SourceNote]) -> dict[str, str]:
    """Return the settings with the notes of the sources, and none of others. Notes of other sources that can't be read
    stay as they are, and where there is none of a source there is none."""
    kept = {key: value for key, value in settings.items() if not key.startswith(NOTE)}
    own = table.sources.own if table.sources else ""
    texts = {name: note.text for name, note in notes.items() if name == own or name in table.notes} | table.unread
    return {**kept, **{f"{NOTE}{name}": texts[name] for name in sorted(texts)}}


def _is_moved(table: ComposedLog, shown: ShownPart) -> bool:
    """Return whether the table has to record something of a part, or to name its files."""
    if table.recorded(shown.app) != shown.version:
        return True
    if shown.transaction is not None and table.recorded(shown.part.app) != shown.transaction:
        return True
    return not table.has_files_of(shown.part.folder) and bool(shown.added)


def _recorded(moved: Sequence[ShownPart]) -> dict[str, int]:
    versions = {each.app: each.version for each in moved}
    return versions | {each.part.app: each.transaction for each in moved if each.transaction is not None}


def _lacking(choice: PartsShown, columns: Sequence[ComposedColumn]) -> dict[str, list[str]]:
    """Return the columns that parts lack, by the parts' names; nothing of those that have all."""
    lacking: dict[str, list[str]] = {}
    for each in choice.shown.values():
        own = {field["name"].lower() for field in each.fields}
        if missing := [column.name for column in columns if column.name.lower() not in own]:
            lacking[each.part.name] = missing
    return lacking


def _unfit(table: DeltaTable) -> str:
    """Return why a table can't be shown as a part; empty where it can."""
    if table.metadata().partition_columns:
        return "its Delta table has partitions"
    return "its Delta table has data files of narrower types (type widening)" if is_widened(table) else ""


def _schema(table: ComposedLog, columns: Sequence[ComposedColumn]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the fields and settings that the table has with these columns."""
    settings = {**table_properties([column.name for column in columns]), **table.settings}
    if any(column.physical != column.name for column in columns):
        settings[MAPPING_MODE] = "name"
    is_mapped = settings.get(MAPPING_MODE, "none") != "none"
    known = {(field["name"], physical_of(field)): field["metadata"].get(FIELD_ID) for field in table.all_fields}
    most = int(settings.get(MOST_ID, "0"))
    fields: list[dict[str, Any]] = []
    for column in (*_source_columns(table), *columns):
        metadata: dict[str, Any] = {COMMENT: column.comment} if column.comment else {}
        if column.number is not None:
            metadata[OWN_ID] = column.number
        if is_mapped:
            number = known.get((column.name, column.physical))
            if number is None:
                number = most = most + 1
            metadata |= {FIELD_ID: number, PHYSICAL_NAME: column.physical}
        fields.append({"name": column.name, "type": column.kind, "nullable": True, "metadata": metadata})
    if is_mapped:
        settings[MOST_ID] = str(most)
    return fields, settings


def _source_columns(table: ComposedLog) -> list[ComposedColumn]:
    """Return the columns that are in no data file. Their ids are none of a part's columns."""
    numbers = range(_SOURCE_IDS, _SOURCE_IDS + len(table.columns)) if table.has_ids else [None] * len(table.columns)
    return [
        ComposedColumn(name, "string", name, number=number) for name, number in zip(table.columns, numbers, strict=True)
    ]


def _reshape(table: ComposedLog, fields: Sequence[DeltaField], settings: Mapping[str, str]) -> list[DeltaAction]:
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
        "partitionColumns": table.columns,
        "configuration": dict(settings),
        "createdTime": before.created_time if before else plain_tables.now(),
    }
    actions: list[DeltaAction] = [{"metaData": metadata}]
    if table.opened is None:
        return [{"protocol": protocol}, *actions]
    return [*plain_tables.protocol_with(table.opened, features), *actions]


def _gone(table: ComposedLog, folders: Collection[str]) -> list[DeltaAction]:
    """Return the actions that take away the rows of what is no part any more. folders: of the parts."""
    return [removed(table.added[path]) for path in table.paths if folder_of(path) not in folders]


def _renewed(table: ComposedLog, shown: AnyPart, columns: Sequence[ComposedColumn]) -> list[DeltaAction]:
    """Return the actions by which the table names a part's data files."""
    named = [_named(table, shown, columns, add) for add in shown.added]
    come = {fields["path"]: fields for fields in named}
    there = table.of_part(shown.part.folder)
    same = {add.path for add in there if add.path in come and Add(come[add.path]).key == add.key}
    gone = [removed(add) for add in there if add.path not in same]
    return [*gone, *({"add": fields} for path, fields in come.items() if path not in same)]


def _named(table: ComposedLog, shown: AnyPart, columns: Sequence[ComposedColumn], add: Add) -> DeltaAction:
    """Return the fields of the action that adds a part's data file to the composed table."""
    fields = {**add.fields, "dataChange": True, "partitionValues": table.partition_of(shown, add)}
    if _is_as_composed(table, shown, columns, add):
        return fields
    by = table.sources.own if table.sources else ""  # two sources may write it at once, in other bytes
    digits = hashlib.sha256(f"{by}{signature(columns, shown.fields)}".encode()).hexdigest()[:12]
    stem = add.path.rpartition("/")[2].removesuffix(".parquet")
    name = f"{CONVERTED}/{shown.part.folder}/{stem}-{digits}.parquet"
    known = table.added.get(name)
    size, stats = (known.size, known.stats or "{}") if known else _convert(table, name, shown, columns, add)
    return {**fields, "path": name, "size": size, "stats": without_tight_bounds(stats) if add.vector else stats}


def _is_as_composed(table: ComposedLog, shown: AnyPart, columns: Sequence[ComposedColumn], add: Add) -> bool:
    """Return whether a data file can be read with the composed table's columns as with its own table's."""
    if table.has_ids:
        numbered = (*_source_columns(table), *columns)
        ids = table.known_ids | {column.physical: column.number for column in numbered if column.number}
        if not _columns_in(f"{table.path}/{add.path}", missing_ok=isinstance(shown, KeptPart)).agree_with(ids):
            return False
    own = {field["name"].lower(): field for field in shown.fields}
    for column in columns:
        field = own.get(column.name.lower())
        physical = physical_of(field).lower() if field else None
        if field and physical == column.physical.lower():
            if field["type"] != column.kind:
                return False
        elif shown.may_have_former_columns:
            names = _columns_in(f"{table.path}/{add.path}", missing_ok=isinstance(shown, KeptPart)).lower_names
            if column.physical.lower() in names or (physical and physical in names):
                return False
        elif field:
            return False
    return True


def _columns_in(path: str, *, missing_ok: bool) -> FileColumns:
    """Return the columns of a data file. They never change, and each commit asks for them again.

    missing_ok: there are none in a file that isn't there, which nobody can read.
    """
    columns = _columns.get(path)
    if columns is None:
        try:
            with files.opened(path) as source:
                columns = FileColumns.of(pq.read_schema(source))
        except FileNotFoundError:
            if not missing_ok:
                raise
            return FileColumns({})
        _columns.put(path, columns)
    return columns


def _convert(
    table: ComposedLog, name: str, shown: AnyPart, columns: Sequence[ComposedColumn], add: Add
) -> tuple[int, str]:
    """Write a part's data file in the composed table's columns; return its bytes and its statistics."""
    own = {field["name"].lower(): field for field in shown.fields}
    with files.opened(f"{table.path}/{add.path}") as source:
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
        arrays[columns[0].physical] = pa.chunked_array([pa.nulls(rows.num_rows, plain_files.arrow_of(columns[0].kind))])
    numbers = {column.physical: column.number for column in columns}
    schema = pa.schema(
        [plain_files.numbered_column(each, values.type, numbers[each]) for each, values in arrays.items()]
    )
    with writing(table.path):
        written = plain_files.write_named(table.path, name, pa.table([*arrays.values()], schema))
    fault("data file written")
    return written


def _cast(values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    if kind in _NUMBERS:
        return values.cast(_NUMBERS[kind])
    digits, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return values.cast(pa.decimal128(int(digits), int(scale)))


def _commit(
    table: ComposedLog, recorded: Mapping[str, int], actions: Sequence[DeltaAction], note: Mapping[str, Any]
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
