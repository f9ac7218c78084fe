"""How far a source's log goes on beyond a position, for how long the server keeps it, and which tables it has: asked in
a moment, as no replica."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.position import Position, file_number
from binlake.schema.table import TableName
from binlake.source.catalog import included_tables
from binlake.source.log import Log, Origin, opened
from binlake.source.retention import kept_hours
from binlake.source.server import Source


@dataclass(frozen=True)
class Ahead:
    """head: the log's end, ``file:offset``. bytes: of log beyond the position; None where the log doesn't hold it.

    tables: that are to be mirrored; none of a folder of files, which doesn't tell.
    """

    head: str
    bytes: int | None
    tables: tuple[TableName, ...] = ()


def look_ahead(config: PipelineConfig, origin: Origin, position: Position | None) -> Ahead:
    """Raises SourceError and ConfigurationError."""
    with opened(origin) as log:
        return ahead_of(config, log, position)


def ahead_of(config: PipelineConfig, log: Log, position: Position | None) -> Ahead:
    """As above, of a log that is open."""
    file, offset, _ = log.head()
    beyond = None
    if position is not None and log.is_of(position.server):
        beyond = _bytes(log.binary_logs(), position, (file, offset))
    tables = tuple(included_tables(log, config)) if isinstance(log, Source) else ()
    return Ahead(f"{file}:{offset}", beyond, tables)


@dataclass(frozen=True)
class LogSeen:
    """What a server says of its log when it is planned from, or looked at.

    head: its end, ``file:offset``. bytes_ahead: of log beyond what is planned. oldest_file: the first that is left of
    ``files``, ``bytes`` in all. kept_hours: for how long a file is kept, None for ever, or where nobody says.
    """

    at_us: int
    head: str
    bytes_ahead: int | None
    oldest_file: str | None
    files: int
    bytes: int
    kept_hours: float | None


def log_seen(log: Log, planned_to: Position) -> LogSeen:
    """Raises SourceError."""
    file, offset, _ = log.head()
    left = log.binary_logs()
    kept = kept_hours(log) if isinstance(log, Source) else None
    return LogSeen(
        log.now(),
        f"{file}:{offset}",
        _bytes(left, planned_to, (file, offset)) if log.is_of(planned_to.server) else None,
        left[0][0] if left else None,
        len(left),
        sum(size for _, size in left),
        kept,
    )


def _bytes(files: tuple[tuple[str, int], ...], position: Position, head: tuple[str, int]) -> int | None:
    first, last = file_number(position.file), file_number(head[0])
    sizes = {file_number(file): size for file, size in files} | {last: head[1]}
    if first not in sizes or position.offset > sizes[first]:
        return None
    return sum(size for number, size in sizes.items() if first <= number <= last) - position.offset
