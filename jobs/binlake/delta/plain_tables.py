"""Delta tables that the process itself may write, and the commits that it makes to them.

Tables that it doesn't write raise LeftToSpark, with the reason."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake import __version__
from binlake.config import PipelineConfig
from binlake.delta import deletion_vectors, delta_commits, opened_tables, plain_files
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import (
    COMMENT,
    FEATURES,
    FIELD_ID,
    HAS_VECTORS,
    LOG_CLEANUP,
    MAPPING_MODE,
    MOST_ID,
    OWN_ID,
    PURGED,
    TYPE_CHANGES,
    WIDENING,
    WIDENS,
    DeltaSchema,
    completed,
    id_of,
    type_features,
)
from binlake.delta.file_statistics import without_tight_bounds
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.delta.plain_files import added_file, numbered_column
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.storage import files

_SETTINGS = frozenset(
    {
        HAS_VECTORS, "delta.checkpointInterval", "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration", LOG_CLEANUP, MAPPING_MODE, MOST_ID, PURGED,
    }
)  # fmt: skip
_TABLE_FEATURES = {"minReaderVersion": 3, "minWriterVersion": 7}
"""Versions of a protocol whose features are named one by one."""
_METADATA_OF_FIELDS = {"none": frozenset[str](), "name": frozenset({FIELD_ID, PHYSICAL_NAME})}
"""Keys of a field's metadata that binlake makes, by the column mapping's mode."""
_PLAIN_PATH = re.compile(r"[\w.=-]+(?:/[\w.=-]+)*")
"""Paths below the table that Delta's URL encoding doesn't change."""


@dataclass(frozen=True)
class OwnCommit:
    """A commit's description of itself. version: the life's transaction version. metrics: shown by DESCRIBE HISTORY."""

    operation: str
    version: int
    note: Mapping[str, Any]
    parameters: Mapping[str, Any]
    metrics: Mapping[str, int]


@dataclass(frozen=True)
class StepCommit:
    """A commit that does a step. version: the life's transaction version. note: what it says of itself in the table's
    history."""

    version: int
    note: dict[str, Any]

    def own(self, operation: str, parameters: Mapping[str, Any] | None = None, **metrics: int) -> OwnCommit:
        """Return the commit as one of an operation."""
        return OwnCommit(operation, self.version, self.note, parameters or {}, metrics)


def check_is_wanted(table_path: str, config: PipelineConfig) -> None:
    """Raise LeftToSpark where the YAML leaves all tables to Spark, or two writers don't exclude each other in the
    store."""
    if not config.merge.without_spark_mb:
        raise LeftToSpark("merge.without_spark_mb is 0")
    check_store(table_path)


def check_store(table_path: str) -> None:
    """Raise LeftToSpark where two writers don't exclude each other in the store."""
    if not files.writes_if_absent(table_path):
        raise LeftToSpark("two concurrent writers can't be excluded in this store without it")


def check_is_plain(table: DeltaTable, *, widened: bool = False) -> None:
    """Raise LeftToSpark where a table has what only Delta's own writer knows how to keep. widened: whether data files
    may have narrower types than the table, by Delta's type widening."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - FEATURES
    settings = set(metadata.configuration) - _SETTINGS
    kept = {COMMENT, OWN_ID}
    if widened:
        features, settings, kept = features - {WIDENING}, settings - {WIDENS}, kept | {TYPE_CHANGES}
    if features or settings:
        raise LeftToSpark(f"the table has {', '.join(sorted(features | settings))}")
    if metadata.partition_columns:
        raise LeftToSpark("the table has partitions")
    wanted = _METADATA_OF_FIELDS.get(metadata.configuration.get(MAPPING_MODE, "none"))
    for field in fields_of(table):
        if field["metadata"].keys() - kept != wanted or not field["nullable"]:
            raise LeftToSpark(f"column {field['name']!r} isn't as binlake makes it")


def fields_of(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the fields of Delta's schema, each with an id of binlake's own once any has."""
    return completed(json.loads(table.schema().to_json())["fields"])


def stored_field(field: Mapping[str, Any], arrow: pa.DataType) -> pa.Field:
    """Return a column as data files have it: with an id, by which readers of Iceberg find it; column mapping gives it a
    name of its own there.

    field: of Delta's schema.
    """
    return numbered_column(field["metadata"].get(PHYSICAL_NAME, field["name"]), arrow, id_of(field))


