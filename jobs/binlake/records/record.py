"""Record what a run did, where the command line, Airflow and the next run read it."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from binlake.config import PipelineConfig
from binlake.errors import BinlogError, LakeError
from binlake.lease.lease import Control, Lease, OpenBatch
from binlake.planner.outcome import NEVER_SNAPSHOTTED, BatchOutcome, LifeOutcome, UnsnapshottedOutcome
from binlake.planner.steps import BatchSteps, Life, Standstill, Status
from binlake.position import Position
from binlake.records import awaited_tables, table_versions, watermarks
from binlake.report import rows_of_tables
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dump, dumps
from binlake.store.conditions import Newest, literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, LogRow, QuarantineRow, ShapeRow, StatementRow, WatermarkRow
from binlake.store.run_rows import RunRow, TableRun

if TYPE_CHECKING:
    from binlake.source.ahead import LogSeen


LOG_NOTED_EACH_US = 5 * 60 * 1_000_000
"""Microseconds of which the newest look of a kind at the server's log is kept."""
LookKind = Literal["planned", "nothing new", "look"]
"""See LogRow."""
STANDING_STILL = ("stopped", "resnapshot", "missing")
"""Statuses of tables that every run reports."""
_MISSING_BATCHES = ("stopped", "excluded")
"""Statuses of lives that keep their position, and the number of the first batch that they miss."""


@dataclass(frozen=True)
class RunReport:
    """One run. ``tables`` has those that changed or don't follow; ``phases`` has seconds per phase.

    earlier: the batches that the same run recorded before. why_spark: why phases started Spark, as
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

    def copied_since(self, following: Collection[str]) -> RunReport:
        """Return the report where the tables that it asked to be snapshotted, and that follow by now, are copied: there
        is nothing to do for them. following: names of tables."""
        tables = [
            replace(table, status="copied", remedy="")
            if table.status == "resnapshot" and table.table in following
            else table
            for table in self.tables
        ]
        earlier = tuple(run.copied_since(following) for run in self.earlier)
        return replace(self, tables=tuple(tables), earlier=earlier)

    def behind(self, before: RunReport) -> RunReport:
        """Return the report with the one of the same run that came before it, where that recorded a batch."""
        recorded = (replace(before, earlier=()),) if before.phases else ()
        return replace(self, earlier=(*before.earlier, *recorded, *self.earlier))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {**asdict(self), "phases": dict(self.phases), "earlier": [run.to_json() for run in self.earlier]}


def note_open(held: Lease, plan: OpenBatch) -> None:
    """Write how far an open batch has come, for people to read: the lease's row decides. One of seconds gets its row
    when it is recorded."""
    if not held.by_turns:
        note_batch(held.metadata, plan)


def note_batch(metadata: Metadata, plan: OpenBatch, *, state: str | None = None) -> None:
    """Write a batch's row, for people to read."""
    row = BatchRow(
        batch=plan.batch,
        state=state or plan.state,
        start=str(plan.range.start),
        stop=str(plan.range.stop),
        gtid_set=plan.range.stop.gtid_set,
        range=dumps(plan.range),
        until_us=plan.until_us,
        attempt=plan.attempt,
        planned_us=plan.planned_us,
        updated_us=now_us(),
        bytes=plan.range.size,
    )
    BatchRow.replace(metadata, f"batch = {plan.batch}", [row])


def note_log(metadata: Metadata, seen: LogSeen, batch: int, kind: LookKind = "look") -> None:
    """Write what the server said of its log, for readers of metadata; of each kind and five minutes the newest stays.

    batch: the newest that is planned. kind: see LogRow. Nothing depends on it, so failures are ignored.
    """
    since = seen.at_us - seen.at_us % LOG_NOTED_EACH_US
    with suppress(LakeError):
        row = LogRow(**asdict(seen), batch=batch, kind=kind)
        LogRow.replace(metadata, f"at_us >= {since} AND kind = {literal(kind)}", [row])


def newest_looks(metadata: Metadata) -> list[LogRow]:
    """Return what the server said of its log when it was looked at last for each kind of look, the newest first."""
    looks = LogRow.read(metadata, newest=Newest("at_us", 1, per=("kind",)))
    return sorted(looks, key=lambda look: look.at_us, reverse=True)


def log_noted(metadata: Metadata) -> LogRow | None:
    """Return what the server said of its log when it was looked at last; None before that."""
    return next(iter(newest_looks(metadata)), None)


