"""Questions to the DDL history: which statements concerned a table, and which shape it had at a position or a time."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from binlake.config.schema_change_tools import has_tools_name
from binlake.errors import UsageError
from binlake.moment import parse_moment
from binlake.planner.noted_statements import ASKED, FOLLOWED
from binlake.position import Flavour, file_number
from binlake.schema.table import TableName, TableSchema
from binlake.store.conditions import literal, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import ShapeRow, StatementRow

_FEW = 20
"""Most lives that are selected by their ids; for more, all shapes are read."""
_PLACE = re.compile(r"(?P<file>[^:/]+\.\d+):(?P<offset>\d+)\Z")


@dataclass(frozen=True)
class Moment:
    """A place in the log (file number, offset), or a time (microseconds since 1970 UTC); the other is None."""

    order: tuple[int, int] | None
    at_us: int | None

    @classmethod
    def parse(cls, text: str, option: str = "--at") -> Moment:
        """Read ``FILE:POS``, or ISO 8601, UTC unless it names another zone. Raises UsageError, naming the option."""
        if place := _PLACE.match(text):
            return cls((file_number(place["file"]), int(place["offset"])), None)
        at = parse_moment(text, option, instead="a position such as binlog.000042:157")
        return cls(None, int(at.timestamp() * 1_000_000))


@dataclass(frozen=True)
class Shape:
    """The shape of a table from a position on, which a batch brought; None where no table has the name."""

    schema: TableSchema | None
    batch: int
    position: str
    order: tuple[int, int]
    at_us: int

    def applies_at(self, moment: Moment) -> bool:
        """Return whether the shape began at or before a moment."""
        if moment.order is not None:
            return self.order <= moment.order
        return moment.at_us is not None and self.at_us <= moment.at_us


def statements(metadata: Metadata, name: TableName | None = None) -> list[StatementRow]:
    """Return rows of the DDL history in the order of the log, of one table or of all."""
    return sorted(StatementRow.read(metadata, where=rows_of(name) if name else None), key=lambda row: row.order)


def shapes(metadata: Metadata, name: TableName) -> list[Shape]:
    """Return all shapes of a name, oldest first: from its snapshots, and from the statements that were followed."""
    known = [
        Shape(row.shape, row.batch, row.position, row.order[1:], row.at_us)
        for row in ShapeRow.read(metadata, where=f"{rows_of(name)} AND why = 'snapshot'")
    ]
    known += [
        Shape(row.shape, row.batch, row.position, row.order[1:], row.committed_us)
        for row in statements(metadata, name)
        if row.has_shape
    ]
    return sorted(known, key=lambda shape: (shape.batch, shape.order))


def was_tools(metadata: Metadata, name: TableName, flavour: Flavour) -> bool:
    """Return whether a dropped table was a schema change tool's, by what the DDL history shows of its last life."""
    if not has_tools_name(name.table):
        return False
    from binlake.planner import tool_tables  # it parses statements, which a status doesn't

    own = statements(metadata, name)
    life = next((row.table_id for row in reversed(own) if row.table_id), None)
    places = {(row.batch, row.offset) for row in own if row.table_id == life}
    if life is None:
        return False
    of_places = " OR ".join(f'(batch = {batch} AND "offset" = {offset})' for batch, offset in sorted(places))
    return tool_tables.was_tools(
        name, life, [row.noted for row in StatementRow.read(metadata, where=of_places)], flavour
    )


def schemas_now(metadata: Metadata, lives: Collection[str], *, up_to: int | None = None) -> dict[str, TableSchema]:
    """Return the newest shape of each of these lives, by table id; for a dropped one its last.

    up_to: the batch after which the newest is meant.
    """
    if not lives:
        return {}
    wanted = frozenset(lives)
    asked = f"table_id IN ({', '.join(map(literal, wanted))})" if len(wanted) <= _FEW else None
    newest: dict[str, ShapeRow] = {}
    for row in ShapeRow.read(metadata, "table_id", "batch", "at_us", "schema", where=asked):
        if row.table_id not in wanted or (up_to is not None and row.batch > up_to):
            continue
        known = newest.setdefault(row.table_id, row)
        if (known.batch, known.at_us) < (row.batch, row.at_us):
            newest[row.table_id] = row
    return {life: row.shape for life, row in newest.items()}


def schema_now(metadata: Metadata, life: str) -> TableSchema | None:
    """Return the newest shape of one life of a table, by its table id; for a dropped one its last."""
    return schemas_now(metadata, {life}).get(life)


def shapes_at_server(metadata: Metadata, lives: Collection[str]) -> dict[str, TableSchema | None]:
    """Return, by their ids, the shapes at the server of stopped lives that statements changed since; None where a shape
    isn't known."""
    if not lives:
        return {}
    columns = ("table_id", "batch", "file", "offset", "action", "before", "after")
    of_lives = f"table_id IN ({', '.join(map(literal, sorted(lives)))})"
    rows = [row for row in StatementRow.read(metadata, *columns, where=of_lives) if row.has_shape]
    newest = {row.table_id or "": row for row in sorted(rows, key=lambda row: row.order)}
    return {life: row.shape for life, row in newest.items() if row.action != "followed"}


def not_followed(metadata: Metadata, lives: Collection[str]) -> list[tuple[str, str]]:
    """Return the ids of these lives with the texts of statements that they didn't follow when these came."""
    where = f"table_id IN ({', '.join(map(literal, sorted(lives)))}) AND action <> 'followed' AND action <> 'ignored'"
    rows = StatementRow.read(metadata, "table_id", "statement", where=where)
    return [(row.table_id, row.statement or "") for row in rows if row.table_id]


def not_understood(metadata: Metadata, lives: Collection[str]) -> list[tuple[str, str]]:
    """Return the ids of these lives with the texts of statements that they didn't follow, without those that asked for
    a snapshot and whose shape is known: these were looked at when they came."""
    where = f"table_id IN ({', '.join(map(literal, sorted(lives)))}) AND action <> 'followed' AND action <> 'ignored'"
    rows = StatementRow.read(metadata, "table_id", "statement", "action", "after", where=where)
    return [(row.table_id, row.statement) for row in rows if row.table_id and not (row.action == ASKED and row.after)]


def renamed_away(metadata: Metadata, lives: Collection[str]) -> set[str]:
    """Return those of these ended lives, by their ids, whose tables weren't dropped: they got names that aren't
    included."""
    if not lives:
        return set()
    where = f"table_id IN ({', '.join(map(literal, sorted(lives)))}) AND kind IN ('RENAME TABLE', 'ALTER TABLE')"
    rows = StatementRow.read(metadata, "table_id", "after", "action", where=where)
    return {row.table_id for row in rows if row.table_id and row.after is None and row.action == FOLLOWED}


def shape_at(metadata: Metadata, name: TableName, moment: Moment) -> Shape:
    """Return the shape that a table had. Raises UsageError when none is known there."""
    known = [shape for shape in shapes(metadata, name) if shape.applies_at(moment)]
    if not known:
        raise UsageError(
            f"nothing is known of {name} there", remedy="the history begins with its snapshot, or with its CREATE TABLE"
        )
    if moment.order is not None:  # positions of one server's log compare; behind a failover another one's are smaller
        known.sort(key=lambda shape: shape.order)
    return known[-1]
