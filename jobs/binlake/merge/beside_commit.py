"""The commits that write a table beside a mirror: its creation, other columns, and rows that are appended.

Each is made by this process, or by Spark where the process can't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema, delta_type
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge import reshape_in_process
from binlake.merge.reshape import ReshapedColumn
from binlake.merge.shared_reads import SharedReads
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from binlake.merge.lake_table import LakeTable


@dataclass(frozen=True)
class BesideColumn:
    """A column of a table beside a mirror. kind: its type in Spark SQL. arrow: the same in data files."""

    name: str
    kind: str
    arrow: pa.DataType


@dataclass(frozen=True)
class BesideRows:
    """Rows to be appended.

    repeating: columns with few values; the others are written without a dictionary, and all without statistics beside
    Delta's, which costs less, until the upkeep puts files together.
    in_process: returns them as Arrow, texts that repeat as dictionary arrays or as texts, or raises LeftToSpark.
    by_spark: returns them by a session. Both with columns that the table has, by their names. ascending: columns of
    ascending values without NULLs.
    """

    columns: Sequence[BesideColumn]
    repeating: Sequence[str]
    in_process: Callable[[], pa.Table]
    by_spark: Callable[[SparkSession], DataFrame]
    ascending: Sequence[str] = ()


@dataclass(frozen=True)
class BesideCommit:
    """The commits of one step. version: of the first, of two. start: the place in the log at which the batch begins.
    spark, lost, mirror, reads: see BesideWork."""

    table: LakeLog
    name: TableName
    config: PipelineConfig
    batch: int
    version: int
    note: dict[str, Any]
    spark: Callable[[str], SparkSession]
    lost: frozenset[str]
    start: tuple[int, int]
    mirror: Callable[[Life, bool], LakeLog | None]
    reads: SharedReads

    def reshape(self, columns: Sequence[ReshapedColumn]) -> None:
        """Give the table these columns; no row is written."""
        try:
            reshape_in_process.reshape(self.table, columns, self.config, version=self.version, note=self.note)
        except LeftToSpark as left:
            session = self.spark(str(left))
            self._writable().reshape(session, list(columns), self.version, self.note, widen=False)
        fault("schema evolved")

    def append(self, rows: BesideRows) -> None:
        """Append rows, and make the table where there is none."""
        try:
            plain_tables.check_is_wanted(self.table.path, self.config)
            if any(pa.types.is_nested(column.arrow) for column in rows.columns):
                raise LeftToSpark("lists aren't written here")
            if self.table.exists():
                self._append(rows)
            else:
                self._create(rows)
        except LeftToSpark as left:
            self._by_spark(self.spark(str(left)), rows)

    def _append(self, rows: BesideRows) -> None:
        log = self.table.log()
        if (self.table.transaction_version(log) or -1) > self.version:
            return
        plain_tables.check_is_plain(log)
        fields = {field["name"]: field for field in plain_tables.fields_of(log)}
        self._check_types(fields, rows.columns)
        data = rows.in_process()
        if not data.num_rows:  # all were rolled back
            return
        stored = [plain_tables.stored_field(fields[name], data.schema.field(name).type) for name in data.column_names]
        stored_as = dict(zip(data.column_names, (field.name for field in stored), strict=True))
        repeating, ascending = (
            [name for own, name in stored_as.items() if own in chosen] for chosen in (rows.repeating, rows.ascending)
        )
        data = pa.Table.from_arrays(data.columns, schema=pa.schema(stored))
        added = added_file(self.table.path, data, repeating=repeating, ascending=ascending)
        fault("data file written")
        plain_tables.commit(self.table, log, self._own("WRITE", data.num_rows), [{"add": added}])

    @staticmethod
    def _check_types(fields: dict[str, Any], columns: Sequence[BesideColumn]) -> None:
        others = [column.name for column in columns if fields[column.name]["type"] != delta_type(column.kind)]
        if others:
            raise LeftToSpark(f"the type of {', '.join(others)} isn't written here")

    def _create(self, rows: BesideRows) -> None:
        data = rows.in_process()
        if not data.num_rows:
            return
        schema = DeltaSchema(tuple((column.name, column.kind) for column in rows.columns), self.table.path)
        kinds = {column.name: column.arrow for column in rows.columns}
        data = data.cast(pa.schema([(name, kinds[name]) for name in data.column_names]))
        plain_tables.create(self.table, schema, self._own("WRITE", data.num_rows), data)

    def _own(self, operation: str, rows: int) -> OwnCommit:
        metrics = {"numFiles": 1, "numOutputRows": rows}
        return OwnCommit(operation, self.version + 1, self.note, {"mode": "Append"}, metrics)

    def _by_spark(self, session: SparkSession, rows: BesideRows) -> None:
        data, table = rows.by_spark(session), self._writable()
        if table.exists():
            table.append(session, data, self.version + 1, self.note)
        else:
            table.overwrite(session, data, self.version + 1, self.note, mode="error")

    def _writable(self) -> LakeTable:
        from binlake.merge.lake_table import LakeTable

        return LakeTable(self.table.path, self.table.app)
