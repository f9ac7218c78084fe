"""Record what a run did, where the command line, Airflow and the next run read it."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.batch.outcome import BatchOutcome, LifeOutcome
from binlake.batch.steps import BatchSteps, Life
from binlake.config import PipelineConfig
from binlake.errors import BinlogError, LakeError
from binlake.metadata import table_versions, watermarks
from binlake.metadata.lease import Control, Lease, OpenBatch
from binlake.metadata.metadata import Metadata, Newest, literal, now_us
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dump, dumps

if TYPE_CHECKING:
    from binlake.source.ahead import LogSeen


LOG_NOTED_EACH_US = 5 * 60 * 1_000_000
"""Microseconds of which the newest look at the server's log is kept."""
_MISSING_BATCHES = ("stopped", "excluded")
"""Statuses of lives that keep their position, and the number of the first batch that they miss."""


@dataclass(frozen=True)
class TableRun:
    """What a run did to one table: counts of the log's mutations, and the table's position now.

    why_spark: why Spark did some of it; empty where it wasn't needed.
    """

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
    why_spark: str = ""


@dataclass(frozen=True)
class RunReport:
    """One run. ``tables`` has those that changed or don't follow; ``phases`` has seconds per phase.

    earlier: the runs of unfinished batches that were recorded first. why_spark: why phases started Spark, as
    ``PHASE: REASON``; empty where none did. Each table has its own reasons.
    """

    batch: int | None
    position: str
    message: str
    mutations: int
    bytes: int
    tables: tuple[TableRun, ...]
    phases: tuple[tuple[str, float], ...]
    earlier: tuple[RunReport, ...] = ()
    why_spark: str = ""

    def preceded_by(self, tables: tuple[TableRun, ...]) -> RunReport:
        """Return the report with what became of tables before the batch was planned, unless the batch says more of
        them."""
        newly = {table.table for table in tables if table.newly_stopped}
        here = [replace(table, newly_stopped=table.newly_stopped or table.table in newly) for table in self.tables]
        names = {table.table for table in here}
        return replace(self, tables=(*(table for table in tables if table.table not in names), *here))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "phases": dict(self.phases), "earlier": [run.to_json() for run in self.earlier]}


def note_open(held: Lease, plan: OpenBatch) -> None:
    """Write how far an open batch has come, for people to read: the lease's row decides. One of seconds gets its row
    when it is recorded."""
    if not held.by_turns:
        note_batch(held.metadata, plan)


def note_batch(metadata: Metadata, plan: OpenBatch, *, state: str | None = None) -> None:
    """Write a batch's row, for people to read."""
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
                "range": dumps(plan.range),
                "until_us": plan.until_us,
                "attempt": plan.attempt,
                "planned_us": plan.planned_us,
                "updated_us": now_us(),
                "bytes": plan.range.size,
            }
        ],
    )


def note_log(metadata: Metadata, seen: LogSeen, batch: int) -> None:
    """Write what the server said of its log, for readers of metadata; of each five minutes the newest stays.

    batch: the newest that is planned. Nothing depends on it, so failures are ignored.
    """
    since = seen.at_us - seen.at_us % LOG_NOTED_EACH_US
    with suppress(LakeError):
        metadata.replace("source_log", f"at_us >= {since}", [{**asdict(seen), "batch": batch}])


def log_noted(metadata: Metadata) -> dict[str, Any] | None:
    """Return what the server said of its log when it was looked at last; None before that."""
    return next(iter(metadata.read("source_log", newest=Newest("at_us", 1))), None)


def note_schemas(metadata: Metadata, plan: OpenBatch, steps: BatchSteps) -> None:
    """Write a batch's DDL history and the shapes that followed from it. It can be repeated."""
    metadata.replace("ddl_history", f"batch = {plan.batch}", list(steps.history))
    seen = [table for table in steps.tables if table.steps or table.life.status != "dropped"]
    changed = [
        watermarks.schema_row(table.life, batch=plan.batch, where=plan.range.stop, why="followed")
        for table in seen
        if table.is_born or _differ(table.first_schema, table.life.schema)
    ]
    metadata.replace("schemas", f"batch = {plan.batch} AND why = 'followed'", changed)


