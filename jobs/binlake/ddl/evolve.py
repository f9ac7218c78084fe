"""The shape of a table after ALTER TABLE, and where the values of its rows come from.

Clauses take effect as in mysql_prepare_alter_table (sql/sql_table.cc, the same on MariaDB), not one after the other:
first existing columns are dropped, changed or renamed, in their order and by their old names; then columns are added
and moved, in the order of the statement; then keys, the remaining ones before the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from binlake.ddl import defaults
from binlake.ddl.alterations import (
    AddColumn,
    AddForeignKey,
    AddKey,
    Alteration,
    AlterDefault,
    AlterVisibility,
    ChangeColumn,
    ColumnPlace,
    ConvertCharset,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    SystemVersioning,
    TableCharset,
    TableComment,
)
from binlake.ddl.changes import AlterTable
from binlake.ddl.conversion import conversion
from binlake.ddl.defaults import ImpossibleDate, NotConstant
from binlake.ddl.definition import ColumnDefinition, converted, converted_definition, keeps_members
from binlake.ddl.dependents import UNALTERED, Altered, recomputed
from binlake.ddl.keys import CAN_HAVE_PREFIX, Constraint, added, new_keys, with_key
from binlake.errors import SchemaMismatch, snapshot_again
from binlake.position import Flavour
from binlake.schema.table import Column, Index, TableSchema
from binlake.schema.types import text_types
from binlake.schema.virtual import renamed


@dataclass(frozen=True)
class Evolution:
    """The result of an AlterTable for a shape and its rows.

    after: the shape as information_schema shows it.
    origins: for each column of ``after``, the name of the column before whose values it holds; None if it is new.
    fills: (column, constant) for columns that the lake has. The constant is the server's text, a TIMESTAMP in UTC: the
        value that existing rows got in an added column, if not NULL, or the value that replaced NULL in another.
    unprovable: reasons why the values of existing rows can't be derived from those in the lake. If there are none, they
        follow from the ``conversion`` of each remaining column and from ``fills``.
    impossible: reasons why a lake that doesn't keep the texts of invalid dates can't hold the fills.
    reencoded: reasons why a lake that keeps the bytes of invalid text doesn't know their new values.
    altered: what it changes of columns.
    """

    after: TableSchema
    origins: tuple[str | None, ...]
    fills: tuple[tuple[Column, str], ...]
    unprovable: tuple[str, ...]
    impossible: tuple[str, ...] = ()
    reencoded: tuple[str, ...] = ()
    altered: Altered = UNALTERED


@dataclass
class _Entry:
    """A column of the new shape. origin: the column that it was. definition: as the statement writes it."""

    column: Column
    origin: Column | None = None
    definition: ColumnDefinition | None = None


def evolve(schema: TableSchema, change: AlterTable, *, flavour: Flavour) -> Evolution:
    """Return what the statement made of a table with this shape. Raises SchemaMismatch if it doesn't fit the shape."""
    return _Evolving(schema, change, flavour).result()


def with_comments(schema: TableSchema, clauses: Iterable[Alteration]) -> TableSchema:
    """Return the shape with the comment that the clauses give the table; the last one counts."""
    for clause in clauses:
        schema = replace(schema, comment=clause.comment) if isinstance(clause, TableComment) else schema
    return schema


_A = TypeVar("_A", bound=Alteration)


