"""How long a server keeps its log, and how soon it may purge the part that is read next."""

from __future__ import annotations

from binlake.errors import SourceError
from binlake.position import Position, file_number
from binlake.source.releases import RDS_RETENTION, SERVICE_VARIABLES, service_of
from binlake.source.server import Source

RETENTION = ("binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days", *SERVICE_VARIABLES)
"""The variables that set the retention, and those that show whether a service overrides them."""


def retention_hours(variables: dict[str, str]) -> float | None:
    """Return for how many hours the server keeps its log; None for ever."""
    if variables.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return None
    seconds = float(variables.get("binlog_expire_logs_seconds", 0))
    seconds = seconds or float(variables.get("expire_logs_days", 0)) * 86_400
    return seconds / 3600 or None


def service_hours(source: Source) -> float:
    """Return the hours for which Amazon's services keep the log; 0 where they purge it as soon as they can.

    Raises SourceError where the account may not read them.
    """
    rows = source.query(RDS_RETENTION)
    return float(rows[0]["hours"] or 0) if rows else 0.0


def kept_hours(source: Source) -> float | None:
    """Return the hours for which the log is kept; None for ever, or where the account may not know."""
    variables = source.variables(RETENTION)
    service = service_of(source.version_text, variables)
    if service is None or not service.retention:
        return retention_hours(variables)
    try:
        return service_hours(source)
    except SourceError:
        return None


def headroom_seconds(source: Source, position: Position) -> float | None:
    """Return the seconds until the server may purge the file of a position.

    A file's age counts from when the next file began. Returns None if it is never purged or the position is another
    server's; 0 if the file is gone.
    """
    kept = kept_hours(source)
    if kept is None or not source.is_of(position.server):
        return None
    files = {file_number(file): file for file, _ in source.binary_logs()}
    number = file_number(position.file)
    if number not in files:
        return 0.0
    following = [file for file in files if file > number]
    if not following:  # the file in use
        return kept * 3600
    from binlake.binlog.integrity import format_description  # imports numpy; others ask for the hours alone

    closed = format_description(source.transport(), files[min(following)])
    return max(0.0, closed + kept * 3600 - source.now() / 1e6)
