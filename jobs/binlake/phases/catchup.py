"""Catch-up: carry a paused or stopped table through the batches that it missed, under their own numbers.

Each batch's range is in metadata, so it is staged again for that one table. The Delta table itself records what was
applied, so that nothing is applied twice after a kill. Rows of XA transactions that are still prepared are merged by
the batch in which these end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from binlake import names
from binlake.config import PipelineConfig
from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog
from binlake.errors import LakeError, PositionLost, TableError, UsageError, resnapshot_again
from binlake.lease.lease import Lease, OpenBatch
from binlake.merge.merge import apply_steps, declaring, inputs_of
from binlake.merge.published_tables import publish_now
from binlake.planner import epochs
from binlake.planner.answers import Answer, patterns_left_out
from binlake.planner.noted_statements import WAITS
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, PreparedXa, TableOutcome, TableSteps, rebased
from binlake.position import Position, Slice
from binlake.records import decisions, watermarks
from binlake.report import Report
from binlake.schema.cascades import Cascade, cascading
from binlake.schema.table import TableName
from binlake.serialization import dump
from binlake.source.lineage import check_position
from binlake.source.log import Log, Origin, opened, readers
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.spark.starting import SessionFactory
from binlake.staging.masked_tables import MaskedTables
from binlake.staging.stage import stage_batch
from binlake.storage import files
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, ShapeRow, StatementRow, WatermarkRow


def catch_up(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    held: Lease,
    row: WatermarkRow,
    report: Report,
    until: float = math.inf,
) -> Life | None:
    """Bring the table of the watermark ``row`` to the newest recorded batch, and return its life as it is then; None
    where there is more to carry.

    until: a time of the monotonic clock. Past it no further batch is carried, unless rows of a prepared XA transaction
    wait for one: they are known to this call alone. Raises UsageError if the table has a part of the batch in which it
    stopped, or if a part of the log is in no batch; TableError if the server doesn't have the log any more, or the
    table stops again.
    """
    name, metadata = TableName(row.database, row.table), held.metadata
    life = _life_at_watermark(metadata, row)
    _refuse_partial_batch(config, life, row)
    recorded_state = held.control().recorded_state
    charsets = (recorded_state and recorded_state.charsets) or {}
    answers = recorded_state.answers if recorded_state else ()
    config = config.leaving_out(patterns_left_out(answers))
    only = _including_only(config, name)
    missed = _Missed(only, metadata, charsets, origin, session, report, decisions.skips(metadata), answers)
    position, version = Position.parse(row.position, row.gtid_set or ""), row.delta_version
    noted = life.schema
    plans = _missed_batches(metadata, row)
    if recorded_state is not None:
        _refuse_gap(life, plans[-1].range.stop if plans else position, recorded_state.position)
    for plan in plans:
        _refuse_gap(life, position, plan.range.start)
        position = plan.range.stop
        life = rebased(life, life.high, plan.range.start)
        report.say(f"{name}: batch {plan.batch}, {plan.range.start.short} → {plan.range.stop.short}")
        try:
            table, outcome = missed.carry(life, plan, partial(_note_begun, metadata, row, plan.batch))
        except BaseException:
            with suppress(LakeError):
                missed.remove_staged()  # a feed takes a batch for staged that has a folder there
            raise
        _hand_over(held, name, missed.prepared)
        life, version = (outcome.life, outcome.delta_version) if outcome else (table.life, version)
        is_last = plan is plans[-1]
        if life.status == "following" and missed.prepared and not is_last:
            continue  # a run that continues after a kill stages the prepared rows again
        if life.status == "following" and dump(life.schema) != dump(noted):
            shape = watermarks.schema_row(life, batch=plan.batch, where=plan.range.stop, why="followed")
            ShapeRow.replace(metadata, f"table_id = {literal(life.id)} AND batch = {plan.batch}", [shape])
            noted = life.schema
        _write_reached(metadata, row, life, plan, version)
        if life.status != "following":
            raise TableError(f"{name} is {life.status} again: {life.reason}", remedy=life.remedy)
        if not is_last and time.monotonic() >= until:
            return None
    publish_now(config, [name], report)
    return life


def _write_reached(metadata: Metadata, row: WatermarkRow, life: Life, plan: OpenBatch, version: int | None) -> None:
    """Write that a life was carried through a batch, or stopped in it. row: its watermark before. version: of its Delta
    table."""
    reached = max(plan.range.start if life.status == "stopped" else plan.range.stop, life.low)
    watermark = watermarks.watermark_row(life, batch=plan.batch, position=reached, delta_version=version)
    if life.status == "following":
        status = "paused" if row.status == "stopped" else row.status
        watermark = replace(watermark, status=status, reason=row.reason, remedy=row.remedy, frozen=row.frozen)
    watermarks.write(metadata, [watermark])


def _life_at_watermark(metadata: Metadata, row: WatermarkRow) -> Life:
    """Return the table's life as it was at its watermark."""
    shapes = [
        shape
        for shape in ShapeRow.read(metadata)
        if shape.table_id == row.table_id and _is_reached(shape, row, row.reached)
    ]
    newest = max(shapes, key=lambda shape: shape.order)
    return Life(row.table_id, row.name, newest.shape, *row.snapshot, delta_version=row.delta_version)


