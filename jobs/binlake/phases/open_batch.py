"""Steps of the open batch: stage, merge, record. Each leaves the batch's new state in metadata."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from binlake.config import PipelineConfig
from binlake.errors import BinlogError, UsageError
from binlake.faults import fault
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.phases.outcomes import StepOutcome
from binlake.planner.manifest import Manifest
from binlake.position import Slice
from binlake.records import ddl_history, decisions, leftovers, replayable, verified
from binlake.records.failures import noted
from binlake.records.record import RunReport, names_dropped, note_open, note_poison, record_batch
from binlake.report import Report, counted
from binlake.source.file_borders import check_borders
from binlake.source.lineage import check_position
from binlake.source.log import Log, Origin, opened, readers
from binlake.source.server import Source
from binlake.spark.starting import SessionAsked, SessionFactory
from binlake.store.metadata import Metadata, metadata_of

_FLUSHED = "innodb_flush_log_at_trx_commit"


@noted("stage")
def stage_open(
    held: Lease, config: PipelineConfig, origin: Origin | Log, session: SessionFactory, report: Report
) -> StepOutcome:
    """Stage the open batch's mutations, unless they are staged already."""
    from binlake.staging.ghost_tables import GhostTables
    from binlake.staging.masked_tables import tables_before
    from binlake.staging.stage import remove_attempts, stage_batch

    control = held.control()
    planned = control.open
    if planned is None or planned.state != "planned":
        return StepOutcome(planned.batch if planned else None, 0, "nothing to stage: the batch is staged already")
    began = time.monotonic()
    config = config.leaving_out(control.columns_left_out)
    with opened(origin) as log:
        check_position(log, log.transport(), planned.range.start)
        transports = readers(log, config.source)
    metadata, asked = held.metadata, SessionAsked(session)
    skips = decisions.skips(metadata)
    remove_attempts(config, planned.batch, control.since_us)
    try:
        ghosts = GhostTables.of(config, metadata)
        tables = partial(tables_before, config, metadata)
        manifest = stage_batch(asked, config, transports, planned, report, skips, ghosts, tables=tables)
    except BinlogError as error:
        note_poison(metadata, planned, error)
        raise
    if not any(map(skips, planned.range.slices)):  # else what was read lacks what was passed over
        check_borders(transports[0], planned.range, [part.gtid_set for part in manifest.slices])
    follow_up_crashes(config, metadata, origin, planned.range.slices, manifest, report)
    fault("manifest written")
    staged = replace(planned, state="staged", attempt=manifest.attempt)
    staged = staged.with_phase("stage", time.monotonic() - began, asked.why)
    staged = replace(staged, content=planned.content or manifest.content, committed_us=manifest.committed_us)
    staged = staged.executing([part.gtid_set for part in manifest.slices], planned.range.stop.flavour)
    held.advance(staged)
    note_open(held, staged)
    mutations, files = counted(manifest.mutations, "mutation"), counted(len(manifest.files), "file")
    message = f"batch {staged.batch}: {mutations} staged in {files}"
    report.say(message)
    return StepOutcome(staged.batch, manifest.mutations, message)


@noted("merge")
def merge_open(held: Lease, config: PipelineConfig, session: SessionFactory, report: Report) -> StepOutcome:
    """Merge the open batch's staged mutations into the lake, unless they are merged already."""
    from binlake.merge.merge import merge_batch  # a run that finds nothing new doesn't need it

    staged = held.control().open
    if staged is None or staged.state != "staged":
        return StepOutcome(staged.batch if staged else None, 0, "nothing to merge: the batch is merged already")
    merged, outcomes, manifest = merge_batch(held, config, session, staged, report)
    note_open(held, merged)
    fault("merged")
    message = f"batch {merged.batch}: {counted(len(outcomes), 'table')} merged"
    report.say(message)
    return StepOutcome(merged.batch, manifest.mutations, message)


@noted("record")
def record_open(held: Lease, config: PipelineConfig, run: str | None = None) -> RunReport:
    """Record the merged batch; then there is no open batch. Raises UsageError where it isn't merged yet."""
    from binlake.lake import pins

    merged = held.control().open
    if merged is None or merged.state != "merged":
        raise UsageError("the open batch isn't merged yet", remedy="run merge first")
    metadata = held.metadata
    metadata.check()
    if config.maintain.staging_hours > 0:
        replayable.keep(config, merged)
    flavour = merged.range.stop.flavour
    dropped = [
        name
        for name in names_dropped(metadata, merged)
        if config.goes_when_dropped(name) or ddl_history.was_tools(metadata, name, flavour)
    ]
    pins.remove_dropped(config, metadata, dropped)
    report = record_batch(held, metadata, merged, run, config.is_listed)
    fault("recorded")
    if recorded_state := held.control().recorded_state:
        leftovers.remove_recorded(config, recorded_state)
    return report


def is_short_run(config: PipelineConfig) -> bool:
    """Return whether the sync at work planned its range itself, and the range is short: then Spark has little to do.

    After a batch that an earlier run began, any length of log may follow.
    """
    from binlake.staging.stage import is_short

    control = lease.read(metadata_of(config))
    return control.open is not None and is_short(control.open) and control.open.planned_us >= control.since_us


def follow_up_crashes(
    config: PipelineConfig,
    metadata: Metadata,
    origin: Origin | Log,
    slices: Sequence[Slice],
    manifest: Manifest,
    report: Report,
) -> None:
    """Say where the server crashed in a batch's log, which then has a file that it didn't close, and let the next
    verification compare all rows if rows may be lost.

    A transaction's rows may then be in the log, and so in the lake, and be lost in the tables: where
    innodb_flush_log_at_trx_commit isn't 1, InnoDB keeps its own log in memory for up to a second (MySQL manual 17.14;
    MariaDB Knowledge Base, InnoDB System Variables).
    """
    unclosed = [part for part, read in zip(slices, manifest.slices, strict=True) if read.ends_open]
    if not unclosed:
        return
    with opened(origin) as log:
        if isinstance(log, Source):
            files = [] if log.variables([_FLUSHED]).get(_FLUSHED) == "1" else [part.file for part in unclosed]
        else:  # a folder's last file may have been read to its end before
            files = [part.file for part in unclosed if part.size]
    if not files:
        return
    said = f"{files[-1]} ends without ROTATE or STOP: the server crashed, and its tables may lack what its log has"
    if config.verify.after_crash == "all":
        verified.forget_equal(metadata)
        said += "; the next binlake verify compares all rows (verify.after_crash)"
    report.warn(said)
