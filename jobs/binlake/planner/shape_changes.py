"""A statement at its place, and the changes between two shapes of a table, as far as they concern the lake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from binlake.binlog.border import Statement
from binlake.ddl import redaction, statements
from binlake.ddl.evolve import Evolution
from binlake.errors import snapshot_again
from binlake.planner.rules import ROWS_REMEDY
from binlake.planner.steps import Standstill
from binlake.position import Flavour, Position, file_number
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import lake_columns, side_columns
from binlake.schema.lake_forms import TYPE_REMEDY, constant, lake_form, no_fit
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, uncovered
from binlake.schema.row_condition import columns_of_conditions
from binlake.schema.table import INTEGERS, Column, TableName, TableSchema
from binlake.schema.virtual import as_logged, generated_columns


@dataclass(frozen=True)
class PlacedStatement:
    """A statement, its position, and what was parsed of it."""

    position: Position
    statement: Statement
    parsed: statements.ParsedStatement

    @property
    def order(self) -> tuple[int, int]:
        """Return its place in the log: (file number, offset)."""
        return file_number(self.statement.file), self.statement.offset

    def standstill(self, why: str, remedy: str = "") -> Standstill:
        """Return why a table doesn't follow this statement."""
        return Standstill.at(self.statement.file, self.statement.offset, why, remedy)

    def as_logged(self, schema: TableSchema) -> TableSchema:
        """Return a shape after the statement, as row events of its server have it."""
        return as_logged(schema) if self.statement.session.unlogged else schema

    def logged_text(self, excluded: Collection[str], flavour: Flavour) -> str:
        """Return the statement's text, without values if it names an excluded column; only the verb of DML, whose text
        holds row values."""
        if self.parsed.kind == "DML":
            return redaction.verb_alone(self.statement.text, "DML")
        return redaction.redacted(self.statement.text, excluded, sql_mode=self.statement.sql_mode, flavour=flavour)


def in_lake(evolution: Evolution, before: TableSchema, after: TableSchema) -> Evolution:
    """Return what a statement did to a table's shape on the server with the lake's names and types of columns.

    before, after: the shapes with these; ``after`` has the columns of the evolution's.
    """
    old, new = lake_form(before), lake_form(after)
    if not old and not new:
        return evolution
    origins = tuple(name and old.names.get(name.lower(), name) for name in evolution.origins)
    fills = tuple((new.of(column), text) for column, text in evolution.fills)
    fills = tuple((column.shown, _in_lake(column, text)) for column, text in fills)
    return replace(evolution, after=after, origins=origins, fills=fills)


def has_another_key(before: TableSchema, after: TableSchema, origins: Sequence[str | None]) -> bool:
    """Return whether other columns are the key. origins: of the columns after the statement."""
    named = {column.name: origin for column, origin in zip(after.columns, origins, strict=True)}
    return [named[after.column(name).name] for name in after.key] != [before.column(name).name for name in before.key]


def reshapes(before: TableSchema, after: TableSchema, origins: Sequence[str | None], invalid: InvalidValues) -> bool:
    """Return whether a change concerns the lake's table: names, order or types of columns, not lengths and defaults.

    A side column comes with a type or a character set whose values may be invalid.
    """

    def shape(schema: TableSchema) -> list[tuple[str, str, int]]:
        return [(column.name, column.delta, column.source.fraction) for column in lake_columns(schema, invalid)]

    moved = any(column.name != origin for column, origin in zip(after.columns, origins, strict=True))
    return moved or shape(before) != shape(after)


def why_no_filter(before: TableSchema, evolution: Evolution) -> str:
    """Return why a condition of a table's rows can't be asked any more: a column of it went or has another name; empty
    where it can."""
    names = columns_of_conditions(before)
    for column in before.columns:
        if column.name.lower() in names and column.name not in evolution.origins:
            return f"the statement drops the column {column.name!r}, which its row filter names"
    for origin, column in zip(evolution.origins, evolution.after.columns, strict=True):
        if origin and origin.lower() in names and origin.lower() != column.name.lower():
            return f"the statement renames the column {origin!r}, which its row filter names, to {column.name!r}"
    return ""