def note_schemas(metadata: Metadata, plan: OpenBatch, steps: BatchSteps) -> None:
    """Write a batch's DDL history and the shapes that followed from it. It can be repeated."""
    StatementRow.replace(metadata, f"batch = {plan.batch}", [StatementRow.of(row) for row in steps.history])
    seen = [table for table in steps.tables if table.steps or table.life.status != "dropped"]
    changed = [
        watermarks.schema_row(table.life, batch=plan.batch, where=plan.range.stop, why="followed")
        for table in seen
        if table.is_born or _differ(table.first_schema, table.life.schema)
    ]
    ShapeRow.replace(metadata, f"batch = {plan.batch} AND why = 'followed'", changed)


def _differ(before: TableSchema, after: TableSchema) -> bool:
    """Return whether shapes differ in anything that is stored; shapes with other indexes or kept columns compare as
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

    run: what the caller calls the run, to find it again. listed: returns whether a table belongs to the lake's
    versions.
    """
    stop = plan.range.stop
    before = {row.table_id: row for row in watermarks.read(metadata)}
    living = _with_missing(metadata, plan, _still_living(plan, before), before)
    ended = {life.id for life in plan.outcome.lives} - {life.id for life in living.lives}
    before = {key: row for key, row in before.items() if key not in ended}
    plan = replace(plan, outcome=living)
    after = _write_watermarks(metadata, plan, before)
    table_versions.note_batch(metadata, plan, after, listed)
    report = RunReport(
        plan.batch,
        str(stop),
        f"batch {plan.batch}: {rows_of_tables(life.mutations for life in living.lives)}, up to {stop.short}",
        sum(life.mutations for life in living.lives),
        plan.range.size,
        _tables(plan, before),
        plan.phases,
        why_spark="; ".join(f"{phase}: {why}" for phase, why in plan.why_spark),
    )
    QuarantineRow.replace(metadata, f"batch = {plan.batch} AND table IS NOT NULL", _quarantine_rows(plan, before))
    RunRow.replace(metadata, f"batch = {plan.batch} AND kind = 'sync'", [_run_row(report, plan, run)])
    note_batch(metadata, plan, state="recorded")
    recorded_state = held.control().recorded_state
    assert recorded_state is not None  # planning the batch recorded it
    held.stand(recorded_state.after(plan))
    return report


def _still_living(plan: OpenBatch, before: Mapping[str, WatermarkRow]) -> BatchOutcome:
    """Return the outcome without tables that were snapshotted again since: a snapshot ends the lives of its name.

    A life that begins while a batch is open has the batch's number, and isn't among those that the batch changed.
    """
    outcome = plan.outcome
    changed = {life.id for life in outcome.lives}
    current = (row for key, row in before.items() if row.low and key not in changed)
    begun = {row.name for row in current if row.batch == plan.batch}
    return replace(
        outcome,
        lives=tuple(life for life in outcome.lives if life.name not in begun),
        lifeless=tuple(table for table in outcome.lifeless if table.name not in begun),
    )


def _with_missing(
    metadata: Metadata, plan: OpenBatch, outcome: BatchOutcome, before: Mapping[str, WatermarkRow]
) -> BatchOutcome:
    """Return the outcome with the server's included tables that no batch up to this one gave a life, and without those
    that would be missing for the first time while a run is copying them."""
    having = {row.name for row in before.values() if row.status != "dropped"}
    having |= {life.name for life in outcome.lives if life.status != "dropped"}
    having |= {table.name for table in outcome.lifeless if table.status != "dropped"}
    noted = awaited_tables.missing(metadata, plan.range.stop, having)
    awaited = [UnsnapshottedOutcome(name, "missing", NEVER_SNAPSHOTTED) for name in noted]
    tables = [*outcome.lifeless, *awaited]
    first_time = [table.name for table in tables if _is_newly_missing(table, before)]
    copied = set(first_time).difference(awaited_tables.without_copied(metadata, first_time))
    return replace(outcome, lifeless=tuple(table for table in tables if table.name not in copied))


def _is_newly_missing(table: UnsnapshottedOutcome, before: Mapping[str, WatermarkRow]) -> bool:
    return table.status == "missing" and watermarks.unsnapshotted_id(table.name) not in before


