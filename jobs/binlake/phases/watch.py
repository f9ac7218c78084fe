"""How a source does, at a glance: how far the lake is behind, and for how long what it needs is still there."""

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
"""What was noted since isn't noted anew: a sensor may look each minute."""


@dataclass(frozen=True)
class Watched:
    """lag_seconds: since the time up to which the lake has every commit; 0 where the log has nothing beyond. lag_bytes:
    of log beyond the lake's position. headroom_seconds: see source.retention. Each None where it can't be told.

    stopped: tables that don't follow.
    """

    lag_seconds: float | None
    lag_bytes: int | None
    headroom_seconds: float | None
    stopped: tuple[str, ...]


def watch(config: PipelineConfig, origin: Origin) -> Watched:
    """Raises SourceError and ConfigurationError."""
    found = read_status(config)
    stopped = tuple(row["table"] for row in found.tables if row["status"] == "stopped")
    if found.position is None:
        return Watched(None, None, None, stopped)
    position = Position.parse(found.position)
    with opened(origin) as log:
        beyond = ahead_of(config, log, position).bytes
        headroom = headroom_seconds(log, position) if isinstance(log, Source) else None
        note_seen(metadata_of(config), log)
    lag = None if found.carried_us is None else max(0.0, (now_us() - found.carried_us) / 1e6)
    return Watched(0.0 if beyond == 0 else lag, beyond, headroom, stopped)


def refuse_unlogged(metadata: Metadata, log: Log, position: Position) -> None:
    """Refuse to go on from a position behind which the server ran without its log.

    A server that writes none is noted, by its own clock, before ServerSettingError is raised. Once it writes one again,
    no GTID, no offset and no name of a file tells of the gap: PositionLost is raised until the log is followed from a
    file that it began since, which a snapshot of all tables makes it.
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
    """Write down how far the log goes on, for who looks at metadata alone, unless that was done minutes ago.

    Before the first snapshot nothing is written, and nothing that fails here holds anything up.
    """
    with suppress(BinlakeError):
        planned_to = lease.read(metadata).planned_to
        known = metadata.read("source_log", ["at_us"])
        if planned_to is not None and not any(row["at_us"] > now_us() - _FRESH_US for row in known):
            note_log(metadata, log_seen(log, planned_to))