def actions_of(table: DeltaTable, table_path: str, paths: Sequence[str]) -> list[DeltaAction]:
    """Return the add actions of data files that are there. Raises LeftToSpark, OSError."""
    if odd := [path for path in paths if not _PLAIN_PATH.fullmatch(path)]:
        raise LeftToSpark(f"{len(odd)} data files have paths that Delta's log encodes")
    if not paths:
        return []
    added = opened_tables.added(table_path, table.version(), paths)
    if added is None:
        raise LeftToSpark("its log is in a form that isn't read here")
    return [add.fields for add in added.values()]


def removed(add: DeltaAction) -> DeltaAction:
    """Return the action that takes a data file away."""
    fields = {"path": add["path"], "deletionTimestamp": now(), "dataChange": True, "extendedFileMetadata": True}
    vector = {"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}
    return {"remove": {**fields, "partitionValues": {}, "size": add["size"], **vector}}


def has_vectors(table: DeltaTable) -> bool:
    """Return whether rows of a table may be hidden by deletion vectors."""
    return table.metadata().configuration.get(HAS_VECTORS) == "true"


def marked(
    table: DeltaTable, table_path: str, files_with_marks: Sequence[tuple[DeltaAction, BitMap64]]
) -> list[DeltaAction]:
    """Write deletion vectors for data files, each with the numbers of all its rows that are gone; return the actions
    that add the files again, with them. If the table has no deletion vectors, write files of the other rows, and return
    the actions that add these. Raises OSError, ArrowException."""
    if not files_with_marks:
        return []
    if not has_vectors(table):
        written = [plain_files.written_without(table_path, add["path"], gone) for add, gone in files_with_marks]
        fault("rows marked")
        return [{"add": add} for add in written]
    vectors = deletion_vectors.write(table_path, [rows for _, rows in files_with_marks])
    fault("rows marked")
    actions: list[DeltaAction] = []
    for (add, _), vector in zip(files_with_marks, vectors, strict=True):
        stats = without_tight_bounds(add["stats"])
        file = {**add, "partitionValues": {}, "dataChange": True, "stats": stats, "deletionVector": vector}
        actions.append({"add": file})
    return actions


def commit(log: LakeLog, table: DeltaTable, own: OwnCommit, actions: Sequence[DeltaAction]) -> None:
    """Commit these in the version behind the one that ``log`` was read at, with the life's transaction version.

    Raises CommitFailedError where that version is taken, which may be by ourselves; OSError.
    """
    commit_recording(log.path, table, own, {log.app: own.version}, actions)


def commit_recording(
    path: str, table: DeltaTable, own: OwnCommit, recorded: Mapping[str, int], actions: Sequence[DeltaAction]
) -> None:
    """Do the same with the transaction versions of any application ids."""
    delta_commits.commit(table, path, [*_own_actions(own, recorded, table.version()), *actions])


def commit_layout(
    table_path: str,
    table: DeltaTable,
    note: Mapping[str, Any],
    metrics: Mapping[str, int],
    actions: Sequence[DeltaAction],
) -> None:
    """Commit other files with the same rows in the version behind the one that ``log`` was read at. Raises as
    ``commit``."""
    info = commit_info("OPTIMIZE", {"predicate": "[]", "zOrderBy": "[]"}, note, metrics, table.version())
    delta_commits.commit(table, table_path, [{"commitInfo": info}, *actions])


def commit_info(
    operation: str,
    parameters: Mapping[str, Any],
    note: Mapping[str, Any],
    metrics: Mapping[str, int],
    read_version: int | None,
) -> DeltaAction:
    """Return a commit's description of itself. read_version: None for a table's first commit."""
    read = {} if read_version is None else {"readVersion": read_version}
    return {
        "timestamp": now(), "operation": operation, "operationParameters": parameters,
        **read, "isolationLevel": "Serializable", "isBlindAppend": False,
        "engineInfo": f"binlake/{__version__}", "userMetadata": json.dumps(note, ensure_ascii=False),
        "operationMetrics": {name: str(count) for name, count in metrics.items()},
    }  # fmt: skip


def _own_actions(own: OwnCommit, recorded: Mapping[str, int], read_version: int | None = None) -> list[DeltaAction]:
    """Return the actions that describe a commit. recorded: transaction versions by application id. read_version: None
    for a table's first commit; deltalake reads no history with -1 in it."""
    info = commit_info(own.operation, own.parameters, own.note, own.metrics, read_version)
    at = info["timestamp"]
    transactions = [{"txn": {"appId": app, "version": new, "lastUpdated": at}} for app, new in recorded.items()]
    return [{"commitInfo": info}, *transactions]


def create(log: LakeLog, schema: DeltaSchema, own: OwnCommit, rows: pa.Table) -> None:
    """Make a table of these rows, which may be none, in one commit. Raises CommitFailedError where one is there by now;
    OSError."""
    fields = {field["name"]: field for field in json.loads(schema.text(schema.properties))["fields"]}
    stored = pa.schema([stored_field(fields[name], rows.schema.field(name).type) for name in rows.column_names])
    added: list[DeltaAction] = []
    if rows.num_rows:
        files.make_readers_folder(log.path)
        added.append({"add": added_file(log.path, pa.Table.from_arrays(rows.columns, schema=stored))})
        fault("data file written")
    create_of(log, schema, own, added)


def create_of(log: LakeLog, schema: DeltaSchema, own: OwnCommit, added: Sequence[DeltaAction]) -> None:
    """Make a table of data files that are written by now; raises what ``create`` does."""
    schema = replace(schema, has_vectors=log.has_vectors)
    properties = schema.properties
    fields = json.loads(schema.text(properties))["fields"]
    asked = ["deletionVectors"] if log.has_vectors else []  # some readers refuse a table that may have some
    asked += ["columnMapping"] if MAPPING_MODE in properties else []
    asked += type_features(fields)
    protocol = {
        **_TABLE_FEATURES,
        "readerFeatures": asked, "writerFeatures": [*asked, "appendOnly", "invariants"],
    }  # fmt: skip
    metadata = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.text(properties), "partitionColumns": [], "configuration": properties,
        "createdTime": now(), **({"description": schema.description} if schema.description else {}),
    }  # fmt: skip
    files.make_readers_folder(f"{log.path}/_delta_log")
    own_actions = _own_actions(own, {log.app: own.version})
    delta_commits.create(log.path, [*own_actions, {"protocol": protocol}, {"metaData": metadata}, *added])


