"""How much log a source has beyond a position, for how long the server keeps it, and which tables it has.

The answers take a moment, and no connection as a replica."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.position import Position, file_number
from binlake.schema.log_gaps import LogGap
from binlake.schema.table import TableName
from binlake.source.gaps import standing_gaps
from binlake.source.listed_tables import included_tables
from binlake.source.log import Log, Origin, opened
from binlake.source.retention import kept_hours
from binlake.source.server import Source


@dataclass(frozen=True)
class Ahead:
    """The log and the tables that a source has beyond a position.

    head: the log's end, ``file:offset``. bytes: size of the log beyond the position; None if the log lacks it. tables:
    the tables to be mirrored; empty for a folder of files, which doesn't list them. gaps: why the log of ``server``
    lacks changes of them now.
    """

    head: str
    bytes: int | None
    tables: tuple[TableName, ...] = ()
    gaps: tuple[LogGap, ...] = ()
    server: str = ""


def look_ahead(config: PipelineConfig, origin: Origin, position: Position | None) -> Ahead:
    """Connect to a source and return what it has beyond a position. Raises SourceError and ConfigurationError."""
    with opened(origin) as log:
        return ahead_of(config, log, position)


def ahead_of(config: PipelineConfig, log: Log, position: Position | None) -> Ahead:
    """Return what an open log has beyond a position. Raises SourceError."""
    file, offset, _ = log.head()
    beyond = None
    if position is not None and log.is_of(position.server):
        beyond = _size_beyond(log.binary_logs(), position, (file, offset))
    tables = tuple(included_tables(log, config)) if isinstance(log, Source) else ()
    gaps = standing_gaps(log, config.tables.include) if isinstance(log, Source) else ()
    return Ahead(f"{file}:{offset}", beyond, tables, gaps, log.server_identity)


@dataclass(frozen=True)
class LogSeen:
    """The state of a source's log at the time ``at_us``, as it is noted when a batch is planned.

    head: its end, ``file:offset``. bytes_ahead: size of the log beyond what is planned. oldest_file: the first of the
    remaining ``files``, which have ``bytes`` in all. kept_hours: for how long a file is kept; None for ever, or if it
    isn't known. server: its identity; None where an older binlake noted it.
    """

    at_us: int
    head: str
    bytes_ahead: int | None
    oldest_file: str | None
    files: int
    bytes: int
    kept_hours: float | None
    server: str | None = None


def log_seen(log: Log, planned_to: Position) -> LogSeen:
    """Return the state of a log. Raises SourceError."""
    file, offset, _ = log.head()
    left = log.binary_logs()
    kept = kept_hours(log) if isinstance(log, Source) else None
    return LogSeen(
        log.now(),
        f"{file}:{offset}",
        _size_beyond(left, planned_to, (file, offset)) if log.is_of(planned_to.server) else None,
        left[0][0] if left else None,
        len(left),
        sum(size for _, size in left),
        kept,
        log.server_identity,
    )


def _size_beyond(files: tuple[tuple[str, int], ...], position: Position, head: tuple[str, int]) -> int | None:
    first, last = file_number(position.file), file_number(head[0])
    sizes = {file_number(file): size for file, size in files} | {last: head[1]}
    if first not in sizes or position.offset > sizes[first]:
        return None
    return sum(size for number, size in sizes.items() if first <= number <= last) - position.offset