def _write_watermarks(metadata: Metadata, plan: OpenBatch, before: dict[str, WatermarkRow]) -> dict[str, WatermarkRow]:
    """Write the watermarks of lives that the batch changed, and return those of all lives after it, by life.

    Those that follow reach its stop; one that is ahead of it, or stopped, keeps its own position. All others that
    follow reach the stop by the lease's row. No row is left of lives that never came to the lake, or whose place
    another took.
    """
    stop = plan.range.stop
    gone = {watermarks.unsnapshotted_id(table.name) for table in plan.outcome.lifeless if table.status == "dropped"}
    rows = {}
    for table in plan.outcome.lifeless:
        if table.status != "dropped":
            key = watermarks.unsnapshotted_id(table.name)
            row = watermarks.unsnapshotted_row(table.name, table.status, table.reason, batch=plan.batch, position=stop)
            is_known = key in before and before[key].status == table.status
            rows[key] = replace(row, updated_us=before[key].updated_us) if is_known else row  # since when it is so
    for life in plan.outcome.lives:
        if (of_life := _watermark(life, before.get(life.id), plan)) is not None:
            rows[life.id] = of_life
    gone |= _replaced([row for key, row in {**before, **rows}.items() if key not in gone])
    watermarks.write(metadata, [row for key, row in rows.items() if key not in gone], gone & before.keys())
    return {key: row for key, row in {**before, **rows}.items() if key not in gone}


def _watermark(life: LifeOutcome, old: WatermarkRow | None, plan: OpenBatch) -> WatermarkRow | None:
    """Return a life's row after the batch; None for one that never came to the lake."""
    if old is None and life.status == "dropped" and not life.changed:
        return None
    if old and not life.changed and life.status == old.status != "following":
        named = replace(old, **vars(life.name))  # it may have been renamed meanwhile
        return named.standing(life.status, life.standstill)
    position, batch = max(plan.range.stop, life.low), plan.batch
    if old and life.status in _MISSING_BATCHES:
        position = old.reached
        batch = old.batch if old.status in _MISSING_BATCHES else batch
    version = old.delta_version if life.delta_version is None and old else life.delta_version
    return watermarks.watermark_row(life, batch=batch, position=position, delta_version=version)


def _replaced(rows: list[WatermarkRow]) -> set[str]:
    """Return the ids of dropped lives whose name is a living life's, or one's that was dropped in a later batch."""
    newest: dict[TableName, float] = {}
    for row in rows:
        if row.low:  # a life
            number = row.batch if row.status == "dropped" else math.inf
            newest[row.name] = max(newest.get(row.name, -1), number)
    return {row.table_id for row in rows if row.status == "dropped" and row.batch < newest.get(row.name, -1)}


def names_dropped(metadata: Metadata, plan: OpenBatch) -> list[TableName]:
    """Return the names of tables that this batch saw dropped, and that no table has now."""
    before = {row.table_id: row for row in watermarks.read(metadata)}
    already = {key for key, row in before.items() if row.status == "dropped"}
    lives = [life for life in _still_living(plan, before).lives if life.id not in already]
    changed = {life.id for life in plan.outcome.lives}
    rows = (row for key, row in before.items() if row.low and key not in changed)
    living = {row.name for row in rows if row.status != "dropped"}
    living |= {life.name for life in lives if life.status != "dropped"}
    return sorted({life.name for life in lives if life.status == "dropped"} - living)


def changed_by_yaml(life: Life) -> TableRun:
    """Return the report of a life whose status changed with the YAML."""
    newly = life.status == "stopped"
    return TableRun(str(life.name), life.status, 0, 0, 0, None, "", 0.0, life.reason, life.remedy, newly)


def _newly_stopped(life: LifeOutcome, before: WatermarkRow | None) -> bool:
    return life.status == "stopped" and (before is None or before.status != "stopped")


def _quarantine_rows(plan: OpenBatch, before: dict[str, WatermarkRow]) -> list[QuarantineRow]:
    """Return rows of the tables that this batch stopped, with file and offset where the log stopped them."""
    return [
        _quarantine_row(plan.batch, life, life.standstill)
        for life in plan.outcome.lives
        if life.standstill and _newly_stopped(life, before.get(life.id))
    ]


def _quarantine_row(batch: int, life: LifeOutcome, why: Standstill) -> QuarantineRow:
    return QuarantineRow(
        batch=batch,
        table_id=life.id,
        **vars(life.name),
        file=why.file,
        offset=why.offset,
        reason=why.reason,
        remedy=why.remedy,
        raw=why.raw,
        at_us=now_us(),
    )


