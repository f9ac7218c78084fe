"""State of a source: how far the lake is behind, and how long the server will keep the log that it needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.errors import RESNAPSHOT, BinlakeError, NoBinlog, PositionLost
from binlake.metadata import lease, missing_log, verified
from binlake.metadata.metadata import Metadata, metadata_of, now_us
from binlake.metadata.record import LOG_NOTED_EACH_US, log_noted, note_log
from binlake.metadata.status import read_status
from binlake.moment import moment_text
from binlake.position import Position
from binlake.source.ahead import Ahead, ahead_of, log_seen
from binlake.source.log import Log, Origin, opened
from binlake.source.retention import headroom_seconds
from binlake.source.server import Source


@dataclass(frozen=True)
class Watched:
    """State of a source.

    lag_seconds: since the time up to which the lake has every commit; 0 if the log has nothing more. lag_bytes: of log
    after the lake's position. headroom_seconds: see source/retention.py. Each is None if unknown. stopped: the stopped
    tables. abandoned: which open batch no run works on, and why; empty if there is none. verified_through: the batch up
    to which all tables that follow the log are known equal to the server; None where that isn't known of one.
    """

    lag_seconds: float | None
    lag_bytes: int | None
    headroom_seconds: float | None
    stopped: tuple[str, ...]
    abandoned: str = ""
    verified_through: int | None = None


def watch(config: PipelineConfig, origin: Origin) -> Watched:
    """Read the state of a source, and note the log's end in metadata. Raises SourceError and ConfigurationError."""
    status = read_status(config)
    stopped = tuple(row["table"] for row in status.tables if row["status"] == "stopped")
    if status.position is None:
        return Watched(None, None, None, stopped)
    position = Position.parse(status.position)
    with opened(origin) as log:
        beyond = look(config, log, position).bytes
        headroom = headroom_seconds(log, position) if isinstance(log, Source) else None
    lag = None if status.carried_us is None else max(0.0, (now_us() - status.carried_us) / 1e6)
    verified_through = verified.least(verified.batches(config, metadata_of(config)).values())
    return Watched(0.0 if beyond == 0 else lag, beyond, headroom, stopped, status.abandoned, verified_through)


def look(config: PipelineConfig, log: Log, position: Position) -> Ahead:
    """Return what a log has beyond a position. What was seen is noted in metadata. Raises SourceError."""
    metadata = metadata_of(config)
    try:
        ahead = ahead_of(config, log, position)
    except NoBinlog as error:
        missing_log.note(metadata, error)
        raise
    note_seen(metadata, log)
    return ahead


def refuse_unlogged(metadata: Metadata, log: Log, position: Position) -> None:
    """Raise NoBinlog if the server writes no log, PositionLost if it was seen so after a position.

    PositionLost is raised until the log is followed from a file begun after that, as is the case after a snapshot of
    all tables.
    """
    if not isinstance(log, Source) or not log.is_of(position.server):
        return
    log.head()
    seen_us = missing_log.last_seen(metadata, position.server, position.created * 1_000_000)
    if seen_us is not None:
        raise PositionLost(
            f"the server wrote no log when it was looked at on {moment_text(seen_us)}, and the lake stands at "
            f"{position.short}, before that: what was written then is in no log",
            remedy=RESNAPSHOT,
        )


def note_seen(metadata: Metadata, log: Log) -> None:
    """Note the log's end in metadata, for readers of metadata alone, unless it was noted within five minutes: a sensor
    may look each minute.

    Writes nothing before the first snapshot, and ignores errors.
    """
    with suppress(BinlakeError):
        control, known = lease.read(metadata), log_noted(metadata)
        is_old = known is None or known["at_us"] <= now_us() - LOG_NOTED_EACH_US
        if control.planned_to is not None and is_old:
            note_log(metadata, log_seen(log, control.planned_to), control.batch)
