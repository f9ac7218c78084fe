"""Included tables that the server has and the lake doesn't: every sync reports them.

A table that the server lists may be one whose CREATE TABLE or RENAME TABLE a later batch reads. So names without a life
are noted with the end of the log behind which they were listed. Where the lake has come there, and a name still has no
life, nothing will give it one: it gets a watermark with the status missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Set

from binlake.lease import copier
from binlake.planner.outcome import NEVER_SNAPSHOTTED
from binlake.position import Position
from binlake.records import watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from binlake.store.rows import AwaitedRow, WatermarkRow


def known(metadata: Metadata) -> Set[TableName]:
    """Return the tables of which metadata have a row, except dropped ones."""
    rows = WatermarkRow.read(metadata, "database", "table", "status")
    return {row.name for row in rows if row.status != "dropped"}


def note(metadata: Metadata, names: Iterable[TableName], end: Position) -> None:
    """Note tables without a life, in the place of those that were noted before. end: of the log, read once they were
    listed."""
    noted = {row.name: row.position for row in AwaitedRow.read(metadata)}
    wanted = {name: noted.get(name, str(end)) for name in names}
    if wanted != noted:
        rows = [AwaitedRow(**vars(name), position=at) for name, at in wanted.items()]
        AwaitedRow.replace(metadata, "true", rows)


def missing(metadata: Metadata, position: Position, having: Container[TableName]) -> list[TableName]:
    """Return the noted tables that the lake has passed, except those that have a life or a watermark by now.

    position: of the lake. having: the names that have a life or a watermark.
    """
    rows = AwaitedRow.read(metadata)
    names = {row.name for row in rows if _is_passed(Position.parse(row.position), position)}
    return sorted(name for name in names if name not in having)


def without_copied(metadata: Metadata, names: list[TableName]) -> list[TableName]:
    """Return the names without those of tables that a run is copying: they aren't missing, unless the run ends."""
    copied = copier.tables(metadata) if names else frozenset()
    return [name for name in names if name not in copied]


def write_missing(metadata: Metadata, position: Position, batch: int) -> list[TableName]:
    """Write watermarks of tables that are missing where no batch does it, and return their names.

    position, batch: of the lake.
    """
    names = without_copied(metadata, missing(metadata, position, known(metadata)))
    rows = [
        watermarks.unsnapshotted_row(name, "missing", NEVER_SNAPSHOTTED, batch=batch, position=position)
        for name in names
    ]
    watermarks.write(metadata, rows)
    return names


def _is_passed(noted: Position, position: Position) -> bool:
    return noted.server == position.server and noted.created <= position.created and noted <= position
