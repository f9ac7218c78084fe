"""The last step of a snapshot: the data files of a table's chunks become its Delta table, in one commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from arro3.core import Table

from binlake.config import PipelineConfig
from binlake.delta.delta_actions import DataFile
from binlake.delta.delta_log import LakeLog
from binlake.errors import (
    OF_CODE,
    BinlakeError,
    InvalidDate,
    LakeError,
    LeftToSpark,
    SparkNeeded,
    StagingError,
    TableError,
    check_partitions,
)
from binlake.faults import fault
from binlake.merge.engine import begin_in_process
from binlake.merge.table_engine import here_or_by_spark
from binlake.position import Position
from binlake.report import counted
from binlake.schema.lake_columns import DELETED
from binlake.schema.table import TableName, TableSchema, table_id
from binlake.serialization import dump
from binlake.snapshot import restore
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import Records, TableSnapshot
from binlake.snapshot.spark_sessions import SparkSessions
from binlake.storage import files, storage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_AT_ONCE = 4_000_000
"""About how many keys are held at a time; pyarrow takes some 60 bytes for each."""


@dataclass(frozen=True)
class SnapshotResult:
    """A table's committed snapshot.

    low: the position where the table's life begins in the log. high: the position from which it is consistent; the
    same as low if a lock was used. rows, bytes: totals of the data files. lock_ms: the longest time that writes were
    stopped for one of its chunks. why_spark: why the run started Spark.
    """

    name: TableName
    table_id: str
    schema: TableSchema
    low: Position
    high: Position
    rows: int
    bytes: int
    seconds: float
    lock_ms: int
    delta_version: int
    why_spark: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {
            "table": str(self.name),
            "table_id": self.table_id,
            "low": dump(self.low),
            "high": dump(self.high),
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "lock_ms": self.lock_ms,
            "delta_version": self.delta_version,
            "why_spark": self.why_spark,
        }


@dataclass(frozen=True)
class _Begun:
    """A table as a commit made it. attempts: those whose files it has. retained: rows that it has beside those
    copied."""

    attempts: Sequence[str]
    retained: int = 0


@dataclass(frozen=True)
class _Commit:
    """One table's commit. batch: the newest number given out."""

    config: PipelineConfig
    table: TableSnapshot
    records: Records
    batch: int

    @property
    def log(self) -> LakeLog:
        return _log(self.config, self.table)

    @property
    def note(self) -> dict[str, Any]:
        return _note(self.config, self.table)

    def check(self) -> None:
        self.records.check()
        _refuse_lost(self.table, self.records)

    def in_process(self, copied: Sequence[Copied]) -> _Begun:
        """Commit without Spark. Raises LeftToSpark."""
        schema, attempts = self.table.schema, self.records.attempts(self.table)
        delta_schema = self.records.delta_schema(self.table)
        if schema.row_metadata and not all(chunk.has_row_metadata for chunk in copied):
            raise LeftToSpark("its rows say what wrote them, and those that Spark copied are written again")
        if self.records.keeps_deleted(self.table) and self._has_deleted():
            raise LeftToSpark("deleted rows may stay of those that it has")
        begin_in_process.check(self.log, delta_schema, self.config)
        attempts.give()
        fault("commit begun")
        data = [file for chunk in copied for file in chunk.files]
        begin_in_process.begin(
            self.log, delta_schema, data, self.config, batch=self.batch, note=self.note, is_ours=self.check,
        )  # fmt: skip
        return _Begun([chunk.attempt for chunk in self.table.chunks])

    def _has_deleted(self) -> bool:
        """Return whether the table that is there may have deleted rows."""
        return self.log.exists() and any(field.name == DELETED for field in self.log.opened().schema().fields)

    def by_spark(self, session: SparkSession) -> _Begun:
        """session: used for no other table at the same time."""
        from binlake.merge.lake_table import LakeTable, NewTable
        from binlake.snapshot.own_files import SnapshotFiles

        target, schema = (
            LakeTable(self.log.path, self.log.app, self.log.has_vectors),
            self.records.delta_schema(self.table),
        )
        own = SnapshotFiles(session, self.table, self.records, target)
        data = NewTable(schema, own.copied(), own.retained)
        self.records.attempts(self.table).give()
        fault("commit begun")
        target.begin(session, data, self.batch, self.note, self.check)
        return _Begun(own.kept, own.rows)