def note_poison(metadata: Metadata, plan: OpenBatch, error: BinlogError) -> None:
    """Write an event that stops the run, as it isn't known which tables it concerns."""
    row = QuarantineRow(
        batch=plan.batch,
        file=error.file,
        offset=error.offset,
        reason=error.message,
        remedy=error.remedy,
        raw=error.raw,
        at_us=now_us(),
    )
    QuarantineRow.replace(metadata, f"batch = {plan.batch} AND table IS NULL", [row])


def _tables(plan: OpenBatch, before: dict[str, WatermarkRow]) -> tuple[TableRun, ...]:
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
    told = {life.name for life in plan.outcome.lives} | {table.name for table in plan.outcome.lifeless}
    still = [row for key, row in before.items() if key not in changed and (row.low or row.name not in told)]
    return (
        *lives,
        *standing_still(still),
        *(_unsnapshotted(table, before) for table in plan.outcome.lifeless if table.status != "dropped"),
    )


def _unsnapshotted(table: UnsnapshottedOutcome, before: Mapping[str, WatermarkRow]) -> TableRun:
    return missing_run(table.name, table.status, table.reason, newly=_is_newly_missing(table, before))


def missing_run(name: TableName, status: Status, reason: str, *, newly: bool) -> TableRun:
    """Return the report of a table without a life."""
    remedy = watermarks.remedy_of(name, status)
    return TableRun(str(name), status, 0, 0, 0, None, "", 0.0, reason, remedy, newly)


def standing_still(rows: Iterable[WatermarkRow]) -> tuple[TableRun, ...]:
    """Return the reports of the tables that don't follow, though nobody decided so. rows: watermarks."""
    return tuple(
        TableRun(str(row.name), row.status, 0, 0, 0, None, "", 0.0, row.reason or "", row.remedy or "")
        for row in rows
        if row.status in STANDING_STILL
    )


def _run_row(report: RunReport, plan: OpenBatch, run: str | None) -> RunRow:
    return RunRow(
        run=run or uuid.uuid4().hex,
        kind="sync",
        batch=plan.batch,
        started_us=plan.planned_us,
        ended_us=now_us(),
        outcome="recorded",
        position=report.position,
        tables=json.dumps([vars(table) for table in report.tables], ensure_ascii=False),
        phases=json.dumps(dict(report.phases)),
        bytes=report.bytes,
        mutations=report.mutations,
        message=report.message,
        why_spark=report.why_spark,
    )


@dataclass(frozen=True, kw_only=True)
class OtherRun:
    """A run that carries no batch.

    run: the caller's id of it, None for a new one. batch, position: of the lake at its end. tables: what it did with
    each, as JSON has it. phase: its name and seconds. began_us: microseconds since 1970. size: bytes copied or removed.
    """

    kind: str
    run: str | None
    batch: int
    position: Position | None
    phase: tuple[str, float]
    message: str
    began_us: int
    tables: Sequence[Mapping[str, Any]] = ()
    size: int = 0
    why_spark: str = ""


def note_run(metadata: Metadata, noted: OtherRun) -> None:
    """Append the row of a run that carries no batch and ends now."""
    row = RunRow(
        run=noted.run or uuid.uuid4().hex,
        kind=noted.kind,
        batch=noted.batch,
        started_us=noted.began_us,
        ended_us=now_us(),
        outcome="recorded",
        position=str(noted.position) if noted.position else None,
        tables=json.dumps(list(noted.tables), ensure_ascii=False),
        phases=json.dumps(dict([noted.phase])),
        bytes=noted.size,
        message=noted.message,
        why_spark=noted.why_spark,
    )
    RunRow.append(metadata, [row])


def recorded_by(metadata: Metadata, run: str) -> list[RunReport]:
    """Return the reports of all batches that a run recorded, in their order."""
    rows = RunRow.read(metadata, where=f"kind = 'sync' AND run = {literal(run)}")
    return [_reported(row) for row in sorted(rows, key=lambda row: row.batch or 0)]


def tables_copied(metadata: Metadata, run: str) -> list[dict[str, Any]]:
    """Return what a run's bootstraps copied (table, table_id, rows, delta_version); the newer copy if there are two."""
    rows = RunRow.read(metadata, where=f"kind = 'bootstrap' AND run = {literal(run)}")
    noted = [row.noted for row in sorted(rows, key=lambda row: row.ended_us)]
    return list({table["table"]: table for tables in noted for table in tables}.values())


def _reported(row: RunRow) -> RunReport:
    return RunReport(
        row.batch,
        row.position or "",
        row.message,
        row.mutations,
        row.bytes,
        row.did,
        tuple(row.seconds.items()),
        why_spark=row.why_spark,
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
