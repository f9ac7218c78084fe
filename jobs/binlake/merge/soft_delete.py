"""Rows of a mirror in which deleted rows stay, marked as such: see lake_columns.py for the marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LeftToSpark
from binlake.merge.filled_rows import files_to_replace, replacing, rows_of
from binlake.schema.lake_columns import DELETED, DELETED_AT, MOMENT

LIVE = f"NOT {DELETED}"
"""Condition in SQL of rows that the server has."""


def live(rows: pa.Table) -> pa.Table:
    """Return rows that the server has, with their marks."""
    return _marked(rows, pa.repeat(pa.scalar(False), rows.num_rows), pa.nulls(rows.num_rows, MOMENT))


def deleted(rows: pa.Table, at: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return deleted rows with their marks. at: when each was deleted."""
    return _marked(rows, pa.repeat(pa.scalar(True), rows.num_rows), at)


def _marked(rows: pa.Table, gone: pa.Array, at: pa.ChunkedArray | pa.Array) -> pa.Table:
    return rows.append_column(DELETED, gone).append_column(DELETED_AT, at)


def marks_in_sql(committed_us: int | str, gone: str = "true") -> dict[str, str]:
    """Return the marks of rows, as SQL by column. committed_us, gone: when they were deleted, and whether."""
    return {DELETED: gone, DELETED_AT: f"IF({gone}, timestamp_micros({committed_us}), NULL)"}


def mark_all(table: LakeLog, config: PipelineConfig, committed_us: int, *, version: int, note: dict[str, Any]) -> None:
    """Mark all rows of a small table as deleted that aren't yet, in one commit; repeating it changes nothing.

    Raises LeftToSpark; CommitFailedError as ``reshape_in_process.reshape`` does; LakeError, OSError.
    """
    plain_tables.check_is_wanted(table.path, config)
    log = table.log()
    if (log.transaction_version(table.app) or -1) >= version:
        return
    plain_tables.check_is_plain(log)
    adds = files_to_replace(table.path, log, config.merge.without_spark_bytes)
    rows = _together(log, list(rows_of(table.path, adds)))
    moment = pa.scalar(committed_us, pa.int64()).cast(MOMENT)
    names = {field["name"]: place for place, field in enumerate(plain_tables.fields_of(log))}
    gone, at = names[DELETED], names[DELETED_AT]
    if rows.num_rows:
        times = pc.if_else(rows.column(gone), rows.column(at), moment)
        rows = rows.set_column(at, rows.schema.field(at), times)
        rows = rows.set_column(gone, rows.schema.field(gone), pa.repeat(pa.scalar(True), rows.num_rows))
    own = OwnCommit("UPDATE", version, note, {"predicate": LIVE}, {"numRemovedFiles": len(adds)})
    plain_tables.commit(table, log, own, replacing(table.path, adds, rows))


def _together(log: DeltaTable, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of data files with the columns that the table has. Raises LeftToSpark."""
    if not parts:
        return pa.table({})
    fields = []
    for field in plain_tables.fields_of(log):
        name = plain_tables.stored_field(field, pa.null()).name
        kinds = {part.schema.field(name).type for part in parts if name in part.column_names}
        if len(kinds) != 1 or any(pa.types.is_timestamp(kind) and kind.unit != "us" for kind in kinds):
            raise LeftToSpark(f"column {field['name']!r} isn't stored in one type as it is written here")
        fields.append(plain_tables.stored_field(field, kinds.pop()))
    schema = pa.schema(fields)
    return pa.concat_tables(_with_columns(part, schema) for part in parts)


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
