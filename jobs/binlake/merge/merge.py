"""Merge: what a staged batch's log means for each table is carried out in the lake, by Spark where it is needed."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.config.mirrored_tables import TablesConfig
from binlake.delta.delta_log import NewestBatch
from binlake.errors import StagingError, TableError
from binlake.lease.lease import Lease, OpenBatch, RecordedState
from binlake.merge.beside import BatchTimes, BesideFailed, beginning, outcomes_beside, with_mirrors
from binlake.merge.beside_standstills import without_failed, without_standing
from binlake.merge.published_tables import publish_changed
from binlake.merge.table_progress import changed_by_others, refuse_begun
from binlake.planner import cascading, epochs
from binlake.planner.answers import Answer, patterns_left_out
from binlake.planner.manifest import Manifest
from binlake.planner.noted_statements import BEFORE_SNAPSHOT, IGNORED, WAITS
from binlake.planner.outcome import outcome_of, with_stopped
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, TableOutcome, rebased
from binlake.planner.walk import BatchInputs
from binlake.records import ddl_history, table_versions, watermarks
from binlake.records.record import note_schemas
from binlake.report import Report
from binlake.spark.starting import SessionAsked
from binlake.staging.staged_files import read_manifest
from binlake.store.metadata import Metadata
from binlake.store.rows import StatementRow

if TYPE_CHECKING:
    from binlake.lake.merged_tables import MergedOutcome
    from binlake.spark.starting import SessionFactory


def merge_batch(
    held: Lease, config: PipelineConfig, session: SessionFactory, staged: OpenBatch, report: Report
) -> tuple[OpenBatch, list[TableOutcome], Manifest]:
    """Merge the staged batch under the settings by which it was read; where a staged file is missing or damaged, it is
    to be staged again.

    Raises StagingError for such a file, TableError where a table's policy ends the run.
    """
    began = time.monotonic()
    metadata, asked = held.metadata, SessionAsked(session)
    try:
        manifest = manifest_of(config, staged)
        config = as_staged(config, manifest)
        held.read_under(config.reading)
        lives = watermarks.read_lives(metadata, open_batch=staged.batch)
        recorded_state = held.control().recorded_state
        steps = epochs.split(manifest, _inputs(config, staged, manifest, recorded_state, metadata, lives))
        before = recorded_state.tables if recorded_state else None
        steps = beginning(config, before, steps, staged.range.start, report)
        start_us = recorded_state.committed_us if recorded_state else None
        steps = with_mirrors(config, steps, staged.range, BatchTimes(start_us or None, manifest.committed_us or None))
        steps = without_standing(config, metadata, steps, report)
        if manifest.content != staged.content:
            refuse_begun(config, staged.batch, steps)
            staged = replace(staged, content=manifest.content)
            held.advance(staged)
        _stop_run(config, steps)
        newest = NewestBatch(staged.batch, staged.range.stop.short)
        steps, outcomes = _applied(held, config, asked, staged, steps, report, newest)
        outcomes += changed_by_others(config, steps, newest)
    except StagingError:
        held.advance(replace(staged, state="planned", attempt=""))
        raise
    note_schemas(metadata, staged, steps)
    beside = outcomes_beside(config, steps, partial(table_versions.newest_id, metadata))
    merged_tables = _merged_tables(held, config, staged, steps, outcomes, before, report)
    if merged_tables is not None:
        beside += merged_tables.tables
        outcomes = with_stopped(outcomes, merged_tables.stopped)
    outcome = outcome_of(steps, outcomes, lives, beside)
    mirrors = [table.life.name for table in steps.tables if table.life.status != "dropped"]
    publish_changed(config, outcome, staged.batch, report, held.check, mirrors)
    merged = replace(staged, state="merged", outcome=outcome, tables=config.tables)
    merged = merged.with_phase("merge", time.monotonic() - began, asked.why)
    held.advance(merged)
    return merged, outcomes, manifest


def _merged_tables(
    held: Lease,
    config: PipelineConfig,
    staged: OpenBatch,
    steps: BatchSteps,
    outcomes: Sequence[TableOutcome],
    before: TablesConfig | None,
    report: Report,
) -> MergedOutcome | None:
    """Show the mirrors' rows in the tables that merge them; return what became of these, None where there are none."""
    had = (before and before.merge_tables) or any(table.life.schema.shard for table in steps.tables)
    if not config.tables.merge_tables and not had:
        return None
    from binlake.lake.merged_tables import outcomes_merged

    stop = staged.range.stop
    lives = {table.life.id: table.life for table in steps.tables} | {each.life.id: each.life for each in outcomes}
    note = {"source": config.source.name, "batch": staged.batch, "position": stop.short}
    return outcomes_merged(config, lives.values(), stop, note, before, held, report)


