"""State of a source: how far the lake is behind, and how long the server will keep the log that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from binlake.config import PipelineConfig
from binlake.phases.log_looks import look
from binlake.position import Position
from binlake.records import verified
from binlake.records.evidence import Evidence, LogStanding, evidence_of
from binlake.records.health import Health, health_of
from binlake.records.status import SourceStatus, read_status
from binlake.source.ahead import Ahead
from binlake.source.log import Origin, opened
from binlake.source.retention import headroom_seconds
from binlake.source.server import Source
from binlake.store.metadata import metadata_of, now_us


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
    stopped = tuple(row.table for row in status.tables if row.status == "stopped")
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
