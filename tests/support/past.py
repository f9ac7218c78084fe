"""Metadata of a source with a past: rows as the engine writes them, without a server or Spark."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from binlake.binlog.border import INSERT, UPDATE
from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.planner.answers import HeldChange
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.steps import Life
from binlake.position import Position, Range, Slice
from binlake.records import watermarks
from binlake.report import rows_of_tables
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps
from binlake.staging.staged_files import write_manifest
from binlake.store.metadata import Metadata
from binlake.store.rows import StatementRow
from binlake.store.run_rows import TableRun

HOUR = 3_600_000_000
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
COLUMNS = (
    Column("id", "int", nullable=False),
    Column("note", "varchar", length=40, comment="what <b>they</b> wrote"),
)
SCHEMA = TableSchema(COLUMNS, ("id",), "primary", comment="Notes of customers")


@dataclass(frozen=True)
class Past:
    """Batches 1 to ``batches``, one an hour, the last of which ended at ``now_us``; each changed ``changed`` tables."""

    config: PipelineConfig
    now_us: int
    tables: int = 3
    batches: int = 3
    changed: int = 2

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.config.metadata_path("").rstrip("/"))

    @property
    def names(self) -> list[TableName]:
        return [self.name(number) for number in range(self.tables)]

    def name(self, number: int) -> TableName:
        return TableName("shop", f"table_{number:04}")

    def position(self, batch: int) -> Position:
        return Position(SERVER, f"binlog.{batch // 1000 + 1:06}", 4 + batch % 1000 * 1000, 1700000000)

    def write(self, commits: int = 1) -> Past:
        """commits: of the tables that grow with the batches, besides one for each batch of the last day."""
        with lease.held(self.metadata) as held:
            held.update(batch=self.batches)
            held.stand(RecordedState(self.batches, self.position(self.batches)))
            lives = [Life(f"life-{name}", name, SCHEMA, self.position(0), self.position(0)) for name in self.names]
            watermarks.started(held.metadata, lives, batch=0, versions={})
        rows = [watermarks.watermark_row(life, batch=0, position=life.low, delta_version=7) for life in lives]
        watermarks.write(self.metadata, [replace(row, updated_us=self.now_us) for row in rows])
        for name, make in (("runs", self.run), ("batches", self.batch)):
            for batches in self._commits(commits):
                self.metadata.append(name, [make(batch) for batch in batches])
        return self

    def let_wait(self, number: int) -> tuple[str, int]:
        """Let a table wait for an answer to an ALTER TABLE, and give the statement's file and offset."""
        row = next(row for row in watermarks.read(self.metadata) if row.name == self.name(number))
        at, before = self.position(self.batches), TableSchema((Column("id", "int"),))
        after = before.with_columns((*before.columns, Column("n", "int")))
        held = HeldChange(("adds 'n' int",), ("add: ask",), ("n",), "the lake goes without 'n'")
        statement = StatementRow(
            batch=self.batches, file=at.file, offset=at.offset, position=str(at), committed_us=self.now_us,
            **vars(row.name), statement="ALTER TABLE t ADD n INT", kind="ALTER TABLE", table_id=row.table_id,
            action="waits", before=dumps(before), after=dumps(after), held=dumps(held),
        )  # fmt: skip
        StatementRow.append(self.metadata, [statement])
        stopped = replace(row, status="stopped", batch=self.batches, reason=f"{at.file}:{at.offset}: it adds 'n'")
        watermarks.write(self.metadata, [stopped])
        return at.file, at.offset

    def _commits(self, commits: int) -> list[range]:
        of_their_own = min(24, self.batches)
        rest = self.batches - of_their_own
        size = max(1, -(-rest // commits))
        together = [range(first, min(first + size, rest + 1)) for first in range(1, rest + 1, size)]
        return [*together, *(range(batch, batch + 1) for batch in range(rest + 1, self.batches + 1))]

    def ended_us(self, batch: int) -> int:
        return self.now_us - (self.batches - batch) * HOUR

    def did(self, batch: int) -> list[TableRun]:
        """What the batch did: as many inserts as its number, an update, no delete."""
        chosen = [self.name((batch + step) % self.tables) for step in range(self.changed)]
        return [TableRun(str(name), "following", batch, 1, 0, 7, self.position(batch).short, 0.5) for name in chosen]

    def run(self, batch: int) -> dict[str, Any]:
        did, stop = self.did(batch), self.position(batch)
        rows = [table.inserted + table.updated + table.deleted for table in did]
        return {
            "run": f"binlake_shop_sync/{batch}", "kind": "sync", "batch": batch,
            "started_us": self.ended_us(batch) - 20_000_000, "ended_us": self.ended_us(batch), "outcome": "recorded",
            "position": str(stop), "tables": json.dumps([asdict(table) for table in did]),
            "phases": json.dumps({"plan": 0.1, "stage": 1.5, "merge": 3.25}), "bytes": 1000,
            "mutations": sum(rows),
            "message": f"batch {batch}: {rows_of_tables(rows)}, up to {stop.short}",
        }  # fmt: skip

    def batch(self, batch: int) -> dict[str, Any]:
        start, stop = self.position(batch - 1), self.position(batch)
        part = Slice(stop.file, stop.offset - 1000, stop.offset, stop.created, False)
        return {
            "batch": batch, "state": "recorded", "start": str(start), "stop": str(stop), "gtid_set": "",
            "range": dumps(Range(start, stop, (part,))), "attempt": "a",
            "planned_us": self.ended_us(batch) - 20_000_000, "updated_us": self.ended_us(batch), "bytes": 1000,
        }  # fmt: skip

    def stage(self, batch: int, name: TableName) -> None:
        """An insert, and an update of the same row, as the batch's staging of one table."""
        path = self.config.staging_path(str(batch), "a")
        Path(path, "0").mkdir(parents=True)
        first, second = {"id": 4711, "note": "topsecret"}, {"id": 4711, "note": None}
        image = pa.struct([("id", pa.int32()), ("note", pa.string())])
        offset = self.position(batch).offset - 500
        rows = pa.table({
            "op": pa.array([INSERT, UPDATE], pa.int8()), "offset": [offset, offset + 1], "row": [0, 0],
            "committed_us": [8, 9], "gtid": ["u:1", "u:2"], "xid": pa.array([None, None], pa.string()),
            "before": pa.array([None, first], image), "after": pa.array([first, second], image),
        })  # fmt: skip
        pq.write_table(rows, f"{path}/0/0.parquet")
        file = StagedFile(
            f"{path}/0/0.parquet", name, SCHEMA.columns, SCHEMA.key, 0, 0, 2, 0, 0, (1, offset, 0),
            (1, offset + 1, 0), 1, "", {},
        )  # fmt: skip
        write_manifest(path, Manifest(batch, "a", (StagedSlice(0, (file,), (), ()),)))