def _is_reached(shape: ShapeRow, row: WatermarkRow, position: Position) -> bool:
    """Return whether a shape began up to a watermark. On another server, whose files are numbered otherwise, the
    batches' numbers are compared."""
    began = Position.parse(shape.position)
    return began <= position if began.server == position.server else shape.batch < _first_missed(row)


def _refuse_partial_batch(config: PipelineConfig, life: Life, row: WatermarkRow) -> None:
    """Raise UsageError if the table has some commits of the batch in which it stopped."""
    recorded = LakeLog.of(config, life.name, life.id).recorded()
    if row.status == "stopped" and recorded >= row.batch * STEPS_PER_BATCH:
        raise UsageError(
            f"{life.name} has a part of batch {row.batch}, in which it stopped",
            remedy=resnapshot_again(life.name),
        )


def _note_begun(metadata: Metadata, row: WatermarkRow, batch: int) -> None:
    """Note that a stopped table has a part of the batch in which it stopped from now on: an interrupted resume is
    continued there."""
    if row.status == "stopped" and batch == row.batch:
        watermarks.write(metadata, [replace(row, status="paused", batch=batch - 1)])


def _refuse_gap(life: Life, position: Position, start: Position) -> None:
    """Raise UsageError if a part of the log was skipped, because a snapshot of the other tables began after it."""
    if not _continues(life, position, start):
        raise UsageError(
            f"{life.name} is at {position.short}, and the log is followed from {start.short} since: what is "
            "between was never read",
            remedy=resnapshot_again(life.name),
        )


def _continues(life: Life, position: Position, start: Position) -> bool:
    """Return whether a range that begins at ``start`` leaves nothing out behind a life's position. On another server of
    the lineage it begins with the transactions that the lake held."""
    if start.server != position.server:
        return bool(start.gtid_set) and start.gtid_set == position.gtid_set
    # One that was snapshotted ahead of the others waits for them. A log that was begun again is younger.
    is_ahead = position == life.low and start.created <= position.created
    is_same = (start.order, start.created) == (position.order, position.created)
    return is_same or (is_ahead and start < position)


def _check_log(log: Log, metadata: Metadata, life: Life, start: Position) -> None:
    """Check that the server still has the log that a table missed. Raises TableError, whose remedy the table's
    watermark has from then on: the other tables are ahead, and don't need this log."""
    try:
        check_position(log, log.transport(), start, who=str(life.name))
    except PositionLost as error:
        remedy = resnapshot_again(life.name)
        if not log.is_of(start.server):
            remedy = f"point the connection at the server that {life.name} follows, or {remedy}"
        row = replace(watermarks.of_life(metadata, life.id), remedy=remedy, updated_us=now_us())
        watermarks.write(metadata, [row])
        raise TableError(error.message, remedy=remedy) from error


def _refuse_cascades(cascades: Iterable[Cascade], name: TableName) -> None:
    """Raise UsageError if cascades change the table: the mutations of its parents aren't staged again."""
    for cascade in cascades:
        if cascade.child == name:
            raise UsageError(
                f"{name} can't catch up: {cascading(cascade)}",
                remedy=resnapshot_again(name),
            )


def _including_only(config: PipelineConfig, name: TableName) -> PipelineConfig:
    """Return the configuration with one table included; its other settings apply to that table unchanged."""
    include = [names.pattern_of(name.database, name.table)]
    tables = config.tables.model_copy(update={"include": include, "exclude": []})
    return config.model_copy(update={"tables": tables})


def _missed_batches(metadata: Metadata, row: WatermarkRow) -> Sequence[OpenBatch]:
    """Return the recorded batches after the table's watermark, oldest first."""
    where = f"batch >= {_first_missed(row)} AND state = 'recorded'"
    rows = sorted(BatchRow.read(metadata, "batch", "range", where=where), key=lambda row: row.batch)
    return [OpenBatch(row.batch, row.carried) for row in rows]


