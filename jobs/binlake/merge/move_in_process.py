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
from binlake.delta.plain_tables import OwnCommit
from binlake.faults import fault
from binlake.merge import reshape_in_process
from binlake.merge.filled_rows import files_to_replace, rows_of, together
from binlake.schema.lake_columns import LakeColumn


def create(
    table: LakeLog, columns: Sequence[LakeColumn], config: PipelineConfig, *, version: int, note: dict[str, Any]
) -> None:
    """Put an empty table in the place of whatever is there, in one commit; repeating it changes nothing.

    Raises LeftToSpark; SnapshotUnfinished where a snapshot has come here since; CommitFailedError as
    ``reshape_in_process.reshape`` does; LakeError, OSError.
    """
    rows = pa.schema([(column.name, column.arrow) for column in columns]).empty_table()
    fields = [delta_field(column.name, column.delta) for column in columns]
    _take(table, fields, rows, config, version, note)


def move(
    table: LakeLog, old: LakeLog, life: str, config: PipelineConfig, *, version: int, note: dict[str, Any]
) -> None:
    """Put the rows of a life, as they stood at its old path, in the place of whatever is there, in one commit;
    repeating it changes nothing. Raises what ``create`` does."""
    plain_tables.check_is_wanted(table.path, config)
    log = opened_tables.opened(old.path, old.last_version_of(life))
    plain_tables.check_is_plain(log)
    adds = files_to_replace(old.path, log, config.merge.without_spark_bytes)
    fields = plain_tables.fields_of(log)
    rows = together(log, list(rows_of(old.path, adds)))
    rows = rows.rename_columns([field["name"] for field in fields])
    _take(table, [{**field, "metadata": {}} for field in fields], rows, config, version, note)


def _take(
    table: LakeLog,
    fields: list[dict[str, Any]],
    rows: pa.Table,
    config: PipelineConfig,
    version: int,
    note: dict[str, Any],
) -> None:
    """Write the whole table. fields: of Delta's schema, without metadata; rows: with the same columns."""
    plain_tables.check_is_wanted(table.path, config)
    own = OwnCommit("WRITE", version, note, {"mode": "Overwrite"}, {"numOutputRows": rows.num_rows})
    if not table.exists():
        kinds = tuple((field["name"], spark_type(field["type"])) for field in fields)
        plain_tables.create(table, DeltaSchema(kinds, f"{table.app} {version}"), own, rows)
        return
    log = table.log()
    if (table.transaction_version(log) or -1) >= version:
        return
    if (table.transaction_version(log, FENCE) or -1) >= version:
        raise table.overtaken()
    reshape_in_process.check(log, table.path, config)
    actions, fields = reshape_in_process.replacing(log, fields)
    paths = pa.table(log.get_add_actions())["path"].to_pylist()
    gone = [plain_tables.removed(add) for add in plain_tables.actions_of(log, table.path, paths)]
    plain_tables.commit(table, log, own, [*actions, *gone, *_added(table, fields, rows)])


def _added(table: LakeLog, fields: list[dict[str, Any]], rows: pa.Table) -> list[DeltaAction]:
    if not rows.num_rows:
        return []
    stored = [plain_tables.stored_field(field, kind) for field, kind in zip(fields, rows.schema.types, strict=True)]
    added = added_file(table.path, pa.Table.from_arrays(rows.columns, schema=pa.schema(stored)))
    fault("data file written")
    return [{"add": added}]