def commit(
    spark: SparkSessions,
    config: PipelineConfig,
    table: TableSnapshot,
    records: Records,
    *,
    batch: int,
    in_process: bool = False,
) -> SnapshotResult:
    """Replace the Delta table by the chunks' data files; a repetition after a kill gives the same table.

    batch: the newest number given out. in_process: whether this process commits, where it can. Raises InvalidDate,
    LakeError, LeaseHeld; TableError for a partitioned table that has a key twice; StagingError for chunks that are
    damaged or missing, which the next run copies again.
    """
    _refuse_lost(table, records)
    attempts = records.attempts(table)
    copied = [attempts.copied(chunk.attempt) for chunk in table.chunks]
    _refuse_dates(table, records, copied)
    _refuse_same_keys(config, table, records, copied)
    table.table_id = table_id(config.source.name, table.name, table.low)
    log = _log(config, table)
    records.note_lost_versions(table.name, log.version() if log.exists() else -1)
    known_to_delta, step = attempts.given, _Commit(config, table, records, batch)
    try:
        begun = _begin(spark, step, copied, in_process=in_process)
    except (BinlakeError, SparkNeeded, *OF_CODE):  # those of code concern this table alone
        raise
    except Exception as error:
        doing = f"writing the snapshot of {table.name} to {step.log.path} failed"
        raise storage_errors.failed(doing, error) from error
    fault("rows committed")
    _prove_rows(step.log, table, begun.retained)
    records.save(table, committed=True)
    if not known_to_delta:
        attempts.remove_data(except_of=begun.attempts)
    attempts.forget()
    return result_of(config, table)


def _begin(spark: SparkSessions, step: _Commit, copied: Sequence[Copied], *, in_process: bool) -> _Begun:
    def by_spark(why: str) -> _Begun:
        with spark.for_commits(why).lend() as session:
            return step.by_spark(session)

    def left_to_spark(reason: str) -> _Begun:
        return by_spark(f"the snapshot of {step.table.name} is committed by Spark: {reason}")

    if not in_process:
        return by_spark("a snapshot is committed by Spark")
    return here_or_by_spark(lambda: step.in_process(copied), left_to_spark)


def _refuse_lost(table: TableSnapshot, records: Records) -> None:
    """Mark chunks whose files are lost for another copy, and raise StagingError."""
    if lost := records.lost(table):
        attempts = records.attempts(table)
        records.copy_again(table, lost)
        raise StagingError(
            f"{table.name}: files of copied chunks are missing or damaged: "
            + ", ".join(attempts.data_folder(chunk.attempt) for chunk in lost),
            remedy="run again: they are copied again",
        )


def _refuse_dates(table: TableSnapshot, records: Records, copied: Sequence[Copied]) -> None:
    """Raise InvalidDate if refused dates were counted; their chunks are copied again, as the rows may be corrected."""
    counts: Counter[str] = Counter()
    for chunk in copied:
        counts.update(chunk.invalid_dates)
    try:
        restore.refuse_dates(table.name, table.schema, counts)
    except InvalidDate:
        refused = [chunk for chunk, copy in zip(table.chunks, copied, strict=True) if any(copy.invalid_dates.values())]
        records.copy_again(table, refused)
        raise


def _refuse_same_keys(config: PipelineConfig, table: TableSnapshot, records: Records, copied: Sequence[Copied]) -> None:
    """Raise TableError if a partitioned table has a key twice; its chunks are copied again."""
    if not table.partitions or not table.schema.key:
        return
    data = [file for chunk in copied for file in chunk.files]
    try:
        columns = [column.name for column in records.columns(table)]
        _refuse_keys_of_several(table.name, table.schema, columns, config.table_path(table.name), data)
    except TableError:
        records.copy_again(table, [*table.chunks])
        raise


