"""A small lake, written without a server: tables and the batches that changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from binlake.lake.table_at import TableAt
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.planner.steps import Life
from binlake.position import Position, Range
from binlake.records import record, watermarks
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata

HOUR_US = 3_600_000_000
_SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")


def record_lake(
    root: Path,
    first: Mapping[str, pa.Table],
    *batches: Mapping[str, pa.Table],
    mode: Literal["append", "overwrite"] = "append",
) -> None:
    """Write tables, by ``database.table``, and append rows to them, batch by batch; the source's folder is ``root``.
    With the other mode the rows take the place of those that are there.

    The transactions of batch N committed by N o'clock on 1970-01-01, and its stop is binlog.000001:N000.
    """
    recorded = RecordedLake(root)
    _write(root, first, "append")
    recorded.begin(dict.fromkeys(first, 0))
    for changed in batches:
        recorded.record(_write(root, changed, mode))


class RecordedLake:
    """The metadata of a lake whose tables others write. root: the source's folder. batch: the newest."""

    def __init__(self, root: Path) -> None:
        self.root, self.batch = root, 0
        self._metadata = Metadata(f"{root}/_binlake")

    def begin(self, versions: Mapping[str, int]) -> None:
        """Record the snapshots of tables. versions: their Delta versions, by ``database.table``."""
        lives = [_life(name) for name in versions]
        with lease.held(self._metadata) as held:
            at = {life.id: version for life, version in zip(lives, versions.values(), strict=True)}
            watermarks.started(held.metadata, lives, batch=0, versions=at, began_us=0)
            held.stand(RecordedState(0, _at(100)))

    def record(self, versions: Mapping[str, int]) -> None:
        """Record the next batch, which changed these tables. versions: as of ``begin``, after it."""
        self.batch += 1
        number = self.batch
        outcomes = BatchOutcome(tuple(_outcome(name, version) for name, version in versions.items()))
        stretch = Range(_at(100 if number == 1 else (number - 1) * 1000), _at(number * 1000), ())
        at_us = number * HOUR_US
        plan = replace(OpenBatch(number, stretch, "merged", planned_us=at_us, committed_us=at_us), outcome=outcomes)
        with lease.held(self._metadata) as held:
            held.open(plan)
            record.record_batch(held, held.metadata, plan)


def _write(root: Path, rows: Mapping[str, pa.Table], mode: Literal["append", "overwrite"]) -> dict[str, int]:
    """Write rows; return the tables' new versions."""
    tables = {name: TableAt.of(str(root), TableName.parse(name), 0) for name in rows}
    for name, table in tables.items():
        write_deltalake(table.path, rows[name], mode=mode, schema_mode="overwrite" if mode == "overwrite" else None)
    return {name: int(DeltaTable(table.path).version()) for name, table in tables.items()}


def _at(offset: int) -> Position:
    return Position("server", "binlog.000001", offset, 1)


def _life(name: str) -> Life:
    return Life(f"life of {name}", TableName.parse(name), _SCHEMA, _at(100), _at(100))


def _outcome(name: str, version: int) -> LifeOutcome:
    life = _life(name)
    return LifeOutcome(life.id, life.name, life.low, life.high, "following", None, "", True, delta_version=version)
