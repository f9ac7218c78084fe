"""For how long a server keeps its log, and the part of it that is read next."""

from __future__ import annotations

from binlake.binlog.boundaries import format_description
from binlake.position import Position, file_number
from binlake.source.server import Source

RETENTION = ("binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days")
"""The server's settings of it."""


def retention_hours(variables: dict[str, str]) -> float | None:
    """Hours for which the server keeps its log; None for ever."""
    if variables.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return None
    seconds = float(variables.get("binlog_expire_logs_seconds", 0))
    seconds = seconds or float(variables.get("expire_logs_days", 0)) * 86_400
    return seconds / 3600 or None


def headroom_seconds(source: Source, position: Position) -> float | None:
    """Seconds until the server may purge the file that the position lies in: its age counts from when the next file
    began. None where it never does, or the position is another server's; 0 where the file is gone.
    """
    kept = retention_hours(source.variables(RETENTION))
    if kept is None or not source.is_of(position.server):
        return None
    files = {file_number(file): file for file, _ in source.binary_logs()}
    number = file_number(position.file)
    if number not in files:
        return 0.0
    following = [one for one in files if one > number]
    if not following:  # the file in use
        return kept * 3600
    closed = format_description(source.transport(), files[min(following)])
    return max(0.0, closed + kept * 3600 - source.now() / 1e6)