def committed_result(config: PipelineConfig, table: TableSnapshot) -> SnapshotResult | None:
    """Return the result of a committed snapshot if its commit is still the table's last change, else None."""
    log = _log(config, table)
    if log.recorded() < 0:
        return None
    last = log.last_change()
    note = json.loads(last.get("userMetadata") or "{}")
    return result_of(config, table) if note.get("binlake", {}).get("snapshot") == table.id else None


def result_of(config: PipelineConfig, table: TableSnapshot) -> SnapshotResult:
    """Return the result of a snapshot that is in the lake under the table's id."""
    return SnapshotResult(
        name=table.name,
        table_id=table.table_id or "",
        schema=table.schema,
        low=table.low,
        high=table.high,
        rows=table.rows,
        bytes=table.bytes,
        seconds=table.seconds,
        lock_ms=max(chunk.lock_ms for chunk in table.chunks),
        delta_version=_log(config, table).version(),
    )


def _log(config: PipelineConfig, table: TableSnapshot) -> LakeLog:
    return LakeLog.of(config, table.name, table.table_id or "")


def _note(config: PipelineConfig, table: TableSnapshot) -> dict[str, Any]:
    return {
        "binlake": {
            "source": config.source.name,
            "snapshot": table.id,
            "life": table.table_id,
            "position": str(table.low),
            "gtid_set": table.low.gtid_set,
            "chunks": [chunk.low.short for chunk in table.chunks if chunk.low],
        }
    }


def _prove_rows(log: LakeLog, table: TableSnapshot, retained: int) -> None:
    """Raise LakeError unless the table holds exactly as many rows as were copied and retained."""
    added = Table.from_arrow(log.opened().get_add_actions())
    written = sum(number or 0 for number in added.column("num_records").to_pylist())
    if written != table.rows + retained:
        stayed = f" and {retained:,} deleted ones stay" if retained else ""
        raise LakeError(
            f"{table.name}: {table.rows:,} rows were copied{stayed}, {written:,} were committed",
            remedy="run the snapshot again",
        )


def _refuse_keys_of_several(
    name: TableName, schema: TableSchema, columns: Sequence[str], table_path: str, data: Sequence[DataFile]
) -> None:
    """Raise TableError if rows of a partitioned table's new data files have the same key.

    No partition knows the keys of another: EXCHANGE PARTITION … WITHOUT VALIDATION may bring a row in whose key the
    table has already. The log identifies rows by their keys, so that a DELETE of one would take both from the lake.

    columns: names of the lake's, in the files' order; their names in the files may be others. Raises LakeError.
    """
    if not data:
        return
    places = [columns.index(column) for column in schema.key]
    passes = 1
    while sum(file.rows for file in data) > passes * _ROWS_AT_ONCE:
        passes *= 2
    twice = sum(_twice(pa.concat_tables(_keys(places, table_path, data, passes, number))) for number in range(passes))
    if twice:
        raise TableError(
            f"{name}: {counted(twice, 'key')} of several rows, which are in different partitions",
            remedy=check_partitions(name),
        )


def _twice(keys: pa.Table) -> int:
    """Return how many keys are those of several rows."""
    counts = keys.group_by(keys.column_names).aggregate([([], "count_all")]).column("count_all")
    return pc.sum(pc.greater(counts, 1)).as_py() or 0


def _keys(
    places: Sequence[int], table_path: str, data: Iterable[DataFile], passes: int, number: int
) -> Iterator[pa.Table]:
    """Yield the keys of each file that a pass looks at: a share of them, chosen by the first column where it is an
    integer; else the first pass has all. places: of the key's columns in the file."""
    for file in data:
        with files.opened(f"{table_path}/{file.path}") as source:
            parquet = pq.ParquetFile(source)
            names = parquet.schema_arrow.names
            keys = parquet.read([names[place] for place in places])
        keys = keys.select([names[place] for place in places]).rename_columns([f"k{place}" for place in places])
        first = keys.column(0)
        if pa.types.is_integer(first.type):
            yield keys.filter(pc.equal(pc.bit_wise_and(first, pa.scalar(passes - 1, first.type)), number))
        else:
            yield keys if number == 0 else keys.slice(0, 0)
