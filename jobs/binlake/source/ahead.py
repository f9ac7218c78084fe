"""How far a source's log goes on beyond a position, and which tables it has: asked in a moment, as no replica."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.position import Position, file_number
from binlake.schema.table import TableName
from binlake.source.catalog import included_tables
from binlake.source.log import Origin, opened
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
        file, offset, _ = log.head()
        beyond = None
        if position is not None and log.is_of(position.server):
            beyond = _bytes(log.binary_logs(), position, (file, offset))
        tables = tuple(included_tables(log, config)) if isinstance(log, Source) else ()
    return Ahead(f"{file}:{offset}", beyond, tables)


def _bytes(files: tuple[tuple[str, int], ...], position: Position, head: tuple[str, int]) -> int | None:
    first, last = file_number(position.file), file_number(head[0])
    sizes = {file_number(file): size for file, size in files} | {last: head[1]}
    if first not in sizes or position.offset > sizes[first]:
        return None
    return sum(size for number, size in sizes.items() if first <= number <= last) - position.offset
