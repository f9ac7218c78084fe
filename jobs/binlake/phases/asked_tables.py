"""Tables for which a sync asked: their rows can't be had from the log, so they are snapshotted anew."""

from __future__ import annotations

from binlake.config import PipelineConfig
from binlake.errors import TableError, TablesCopied
from binlake.metadata import watermarks
from binlake.metadata.metadata import metadata_of
from binlake.report import Report
from binlake.source.folder import Folder
from binlake.source.locks import Busy
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory


def snapshot_asked(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, run: str | None = None
) -> bool:
    """Snapshot the tables for which a sync asked, and go on with those that were copied and don't follow yet. What
    can't be copied is reported, and tried again by the next run.

    Return False where the server can't be copied now, or another process copies: the log is followed all the same, and
    this run waits no more.
    """
    metadata = metadata_of(config)
    if isinstance(origin, Folder):
        return True
    if watermarks.catching_up(metadata):
        from binlake.phases import copies_beside  # most syncs copy nothing

        copies_beside.go_on(config, origin, session, report)
    asked = watermarks.asked(metadata)
    if not asked:
        return True
    report.say(f"to be snapshotted anew: {', '.join(map(str, asked))}")
    from binlake.phases.snapshots import snapshot_tables

    try:
        snapshot_tables(config, origin, session, report, None, asked=True, lock="flush", run=run)
    except (TableError, Busy, TablesCopied) as error:
        report.say(str(error))
        return isinstance(error, TableError)
    return True