def _differ(before: TableSchema, after: TableSchema) -> bool:
    """Tell whether shapes differ in anything that is stored; shapes with other indexes or kept columns compare as
    equal."""
    return before is not after and dump(before) != dump(after)


def record_batch(
    held: Lease,
    metadata: Metadata,
    plan: OpenBatch,
    run: str | None = None,
    listed: Callable[[TableName], bool] = lambda name: True,
) -> RunReport:
    """Write watermarks, versions and run of a merged batch, and the lease's row last: it decides, so that after a kill
    all is repeated.

    run: what the caller calls the run, to find it again. listed: tells whether a table belongs to the lake's versions.
    """
    stop = plan.range.stop
    before = {row["table_id"]: row for row in watermarks.read(metadata)}
    living = _still_living(plan, before)
    ended = {life.id for life in plan.outcome.lives} - {life.id for life in living.lives}
    before = {key: row for key, row in before.items() if key not in ended}
    plan = replace(plan, outcome=living)
    after = _write_watermarks(metadata, plan, before)
    table_versions.note_batch(metadata, plan, after, listed)
    report = RunReport(
        plan.batch,
        str(stop),
        f"batch {plan.batch} recorded: every table that isn't stopped stands at {stop.short}",
        sum(life.mutations for life in living.lives),
        plan.range.size,
        _tables(plan, before),
        plan.phases,
        why_spark="; ".join(f"{phase}: {why}" for phase, why in plan.why_spark),
    )
    metadata.replace("quarantine", f"batch = {plan.batch} AND table IS NOT NULL", _quarantine_rows(plan, before))
    metadata.replace("runs", f"batch = {plan.batch} AND kind = 'sync'", [_run_row(report, plan, run)])
    note_batch(metadata, plan, state="recorded")
    recorded_state = held.control().recorded_state
    assert recorded_state is not None  # who planned the batch followed the log from there
    held.stand(recorded_state.after(plan))
    return report


def _still_living(plan: OpenBatch, before: Mapping[str, dict[str, Any]]) -> BatchOutcome:
    """Return the outcome without tables that were snapshotted again since: a snapshot ends the lives of its name.

    A life that begins while a batch is open has the batch's number, and isn't among those that the batch changed.
    """
    outcome = plan.outcome
    changed = {life.id for life in outcome.lives}
    current = (row for key, row in before.items() if row["low"] and key not in changed)
    begun = {_name(row) for row in current if row["batch"] == plan.batch}
    return replace(
        outcome,
        lives=tuple(life for life in outcome.lives if life.name not in begun),
        lifeless=tuple(table for table in outcome.lifeless if table.name not in begun),
    )


def _name(row: dict[str, Any]) -> TableName:
    return TableName(row["database"], row["table"])


