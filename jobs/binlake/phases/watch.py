"""State of a source: how far the lake is behind, and how long the server will keep the log that it needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from binlake.config import PipelineConfig
from binlake.errors import RESNAPSHOT, BinlakeError, NoBinlog, PositionLost
from binlake.lease import lease
from binlake.moment import moment_text
from binlake.phases import missed_changes
from binlake.position import Position
from binlake.records import missing_log, verified
from binlake.records.evidence import Evidence, LogStanding, evidence_of
from binlake.records.health import Health, health_of
from binlake.records.record import LOG_NOTED_EACH_US, log_noted, note_log
from binlake.records.status import SourceStatus, read_status
from binlake.source.ahead import Ahead, ahead_of, log_seen
from binlake.source.log import Log, Origin, opened
from binlake.source.retention import headroom_seconds
from binlake.source.server import Source
from binlake.store.metadata import Metadata, metadata_of, now_us


@dataclass(frozen=True)
class Watched:
    """State of a source.

    lag_seconds: see evidence.lag_seconds. lag_bytes: of log after the lake's position. headroom_seconds: see
    source/retention.py. Each is None if unknown. stopped: the stopped tables. abandoned: which open batch no run works
    on, and why; empty if there is none. verified_through: the batch up to which all tables that follow the log are
    known equal to the server; None where that isn't known of one. gaps: why the log lacks changes now. health: by all
    of this; None before the first snapshot.
    """

    lag_seconds: float | None
    lag_bytes: int | None
    headroom_seconds: float | None
    stopped: tuple[str, ...]
    abandoned: str = ""
    verified_through: int | None = None
    gaps: tuple[str, ...] = ()
    health: Health | None = None


def watch(config: PipelineConfig, origin: Origin) -> Watched:
    """Read the state of a source, and note the log's end in metadata. Raises SourceError and ConfigurationError."""
    status = read_status(config)
    stopped = tuple(row["table"] for row in status.tables if row["status"] == "stopped")
    if status.position is None:
        return Watched(None, None, None, stopped)
    position = Position.parse(status.position)
    with opened(origin) as log:
        ahead = look(config, log, position)
        headroom = headroom_seconds(log, position) if isinstance(log, Source) else None
    verified_through = verified.least(verified.batches(config, metadata_of(config)).values())
    gaps, beyond = tuple(gap.reason for gap in ahead.gaps), ahead.bytes
    known = _known(config, status, ahead, headroom)
    lag, health = known.lag_seconds, health_of(known)
    return Watched(lag, beyond, headroom, stopped, status.abandoned, verified_through, gaps, health)


def _known(config: PipelineConfig, status: SourceStatus, ahead: Ahead, headroom: float | None) -> Evidence:
    """Return what is known, with what the server says now. headroom: seconds for which it keeps the log that is read
    next."""
    known = evidence_of(config, metadata_of(config), status, now := now_us(), ahead=ahead)
    log = known.log or LogStanding(now, ahead.head, ahead.bytes, None, 0, 0, None, ahead.server or None)
    until = None if headroom is None else int(now + headroom * 1e6)
    return replace(known, log=replace(log, kept_until_us=until))


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
