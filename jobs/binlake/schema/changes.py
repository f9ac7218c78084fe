"""What statements do to tables: a small sum of changes.

    Change = CreateTable | CreateLike | DropTable | DropDatabase | TruncateTable      a table's life
           | AddColumns | AddUniqueKey | DropIndex | NoShapeChange                    a table's shape (see evolve.apply)
           | TableCharset                                                             what later columns inherit
           | Unfollowed                                                               stops its table

A change that is followed one day leaves ``Unfollowed`` and gets a class of its own here.
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.definition import ColumnDefinition, IndexDefinition
from binlake.schema.table import Column, TableName, TableSchema


@dataclass(frozen=True)
class CreateTable:
    """A table with this shape. With if_not_exists it may have been there: then nothing happened.

    charset: the table's default character set, inherited by columns added later.
    """

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False
    charset: str = "utf8mb4"


@dataclass(frozen=True)
class CreateLike:
    """A table with the shape of another, without its rows."""

    name: TableName
    like: TableName
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    """The table is gone. It need not have been there (IF EXISTS, OR REPLACE)."""

    name: TableName


@dataclass(frozen=True)
class DropDatabase:
    """All tables of the database are gone."""

    database: str


@dataclass(frozen=True)
class TruncateTable:
    """All rows are gone."""

    name: TableName


@dataclass(frozen=True)
class AddedColumn:
    """A column and its place: after the column ``after``, or first, or (neither) last."""

    definition: ColumnDefinition
    first: bool = False
    after: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class AddColumns:
    """Columns added in this order; old rows get ``old_row_default`` of each.

    charset: the table's new default character set where the statement sets one.
    """

    name: TableName
    columns: tuple[AddedColumn, ...]
    charset: str | None = None

    def resolved(self, table_charset: str) -> tuple[Column, ...]:
        """The added columns as the server makes them, in the statement's order."""
        return tuple(added.definition.column(self.charset or table_charset) for added in self.columns)


@dataclass(frozen=True)
class AddUniqueKey:
    """A unique key: becomes the key of a table that has no primary key, when its columns are NOT NULL."""

    name: TableName
    index: IndexDefinition


@dataclass(frozen=True)
class DropIndex:
    """An index by its name: may be the key of a table whose key is a unique one."""

    name: TableName
    index: str


@dataclass(frozen=True)
class NoShapeChange:
    """Neither columns, key nor rows change. why: which clause that was."""

    name: TableName
    why: str


@dataclass(frozen=True)
class TableCharset:
    """The default character set of columns added to the table later."""

    name: TableName
    charset: str


@dataclass(frozen=True)
class DatabaseCharset:
    """The default character set of tables created in the database later; None: the server's default."""

    database: str
    charset: str | None


@dataclass(frozen=True)
class Unfollowed:
    """What the statement did to the table can't be followed: the table stops, with this reason."""

    name: TableName
    why: str


Change = (
    CreateTable
    | CreateLike
    | DropTable
    | DropDatabase
    | TruncateTable
    | AddColumns
    | AddUniqueKey
    | DropIndex
    | NoShapeChange
    | TableCharset
    | Unfollowed
)


@dataclass(frozen=True)
class ParsedStatement:
    """A statement understood.

    kind: ``CREATE TABLE``, ``ALTER TABLE``, ``CREATE VIEW`` …, ``DML`` for rows changed in statement format,
        ``UNPARSED`` when even that isn't known.
    tables: the tables it concerns; of DML those it may change; of UNPARSED every name in it that could be a table's
        (most aren't).
    changes: what it does, in order. Those of one table belong together: all or none.
    database_charset: what CREATE and ALTER DATABASE set.
    may_concern_any: it may concern tables it doesn't name (a call of a routine, a quote that never ends).
    """

    kind: str
    tables: tuple[TableName, ...] = ()
    changes: tuple[Change, ...] = ()
    database_charset: DatabaseCharset | None = None
    may_concern_any: bool = False
