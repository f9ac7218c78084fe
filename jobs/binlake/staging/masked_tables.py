"""What is withheld of the tables in a slice of the log: their masks, and the columns that would show what masks hide.

A table map names columns and nothing more, so that the shapes that metadata have decide, and what the slice's own
statements make of them. A table whose columns aren't known that way stops before a row of it is written: a statement in
another slice may have given a masked column another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from binlake.binlog.border import Statement, Withheld
from binlake.binlog.tablemap import Undecodable
from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_of
from binlake.ddl import statements
from binlake.ddl.temporary import TemporaryTables
from binlake.errors import ConfigurationError, snapshot_again
from binlake.planner.tool_tables import names_before
from binlake.position import Flavour
from binlake.records import ddl_history, watermarks
from binlake.schema import datatypes
from binlake.schema.hidden import is_hidden_hash
from binlake.schema.mask import Mask
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, uncovered
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging.staged_files import Items
from binlake.store.metadata import Metadata


@dataclass(frozen=True)
class MaskedTables:
    """The shapes that tables have before a batch, by name. flavour, lower_case_names: of its server."""

    shapes: Mapping[TableName, TableSchema] = field(default_factory=dict)
    flavour: Flavour = "mysql"
    lower_case_names: bool = False


def known_shapes(metadata: Metadata) -> dict[TableName, TableSchema]:
    """Return the shapes in metadata: of tables that stopped, those that the server's have since, if they are known."""
    lives = [life for life in watermarks.read_lives(metadata) if life.status != "dropped"]
    others = ddl_history.shapes_at_server(metadata, {life.id for life in lives if life.status != "following"})
    shapes = {life.name: others.get(life.id, life.schema) for life in lives}
    return {name: shape for name, shape in shapes.items() if shape is not None}


