"""What the metadata tables have of a table's values from before its newest copy, and its removal.

Rows with values go. Statements and shapes stay without the values that they say: a DEFAULT, the members of an ENUM, a
comment, an expression. Texts that quote one of these lose it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from binlake.ddl import redaction
from binlake.errors import WrittenMeanwhile
from binlake.planner.steps import Life
from binlake.position import Flavour, Position
from binlake.schema.table import Column, TableName, TableSchema, Virtual
from binlake.serialization import dumps, loads
from binlake.store.conditions import literal, quoted, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import (
    ChunkRow,
    DecisionRow,
    FeedRow,
    FollowerStopRow,
    MergedRow,
    OmissionRow,
    QuarantineRow,
    ShapeRow,
    StatementRow,
    WatermarkRow,
)
from binlake.store.run_rows import RepairRow, RunRow, VerificationRow, VerifiedRow
from binlake.store.typed_rows import Row

_HIDDEN = "***"
_FEWEST_LETTERS, _FEWEST_DIGITS = 4, 8
"""Letters of a value for which texts are looked through, and digits of a number: shorter ones are other words, too."""
_QUOTING: Mapping[type[Row], tuple[str, ...]] = {
    RunRow: ("tables", "message"), DecisionRow: ("result",), WatermarkRow: ("reason", "remedy"),
    QuarantineRow: ("reason", "remedy"), StatementRow: ("reason",), FollowerStopRow: ("message",),
    MergedRow: ("reason", "remedy"), FeedRow: ("reason", "remedy"), OmissionRow: ("reason",),
}  # fmt: skip
"""Texts of rows that may quote a statement."""
_OF_TABLES = (DecisionRow, WatermarkRow, QuarantineRow, StatementRow)
"""Those that name the table that they are about; some rows are about none."""
_TRIES = 5
_ABOUT_TABLES = ("reason", "remedy", "left", "problem")


@dataclass(frozen=True)
class Taken:
    """Since when another table has had a former name of a table. batch, at_us: in which that was recorded, and when."""

    batch: int
    at_us: int


_RECORDED: Mapping[type[Row], tuple[str, str]] = {
    QuarantineRow: ("at_us", "at_us"), ChunkRow: ("updated_us", "at_us"), VerificationRow: ("at_us", "at_us"),
    StatementRow: ("batch", "batch"),
}  # fmt: skip
"""The column by which rows without a table id are before or behind the time when another table took their name, and the
field of Taken with which it is compared. Other rows have an id."""


@dataclass(frozen=True)
class RowsBefore:
    """The rows of a table from before its newest copy.

    life: the one that began with the copy. names: those that the table, its lives before and tools' copies of it have
    had. ended: the ids of these lives. living: the ids of the other tables that are there. taken: the names that one of
    these has by now. since_us: when the life began, in microseconds since 1970. withheld: names of columns, in lower
    case.
    """

    metadata: Metadata
    life: Life
    names: Collection[TableName]
    ended: Collection[str]
    living: Collection[str]
    taken: Mapping[TableName, Taken]
    since_us: int
    withheld: Collection[str]

    def _of_others(self, kind: type[Row]) -> str:
        """Return the predicate of rows that are of other lives of the table."""
        named = " OR ".join(self._named(kind, "table_id IS NOT NULL OR "))
        earlier = f" OR table_id IN ({_listed(self.ended)})" if self.ended else ""
        others = _listed({self.life.id, *self.living})
        return f"({named}{earlier}) AND (table_id IS NULL OR table_id NOT IN ({others}))"

    def _named(self, kind: type[Row], or_any: str = "") -> Iterator[str]:
        """Yield predicates of rows by the table's names: those since another table took a name are that table's.
        or_any: what else lets such rows be this table's."""
        column, of_taken = _RECORDED.get(kind, ("", ""))
        for name in sorted(self.names):
            if column and name in self.taken:
                yield f"({rows_of(name)} AND ({or_any}{column} <= {getattr(self.taken[name], of_taken)}))"
            else:
                yield f"({rows_of(name)})"

    @property
    def _of_this(self) -> str:
        """Return the predicate of rows of the life from before it began: a table that is copied twice at one position
        has the same id."""
        return f"(table_id = {literal(self.life.id)} AND at_us < {self.since_us})"

    @cached_property
    def _going(self) -> Mapping[type[Row], str]:
        """Return the predicates of the rows that go, by their kind."""
        before, unassigned = f"at_us < {self.since_us}", '("table" IS NULL AND raw IS NOT NULL)'
        return {
            QuarantineRow: f"{before} AND (({self._of_others(QuarantineRow)}) OR {self._of_this} OR {unassigned})",
            RepairRow: f"({self._of_others(RepairRow)}) OR {self._of_this}",
            VerifiedRow: f"({self._of_others(VerifiedRow)}) OR {self._of_this}",
            VerificationRow: f"({' OR '.join(self._named(VerificationRow))}) AND {before}",  # they name no life
            ChunkRow: f"({self._of_others(ChunkRow)}) OR ({self._own_chunks})",
        }

    @property
    def _own_chunks(self) -> str:
        """Return the predicate of chunks of the life that aren't of its newest copy."""
        own = f"table_id = {literal(self.life.id)}"
        rows = ChunkRow.read(self.metadata, "snapshot", "updated_us", where=own)
        newest = max(rows, key=lambda row: row.updated_us).snapshot if rows else ""
        return f"{own} AND snapshot <> {literal(newest)}"

    def count(self) -> dict[str, int]:
        """Return the numbers of rows that go or lose values, by the metadata table, without those that have none."""
        counts = {kind.TABLE: kind.count(self.metadata, where) for kind, where in self._going.items()}
        counts |= {kind.TABLE: kind.count(self.metadata, self._of_others(kind)) for kind in (StatementRow, ShapeRow)}
        return {table: count for table, count in counts.items() if count}

    def purge(self) -> None:
        """Remove them, and the values in statements, shapes and the texts that quote these. The caller holds the lease.
        Raises LakeError."""
        _hide(self.metadata, {value for value in self._said() if len(value) >= _fewest(value)}, self.names)
        for kind, where in self._going.items():
            if kind.count(self.metadata, where):
                kind.replace(self.metadata, where)
        where = self._of_others(StatementRow)
        statements = StatementRow.read(self.metadata, where=where)
        if any(row != _without_values(row) for row in statements):
            StatementRow.replace(self.metadata, where, list(map(_without_values, statements)))
        where = self._of_others(ShapeRow)
        shapes = ShapeRow.read(self.metadata, where=where)
        if any(row.schema != _bare(row.schema) for row in shapes):
            rows = [replace(row, schema=bare) for row in shapes if (bare := _bare(row.schema))]
            ShapeRow.replace(self.metadata, where, rows)

    def _said(self) -> Iterator[str]:
        """Yield the values that statements say, and shapes of withheld columns."""
        for row in StatementRow.read(self.metadata, where=self._of_others(StatementRow)):
            yield from _literals(row) or ()
            for text in (row.before, row.after):
                yield from self._values(text)
        for shape in ShapeRow.read(self.metadata, "schema", where=self._of_others(ShapeRow)):
            yield from self._values(shape.schema)

    def _values(self, text: str | None) -> Iterator[str]:
        schema = _shape(text) if text else None
        for column in schema.columns if schema else ():
            if column.served_name.lower() in self.withheld:
                values = [column.default, column.comment, *column.values]
                yield from filter(None, values)


