"""Changes of tables by this process: see TableEngine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema, delta_type
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit, StepCommit
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge.engine import in_process, move_in_process, reshape_in_process
from binlake.merge.filled_rows import files_to_replace, replacing, rows_of, together
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.own_values import LIVE
from binlake.merge.reshape import BesideColumn, ReshapedColumn
from binlake.merge.table_engine import AppendedRows, Truncation
from binlake.schema.lake_columns import BATCH, COMMITTED, DELETED, DELETED_AT, MOMENT, POSITION, LakeColumn
from binlake.schema.table import TableSchema


@dataclass(frozen=True)
class ProcessEngine:
    """Changes tables in this process, without Spark."""

    config: PipelineConfig

    def merge(self, epoch: MirrorEpoch) -> None:
        """Give a mirror the rows that it has behind an epoch."""
        in_process.merge(epoch)

    def append(self, log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
        """Append rows, and make the table where there is none."""
        (_append if log.exists() else _create)(log, rows, commit)

    def create(self, log: LakeLog, columns: Sequence[LakeColumn], commit: StepCommit) -> None:
        """Put an empty table in the place of whatever is there."""
        move_in_process.create(log, columns, commit)

    def reshape(self, log: LakeLog, columns: Sequence[ReshapedColumn], commit: StepCommit) -> None:
        """Give the rows other columns."""
        reshape_in_process.reshape(log, columns, self.config, commit)

    def describe(self, log: LakeLog, schema: TableSchema, commit: StepCommit) -> None:
        """Give the table and its columns the comments of a shape."""
        reshape_in_process.describe(log, schema, commit)

    def truncate(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows."""
        reshape_in_process.truncate(log, commit)

    def mark_all(self, log: LakeLog, truncation: Truncation, commit: StepCommit) -> None:
        """Mark all rows as deleted by a statement."""
        _mark_all(log, truncation, commit, self.config.merge.without_spark_bytes)

    def move(self, log: LakeLog, old: LakeLog, life: str, commit: StepCommit) -> None:
        """Replace the table by the rows of a life at its old path."""
        move_in_process.move(log, old, life, self.config, commit)

    def leave(self, log: LakeLog, commit: StepCommit) -> None:
        """Remove all rows, because the table moved."""
        self.truncate(log, commit)


def _append(log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    fields = checked_fields(table, rows.columns)
    data = rows.in_process()
    if not data.num_rows:  # all were rolled back
        return
    stored = stored_schema(fields, data.schema)
    stored_as = dict(zip(data.column_names, (field.name for field in stored), strict=True))
    repeating, ascending = (
        [name for own, name in stored_as.items() if own in chosen] for chosen in (rows.repeating, rows.ascending)
    )
    data = pa.Table.from_arrays(data.columns, schema=stored)
    added = added_file(log.path, data, repeating=repeating, ascending=ascending)
    fault("data file written")
    plain_tables.commit(log, table, _appending(commit, data.num_rows), [{"add": added}])


def checked_fields(table: DeltaTable, columns: Sequence[BesideColumn]) -> dict[str, Any]:
    """Return the fields of a table that the process may append to, by column. Raises LeftToSpark for any other table,
    or where its columns have other types."""
    plain_tables.check_is_plain(table)
    fields = {field["name"]: field for field in plain_tables.fields_of(table)}
    others = [column.name for column in columns if fields[column.name]["type"] != delta_type(column.kind)]
    if others:
        raise LeftToSpark(f"the type of {', '.join(others)} isn't written here")
    return fields


def stored_schema(fields: Mapping[str, Any], rows: pa.Schema) -> pa.Schema:
    """Return the columns of rows as data files have them."""
    return pa.schema([plain_tables.stored_field(fields[column.name], column.type) for column in rows])


def _create(log: LakeLog, rows: AppendedRows, commit: StepCommit) -> None:
    data = rows.in_process()
    if not data.num_rows:
        return
    schema = DeltaSchema(tuple((column.name, column.kind) for column in rows.columns), log.path)
    kinds = {column.name: column.arrow for column in rows.columns}
    data = data.cast(pa.schema([(name, kinds[name]) for name in data.column_names]))
    plain_tables.create(log, schema, _appending(commit, data.num_rows), data)


def _appending(commit: StepCommit, rows: int) -> OwnCommit:
    return commit.own("WRITE", {"mode": "Append"}, numFiles=1, numOutputRows=rows)


def _mark_all(log: LakeLog, truncation: Truncation, commit: StepCommit, room: int) -> None:
    """Mark the rows of a small table. room: bytes of data files that are rewritten."""
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    plain_tables.check_is_plain(table)
    adds = files_to_replace(log.path, table, room)
    rows = together(table, list(rows_of(log.path, adds)))
    moment = pa.scalar(truncation.committed_us, pa.int64()).cast(MOMENT)
    values = {
        DELETED: pa.scalar(True), DELETED_AT: moment, BATCH: pa.scalar(truncation.batch, pa.int64()),
        COMMITTED: moment, POSITION: pa.scalar(truncation.mutation),
    }  # fmt: skip
    names = [field["name"] for field in plain_tables.fields_of(table)]
    gone = rows.column(names.index(DELETED)) if rows.num_rows else None
    for place, name in enumerate(names if rows.num_rows else ()):
        if name in values:
            column = pc.if_else(gone, rows.column(place), values[name])
            rows = rows.set_column(place, rows.schema.field(place), column)
    own = commit.own("UPDATE", {"predicate": LIVE}, numRemovedFiles=len(adds))
    plain_tables.commit(log, table, own, replacing(log.path, adds, rows))
