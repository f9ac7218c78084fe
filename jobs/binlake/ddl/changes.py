"""What statements do to tables: a small sum of changes.

Change = CreateTable | CreateLike | DropTable | DropDatabase | TruncateTable      a table's life
       | RenameTables                                                             its name
       | AlterTable | NoShapeChange                                               a table's shape (see evolve.py)
       | RowsChanged                                                              its rows, without row events
       | Unfollowed                                                               nobody knows: stops its table
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from binlake.ddl.alterations import Alteration
from binlake.schema.statement_session import UNKNOWN_SESSION, Session
from binlake.schema.table import TableName, TableSchema


@dataclass(frozen=True)
class CreateTable:
    """A table with this shape. With if_not_exists it may have been there: then nothing happened."""

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False


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
class AlterTable:
    """ALTER TABLE, CREATE INDEX or DROP INDEX with its clauses as written: see evolve.evolve.

    strict: values that don't fit made the statement fail (STRICT_TRANS_TABLES or STRICT_ALL_TABLES, without IGNORE).
    pads_char: the session read CHAR values with their trailing spaces (PAD_CHAR_TO_FULL_LENGTH).
    keeps_zeros: zero stayed zero in a column that became AUTO_INCREMENT (NO_AUTO_VALUE_ON_ZERO).
    session: whose time and time zone old rows may get.
    """

    name: TableName
    alterations: tuple[Alteration, ...]
    strict: bool
    pads_char: bool = False
    keeps_zeros: bool = False
    session: Session = UNKNOWN_SESSION


@dataclass(frozen=True)
class RenameTables:
    """Tables renamed one after the other: (old, new)."""

    pairs: tuple[tuple[TableName, TableName], ...]


@dataclass(frozen=True)
class RowsChanged:
    """Rows came, went or changed without row events; the shape is followed by the statement's other changes."""

    name: TableName
    why: str


@dataclass(frozen=True)
class NoShapeChange:
    """Neither columns, key nor rows change. why: which clause that was."""

    name: TableName
    why: str


@dataclass(frozen=True)
class DatabaseCharset:
    """The default character set of tables created in the database later; None: the server's default.

    if_not_exists: a database that is there keeps its own.
    """

    database: str
    charset: str | None
    if_not_exists: bool = False


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
    | RenameTables
    | AlterTable
    | NoShapeChange
    | RowsChanged
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
    temporary: tables of its session alone that it makes or drops.
    """

    kind: str
    tables: tuple[TableName, ...] = ()
    changes: tuple[Change, ...] = ()
    database_charset: DatabaseCharset | None = None
    may_concern_any: bool = False
    temporary: tuple[TableName, ...] = ()

    def failed(self) -> ParsedStatement:
        """What is left of a CREATE that failed: MariaDB's OR REPLACE had dropped what was there before by then."""
        if not self.kind.startswith("CREATE"):
            return self  # of a DROP the server names what went
        dropped = tuple(change for change in self.changes if isinstance(change, DropTable | DropDatabase))
        return replace(self, changes=dropped, database_charset=None)