class WithheldColumns:
    """What is withheld in one slice, at the place that its reader has come to (see border.Masking)."""

    def __init__(self, config: PipelineConfig, tables: MaskedTables) -> None:
        self._config = config
        self._tables = tables
        self._shapes = {name: self._without_kept(shape) for name, shape in tables.shapes.items()}
        self._refused: dict[TableName, str] = {}
        self._temporary = TemporaryTables(tables.flavour)

    @staticmethod
    def _without_kept(shape: TableSchema) -> TableSchema:
        return replace(shape.unmasked, kept=())

    def passing(self, items: Items) -> Items:
        """Yield what is read of the slice, and follow its statements."""
        for item in items:
            if isinstance(item, Statement):
                self._follow(item)
            yield item

    def __call__(self, name: TableName, columns: tuple[Column, ...]) -> Withheld:
        """Return what is withheld of a table's rows. Raises Undecodable, and ConfigurationError for a missing key."""
        excluded = self._config.tables.excluded_columns(name.database, name.table)
        masks = self._masks(name)
        if why := self._refused.get(name):
            raise Undecodable(why, UNCOVERED_REMEDY)
        shape = self._shapes.get(name)
        if not masks and (shape is not None or not self._masked_elsewhere(columns)):
            return Withheld(excluded)
        if shape is None:
            raise _unknown(name, "its columns")
        return self._withheld(name, shape, columns)

    def _masks(self, name: TableName) -> Mapping[str, Mask]:
        return masks_of(self._config.columns, name.database, name.table)

    def _masked_elsewhere(self, columns: tuple[Column, ...]) -> bool:
        """Return whether a table that isn't known may be one with masks that got another name."""
        names = {column.name.lower() for column in columns}
        return any(not names.isdisjoint(self._masks(name)) for name in self._tables.shapes)

    def _withheld(self, name: TableName, shape: TableSchema, columns: tuple[Column, ...]) -> Withheld:
        try:
            wanted = self._config.excluding(name, shape)
        except ConfigurationError as error:
            raise Undecodable(error.message, error.remedy) from None
        masks = dict(wanted.masks)
        for column in columns:
            if is_hidden_hash(column.name, shape):  # of what a mask may hide
                masks[column.name.lower()] = Mask("nothing")
            elif column.name not in shape.hidden and not _is_known(shape, column):
                raise _unknown(name, f"the column {column.name!r}")
        return Withheld(wanted.excluded, masks)

    # statements ----------------------------------------------------------------------------------------------------
    def _follow(self, statement: Statement) -> None:
        parsed = statements.parse(
            statement.text,
            database=statement.database,
            sql_mode=statement.sql_mode,
            flavour=self._tables.flavour,
            lower_case_names=self._tables.lower_case_names,
            session=statement.session,
            concerns=lambda name: name in self._shapes or self._config.included(name) or self._config.ghost(name),
        )
        if statement.error:
            parsed = parsed.failed()
        needs_session = statement.needs_session and (not statement.has_xid or parsed.kind == "CREATE TABLE")
        parsed = self._temporary.hidden(parsed, statement.thread, needs_session=needs_session)
        if parsed.is_cut or (parsed.may_concern_any and parsed.kind != "DML"):
            self._shapes.clear()
        for change in parsed.changes:
            self._change(change, statement)

    def _change(self, change: statements.Change, statement: Statement) -> None:
        match change:
            case statements.RenameTables(pairs):
                self._rename(pairs)
            case statements.DropDatabase(database):
                for name in [name for name in self._shapes if name.database == database]:
                    self._forget(name)
            case statements.DropTable(name):
                self._forget(name)
            case statements.CreateTable() | statements.CreateLike():
                self._create(change, statement)
            case statements.AlterTable(name) if name in self._shapes:
                self._alter(name, change)
            case statements.Unfollowed(name):
                self._shapes.pop(name, None)

    def _forget(self, name: TableName) -> None:
        self._shapes.pop(name, None)
        self._refused.pop(name, None)

    def _create(self, change: statements.CreateTable | statements.CreateLike, statement: Statement) -> None:
        if change.if_not_exists and not statement.has_xid and change.name in self._shapes:
            return
        self._forget(change.name)
        if isinstance(change, statements.CreateTable):
            self._shapes[change.name] = change.schema
        elif (like := self._shapes.get(change.like)) is not None:
            self._shapes[change.name] = like
            if why := self._refused.get(change.like):
                self._refused[change.name] = why

    def _alter(self, name: TableName, change: statements.AlterTable) -> None:
        if change.describes:
            return
        before = self._shapes.pop(name)
        try:
            evolution = statements.evolve(before, change, flavour=self._tables.flavour)
        except Exception:
            return  # its columns aren't known from here on
        self._shapes[name] = evolution.after
        self._refuse(name, name, evolution.after, evolution.origins)

    def _rename(self, pairs: tuple[tuple[TableName, TableName], ...]) -> None:
        """Give tables their new names, all at once, so that swaps and chains come out right."""
        shapes, refused = dict(self._shapes), dict(self._refused)
        for old, _ in pairs:
            self._forget(old)
        for new, old in names_before(pairs).items():
            self._forget(new)
            if (shape := shapes.get(old)) is None:
                continue
            self._shapes[new] = shape
            if why := refused.get(old):
                self._refused[new] = why
            self._refuse(old, new, shape, tuple(column.name for column in shape.columns))

    def _refuse(self, old: TableName, new: TableName, after: TableSchema, origins: Sequence[str | None]) -> None:
        """Refuse a table of which a masked or excluded column isn't that any more under its name, or its table's."""
        if why := uncovered(self._config.withheld(old), origins, after, self._config.withheld(new)):
            self._refused[new] = why


def _is_known(shape: TableSchema, column: Column) -> bool:
    if not shape.has(column.name):
        return False
    known = shape.column(column.name)
    return datatypes.is_in_bytes(known, column) or datatypes.arrow_type(known) == datatypes.arrow_type(column)


def _unknown(name: TableName, what: str) -> Undecodable:
    return Undecodable(
        f"{what} can't be told from masked ones at this place of the log, so that no row is read", snapshot_again(name)
    )