def _write_watermarks(
    metadata: Metadata, plan: OpenBatch, before: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Write the watermarks of lives that the batch changed, and return those of all lives after it, by life.

    Those that follow reach its stop; one that is ahead of it, or stopped, keeps its own position. All others that
    follow reach the stop by the lease's row. No row is left of lives that never came to the lake, or whose place
    another took.
    """
    stop = plan.range.stop
    gone = {watermarks.unsnapshotted_id(table.name) for table in plan.outcome.lifeless if table.status == "dropped"}
    rows = {
        watermarks.unsnapshotted_id(table.name): watermarks.unsnapshotted_row(
            table.name, table.status, table.reason, batch=plan.batch, position=stop
        )
        for table in plan.outcome.lifeless
        if table.status != "dropped"
    }
    for life in plan.outcome.lives:
        row = _watermark(life, before.get(life.id), plan)
        if row is not None:
            rows[life.id] = row
    gone |= _replaced([row for key, row in {**before, **rows}.items() if key not in gone])
    watermarks.write(metadata, [row for key, row in rows.items() if key not in gone], gone & before.keys())
    return {key: row for key, row in {**before, **rows}.items() if key not in gone}


def _watermark(life: LifeOutcome, old: dict[str, Any] | None, plan: OpenBatch) -> dict[str, Any] | None:
    """Return a life's row after the batch; None for one that never came to the lake."""
    if old is None and life.status == "dropped" and not life.changed:
        return None
    if old and not life.changed and life.status == old["status"] != "following":
        named = {"database": life.name.database, "table": life.name.table}  # it may have been renamed meanwhile
        return {**old, **named, "reason": life.reason or None, "remedy": life.remedy or None}
    position, batch = max(plan.range.stop, life.low), plan.batch
    if old and life.status in _MISSING_BATCHES:
        position = Position.parse(old["position"], old["gtid_set"] or "")
        batch = old["batch"] if old["status"] in _MISSING_BATCHES else batch
    version = old["delta_version"] if life.delta_version is None and old else life.delta_version
    return watermarks.watermark_row(life, batch=batch, position=position, delta_version=version)


def _replaced(rows: list[dict[str, Any]]) -> set[str]:
    """Return the ids of dropped lives whose name is a living life's, or one's that was dropped in a later batch."""
    newest: dict[TableName, float] = {}
    for row in rows:
        if row.get("low"):  # a life
            number = row["batch"] if row["status"] == "dropped" else math.inf
            newest[_name(row)] = max(newest.get(_name(row), -1), number)
    return {row["table_id"] for row in rows if row["status"] == "dropped" and row["batch"] < newest.get(_name(row), -1)}


def names_dropped(metadata: Metadata, plan: OpenBatch) -> list[TableName]:
    """Return the names of tables that this batch saw dropped, and that no table has now."""
    before = {row["table_id"]: row for row in watermarks.read(metadata)}
    already = {key for key, row in before.items() if row["status"] == "dropped"}
    lives = [life for life in _still_living(plan, before).lives if life.id not in already]
    changed = {life.id for life in plan.outcome.lives}
    rows = (row for key, row in before.items() if row["low"] and key not in changed)
    living = {_name(row) for row in rows if row["status"] != "dropped"}
    living |= {life.name for life in lives if life.status != "dropped"}
    return sorted({life.name for life in lives if life.status == "dropped"} - living)


def changed_by_yaml(life: Life) -> TableRun:
    """Return the report of a life whose status changed with the YAML."""
    newly = life.status == "stopped"
    return TableRun(str(life.name), life.status, 0, 0, 0, None, "", 0.0, life.reason, life.remedy, newly)


def _newly_stopped(life: LifeOutcome, before: dict[str, Any] | None) -> bool:
    return life.status == "stopped" and (before is None or before["status"] != "stopped")


def _quarantine_rows(plan: OpenBatch, before: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of the tables that this batch stopped, with file and offset where the log stopped them."""
    return [
        {
            "batch": plan.batch,
            "database": life.name.database,
            "table": life.name.table,
            "table_id": life.id,
            "file": life.standstill.file,
            "offset": life.standstill.offset,
            "reason": life.standstill.reason,
            "remedy": life.standstill.remedy,
            "raw": life.standstill.raw,
            "at_us": now_us(),
        }
        for life in plan.outcome.lives
        if life.standstill and _newly_stopped(life, before.get(life.id))
    ]


def note_poison(metadata: Metadata, plan: OpenBatch, error: BinlogError) -> None:
    """Write an event that stops the run, as nobody can tell which tables it concerns."""
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
    lives = (
        TableRun(
            str(life.name),
            life.status,
            life.inserted,
            life.updated,
            life.deleted,
            life.delta_version,
            plan.range.stop.short if life.status == "following" else "",
            life.seconds,
            life.reason,
            life.remedy,
            _newly_stopped(life, before.get(life.id)),
            life.why_spark,
        )
        for life in plan.outcome.lives
        if life.changed or life.status in ("stopped", "resnapshot")
    )
    changed = {life.id for life in plan.outcome.lives}
    standing_still = (
        TableRun(str(_name(row)), row["status"], 0, 0, 0, None, "", 0.0, row["reason"] or "", row["remedy"] or "")
        for key, row in before.items()
        if row["low"] and key not in changed and row["status"] in ("stopped", "resnapshot")
    )
    unsnapshotted = (
        TableRun(
            str(table.name),
            table.status,
            0,
            0,
            0,
            None,
            "",
            0.0,
            table.reason,
            watermarks.remedy_of(table.name, table.status),
        )
        for table in plan.outcome.lifeless
        if table.status != "dropped"
    )
    return (*lives, *standing_still, *unsnapshotted)


def _run_row(report: RunReport, plan: OpenBatch, run: str | None) -> dict[str, Any]:
    return {
        "run": run or uuid.uuid4().hex,
        "kind": "sync",
        "batch": plan.batch,
        "started_us": plan.planned_us,
        "ended_us": now_us(),
        "outcome": "recorded",
        "position": report.position,
        "tables": json.dumps([vars(table) for table in report.tables], ensure_ascii=False),
        "phases": json.dumps(dict(report.phases)),
        "bytes": report.bytes,
        "mutations": report.mutations,
        "message": report.message,
        "why_spark": report.why_spark,
    }


def note_run(
    metadata: Metadata,
    kind: str,
    run: str | None,
    batch: int,
    position: Position | None,
    tables: Sequence[Mapping[str, Any]],
    phase: tuple[str, float],
    message: str,
    *,
    began_us: int,
    size: int = 0,
    why_spark: str = "",
) -> None:
    """Append the row of a run that carries no batch.

    run: the caller's id of it, None for a new one. phase: its name and seconds. size: bytes copied or removed.
    """
    row = {
        "run": run or uuid.uuid4().hex,
        "kind": kind,
        "batch": batch,
        "started_us": began_us,
        "ended_us": now_us(),
        "outcome": "recorded",
        "position": str(position) if position else None,
        "tables": json.dumps(tables, ensure_ascii=False),
        "phases": json.dumps(dict([phase])),
        "bytes": size,
        "mutations": 0,
        "message": message,
        "why_spark": why_spark,
    }
    metadata.append("runs", [row])


def recorded_by(metadata: Metadata, run: str) -> list[RunReport]:
    """Return the reports of all batches that a run recorded, in their order."""
    rows = metadata.read("runs", where=f"kind = 'sync' AND run = {literal(run)}")
    return [_reported(row) for row in sorted(rows, key=lambda row: row["batch"])]


def tables_copied(metadata: Metadata, run: str) -> list[dict[str, Any]]:
    """Return what a run's bootstraps copied (table, table_id, rows, delta_version); the newer copy if there are two."""
    rows = sorted(metadata.read("runs"), key=lambda row: row["ended_us"])
    noted = [json.loads(row["tables"]) for row in rows if row["kind"] == "bootstrap" and row["run"] == run]
    return list({table["table"]: table for tables in noted for table in tables}.values())


def _reported(row: Mapping[str, Any]) -> RunReport:
    tables = tuple(TableRun(**table) for table in json.loads(row["tables"]))
    phases = tuple(json.loads(row["phases"]).items())
    return RunReport(
        row["batch"],
        row["position"],
        row["message"],
        row["mutations"],
        row["bytes"],
        tables,
        phases,
        why_spark=row["why_spark"] or "",
    )


def nothing_new(batch: int | None, position: str, message: str) -> RunReport:
    """Return the report of a run that found nothing and proved it."""
    return RunReport(batch, position, message, 0, 0, (), ())


def recorded_before(
    metadata: Metadata, config: PipelineConfig, control: Control, batch: int | None, run: str | None
) -> RunReport:
    """Return the report of a record that finds no open batch: this run's own report of the batch, where it recorded it
    and died before it could announce it; else what was recorded last."""
    for report in recorded_by(metadata, run) if run else ():
        if report.batch == batch:
            return report
    position = control.position
    where = position.short if position else "nowhere"
    message = f"nothing to record: batch {control.batch} of {config.source.name} is recorded, up to {where}"
    return nothing_new(control.batch, str(position or ""), message)
