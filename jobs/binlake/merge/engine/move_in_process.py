"""A table's beginning at a path, and its going from there, without Spark: created empty, or moved with its rows.

Each is one commit, as ``lake_table.py`` makes it with Spark. Over a table that is there it takes the version behind the
one in which neither the life nor a snapshot's fence was found, or none: nothing needs to be claimed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from binlake.config import PipelineConfig
from binlake.delta import opened_tables, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import FENCE, LakeLog
from binlake.delta.delta_schema import DeltaSchema, delta_field, spark_type
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import StepCommit
from binlake.faults import fault
from binlake.merge.engine import reshape_in_process
from binlake.merge.filled_rows import files_to_replace, rows_of, together
from binlake.schema.lake_columns import LakeColumn


def create(log: LakeLog, columns: Sequence[LakeColumn], commit: StepCommit) -> None:
    """Put an empty table in the place of whatever is there, in one commit; repeating it changes nothing.

    Raises LeftToSpark; SnapshotUnfinished where a snapshot has come here since; CommitFailedError as
    ``reshape_in_process.reshape`` does; LakeError, OSError.
    """
    rows = pa.schema([(column.name, column.arrow) for column in columns]).empty_table()
    fields = [delta_field(column.name, column.delta) for column in columns]
    _take(log, fields, rows, commit)


def move(log: LakeLog, old: LakeLog, life: str, config: PipelineConfig, commit: StepCommit) -> None:
    """Put the rows of a life, as they stood at its old path, in the place of whatever is there, in one commit;
    repeating it changes nothing. Raises what ``create`` does."""
    table = opened_tables.opened(old.path, old.last_version_of(life))
    plain_tables.check_is_plain(table)
    adds = files_to_replace(old.path, table, config.merge.without_spark_bytes)
    fields = plain_tables.fields_of(table)
    rows = together(table, list(rows_of(old.path, adds)))
    rows = rows.rename_columns([field["name"] for field in fields])
    _take(log, [{**field, "metadata": {}} for field in fields], rows, commit)


def _take(
    log: LakeLog,
    fields: list[dict[str, Any]],
    rows: pa.Table,
    commit: StepCommit,
) -> None:
    """Write the whole table. fields: of Delta's schema, without metadata; rows: with the same columns."""
    own = commit.own("WRITE", {"mode": "Overwrite"}, numOutputRows=rows.num_rows)
    if not log.exists():
        kinds = tuple((field["name"], spark_type(field["type"])) for field in fields)
        plain_tables.create(log, DeltaSchema(kinds, f"{log.app} {commit.version}"), own, rows)
        return
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    if (log.transaction_version(table, FENCE) or -1) >= commit.version:
        raise log.overtaken()
    reshape_in_process.check(table)
    actions, fields = reshape_in_process.replacing(table, log.path, fields)
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    gone = [plain_tables.removed(add) for add in plain_tables.actions_of(table, log.path, paths)]
    plain_tables.commit(log, table, own, [*actions, *gone, *_added(log, fields, rows)])


def _added(log: LakeLog, fields: list[dict[str, Any]], rows: pa.Table) -> list[DeltaAction]:
    if not rows.num_rows:
        return []
    stored = [plain_tables.stored_field(field, kind) for field, kind in zip(fields, rows.schema.types, strict=True)]
    added = added_file(log.path, pa.Table.from_arrays(rows.columns, schema=pa.schema(stored)))
    fault("data file written")
    return [{"add": added}]
