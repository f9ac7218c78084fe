"""The masks of the tables in a slice of the log, and the columns that would show what masks hide.

A table map names columns and nothing more, so that the shapes that metadata have decide, and what statements make of
them: those of the slice, and where columns are masked also those of the slices before it. A table whose columns aren't
known that way stops before a row of it is written: a statement may have given a withheld column another name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from binlake.binlog.border import Statement, Withheld
from binlake.binlog.tablemap import Undecodable
from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_of
from binlake.ddl import redaction, statements
from binlake.ddl.temporary import TemporaryTables
from binlake.errors import ConfigurationError, snapshot_again
from binlake.lease.lease import OpenBatch
from binlake.planner.steps import Life
from binlake.planner.tool_tables import names_before, withheld_of_copy
from binlake.position import Flavour, file_number
from binlake.records import ddl_history, watermarks
from binlake.schema import datatypes
from binlake.schema.hidden import is_hidden_hash
from binlake.schema.lake_forms import server_shape
from binlake.schema.lexer import words_of
from binlake.schema.mask import Mask
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, computed_from, may_be_renamed, may_have_left, uncovered
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging.staged_files import Items
from binlake.store.metadata import Metadata


@dataclass(frozen=True)
class MaskedTables:
    """The shapes that tables have before a slice of a batch, by name.

    flavour, lower_case_names: of its server. begins: places of the log where tables were snapshotted that are ahead of
    the batch's start; statements before aren't applied to their shapes. refused: why tables aren't read any more.
    lost: tables with masked or excluded columns that may have any name, as behind a statement that isn't understood.
    former: names that tables had in earlier slices and batches, also of those that were dropped.
    left: shapes of tables that got a name that isn't included, by the last one that was.
    """

    shapes: Mapping[TableName, TableSchema] = field(default_factory=dict)
    flavour: Flavour = "mysql"
    lower_case_names: bool = False
    begins: Mapping[TableName, tuple[int, int]] = field(default_factory=dict)
    refused: Mapping[TableName, str] = field(default_factory=dict)
    lost: frozenset[TableName] = frozenset()
    former: frozenset[TableName] = frozenset()
    left: Mapping[TableName, TableSchema] = field(default_factory=dict)

    @classmethod
    def of(cls, lives: Iterable[Life], plan: OpenBatch, lost: frozenset[TableName] = frozenset()) -> Self:
        """Return what is known before a batch. lives: with the shapes that their tables have at the server."""
        lives, start = list(lives), plan.range.start
        ahead = (life for life in lives if life.low.server == start.server and life.low.order > start.order)
        begins = {life.name: life.low.order for life in ahead}
        shapes = {life.name: life.schema for life in lives}
        return cls(shapes, plan.range.stop.flavour, plan.lower_case_names, begins, lost=lost)

    def after(self, config: PipelineConfig, statements: Iterable[Statement]) -> MaskedTables:
        """Return what is known behind a slice with these statements."""
        columns = WithheldColumns(config, self)
        for statement in statements:
            columns.follow(statement)
        return columns.tables


def known_lives(metadata: Metadata) -> list[Life]:
    """Return the lives in metadata, those of tables that don't follow with the shapes that the server's have since;
    without those of which that isn't known."""
    lives = [life for life in watermarks.read_lives(metadata) if life.status != "dropped"]
    others = ddl_history.shapes_at_server(metadata, {life.id for life in lives if life.status != "following"})
    shapes = ((life, others.get(life.id, life.schema)) for life in lives)
    return [replace(life, schema=shape) for life, shape in shapes if shape is not None]


def tables_before(config: PipelineConfig, metadata: Metadata, plan: OpenBatch) -> MaskedTables:
    """Return what metadata know of the tables before a batch."""
    tables = MaskedTables.of(known_lives(metadata), plan, _lost(config, metadata))
    lives = watermarks.read_lives(metadata)
    gone = [life for life in lives if life.status == "dropped" and config.confidential(life.name)]
    away = ddl_history.renamed_away(metadata, [life.id for life in gone])
    left = {life.name: server_shape(life.schema) for life in gone if life.id in away}
    return replace(tables, former=frozenset(life.name for life in lives), left=left)


