"""Looks at the end of the server's log, which are noted in metadata."""

from __future__ import annotations

from contextlib import suppress

from binlake.config import PipelineConfig
from binlake.errors import RESNAPSHOT, BinlakeError, NoBinlog, PositionLost
from binlake.lease import lease
from binlake.moment import moment_text
from binlake.phases import missed_changes
from binlake.position import Position
from binlake.records import missing_log
from binlake.records.record import LOG_NOTED_EACH_US, log_noted, note_log
from binlake.source.ahead import Ahead, ahead_of, log_seen
from binlake.source.log import Log
from binlake.source.server import Source
from binlake.store.metadata import Metadata, metadata_of, now_us


def look(config: PipelineConfig, log: Log, position: Position) -> Ahead:
    """Return what a log has beyond a position, and note it in metadata. Raises SourceError."""
    metadata = metadata_of(config)
    try:
        ahead = ahead_of(config, log, position)
    except NoBinlog as error:
        missing_log.note(metadata, error)
        raise
    note_seen(metadata, log)
    missed_changes.note(metadata, ahead)
    return ahead


def refuse_unlogged(metadata: Metadata, log: Log, position: Position) -> bool:
    """Raise NoBinlog if the server writes no log, PositionLost if it was seen so after a position. Return whether
    anything was noted of what it didn't log.

    PositionLost is raised until all tables are snapshotted, so that the log is followed from behind that time.
    """
    if not isinstance(log, Source) or not log.is_of(position.server):
        return False
    log.head()
    noted = missing_log.noted(metadata, position.server)
    seen_us = missing_log.newest_without_log(noted, position.created * 1_000_000)
    if seen_us is not None:
        raise PositionLost(
            f"the server wrote no log when it was looked at on {moment_text(seen_us)}, and the lake is at "
            f"{position.short}, before that: what was written then is in no log",
            remedy=RESNAPSHOT,
        )
    return bool(noted)


def note_seen(metadata: Metadata, log: Log) -> None:
    """Note the log's end in metadata, for readers of metadata alone, unless it was noted within five minutes: a sensor
    may look each minute.

    Writes nothing before the first snapshot, and ignores errors.
    """
    with suppress(BinlakeError):
        control, known = lease.read(metadata), log_noted(metadata)
        is_old = known is None or known.at_us <= now_us() - LOG_NOTED_EACH_US
        if control.planned_to is not None and is_old:
            note_log(metadata, log_seen(log, control.planned_to), control.batch)