def _hide(metadata: Metadata, values: Collection[str], names: Collection[TableName]) -> None:
    """Hide values in the texts that quote them, but for those about tables of other names."""
    if not values:
        return
    said = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(values, key=len, reverse=True)))})(?!\w)")
    for kind in _QUOTING:
        if not any(_hidden_in(metadata, kind, said, names) for _ in range(_TRIES)):
            raise WrittenMeanwhile(f"another process wrote the metadata table {kind.TABLE}", remedy="run it again")


def _hidden_in(metadata: Metadata, kind: type[Row], said: re.Pattern[str], names: Collection[TableName]) -> bool:
    """Hide values in the texts of a metadata table; return False where another process wrote a row meanwhile: feeds
    renew theirs."""
    for row in kind.read(metadata):
        if isinstance(row, _OF_TABLES) and row.table and TableName(row.database or "", row.table) not in names:
            continue
        texts = {column: getattr(row, column) or "" for column in _QUOTING[kind]}
        hidden = {column: _hidden(column, text, said, names) for column, text in texts.items()}
        changed = {column: text for column, text in hidden.items() if text != texts[column]}
        if changed and not metadata.swap(kind.TABLE, _only(row, changed), changed):
            return False
    return True


def _hidden(column: str, text: str, said: re.Pattern[str], names: Collection[TableName]) -> str:
    """Return a row's text without the values; of a list of tables, the texts about each of some names."""
    if column != "tables":
        return said.sub(_HIDDEN, text)
    tables: list[dict[str, Any]] = json.loads(text or "[]")
    own = [table for table in tables if table.get("table") in set(map(str, names))]
    quoting = [(table, key) for table in own for key in _ABOUT_TABLES if said.search(table.get(key) or "")]
    for table, key in quoting:
        table[key] = said.sub(_HIDDEN, table[key])
    return json.dumps(tables, ensure_ascii=False) if quoting else text


