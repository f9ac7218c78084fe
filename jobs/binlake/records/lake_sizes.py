"""The sizes of a lake's tables over time, as the upkeep saw them: a table's row is written when its size differs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from binlake.schema.table import TableName
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import SizeRow

_COLUMNS = ("at_us", "database", "table", "bytes", "files")
_NEWEST_OF_EACH = Newest("at_us", 1, per=("database", "table"))


@dataclass(frozen=True)
class NotedSize:
    """The data files of a newest version: their bytes and their number."""

    bytes: int
    files: int


def note(metadata: Metadata, sizes: Mapping[TableName, NotedSize], lake: Collection[TableName] | None) -> None:
    """Write the sizes that differ from those noted last. The caller holds the lease.

    lake: all tables that the lake has, so that others are noted as gone; None where that isn't known.
    """
    last = {row.name: NotedSize(row.bytes, row.files) for row in SizeRow.read(metadata, newest=_NEWEST_OF_EACH)}
    gone = () if lake is None else last.keys() - set(lake)
    now = {**sizes, **dict.fromkeys(gone, NotedSize(0, 0))}
    differing = {name: size for name, size in now.items() if last.get(name, NotedSize(0, 0)) != size}
    if differing:
        at = now_us()
        SizeRow.append(metadata, [SizeRow(at_us=at, **vars(name), **vars(size)) for name, size in differing.items()])


def sums_at(metadata: Metadata, times_us: Sequence[int]) -> list[NotedSize | None]:
    """Return what all tables had at each time, which ascend; None before anything was noted."""
    before = SizeRow.read(metadata, where=f"at_us < {times_us[0]}", newest=_NEWEST_OF_EACH)
    since = metadata.read_columns(SizeRow.TABLE, _COLUMNS, where=f"at_us >= {times_us[0]}").to_pydict()
    noted = [tuple(row.values().values()) for row in before]
    noted += zip(*(since[column] for column in _COLUMNS), strict=True)
    noted.sort(key=lambda row: row[0])
    known = dict[tuple[str, str], tuple[int, int]]()
    size, files, place = 0, 0, 0
    sums: list[NotedSize | None] = []
    for time in times_us:
        while place < len(noted) and noted[place][0] <= time:
            _, database, table, *now = noted[place]
            last = known.get((database, table), (0, 0))
            size, files = size + now[0] - last[0], files + now[1] - last[1]
            known[database, table] = (now[0], now[1])
            place += 1
        sums.append(NotedSize(size, files) if place else None)
    return sums


def expire(metadata: Metadata, old_us: int) -> int:
    """Remove rows before a time, except what a table had then; return their number."""
    rows = SizeRow.read(metadata, where=f"at_us < {old_us}")
    newest = {row.name: row for row in sorted(rows, key=lambda row: row.at_us)}
    kept = [row for row in newest.values() if row.files]
    if removed := len(rows) - len(kept):
        SizeRow.replace(metadata, f"at_us < {old_us}", kept)
    return removed
