"""Tables for which a sync asked: their rows can't be had from the log, so they are snapshotted again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from binlake.config import PipelineConfig
from binlake.errors import LeaseHeld, TableError, TablesCopied
from binlake.lake import merged_tables
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.position import Position
from binlake.records import watermarks
from binlake.records.record import RunReport
from binlake.report import Report
from binlake.source.folder import Folder
from binlake.source.locks import Busy
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import metadata_of


class AskedCopies(Enum):
    """The outcome of the copies for which a sync asked.

    BUSY: the server can't be copied now, or another process copies. The log is followed all the same, and this run
    waits no more.
    """

    NONE_ASKED = "none asked"
    TRIED = "tried"
    BUSY = "busy"


def snapshot_asked(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, run: str | None = None
) -> AskedCopies:
    """Snapshot the tables for which a sync asked, and continue with those that were copied and don't follow yet. A
    table that can't be copied is reported, and tried again by the next run."""
    metadata = metadata_of(config)
    let_catch_up(config, origin, session, report)
    if isinstance(origin, Folder):
        return AskedCopies.NONE_ASKED
    asked = watermarks.asked(metadata)
    if not asked:
        return AskedCopies.NONE_ASKED
    report.say(f"to be snapshotted again: {', '.join(map(str, asked))}")
    from binlake.phases.snapshots import snapshot_tables

    try:
        snapshot_tables(config, origin, session, report, None, unnamed="asked", lock="flush", run=run)
    except (TableError, Busy, TablesCopied) as error:
        report.say(str(error))
        return AskedCopies.TRIED if isinstance(error, TableError) else AskedCopies.BUSY
    return AskedCopies.TRIED


def let_catch_up(config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report) -> None:
    """Continue with tables that were copied beside the batches, or whose schema change was answered, and that don't
    follow yet."""
    if watermarks.catching_up(metadata_of(config)):
        from binlake.phases import copies_beside  # most syncs copy nothing

        copies_beside.go_on(config, origin, session, report)


def snapshot_behind(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    before: AskedCopies,
    recorded: RunReport,
    carry_to: Callable[[Lease, Position], RunReport] | None,
    run: str | None = None,
) -> RunReport:
    """Snapshot the tables for which a batch asked, and carry the lake to where they were copied, so that its newest
    version has them. Return the report of the batch recorded last.

    before: what became of those that were asked for before the batch. carry_to: carries the lake to exactly a position;
    without it the next sync does. Where another run holds the source, that one does.
    """
    if before is AskedCopies.BUSY:
        return recorded
    metadata = metadata_of(config)
    copying = snapshot_asked(config, origin, session, report, run)
    if copying is not AskedCopies.TRIED:
        return recorded
    position = watermarks.ahead(metadata)
    following = {str(life.name) for life in watermarks.read_lives(metadata) if life.status == "following"}
    recorded = recorded.copied_since(following)
    if position is None or carry_to is None:
        if config.tables.merge_tables:
            with suppress(LeaseHeld), lease.held(metadata) as held:
                merged_tables.refresh(config, held, report)
        return recorded
    try:
        with lease.held(metadata) as held:
            return carry_to(held, position).behind(recorded)
    except LeaseHeld as error:
        report.say(error.message)
        return recorded
