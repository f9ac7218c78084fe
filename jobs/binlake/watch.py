"""How a source does, at a glance: how far the lake is behind, and for how long what it needs is still there."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.position import Position
from binlake.source.ahead import look_ahead
from binlake.source.log import Origin, opened
from binlake.source.retention import headroom_seconds
from binlake.source.server import Source
from binlake.state.metadata import now_us
from binlake.state.status import read_status


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
    beyond = look_ahead(config, origin, position).bytes
    lag = None if found.carried_us is None else max(0.0, (now_us() - found.carried_us) / 1e6)
    return Watched(0.0 if beyond == 0 else lag, beyond, _headroom(config, origin, position), stopped)


def _headroom(config: PipelineConfig, origin: Origin, position: Position) -> float | None:
    with opened(origin) as log:
        return headroom_seconds(log, position) if isinstance(log, Source) else None