def _first_missed(row: WatermarkRow) -> int:
    """Return the first batch after the table's watermark; of a stopped table that is the one in which it stopped."""
    return row.batch if row.status == "stopped" else row.batch + 1


@dataclass
class _Missed:
    """The batches that a table missed. config: includes that table alone. charsets: the databases' default character
    sets after the newest batch, as those of older ones aren't kept. prepared: XA transactions without an outcome
    in those that were carried so far. staged: the folders of these, by batch."""

    config: PipelineConfig
    metadata: Metadata
    charsets: Mapping[str, str]
    origin: Origin
    session: SessionFactory
    report: Report
    skips: Callable[[Slice], frozenset[int]]
    answers: tuple[Answer, ...] = ()
    prepared: tuple[PreparedXa, ...] = ()
    staged: dict[int, str] = field(default_factory=dict)

    def carry(self, life: Life, plan: OpenBatch, begin: Callable[[], None]) -> tuple[TableSteps, TableOutcome | None]:
        """Stage one batch again and apply it; return the table's steps, and their outcome if there were any.

        begin: is called before the first commit.
        """
        config = self.config
        with opened(self.origin) as log:
            _check_log(log, self.metadata, life, plan.range.start)
            cascades = unlogged_cascades(log, [life.name.database]) if isinstance(log, Source) else None
            _refuse_cascades(cascades or (), life.name)
            transports = readers(log, config.source)
            lower_case_names = log.lower_case_names
        tables = partial(MaskedTables.of, [life])
        manifest = stage_batch(self.session, config, transports, plan, self.report, self.skips, tables=tables)
        self.staged[plan.batch] = config.staging_path(str(plan.batch), manifest.attempt)
        plan = replace(plan, cascades=None if cascades is None else (), lower_case_names=lower_case_names)
        inputs = replace(
            inputs_of(config, plan, [life], self.answers),
            charsets=self.charsets,
            declaring=declaring(self.metadata, plan, manifest, {life.id}),
        )
        rules = Rules(
            lambda name: name == life.name,
            excluding=config.excluding,
            policy=config.policies.of,
            can_snapshot=inputs.rules.can_snapshot,
            invalid=config.invalid,
            schema_changes=config.schema_changes,
            withheld=config.withheld,
        )
        steps = epochs.split(manifest, replace(inputs, rules=rules, prepared=self.prepared))
        table = next(table for table in steps.tables if table.life.id == life.id)
        if table.life.status == "dropped":  # the copy that took its place then was read for that batch alone
            raise UsageError(f"{life.name} can't catch up: {table.life.reason}", remedy=resnapshot_again(life.name))
        self._note_waiting(steps, plan.batch)
        begin()
        outcomes = apply_steps(config, self.session, plan, steps, self.report)
        self.prepared = steps.prepared
        self.remove_staged()
        return table, next((outcome for outcome in outcomes if outcome.life.id == life.id), None)

    def _note_waiting(self, steps: BatchSteps, batch: int) -> None:
        """Note the statement at which the table waits for an answer, in the place of what the batch itself noted."""
        for row in (StatementRow.of(row) for row in steps.history if row.action == WAITS):
            where = f'batch = {batch} AND table_id = {literal(row.table_id or "")} AND "offset" = {row.offset}'
            StatementRow.replace(self.metadata, f"{where} AND file = {literal(row.file)}", [row])

    def remove_staged(self) -> None:
        """Delete the staging that no prepared transaction needs. The rest is deleted with the batch's own staging."""
        for batch in self.staged.keys() - {transaction.batch for transaction in self.prepared}:
            files.remove_folder(self.staged.pop(batch))


def _hand_over(held: Lease, name: TableName, prepared: Iterable[PreparedXa]) -> None:
    """Add the table's rows to those of XA transactions that are still prepared, where it wasn't read when their batch
    was staged: the batch in which they end merges them."""
    recorded_state = held.control().recorded_state
    assert recorded_state is not None  # it has recorded batches
    staged = {_identity(transaction): transaction.files for transaction in prepared}

    def with_rows(waiting: PreparedXa) -> PreparedXa:
        if any(file.name == name for file in waiting.files):
            return waiting
        missed = [file for file in staged.get(_identity(waiting), ()) if file.name == name]
        return replace(waiting, files=(*waiting.files, *missed))

    waiting = tuple(map(with_rows, recorded_state.prepared))
    if waiting != recorded_state.prepared:
        held.know_prepared(recorded_state, waiting)


def _identity(transaction: PreparedXa) -> tuple[str, int, int, int]:
    return transaction.xid, transaction.batch, transaction.file, transaction.prepared
