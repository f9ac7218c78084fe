"""State of a source: how far the lake is behind, and how long the server will keep the log that it needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from binlake.binlog.locate import RESNAPSHOT
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, PositionLost
from binlake.metadata import lease
from binlake.metadata.metadata import Metadata, literal, metadata_of, now_us
from binlake.metadata.record import note_log
from binlake.metadata.status import read_status
from binlake.position import Position
from binlake.source.ahead import ahead_of, log_seen
from binlake.source.log import Log, Origin, opened
from binlake.source.retention import headroom_seconds
from binlake.source.server import Source

_FRESH_US = 5 * 60 * 1_000_000
"""Microseconds within which the log's end isn't noted again: a sensor may look each minute."""


@dataclass(frozen=True)
class Watched:
    """State of a source.

    lag_seconds: since the time up to which the lake has every commit; 0 if the log has nothing more. lag_bytes: of log
    after the lake's position. headroom_seconds: see source/retention.py. Each is None if unknown. stopped: the stopped
    tables.
    """

    lag_seconds: float | None
    lag_bytes: int | None
    headroom_seconds: float | None
    stopped: tuple[str, ...]


def watch(config: PipelineConfig, origin: Origin) -> Watched:
    """Read the state of a source, and note the log's end in metadata. Raises SourceError and ConfigurationError."""
    status = read_status(config)
    stopped = tuple(row["table"] for row in status.tables if row["status"] == "stopped")
    if status.position is None:
        return Watched(None, None, None, stopped)
    position = Position.parse(status.position)
    with opened(origin) as log:
        beyond = ahead_of(config, log, position).bytes
        headroom = headroom_seconds(log, position) if isinstance(log, Source) else None
        note_seen(metadata_of(config), log)
    lag = None if status.carried_us is None else max(0.0, (now_us() - status.carried_us) / 1e6)
    return Watched(0.0 if beyond == 0 else lag, beyond, headroom, stopped)


def refuse_unlogged(metadata: Metadata, log: Log, position: Position) -> None:
    """Raise PositionLost if the server ran without its log after a position.

    A server without a log is noted in metadata, by its own clock, before ServerSettingError is raised. Once it writes
    its log again, no GTID, offset or file name shows the gap. So PositionLost is raised until the log is followed from
    a file begun after that, as is the case after a snapshot of all tables.
    """
    if not isinstance(log, Source) or not log.is_of(position.server):
        return
    if not log.log_status():
        metadata.append("unlogged", [{"server": position.server, "at_us": log.now()}])
        log.head()  # raises, with the remedy
    since = position.created * 1_000_000
    seen = metadata.read("unlogged", where=f"server = {literal(position.server)} AND at_us >= {since}")
    if seen:
        at = datetime.fromtimestamp(max(row["at_us"] for row in seen) / 1e6, UTC)
        raise PositionLost(
            f"the server wrote no log when it was looked at on {at:%Y-%m-%d %H:%M:%S} UTC, and the lake stands at "
            f"{position.short}, before that: what was written then is in no log",
            remedy=RESNAPSHOT,
        )


def note_seen(metadata: Metadata, log: Log) -> None:
    """Note the log's end in metadata, for readers of metadata alone, unless it was noted within five minutes.

    Writes nothing before the first snapshot, and ignores errors.
    """
    with suppress(BinlakeError):
        planned_to = lease.read(metadata).planned_to
        known = metadata.read("source_log", ["at_us"])
        if planned_to is not None and not any(row["at_us"] > now_us() - _FRESH_US for row in known):
            note_log(metadata, log_seen(log, planned_to))