def _lost(config: PipelineConfig, metadata: Metadata) -> frozenset[TableName]:
    """Return the tables that don't follow the log, and of which a masked or excluded column may have another name by
    now: a statement that they didn't follow gave it one, or isn't understood. Also those that stopped under a name by
    which their masked or excluded columns aren't withheld."""
    standing = [life for life in watermarks.read_lives(metadata) if life.status not in ("dropped", "following")]
    stopped = (life for life in standing if life.status == "stopped")
    bare = frozenset(life.name for life in stopped if is_bare(config, life))
    lives = {life.id: life for life in standing if not config.withheld(life.name).isdisjoint(_names(life.schema))}
    shapes = ddl_history.shapes_at_server(metadata, lives.keys())
    if not shapes:
        return bare
    texts: dict[str, list[str]] = {life: [] for life in shapes}
    for table_id, text in ddl_history.not_followed(metadata, shapes.keys()):
        texts[table_id].append(text)
    return bare | frozenset(
        lives[life].name
        for life, shape in shapes.items()
        if may_be_renamed(lives[life].schema, shape, config.withheld(lives[life].name), texts[life])
    )


def is_bare(config: PipelineConfig, life: Life) -> bool:
    """Return whether a life has a column that was masked or excluded, and isn't withheld under the name that it has."""
    schema = server_shape(life.schema)
    hidden = schema.masks.keys() | (schema.excluded & _names(schema))
    try:
        now = server_shape(config.excluding(life.name, schema.unmasked))
    except ConfigurationError:  # a column of the key can't be withheld as the YAML says
        return bool(hidden)
    return not (now.excluded | now.masks.keys()) >= hidden


def _names(schema: TableSchema) -> set[str]:
    return {column.served_name.lower() for column in schema.columns}