def metadata_with(
    table: DeltaTable,
    schema: str,
    settings: Mapping[str, str],
    description: str | None = None,
    partitions: Sequence[str] = (),
) -> DeltaAction:
    """Return a table's metadata with another schema, as JSON, and other settings. description: another one, may be
    empty; None keeps it. partitions: the columns by which it is partitioned, as merged tables are."""
    before = table.metadata()
    described = {"description": (before.description if description is None else description) or None}
    kept = {"id": before.id, "name": before.name, **described, "createdTime": before.created_time}
    return {
        "metaData": {
            **{name: value for name, value in kept.items() if value is not None},
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [*partitions],
            "configuration": dict(settings),
        }
    }


def commit_settings(table_path: str, table: DeltaTable, note: Mapping[str, Any], settings: Mapping[str, str]) -> None:
    """Give a table these settings beside its others, in the version behind the one that it was read at. Raises as
    ``commit``."""
    metadata = table.metadata()
    info = commit_info("SET TBLPROPERTIES", {"properties": json.dumps(dict(settings))}, note, {}, table.version())
    changed = metadata_with(
        table, table.schema().to_json(), {**metadata.configuration, **settings}, partitions=metadata.partition_columns
    )
    delta_commits.commit(table, table_path, [{"commitInfo": info}, changed])


def protocol_with(table: DeltaTable, asked: Collection[str]) -> list[DeltaAction]:
    """Return a table's protocol with further features; nothing where it has them."""
    protocol = table.protocol()
    reader, writer = list(protocol.reader_features or ()), list(protocol.writer_features or ())
    if set(asked) <= set(reader) & set(writer):
        return []
    features = {
        "readerFeatures": [*reader, *(name for name in asked if name not in reader)],
        "writerFeatures": [*writer, *(name for name in asked if name not in writer)],
    }
    return [{"protocol": {**_TABLE_FEATURES, **features}}]


def check_names_features(table: DeltaTable) -> None:
    """Raise LeftToSpark where the protocol names no features one by one."""
    protocol = table.protocol()
    if (protocol.min_reader_version, protocol.min_writer_version) != tuple(_TABLE_FEATURES.values()):
        raise LeftToSpark("the table's protocol names no features")


def now() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
