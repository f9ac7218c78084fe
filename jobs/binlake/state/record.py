"""Record: what a run did, written where the command line, Airflow and the next run read it."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any

from binlake.batch.manifest import Manifest
from binlake.batch.steps import BatchSteps, Life, Status, TableOutcome
from binlake.config import PipelineConfig
from binlake.errors import BinlogError
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema
from binlake.state import watermarks
from binlake.state.lease import Lease, OpenBatch
from binlake.state.metadata import Metadata, now_us

_FILE_AND_OFFSET = re.compile(r"(?P<file>[^\s:]+\.\d+):(?P<offset>\d+): ")
"""How a reason begins that has a place in the log."""


@dataclass(frozen=True)
class TableRun:
    """What a run did to one table: counts of the log's mutations, and where the table stands now."""

    table: str
    status: str
    inserted: int
    updated: int
    deleted: int
    delta_version: int | None
    position: str
    seconds: float
    reason: str = ""
    remedy: str = ""
    newly_stopped: bool = False


@dataclass(frozen=True)
class RunReport:
    """One run. ``tables`` names those that changed or don't follow; seconds per phase in ``phases``."""

    batch: int | None
    position: str
    message: str
    mutations: int
    bytes: int
    tables: tuple[TableRun, ...]
    phases: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "phases": dict(self.phases)}


def note_batch(metadata: Metadata, plan: OpenBatch, *, state: str | None = None) -> None:
    """The batch's row, for people: the lease's row is what decides."""
    metadata.replace(
        "batches",
        f"batch = {plan.batch}",
        [
            {
                "batch": plan.batch,
                "state": state or plan.state,
                "start": str(plan.range.start),
                "stop": str(plan.range.stop),
                "gtid_set": plan.range.stop.gtid_set,
                "range": json.dumps(plan.range.to_json()),
                "until_us": plan.until_us,
                "attempt": plan.attempt,
                "planned_us": plan.planned_us,
                "updated_us": now_us(),
                "bytes": plan.range.size,
            }
        ],
    )


def note_schemas(metadata: Metadata, plan: OpenBatch, steps: BatchSteps) -> None:
    """DDL history and the shapes that came of it; repeatable."""
    metadata.replace("ddl_history", f"batch = {plan.batch}", list(steps.history))
    seen = [table for table in steps.tables if table.steps or table.life.status != "dropped"]
    changed = [
        watermarks.schema_row(table.life, batch=plan.batch, where=plan.range.stop, why="followed")
        for table in seen
        if table.first_schema.to_json() != table.life.schema.to_json() or table.is_born
    ]
    metadata.replace("schemas", f"batch = {plan.batch} AND why = 'followed'", changed)


def outcome_rows(steps: BatchSteps, outcomes: list[TableOutcome], manifest: Manifest) -> tuple[dict[str, Any], ...]:
    """Per life what record will write; JSON, because it waits in the open batch."""
    raw = {(one.name, one.file, one.offset): one.raw for part in manifest.slices for one in part.stopped}
    by_life = {outcome.life.id: outcome for outcome in outcomes}
    rows: list[dict[str, Any]] = []
    for table in steps.tables:
        outcome = by_life.get(table.life.id)
        life = outcome.life if outcome else table.life
        rows.append(
            {
                "id": life.id,
                "database": life.name.database,
                "table": life.name.table,
                "low": life.low.to_json(),
                "high": life.high.to_json(),
                "schema": life.schema.to_json(),
                "status": life.status,
                "reason": life.reason,
                "remedy": life.remedy,
                "inserted": outcome.inserted if outcome else 0,
                "updated": outcome.updated if outcome else 0,
                "deleted": outcome.deleted if outcome else 0,
                "delta_version": outcome.delta_version if outcome else None,
                "seconds": outcome.seconds if outcome else 0.0,
                "changed": outcome is not None,
                "raw": raw.get((life.name, *_place(life.reason)), ""),
            }
        )
    rows += [_lifeless(name, "dropped", "") for name in steps.gone]
    rows += [_lifeless(name, "missing", watermarks.NEVER) for name in steps.missing]
    rows += [_lifeless(name, "resnapshot", why) for name, why in steps.asked]
    return tuple(rows)


def _place(reason: str) -> tuple[str, int]:
    """(file, offset) with which a reason begins; an empty name without one."""
    where = _FILE_AND_OFFSET.match(reason)
    return (where["file"], int(where["offset"])) if where else ("", 0)