def _listed(values: Collection[str]) -> str:
    return ", ".join(map(literal, sorted(values)))


def _only(row: Row, changed: Collection[str]) -> str:
    """Return the predicate of a row, by its columns but for those that change, and those that have their default, which
    may be NULL in the table of an older binlake."""
    defaults = {field.name: field.default for field in fields(row) if field.default is not None}
    there = {column: value for column, value in row.values().items() if column not in changed}
    there = {column: value for column, value in there.items() if value is None or value != defaults.get(column)}
    return " AND ".join(
        f"{quoted(column)} = {literal(value)}" if value is not None else f"{quoted(column)} IS NULL"
        for column, value in there.items()
        if value is None or (isinstance(value, str | int) and not isinstance(value, bool))
    )


def _without_values(row: StatementRow) -> StatementRow:
    """Return a statement's row without the values that it says."""
    if _literals(row) is None:
        text = redaction.verb_alone(row.statement)
    else:
        text = redaction.without_values(row.statement, None, sql_mode=row.sql_mode or 0, flavour=_flavour(row))
    before, after = (_bare(shape) or None if shape else None for shape in (row.before, row.after))
    return replace(row, statement=text, before=before, after=after, held=None)


def _literals(row: StatementRow) -> list[str] | None:
    return redaction.literals(row.statement, sql_mode=row.sql_mode or 0, flavour=_flavour(row))


def _flavour(row: StatementRow) -> Flavour:
    return Position.parse(row.position, row.gtid or "").flavour


def _fewest(value: str) -> int:
    return _FEWEST_DIGITS if value.replace(".", "").isdigit() else _FEWEST_LETTERS


def _shape(text: str) -> TableSchema | None:
    """Return a recorded shape; None for one that can't be read."""
    try:
        return loads(TableSchema, text)
    except ValueError:
        return None


def _bare(text: str) -> str:
    """Return a recorded shape without the values that it says; empty for one that can't be read."""
    schema = _shape(text)
    if schema is None:
        return ""
    columns = tuple(map(_bare_column, schema.columns))
    return dumps(replace(schema, columns=columns, kept=tuple(map(_bare_column, schema.kept)), comment=""))


def _bare_column(column: Column) -> Column:
    def bare(expression: Virtual | None) -> Virtual | None:
        return expression and replace(expression, expression="NULL")

    return replace(column.without_values, virtual=bare(column.virtual), stored=bare(column.stored))