class _Evolving:
    def __init__(self, schema: TableSchema, change: AlterTable, flavour: Flavour) -> None:
        self.before = schema
        self.change = change
        self.flavour = flavour
        table_charsets = [clause.charset for clause in self._all(TableCharset)]
        converting = [clause.charset for clause in self._all(ConvertCharset)]
        # On MariaDB a table's default may differ from what its columns are converted to; MySQL refuses that.
        self.charset = (converting or table_charsets or [schema.charset])[-1]
        self.table_charset = (table_charsets or [self.charset])[-1]
        self.entries: list[_Entry] = []

    def _all(self, kind: type[_A]) -> list[_A]:
        return [clause for clause in self.change.alterations if isinstance(clause, kind)]

    def _mismatch(self, why: str) -> SchemaMismatch:
        name = self.change.name
        return SchemaMismatch(f"{name}: {why}", remedy=snapshot_again(name))

    def result(self) -> Evolution:
        self._check_names()
        if self.table_charset != self.charset and self._all(AddColumn) + self._all(ChangeColumn):
            raise self._mismatch(
                f"columns are defined beside two character sets, {self.charset} and {self.table_charset}"
            )
        self._add_and_move_columns(self._alter_existing_columns())
        self._check_twice()
        self._settle_timestamps()
        self._rename_within_expressions()
        if self._all(ConvertCharset):
            self._convert()
        schema = replace(
            self.before,
            columns=tuple(entry.column for entry in self.entries),
            charset=self.table_charset,
            versioned=next((clause.on for clause in self._all(SystemVersioning)), self.before.versioned),
        )
        schema = with_comments(schema, self.change.alterations)
        primary, indexes = self._keys()
        try:
            after = with_key(schema, primary, indexes)
        except SchemaMismatch as error:
            raise self._mismatch(error.message) from None
        for entry, column in zip(self.entries, after.columns, strict=True):
            entry.column = column
        origins = tuple(entry.origin.name if entry.origin else None for entry in self.entries)
        unprovable: list[str] = []
        impossible: list[str] = []
        fills = self._fills(after, unprovable, impossible)
        unprovable += self._unprovable(after)
        reencoded, altered = tuple(self._reencoded(after)), self._altered_columns()
        return Evolution(after, origins, fills, tuple(unprovable), tuple(impossible), reencoded, altered)

    # -- columns ------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        """Check that the columns exist that clauses alter. Raises SchemaMismatch.

        MariaDB's result for a column that is dropped and altered, or added once more under that name, isn't followed;
        MySQL refuses it.
        """
        dropped = {clause.name.lower() for clause in self._all(DropColumn)}
        new_names = {clause.definition.name.lower() for clause in self._all(AddColumn) if not clause.if_not_exists}
        for clause in self.change.alterations:
            match clause:
                case DropColumn(name) | AlterDefault(name) | AlterVisibility(name) | ChangeColumn(name):
                    pass
                case RenameColumn(name):
                    pass
                case _:
                    continue
            if not self.before.has(name) and not getattr(clause, "if_exists", False):
                raise self._mismatch(f"the column {name!r} is altered, which the recorded shape doesn't have")
            if name.lower() in dropped and not isinstance(clause, DropColumn):
                raise self._mismatch(f"the column {name!r} is dropped and altered in one statement")
            if name.lower() in new_names and isinstance(clause, AlterDefault):
                raise self._mismatch(f"which of two columns {name!r} gets another default isn't followed")

    def _alter_existing_columns(self) -> dict[str, _Entry]:
        """Fill ``entries`` in the old order. Returns the columns that are to be moved, by their old names."""
        dropped = {clause.name.lower() for clause in self._all(DropColumn)}
        changed = {clause.old.lower(): clause for clause in self._all(ChangeColumn)}
        moved: dict[str, _Entry] = {}
        for column in self.before.columns:
            name = column.name.lower()
            if name in dropped:
                continue
            if (clause := changed.get(name)) is None:
                self.entries.append(_Entry(self._altered(column), column))
                continue
            entry = _Entry(clause.definition.column(self.charset), column, clause.definition)
            self.entries.append(entry)
            if clause.place:
                moved[name] = entry
        return moved

    def _altered(self, column: Column) -> Column:
        """Return a column that keeps its type, with its new name, default or visibility."""
        before = column.name.lower()
        for clause in self.change.alterations:
            match clause:
                case RenameColumn(old, new) if old.lower() == before:
                    column = replace(column, name=new)
                case AlterVisibility(name, invisible) if name.lower() == before:
                    column = replace(column, invisible=invisible)
                case AlterDefault(name) if name.lower() == before:
                    column = self._with_default(column, clause)
        return column

    def _with_default(self, column: Column, clause: AlterDefault) -> Column:
        expression = clause.is_expression or defaults.is_kept_as_written(column.type, clause.default, self.flavour)
        if clause.default is None or expression:
            return replace(column, default=None, default_is_expression=expression)
        text = defaults.shown_text(column, clause.default, self.flavour, self.change.session)
        return replace(column, default=text, default_is_expression=False)

    def _add_and_move_columns(self, moved: dict[str, _Entry]) -> None:
        """Add and move columns in the order of the statement.

        A column stays in its old place until its own clause moves it: earlier clauses place columns relative to that.
        """
        for clause in self.change.alterations:
            if isinstance(clause, AddColumn):
                name = clause.definition.name.lower()
                if clause.if_not_exists and self._is_there(name):
                    continue
                entry = _Entry(clause.definition.column(self.charset), None, clause.definition)
            elif isinstance(clause, ChangeColumn) and clause.old.lower() in moved:
                entry = moved.pop(clause.old.lower())
                self.entries.remove(entry)
            else:
                continue
            self.entries.insert(self._index(clause.place), entry)

    def _is_there(self, name: str) -> bool:
        """Return whether ADD … IF NOT EXISTS adds nothing: the column was there, or the statement has added it
        before."""
        new_names = [entry.column.name.lower() for entry in self.entries if entry.origin is None]
        return self.before.has(name) or name in new_names

    def _index(self, place: ColumnPlace) -> int:
        if place.first:
            return 0
        if place.after is None:
            return len(self.entries)
        for index, entry in enumerate(self.entries):
            if entry.column.name.lower() == place.after.lower():
                return index + 1
        raise self._mismatch(f"a column is placed after {place.after!r}, which the recorded shape doesn't have")

    def _convert(self) -> None:
        for entry in self.entries:
            if entry.definition is None and not keeps_members(entry.column, self.charset):
                why = f"CONVERT TO CHARACTER SET gives members of the column {entry.column.name!r} other characters"
                raise self._mismatch(why)
            if entry.definition is None:
                entry.column = converted(entry.column, self.charset, self.flavour)
            else:
                entry.definition, entry.column = converted_definition(entry.definition, entry.origin, self.charset)

    def _rename_within_expressions(self) -> None:
        """Rename columns in the expressions of generated columns, as MariaDB does; MySQL refuses such a rename."""
        pairs = [(entry.origin.name, entry.column.name) for entry in self.entries if entry.origin]
        names = {old.lower(): new for old, new in pairs if old != new}
        for entry in self.entries:
            if not names or entry.definition is not None:
                continue
            virtual, stored = (way and renamed(way, names) for way in (entry.column.virtual, entry.column.stored))
            entry.column = replace(entry.column, virtual=virtual, stored=stored)

    def _settle_timestamps(self) -> None:
        """Apply explicit_defaults_for_timestamp to the columns that the statement defines (ColumnDefinition.settled).

        Defaults of other columns may change, too, on MariaDB 10.11 in some statements and not in others; they aren't
        followed, because no value depends on them.
        """
        first = next((entry for entry in self.entries if entry.column.type == "timestamp"), None)
        primary = {name.lower() for name in self._keys()[0]}
        for entry in self.entries:
            if entry.definition is not None:
                entry.definition = entry.definition.settled(
                    is_first_timestamp=entry is first, in_primary_key=entry.column.name.lower() in primary
                )
                entry.column = entry.definition.column(self.charset)

    def _check_twice(self) -> None:
        seen: set[str] = set()
        for entry in self.entries:
            if entry.column.name.lower() in seen:
                raise self._mismatch(f"the column {entry.column.name!r} is there twice after the statement")
            seen.add(entry.column.name.lower())

    # -- keys ---------------------------------------------------------------------------------------

    def _keys(self) -> tuple[tuple[str, ...], list[Index]]:
        """Return the columns of the primary key, and the other indexes, under the new names of the columns."""
        dropped = {clause.name.lower() for clause in self._all(DropKey)}
        primary = self.before.key if self.before.key_kind == "primary" and "primary" not in dropped else ()
        names = self._columns_of_parts()
        kept = [
            index
            for old in self.before.indexes
            if old.name.lower() not in dropped and (index := _remaining_index(old, names, self.before)) is not None
        ]
        renamed = {clause.old.lower(): clause.new for clause in self._all(RenameKey)}
        kept = [replace(index, name=renamed.get(index.name.lower(), index.name)) for index in kept]
        constraints: list[Constraint] = [
            clause if isinstance(clause, AddForeignKey) else clause.index
            for clause in self.change.alterations
            if isinstance(clause, AddForeignKey | AddKey)
        ]
        constraints = added(self.before, constraints)
        return new_keys([names[name].name for name in primary if name in names], kept, constraints)

    def _columns_of_parts(self) -> dict[str, Column]:
        """Return the columns of which the parts of the old keys consist now, by the names that they had.

        The servers look for the first column that has this name, or that had it before the statement: an added column
        takes the place of one that is dropped, and of one that gets another name if it comes before that one
        (mysql_prepare_alter_table in sql_table.cc).
        """
        by_name: dict[str, Column] = {}
        for entry in self.entries:
            by_name.setdefault((entry.origin or entry.column).name.lower(), entry.column)
        names = (column.name for column in self.before.columns)
        return {name: by_name[name.lower()] for name in names if name.lower() in by_name}

    # -- values -------------------------------------------------------------------------------------

    def _fills(
        self, after: TableSchema, unprovable: list[str], impossible: list[str]
    ) -> tuple[tuple[Column, str], ...]:
        fills: list[tuple[Column, str]] = []
        for entry in self.entries:
            if entry.definition is None or entry.column not in after.mirrored:
                continue
            try:
                text = self._fill(entry, entry.definition)
            except ImpossibleDate as error:
                in_key = entry.column.name in after.key  # MERGE would never find it again
                (unprovable if in_key else impossible).append(error.message)
                text = error.text
            except NotConstant as error:
                unprovable.append(error.message)
                continue
            if text is not None:
                fills.append((entry.column, text))
        return tuple(fills)

    def _fill(self, entry: _Entry, definition: ColumnDefinition) -> str | None:
        """Return the constant that old rows got in an added column, or in the place of NULL. Raises NotConstant."""
        column = entry.column
        if entry.origin is None:
            return replace(definition, nullable=column.nullable).constant_default(self.charset)
        if not conversion(entry.origin, column, strict=self.change.strict).nulls_get_now:
            return None
        if (now := self.change.session.now(column.fraction)) is None:
            raise NotConstant(f"column {column.name!r}: NULL became the statement's time, which isn't in the log")
        return now

    def _unprovable(self, after: TableSchema) -> Iterable[str]:
        """Yield reasons why values of existing columns can't be derived."""
        for entry in self.entries:
            old, new = entry.origin, entry.column
            if old is None:
                continue
            values = conversion(old, new, strict=self.change.strict)
            if new not in after.mirrored:
                continue
            if old not in self.before.mirrored:
                yield f"the values of column {old.name!r} were excluded until it became {new.name!r}"
            elif entry.definition is not None and new.generated:
                yield f"column {new.name!r} is computed again"
            elif values.kind == "unprovable":
                yield f"column {new.name!r}: {values.reason}"
            elif self.change.pads_char and old.type == "char" and new.type != "char":
                yield f"column {new.name!r}: PAD_CHAR_TO_FULL_LENGTH added spaces to its values"
            elif new.auto_increment and not old.auto_increment and not self.change.keeps_zeros:
                yield f"column {new.name!r}: AUTO_INCREMENT numbered rows that had 0 or NULL"
        written = {entry.column.name for entry in self.entries if entry.definition is not None}
        for column in recomputed(after, self._altered_columns()):
            if column in after.mirrored and column.name not in written:
                why = "from what the statement changes (type or collation of a column, default collation)"
                yield f"generated column {column.name!r} is computed again {why}"

    def _altered_columns(self) -> Altered:
        converts = bool(self._all(ConvertCharset))
        retyped, added, recollated = set[str](), set[str](), set[str]()
        for entry in self.entries:
            name, written = entry.column.name.lower(), entry.definition is not None
            if entry.origin is None:
                added.add(name)
                continue
            if _typed(entry.origin) != _typed(entry.column) or (written and entry.column.generated):
                retyped.add(name)
            if entry.column.charset and (written or converts):
                recollated.add(name)
        default = converts or bool(self._all(TableCharset))
        return Altered(frozenset(retyped), frozenset(added), frozenset(recollated), default)

    def _reencoded(self, after: TableSchema) -> Iterable[str]:
        for entry in self.entries:
            old, new = entry.origin, entry.column
            if old is None or new not in after.mirrored or not text_types.may_be_invalid_text(old):
                continue
            if not text_types.may_be_invalid_text(new) or old.charset != new.charset:
                yield f"column {new.name!r}: what became of invalid text isn't known"


def _typed(column: Column) -> Column:
    """Return the column with only those attributes that decide its values: without name, default and the like."""
    return replace(column, name="", default=None, default_is_expression=False, invisible=False, auto_increment=False)


def _remaining_index(index: Index, columns: dict[str, Column], before: TableSchema) -> Index | None:
    """Return an index without the parts whose columns were dropped; None if no part is left."""
    parts = [
        (None, None) if name is None else (columns[name].name, _prefix(prefix, before.column(name), columns[name]))
        for name, prefix in zip(index.columns, index.prefixes, strict=True)
        if name is None or name in columns
    ]
    if not parts:
        return None
    return replace(index, columns=tuple(name for name, _ in parts), prefixes=tuple(prefix for _, prefix in parts))


def _prefix(prefix: int | None, old: Column, new: Column) -> int | None:
    """Return an index part's prefix after its column changed: it stays if both types allow it and the new is longer."""
    can = old.type.endswith(CAN_HAVE_PREFIX) and new.type.endswith(CAN_HAVE_PREFIX)
    if prefix is None or not can or (new.length is not None and new.length < prefix):
        return None
    return prefix