class WithheldColumns:
    """The masks and withheld columns in one slice, at the place that its reader has come to (see border.Masking)."""

    def __init__(self, config: PipelineConfig, tables: MaskedTables) -> None:
        self._config = config
        self._tables = tables
        self._shapes = {name: self._without_kept(shape) for name, shape in tables.shapes.items()}
        self._refused = dict(tables.refused)
        self._lost = set(tables.lost)
        self._temporary = TemporaryTables(tables.flavour)

    @staticmethod
    def _without_kept(shape: TableSchema) -> TableSchema:
        return replace(server_shape(shape.unmasked), kept=())

    def passing(self, items: Items) -> Items:
        """Yield what is read of the slice, and follow its statements."""
        for item in items:
            yield self.follow(item) if isinstance(item, Statement) else item

    @property
    def tables(self) -> MaskedTables:
        """Return what is known at this place, for the slice behind it."""
        former = self._tables.former.union(self._tables.shapes)
        lost = frozenset(self._lost)
        return replace(self._tables, shapes=self._shapes, refused=self._refused, lost=lost, former=former)

    def __call__(self, name: TableName, columns: tuple[Column, ...]) -> Withheld:
        """Return what is withheld of a table's rows. Raises Undecodable, and ConfigurationError for a missing key."""
        excluded = self._config.tables.excluded_columns(name.database, name.table)
        masks = self._masks(name)
        if why := self._refused.get(name):
            raise Undecodable(why, UNCOVERED_REMEDY)
        if name in self._lost:
            raise _unknown(name, "its columns")
        shape = self._shapes.get(name)
        if not masks and (shape is not None or not self._withheld_elsewhere(name, columns)):
            if shape is not None and _may_be_renamed(shape, excluded, columns):
                raise _unknown(name, "its columns")
            return Withheld(excluded)
        if shape is None:
            raise _unknown(name, "its columns")
        return self._withheld(name, shape, columns)

    def _masks(self, name: TableName) -> Mapping[str, Mask]:
        return masks_of(self._config.columns, name.database, name.table)

    def _withheld_elsewhere(self, here: TableName, columns: tuple[Column, ...]) -> bool:
        """Return whether a table that isn't known may be one with withheld columns that got another name. here: its
        name now."""
        names = {column.name.lower() for column in columns} - self._config.withheld(here)
        tables = self._tables.former.union(self._tables.shapes)
        if any(not names.isdisjoint(self._config.confidential(name)) for name in tables):
            return True
        now = TableSchema(columns)
        left = self._tables.left.items()
        return any(may_have_left(shape, now, self._config.confidential(name)) for name, shape in left)

    def _withheld(self, name: TableName, shape: TableSchema, columns: tuple[Column, ...]) -> Withheld:
        try:
            wanted = self._config.excluding(name, shape)
        except ConfigurationError as error:
            raise Undecodable(error.message, error.remedy) from None
        masks = dict(server_shape(wanted).masks)
        for column in columns:
            if is_hidden_hash(column.name, shape):  # of what a mask may hide
                masks[column.name.lower()] = Mask("nothing")
            elif column.name not in shape.hidden and not _is_known(shape, column):
                raise _unknown(name, f"the column {column.name!r}")
        return Withheld(wanted.excluded, masks)

    # statements ----------------------------------------------------------------------------------------------------
    def follow(self, statement: Statement) -> Statement:
        """Apply a statement to the shapes, and return it as it is staged: without values of withheld columns."""
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
        place = file_number(statement.file), statement.offset
        later = {name for name, begins in self._tables.begins.items() if place < begins}
        concerned = statements.named_in(statement.text, self._shapes) if parsed.is_cut else []
        if parsed.may_concern_any and parsed.kind != "DML":
            concerned = [*self._shapes]
        for name in concerned:
            if name not in later:
                self._lose(name)
        before = self._hidden(statement, parsed)
        for change in parsed.changes:
            self._change(change, statement, later)
        return self._shown(statement, before, self._hidden(statement, parsed))

    def _shown(self, statement: Statement, before: frozenset[str] | None, after: frozenset[str] | None) -> Statement:
        """Return a statement without the values that it has of withheld columns. before, after: see ``_hidden``."""
        names = None if before is None or after is None else before | after
        if names is not None and not names:
            return statement
        text = redaction.without_values(
            statement.text, names, sql_mode=statement.sql_mode, flavour=self._tables.flavour,
            tables=self._shapes.keys() | self._lost | self._tables.former | self._tables.shapes.keys(),
        )  # fmt: skip
        return replace(statement, text=text)

    def _hidden(self, statement: Statement, parsed: statements.ParsedStatement) -> frozenset[str] | None:
        """Return the columns, in lower case, whose values in a statement are withheld; None for all values: where it
        has those of rows, where columns aren't known, and where it concerns no table that is read."""
        known = [name for name in parsed.tables if self._is_read(name)]
        if parsed.kind == "DML" or any(name in self._refused or name in self._lost for name in known):
            return None
        if known:
            return frozenset().union(*map(self._hidden_of, known))
        if parsed.database_charset is not None:
            return frozenset()
        of_table = parsed.tables or not self._confidential_words.isdisjoint(words_of(statement.text))
        return None if of_table else frozenset()

    def _hidden_of(self, name: TableName) -> frozenset[str]:
        """Return the columns of a table, in lower case, that are withheld: those that masks leave out, too."""
        withheld, shape = self._config.withheld(name), self._shapes.get(name)
        masked = self._masks(name).keys() if shape is not None else ()
        return withheld | computed_from(shape, masked) if shape is not None and masked else withheld

    @property
    def _confidential_words(self) -> frozenset[str]:
        """The words, in lower case, of the names of withheld columns, and of the tables that have some."""
        names = self._tables.former.union(self._tables.shapes, self._shapes)
        texts = [text for name in names if (own := self._config.withheld(name)) for text in (name.table, *own)]
        return frozenset(word for text in texts for word in words_of(text))

    def _is_read(self, name: TableName) -> bool:
        return name in self._shapes or name in self._lost or self._config.included(name) or self._config.ghost(name)

    def _change(self, change: statements.Change, statement: Statement, later: Collection[TableName]) -> None:
        """Apply a change. later: names of tables that were snapshotted behind it."""
        match change:
            case statements.RenameTables(pairs):
                self._rename(pairs, later)
            case statements.DropDatabase(database):
                for name in [name for name in self._shapes if name.database == database and name not in later]:
                    self._forget(name)
            case _ if change.name in later:
                return
            case statements.DropTable(name):
                self._forget(name)
            case statements.CreateTable() | statements.CreateLike():
                self._create(change, statement, later)
            case statements.AlterTable(name) if name in self._shapes:
                self._alter(name, change)
            case statements.Unfollowed(name):
                self._lose(name)

    def _forget(self, name: TableName) -> None:
        self._shapes.pop(name, None)
        self._refused.pop(name, None)
        self._lost.discard(name)

    def _lose(self, name: TableName) -> None:
        """Note that a table's columns aren't known any more: an excluded one may have any name from here on."""
        shape = self._shapes.pop(name, None)
        if shape is not None and not self._config.withheld(name).isdisjoint(_names(shape)):
            self._lost.add(name)

    def _create(
        self,
        change: statements.CreateTable | statements.CreateLike,
        statement: Statement,
        later: Collection[TableName],
    ) -> None:
        if change.if_not_exists and not statement.has_xid and change.name in self._shapes:
            return
        self._forget(change.name)
        if isinstance(change, statements.CreateTable):
            self._shapes[change.name] = change.schema
        elif change.like not in later and (like := self._shapes.get(change.like)) is not None:
            self._shapes[change.name] = like
            if why := self._refused.get(change.like):
                self._refused[change.name] = why
        elif change.like in self._lost:
            self._lost.add(change.name)

    def _alter(self, name: TableName, change: statements.AlterTable) -> None:
        if change.describes:
            return
        try:
            evolution = statements.evolve(self._shapes[name], change, flavour=self._tables.flavour)
        except Exception:
            self._lose(name)
            return
        self._shapes[name] = evolution.after
        self._refuse(self._config.withheld(name), name, evolution.after, evolution.origins)

    def _rename(self, pairs: tuple[tuple[TableName, TableName], ...], later: Collection[TableName]) -> None:
        """Give tables their new names, all at once, so that swaps and chains come out right."""
        shapes, refused, lost = dict(self._shapes), dict(self._refused), set(self._lost)
        for old, _ in pairs:
            if old not in later:
                self._forget(old)
        before = names_before(pairs)
        for new, old in before.items():
            if new in later:
                continue
            self._forget(new)
            if old in later:
                continue
            if old in lost:
                self._lost.add(new)
            if why := refused.get(old):
                self._refused[new] = why
            if (shape := shapes.get(old)) is None:
                continue
            self._shapes[new] = shape
            withheld = self._config.confidential(old)
            if new in before.values() and (replaced := shapes.get(new)) is not None:
                withheld = withheld_of_copy(withheld, old, shape, replaced, self._config.withheld(new))
            self._refuse(withheld, new, shape, tuple(column.name for column in shape.columns))

    def _refuse(
        self, withheld: Collection[str], name: TableName, after: TableSchema, origins: Sequence[str | None]
    ) -> None:
        """Refuse a table of which a column that was withheld isn't masked or excluded any more, under its name."""
        if why := uncovered(withheld, origins, after, self._config.withheld(name)):
            self._refused[name] = why


def _may_be_renamed(shape: TableSchema, excluded: Collection[str], columns: Sequence[Column]) -> bool:
    """Return whether a column that isn't known may be an excluded one, which isn't there under its name."""
    names = {column.name.lower() for column in columns if column.name not in shape.hidden}
    known = _names(shape)
    return any(name in excluded for name in known - names) and any(
        not is_hidden_hash(name, shape) for name in names - known
    )


def _is_known(shape: TableSchema, column: Column) -> bool:
    if not shape.has(column.name):
        return False
    known = shape.column(column.name)
    return datatypes.is_in_bytes(known, column) or datatypes.arrow_type(known) == datatypes.arrow_type(column)


def _unknown(name: TableName, what: str) -> Undecodable:
    return Undecodable(
        f"{what} can't be distinguished from masked or excluded ones at this place of the log, so that no row is read",
        snapshot_again(name),
    )