def _lifeless(name: TableName, status: Status, reason: str) -> dict[str, Any]:
    """An included table that has no life here yet, or a name that none has any more."""
    return {"lifeless": True, "database": name.database, "table": name.table, "status": status, "reason": reason}


def _life(row: dict[str, Any]) -> Life:
    return Life(
        row["id"],
        TableName(row["database"], row["table"]),
        TableSchema.from_json(row["schema"]),
        Position.from_json(row["low"]),
        Position.from_json(row["high"]),
        row["status"],
        row["reason"],
        row["remedy"],
    )


def record_batch(held: Lease, metadata: Metadata, plan: OpenBatch) -> RunReport:
    """Watermarks, run and position of a merged batch; the lease's row last, so that a kill repeats all of it."""
    stop = plan.range.stop
    before = {row["table_id"]: row for row in metadata.read("watermarks")}
    living = _still_living(plan, before)
    ended = {row["id"] for row in plan.outcome if row not in living and not row.get("lifeless")}
    before = {key: row for key, row in before.items() if key not in ended}
    plan = replace(plan, outcome=living)
    _advance_watermarks(metadata, plan, before)
    report = RunReport(
        plan.batch,
        str(stop),
        f"batch {plan.batch} recorded: every table that isn't stopped stands at {stop.short}",
        sum(row["inserted"] + row["updated"] + row["deleted"] for row in plan.outcome if not row.get("lifeless")),
        plan.range.size,
        _tables(plan, before),
        plan.phases,
    )
    watermarks.write_prepared(metadata, plan.prepared)
    if plan.charsets is not None:
        watermarks.write_charsets(metadata, dict(plan.charsets))
    metadata.replace("quarantine", f"batch = {plan.batch} AND table IS NOT NULL", _quarantine_rows(plan, before))
    metadata.replace("runs", f"batch = {plan.batch} AND kind = 'sync'", [_run_row(report, plan)])
    note_batch(metadata, plan, state="recorded")
    held.close(stop)
    return report