def _applied(
    held: Lease,
    config: PipelineConfig,
    asked: SessionAsked,
    staged: OpenBatch,
    steps: BatchSteps,
    report: Report,
    newest: NewestBatch,
) -> tuple[BatchSteps, list[TableOutcome]]:
    """Carry out a batch's steps. Return those that were done, and the outcomes.

    Where a table beside a mirror fails, the others' steps are gone through again without it; none is done twice.
    """
    while True:
        try:
            return steps, apply_steps(config, asked, staged, steps, report, newest)
        except BesideFailed as failed:
            steps = without_failed(config, held.metadata, steps, failed, report)


def as_staged(config: PipelineConfig, manifest: Manifest) -> PipelineConfig:
    """Return the configuration with the settings by which a batch was read, whatever the YAML has by now."""
    if manifest.tables is None or manifest.invalid is None:
        return config
    return config.reading_as(manifest.tables, manifest.invalid, manifest.rows, manifest.columns)


def manifest_of(config: PipelineConfig, batch: OpenBatch) -> Manifest:
    """Return the manifest of the batch's chosen attempt. Raises StagingError."""
    return read_manifest(config.staging_path(str(batch.batch), batch.attempt), batch.batch, batch.attempt)


def inputs_of(
    config: PipelineConfig, batch: OpenBatch, lives: Sequence[Life], answers: Sequence[Answer] = ()
) -> BatchInputs:
    """Return what the YAML, the batch's plan and somebody's answers say about a batch, for these lives."""
    return BatchInputs(
        config.source.name,
        Rules.of(config.leaving_out(patterns_left_out(answers))),
        batch.range,
        lives,
        cascades=batch.cascades,
        lower_case_names=batch.lower_case_names,
        gaps=batch.gaps,
        answers=answers,
    )


def _inputs(
    config: PipelineConfig,
    batch: OpenBatch,
    manifest: Manifest,
    recorded_state: RecordedState | None,
    metadata: Metadata,
    lives: Sequence[Life],
) -> BatchInputs:
    """Return the inputs of the whole batch: for all lives, and with what metadata hold besides."""
    assert recorded_state is not None  # whoever planned the batch followed the log from there
    not_following = [life.id for life in lives if life.status not in ("following", "dropped")]
    return replace(
        inputs_of(
            config,
            batch,
            [rebased(life, recorded_state.position, batch.range.start) for life in lives],
            recorded_state.answers,
        ),
        prepared=recorded_state.prepared,
        unsnapshotted=watermarks.unsnapshotted(metadata),
        charsets=recorded_state.charsets or {},
        server_shapes=ddl_history.shapes_at_server(metadata, not_following),
        declaring=declaring(metadata, batch, manifest, {life.id for life in lives}),
    )


def declaring(metadata: Metadata, batch: OpenBatch, manifest: Manifest, lives: Collection[str]) -> frozenset[str]:
    """Return ``BatchInputs.declaring`` for these lives. The DDL history is read where a statement may drop a key."""
    statements = (statement.text for part in manifest.slices for statement in part.statements)
    if batch.cascades is None or not any(map(cascading.may_drop_key, statements)):
        return frozenset()
    columns = ("table_id", "database", "sql_mode", "statement", "action", "reason")
    rows = StatementRow.read(metadata, *columns, where=f"batch < {batch.batch}")
    return frozenset(
        row.table_id
        for row in rows
        if row.table_id
        and row.table_id in lives
        and row.action != IGNORED
        and row.reason != BEFORE_SNAPSHOT
        and cascading.declares_cascade(row.statement, row.sql_mode or 0, row.database, batch.range.stop.flavour)
    )


def apply_steps(
    config: PipelineConfig,
    session: SessionFactory,
    batch: OpenBatch,
    steps: BatchSteps,
    report: Report,
    newest_batch: NewestBatch | None = None,
) -> list[TableOutcome]:
    """Carry the steps out, of all tables that have any. newest_batch: the batch, where tables can't have a later
    one."""
    if not steps.beside and not any(table.steps for table in steps.tables):
        return []
    from binlake.merge.apply import apply_batch

    return apply_batch(session, config, batch.batch, batch.range.stop.short, steps, report, newest_batch)


def _stop_run(config: PipelineConfig, steps: BatchSteps) -> None:
    """End the run where a table that can't be decoded or followed has the policy stop_run. One that waits for an answer
    can be. Raises TableError."""
    waiting = {row.table_id for row in steps.history if row.action == WAITS}
    for table in steps.tables:
        if table.life.id in waiting:
            continue
        if table.newly_stopped and config.policies.of(table.life.name).on_decode_failure == "stop_run":
            raise TableError(
                f"{table.life.name}: {table.life.reason} (on_decode_failure: stop_run)",
                remedy=f"fix it, or let the others continue with on_decode_failure: stop_table. {table.life.remedy}",
            )