def why_other_rows(before: TableSchema, evolution: Evolution) -> str:
    """Return why other rows may meet a condition of a table's rows after a statement; empty where none do.

    A whole number keeps its value in another type, but NULL becomes 0 where a column may not be NULL any more.
    """
    names = columns_of_conditions(before)
    for origin, column in zip(evolution.origins, evolution.after.columns, strict=True):
        if origin is None or origin.lower() not in names:
            continue
        old, name = before.column(origin), column.name.lower()
        same = {old.type, column.type} <= INTEGERS and (column.nullable or not old.nullable)
        if name in evolution.altered.recollated or (name in evolution.altered.retyped and not same):
            return f"the column {column.name!r} of its row filter has another type or collation, by which rows may come"
    return ""


def _in_lake(column: Column, text: str) -> str:
    """Return a constant as the lake's column has it; as it is where the column can't hold it: see ``no_fit_of``."""
    return (constant(column, text) if column.lake_type and column.mask is None else None) or text


def refused_change(
    name: TableName, before: TableSchema, evolution: Evolution, withheld: frozenset[str]
) -> Standstill | None:
    """Return why a table stops before a statement that would show a withheld column, or that its row filter can't
    follow; None where it doesn't.

    before: its shape on the server. withheld: what the YAML masks or excludes, in lower case.
    """
    if why := uncovered(withheld.union(before.masks), evolution.origins, evolution.after, withheld):
        return Standstill(why, UNCOVERED_REMEDY)
    if why := why_no_filter(before, evolution):
        return Standstill(why, f"{ROWS_REMEDY}; then {snapshot_again(name)}")
    return None


def _fits(column: Column, text: str) -> bool:
    return text in ("b'0'", "b'1'") if column.lake_type == "boolean" else constant(column, text) is not None


def why_other_type(before: TableSchema, evolution: Evolution) -> str:
    """Return why values that the lake has may not fit: a column's new name has another type there by the YAML; empty
    where none has.

    before: the lake's shape. evolution: as ``in_lake`` returns it.
    """
    for origin, column in zip(evolution.origins, evolution.after.columns, strict=True):
        if origin and column.lake_type and column.mask is None and before.column(origin).lake_type != column.lake_type:
            kind = column.lake_type.upper()
            return f"the YAML (columns) gives the column {column.name!r} the type {kind}, and the lake has another"
    return ""


def no_fit_of(evolution: Evolution, name: TableName) -> Standstill | None:
    """Return why the lake can't have what old rows got in a column that has another type there; None where it can.

    evolution: as ``in_lake`` returns it.
    """
    for column, text in evolution.fills:
        if column.lake_type and column.mask is None and not _fits(column, text):
            why = f"the value that old rows got in column {column.name!r} {no_fit(column)}"
            return Standstill(why, f"{TYPE_REMEDY}; then {snapshot_again(name)}")
    return None


def why_left_out(before: TableSchema | None, after: TableSchema) -> str:
    """Return why the lake leaves out columns that it had before, or that are new; empty if there are none."""
    known = before.untold if before else ()
    return "; ".join(why for column, why in generated_columns(after).left_out.items() if column not in known)


def keeping(
    before: TableSchema, after: TableSchema, origins: Sequence[str | None], invalid: InvalidValues, *, more: bool
) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the shape after a change, with dropped columns kept (``on_drop_column: keep``), and the lake's names of
    all kept columns before it.

    A kept column whose name is taken gets the suffix ``__dropped``, and a number if that is taken, too. more: columns
    that the change drops are kept as well as those that were kept before.
    """
    dropped = [column for column in before.mirrored if more and column.name not in origins]
    taken = {column.name.lower() for column in after.columns}
    taken |= {column.name.lower() for column in side_columns(after.mirrored, invalid)}
    kept: list[Column] = []
    for column in (*before.kept, *dropped):
        base, name, number = column.name.partition("__dropped")[0], column.name, 1
        while name.lower() in taken:
            name = f"{base}__dropped" + (f"_{number}" if number > 1 else "")
            number += 1
        taken.add(name.lower())
        kept.append(replace(column, name=name))
    return replace(after, kept=tuple(kept)), tuple(column.name for column in (*before.kept, *dropped))