def _still_living(plan: OpenBatch, before: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """What the merge did to tables that weren't snapshotted anew since: a snapshot ends the lives of its name."""
    merged = {row["id"] for row in plan.outcome if not row.get("lifeless")}
    begun = {(row["database"], row["table"]) for key, row in before.items() if row["low"] and key not in merged}
    return tuple(row for row in plan.outcome if (row["database"], row["table"]) not in begun)


def _advance_watermarks(metadata: Metadata, plan: OpenBatch, before: dict[str, dict[str, Any]]) -> None:
    """Following tables reach the batch's stop; a table that is ahead of it, or stopped, keeps its own position.

    Of lives that never came to the lake, and of those whose place another took, no row is left.
    """
    stop = plan.range.stop
    rows: dict[str, dict[str, Any]] = {}
    for outcome in plan.outcome:
        if outcome.get("lifeless"):
            name = TableName(outcome["database"], outcome["table"])
            if outcome["status"] == "dropped":
                before = {key: row for key, row in before.items() if key != watermarks.lifeless_id(name)}
                continue
            row = watermarks.lifeless_row(name, outcome["status"], outcome["reason"], batch=plan.batch, position=stop)
            rows[row["table_id"]] = row
            continue
        life = _life(outcome)
        old = before.get(life.id)
        if old is None and life.status == "dropped" and not outcome["changed"]:
            continue
        if old and not outcome["changed"] and life.status == old["status"] != "following":
            named = {"database": life.name.database, "table": life.name.table}  # it may have been renamed meanwhile
            rows[life.id] = {**old, **named, "reason": life.reason or None, "remedy": life.remedy or None}
            continue
        position = max(stop, life.low)
        if old and life.status == "stopped":
            position = Position.parse(old["position"], old["gtid_set"] or "")
        version = outcome["delta_version"]
        if version is None and old:
            version = old["delta_version"]
        rows[life.id] = watermarks.watermark_row(life, batch=plan.batch, position=position, delta_version=version)
    untouched = [row for key, row in before.items() if key not in rows]
    metadata.replace("watermarks", "true", _not_replaced(untouched + list(rows.values())))


def _not_replaced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without dropped lives whose name is a living one's, or one's that was dropped in a later batch."""
    newest: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.get("low"):  # a life
            name = row["database"], row["table"]
            newest[name] = max(newest.get(name, -1), row["batch"] if row["status"] == "dropped" else math.inf)
    return [
        row
        for row in rows
        if row["status"] != "dropped" or row["batch"] >= newest.get((row["database"], row["table"]), -1)
    ]


def names_dropped(metadata: Metadata, plan: OpenBatch) -> list[TableName]:
    """Names of tables that this batch saw dropped, and that no table has now."""
    before = {row["table_id"]: row for row in metadata.read("watermarks")}
    already = {key for key, row in before.items() if row["status"] == "dropped"}
    rows = [row for row in _still_living(plan, before) if not row.get("lifeless") and row["id"] not in already]
    living = {(row["database"], row["table"]) for row in rows if row["status"] != "dropped"}
    gone = {(row["database"], row["table"]) for row in rows if row["status"] == "dropped"}
    return [TableName(*name) for name in sorted(gone - living)]


def _newly_stopped(row: dict[str, Any], before: dict[str, Any] | None) -> bool:
    return row["status"] == "stopped" and (before is None or before["status"] != "stopped")


def _quarantine_rows(plan: OpenBatch, before: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Tables that this batch stopped, and where in the log."""
    rows: list[dict[str, Any]] = []
    for row in plan.outcome:
        if not row.get("lifeless") and _newly_stopped(row, before.get(row["id"])):
            file, offset = _place(row["reason"])
            rows.append(
                {
                    "batch": plan.batch,
                    "database": row["database"],
                    "table": row["table"],
                    "table_id": row["id"],
                    "file": file or plan.range.stop.file,
                    "offset": offset if file else plan.range.stop.offset,
                    "reason": row["reason"],
                    "remedy": row["remedy"],
                    "raw": base64.b64decode(row["raw"]),
                    "at_us": now_us(),
                }
            )
    return rows


def note_poison(metadata: Metadata, plan: OpenBatch, error: BinlogError) -> None:
    """An event that stops the run, because nobody can tell which tables it concerns."""
    row = {
        "batch": plan.batch,
        "file": error.file,
        "offset": error.offset,
        "reason": error.message,
        "remedy": error.remedy,
        "raw": error.raw,
        "at_us": now_us(),
    }
    metadata.replace("quarantine", f"batch = {plan.batch} AND table IS NULL", [row])


def _tables(plan: OpenBatch, before: dict[str, dict[str, Any]]) -> tuple[TableRun, ...]:
    runs: list[TableRun] = []
    for row in plan.outcome:
        name = TableName(row["database"], row["table"])
        if row.get("lifeless") and row["status"] == "dropped":
            continue
        if row.get("lifeless"):
            remedy = watermarks.remedy_of(name, row["status"])
            runs.append(TableRun(str(name), row["status"], 0, 0, 0, None, "", 0.0, row["reason"], remedy))
        elif row["changed"] or row["status"] in ("stopped", "resnapshot"):
            counts = (row["inserted"], row["updated"], row["deleted"])
            position = plan.range.stop.short if row["status"] == "following" else ""
            runs.append(
                TableRun(
                    str(name), row["status"], *counts, row["delta_version"], position, row["seconds"],
                    row["reason"], row["remedy"], _newly_stopped(row, before.get(row["id"])),
                )
            )  # fmt: skip
    return tuple(runs)


def _run_row(report: RunReport, plan: OpenBatch) -> dict[str, Any]:
    return {
        "run": uuid.uuid4().hex,
        "kind": "sync",
        "batch": plan.batch,
        "started_us": plan.planned_us,
        "ended_us": now_us(),
        "outcome": "recorded",
        "position": report.position,
        "tables": json.dumps([asdict(table) for table in report.tables], ensure_ascii=False),
        "phases": json.dumps(dict(report.phases)),
        "bytes": report.bytes,
        "mutations": report.mutations,
        "message": report.message,
    }


def nothing_new(batch: int | None, position: str, message: str) -> RunReport:
    """The report of a run that found nothing and proved it."""
    return RunReport(batch, position, message, 0, 0, (), ())


def last_run(config: PipelineConfig, position: Position | None, batch: int) -> RunReport:
    """What was proved last, for a record that finds no open batch."""
    where = position.short if position else "nowhere"
    message = f"nothing to record: batch {batch} of {config.source.name} is recorded, up to {where}"
    return nothing_new(batch, str(position or ""), message)
