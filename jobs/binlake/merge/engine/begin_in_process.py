"""A snapshot's data files in the place of whatever is at a table's path, in one Delta commit without Spark.

It is what ``LakeTable.begin`` does, behind the same fence (lake_table.py). Each commit takes the version behind the one
that was read, or none: where somebody else committed meanwhile, the fence is put up again.

| left to Spark | because |
|---|---|
| what is no plain table: constraints, change data feeds, partitions … | Delta's own writer knows what they ask |
| tables of a protocol before table features | Spark upgrades them |
| names that ask for column mapping, where a table is there | Spark turns it on in a commit before |
| new tables for which ``spark.conf`` in the YAML has defaults of Delta's properties | Delta knows what they ask for |
| stores on which two writers don't exclude each other | no commit there is conditional |
| all, where ``merge.without_spark_mb`` is 0 | that is how it is asked for |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from binlake.config import PipelineConfig
from binlake.delta import log_files, plain_tables
from binlake.delta.delta_actions import DataFile, DeltaAction
from binlake.delta.delta_log import FENCES, LakeLog, fenced, is_fenced, note_of, overtaking
from binlake.delta.delta_schema import (
    MAPPING_MODE,
    MOST_ID,
    DeltaSchema,
    needs_column_mapping,
    type_features,
)
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LakeTableChanged, LeftToSpark

_DEFAULTS = "spark.databricks.delta.properties.defaults."
_PARAMETERS = {"mode": "Overwrite", "partitionBy": "[]", "canOverwriteSchema": True}


def check(log: LakeLog, schema: DeltaSchema, config: PipelineConfig) -> None:
    """Raise LeftToSpark where this process can't commit a snapshot of this schema to the table."""
    plain_tables.check_is_wanted(log.path, config)
    if log.exists():
        _check_table(log.opened(), schema)
    elif asked := [key for key in config.spark.settings if key.startswith(_DEFAULTS)]:
        raise LeftToSpark(f"spark.conf has {', '.join(asked)}")


def _check_table(table: DeltaTable, schema: DeltaSchema) -> None:
    plain_tables.check_names_features(table)
    plain_tables.check_is_plain(table)
    if needs_column_mapping([name for name, _ in schema.columns]):
        raise LeftToSpark("columns have odd names")


def begin(
    log: LakeLog,
    schema: DeltaSchema,
    data: Sequence[DataFile],
    config: PipelineConfig,
    *,
    batch: int,
    note: dict[str, Any],
    is_ours: Callable[[], None],
) -> None:
    """Make the table these data files, which lie in its folder, in one commit behind a fence.

    batch: the newest number given out. is_ours: raises where the run lost its lease, or data files are gone; asked
    before each commit. Raises LeftToSpark, LakeTableChanged, LakeError, OSError.
    """
    fence = overtaking(batch)
    for _ in range(FENCES):
        check(log, schema, config)
        # The same position again (a mirror that was found wrong, on a quiet server) must not pass for a repetition.
        own = OwnCommit("WRITE", max(fence, log.recorded()) + 1, note, _PARAMETERS, {})
        try:
            if log.exists():
                _fence(log, fence, note, is_ours)
                _replace(log, schema, data, own, fence, is_ours)
            else:
                is_ours()
                come = [json.loads(file.action) for file in data]
                plain_tables.create_of(log, schema, _measured(own, _metrics(data, [])), come)
        except CommitFailedError:
            if not _is_made(log, note):  # else it was our own commit, whose answer got lost
                continue
        log.prove(own.version)
        return
    raise LakeTableChanged(
        f"{log.path} was written by others while its snapshot was committed",
        remedy="let nobody else write it, then run the snapshot again",
    )


def _is_made(log: LakeLog, note: Mapping[str, Any]) -> bool:
    """Return whether the table's last change is the snapshot's commit."""
    return log.exists() and note_of(log.last_change()).get("snapshot") == note["binlake"]["snapshot"]


def _fence(log: LakeLog, fence: int, note: dict[str, Any], is_ours: Callable[[], None]) -> None:
    """Record for all lives known here that they have done the steps up to ``fence``; with the table's metadata, so that
    any commit that another writer began before conflicts with it."""
    table = log.opened()
    announced = {"binlake": {**note["binlake"], "snapshot": None, "begins": note["binlake"]["snapshot"]}}
    metadata = plain_tables.metadata_with(table, table.schema().to_json(), table.metadata().configuration)
    recorded = fenced(_recorded(log, table), fence)
    is_ours()
    own = OwnCommit("Manual Update", fence, announced, {}, {})
    plain_tables.commit_recording(log.path, table, own, recorded, [metadata])


def _recorded(log: LakeLog, table: DeltaTable) -> dict[str, int]:
    recorded = log_files.recorded(log.path, table.version())
    if recorded is None:
        raise LeftToSpark("its log is in a form that isn't read here")
    return recorded


def _replace(
    log: LakeLog,
    schema: DeltaSchema,
    data: Sequence[DataFile],
    own: OwnCommit,
    fence: int,
    is_ours: Callable[[], None],
) -> None:
    """Commit the data files in the place of the table's. Raises CommitFailedError where the fence isn't whole, too."""
    table = log.opened()
    if not is_fenced(_recorded(log, table), fence):
        raise CommitFailedError("a life came behind the fence")
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    there = plain_tables.actions_of(table, log.path, paths)
    come = {file.action_path: json.loads(file.action) for file in data}
    gone: list[DeltaAction] = []
    for add in there:
        # Of a file that the table has already, whole, the commit says nothing: it must not come and go in it.
        if not add.get("deletionVector") and add["path"] in come:
            del come[add["path"]]
        else:
            gone.append(add)
    is_ours()
    actions = [
        *_shape(table, replace(schema, has_vectors=log.has_vectors)),
        *map(plain_tables.removed, gone),
        *come.values(),
    ]
    plain_tables.commit(log, table, _measured(own, _metrics(data, gone)), actions)


def _shape(table: DeltaTable, schema: DeltaSchema) -> list[DeltaAction]:
    """Return the actions that give the table the schema, and the features that it needs."""
    settings = {**table.metadata().configuration, **schema.kept_properties}
    text = schema.text(settings)
    if settings.get(MAPPING_MODE, "none") != "none":
        settings[MOST_ID] = str(max(int(settings.get(MOST_ID, "0")), len(schema.columns)))
    return [
        *plain_tables.protocol_with(table, type_features(json.loads(text)["fields"])),
        plain_tables.metadata_with(table, text, settings, schema.description),
    ]


def _measured(own: OwnCommit, metrics: dict[str, int]) -> OwnCommit:
    return OwnCommit(own.operation, own.version, own.note, own.parameters, metrics)


def _metrics(data: Sequence[DataFile], gone: Sequence[DeltaAction]) -> dict[str, int]:
    """Return the metrics that the commit's history shows, as Spark counts them in a write."""
    return {
        "numFiles": len(data), "numRemovedFiles": len(gone), "numRemovedBytes": sum(add["size"] for add in gone),
        "numOutputRows": sum(file.rows for file in data), "numOutputBytes": sum(file.bytes for file in data),
    }  # fmt: skip
