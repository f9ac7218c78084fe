"""The last step of a snapshot: a table's staged chunks become its Delta table, in one commit."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, InvalidDate, InvalidText, LakeError, StagingError, UnsupportedColumn
from binlake.lake.table import LakeTable
from binlake.names import spark_quote
from binlake.position import Position
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_DATES
from binlake.schema.lake_columns import lake_columns, side_columns
from binlake.schema.table import Column, TableName, TableSchema, table_id
from binlake.serialization import dump
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.state import files, storage_errors

_NOT_TEXT = "binlake: no text in column"
_MEND_TEXT = (
    "mend the value on the server, leave the column out (tables.exclude_columns in the YAML) or, if it isn't of the "
    "key, set invalid_text: keep_bytes, then run the snapshot again"
)


@dataclass(frozen=True)
class SnapshotResult:
    """A table's snapshot.

    low, high: where its life begins in the log, and from where on it shows one moment; the same with a lock.
    rows, bytes: of the staged Parquet. lock_ms: the longest time writes were stopped for one of its chunks.
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

    def to_json(self) -> dict[str, Any]:
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
        }


def commit(
    session: SparkSession, config: PipelineConfig, table: TableSnapshot, records: Records, *, batch: int
) -> SnapshotResult:
    """Replace the Delta table by the staged chunks; repeating it after a kill gives the same table.

    session: used by no other table meanwhile, knowing binlake.lake.functions. batch: the newest number given out;
    commits of other lives in batches up to that one come to nothing here. Raises InvalidDate, InvalidText,
    UnsupportedColumn, LakeError; StagingError for damaged chunks, which are copied anew by the next run.
    """
    if lost := records.lost(table):
        raise _damaged(table, records, lost)
    try:
        return _commit(session, config, table, records, batch)
    except BinlakeError:
        raise
    except Exception as error:
        told = storage_errors.messages(error)
        if found := re.search(rf"{_NOT_TEXT} (\d+)\b", told):
            column = table.schema.mirrored[int(found[1])]
            raise InvalidText(
                f"{table.name}: a value of column {column.name!r} isn't valid in its character set", remedy=_MEND_TEXT
            ) from None
        if lost := [chunk for chunk in table.chunks if f"/{table.id}/{chunk.number}/part-" in told]:
            raise _damaged(table, records, lost) from error
        path = config.table_path(table.name)
        raise storage_errors.failed(f"writing the snapshot of {table.name} to {path} failed", error) from error


def _damaged(table: TableSnapshot, records: Records, lost: Sequence[Chunk]) -> StagingError:
    records.copy_again(table, lost)
    return StagingError(
        f"{table.name}: staged chunks are missing or damaged: "
        + ", ".join(records.folder(table.id, chunk.number) for chunk in lost),
        remedy="run again: they are copied anew",
    )


def _commit(
    session: SparkSession, config: PipelineConfig, table: TableSnapshot, records: Records, batch: int
) -> SnapshotResult:
    staged = _staged(session, table, records)
    _refuse_twice(table.name, config, table.schema)
    _refuse_invalid_dates(staged, config, table)
    table.table_id = table_id(config.source.name, table.name, table.low)
    target = _target(config, table)
    target.begin(session, staged.selectExpr(*_restored(config, table.schema)), batch, _note(config, table))
    _prove_rows(target, table)
    records.save(table, committed=True)
    files.remove_folder(records.folder(table.id))
    return _result(config, table)


def committed_result(config: PipelineConfig, table: TableSnapshot) -> SnapshotResult | None:
    """The result of a snapshot that is committed, when its commit is still the table's last one."""
    target = _target(config, table)
    if target.recorded() < 0:
        return None
    last = target.last_change()
    note = json.loads(last.get("userMetadata") or "{}")
    return _result(config, table) if note.get("binlake", {}).get("snapshot") == table.id else None


def _result(config: PipelineConfig, table: TableSnapshot) -> SnapshotResult:
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
        delta_version=_target(config, table).version(),
    )


def _target(config: PipelineConfig, table: TableSnapshot) -> LakeTable:
    return LakeTable.of(config, table.name, table.table_id or "")


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


def _staged(session: SparkSession, table: TableSnapshot, records: Records) -> DataFrame:
    """The chunks as they were selected, under the columns' own names."""
    folders = [records.folder(table.id, chunk.number) for chunk in table.chunks]
    # Page checksums are written by default, but not looked at.
    reader = session.read.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(*folders).toDF(*[column.name for column in table.schema.mirrored])


def _restored(config: PipelineConfig, schema: TableSchema) -> list[str]:
    """Spark SQL of the Delta table's columns over the staged ones."""
    selected: list[str] = []
    columns = lake_columns(schema, config.invalid)
    kept = {one.source.name for one in columns if one.holds == "bytes" and one.source.name not in schema.key}
    for one in columns:
        column = one.source
        value = datatypes.entry(column).restore(column)
        invalid = f"{value} IS NOT NULL AND NOT is_valid_utf8({value})"
        refused = f"raise_error('{_NOT_TEXT} {schema.mirrored.index(column)}')"
        if one.holds == "text":
            value = f"IF({_invalid(column)}, {spark_quote(column.name)}, NULL)"
        elif one.holds == "bytes":
            value = f"IF({invalid}, COALESCE({datatypes.stored_bytes(column)}, {refused}), NULL)"
        elif datatypes.is_text(column):
            value = f"IF({invalid}, {'NULL' if column.name in kept else refused}, {value})"
        selected.append(f"{value} AS {spark_quote(one.name)}")
    return selected


def _invalid(column: Column) -> str:
    """Whether the server's text is there and isn't a date."""
    return f"{spark_quote(column.name)} IS NOT NULL AND ({datatypes.entry(column).restore(column)}) IS NULL"


def _refuse_twice(name: TableName, config: PipelineConfig, schema: TableSchema) -> None:
    counted = Counter(column.name.lower() for column in lake_columns(schema, config.invalid))
    twice = [column for column, count in counted.items() if count > 1]
    if twice:
        raise UnsupportedColumn(
            f"{name}: the column {twice[0]!r} has the name of the side column that keeps another's invalid values",
            remedy="rename the column, or exclude the table in the YAML",
        )


def _refuse_invalid_dates(staged: DataFrame, config: PipelineConfig, table: TableSnapshot) -> None:
    """Under ``fail`` none may be there; a key may never hold one, for MERGE finds no NULL."""
    checked = [
        side.source
        for side in side_columns(table.schema.mirrored, KEEP_DATES)
        if config.invalid_dates == "fail" or side.source.name in table.schema.key
    ]
    if not checked:
        return
    counts = staged.selectExpr(*[f"COUNT_IF({_invalid(column)}) AS n{n}" for n, column in enumerate(checked)]).head()
    assert counts is not None  # an aggregate without groups has one row
    for column, count in zip(checked, counts, strict=True):
        if count:
            key = column.name in table.schema.key
            mend = "set invalid_dates: keep_text in the YAML, or mend the rows"
            raise InvalidDate(
                f"{table.name}: {count:,} rows hold an invalid date in column {column.name!r}",
                remedy="mend the rows: a key column can't hold invalid dates" if key else mend,
            )


def _prove_rows(target: LakeTable, table: TableSnapshot) -> None:
    """The commit holds exactly the rows that were staged."""
    metrics = target.last_change().get("operationMetrics", {})
    written = int(metrics.get("numOutputRows", 0))
    if written != table.rows:
        raise LakeError(
            f"{table.name}: {table.rows:,} rows were staged, {written:,} were committed",
            remedy="run the snapshot again",
        )
