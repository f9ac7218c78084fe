"""Changes that statements make to tables:

Change = CreateTable | CreateLike | DropTable | DropDatabase | TruncateTable      a table's life
       | RenameTables                                                             its name
       | AlterTable | NoShapeChange                                               a table's shape (see evolve.py)
       | RowsChanged                                                              its rows, without row events
       | Unfollowed                                                               not known: stops its table
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from binlake.ddl.alterations import Alteration, TableComment
from binlake.schema.statement_session import UNKNOWN_SESSION, Session
from binlake.schema.table import TableName, TableSchema


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE with this shape. With if_not_exists the table may have existed; then nothing happened."""

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateLike:
    """CREATE TABLE … LIKE: a table with the shape of another, without its rows."""

    name: TableName
    like: TableName
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    """DROP TABLE. The table may not have existed (IF EXISTS, OR REPLACE)."""

    name: TableName


@dataclass(frozen=True)
class DropDatabase:
    """DROP DATABASE: all its tables are dropped."""

    database: str


@dataclass(frozen=True)
class TruncateTable:
    """TRUNCATE TABLE: all rows are deleted."""

    name: TableName


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE, CREATE INDEX or DROP INDEX with its clauses as written. See evolve.evolve.

    strict: values that don't fit would have made the statement fail (STRICT_TRANS_TABLES or STRICT_ALL_TABLES, without
    IGNORE).
    pads_char: the session read CHAR values with their trailing spaces (PAD_CHAR_TO_FULL_LENGTH).
    keeps_zeros: zero stayed zero in a column that became AUTO_INCREMENT (NO_AUTO_VALUE_ON_ZERO).
    session: its time and time zone may decide values of old rows.
    """

    name: TableName
    alterations: tuple[Alteration, ...]
    strict: bool
    pads_char: bool = False
    keeps_zeros: bool = False
    session: Session = UNKNOWN_SESSION

    @property
    def describes(self) -> bool:
        """Return whether it changes the table's comment and nothing else."""
        return all(isinstance(clause, TableComment) for clause in self.alterations)


@dataclass(frozen=True)
class RenameTables:
    """RENAME TABLE: pairs (old, new), renamed one after the other.

    if_exists: pairs whose first table wasn't there did nothing (MariaDB).
    """

    pairs: tuple[tuple[TableName, TableName], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class RowsChanged:
    """Rows changed without row events. The statement's other changes say what becomes of the shape.

    come: rows may have come, so that a table that was empty needn't be any more.
    """

    name: TableName
    why: str
    come: bool = False


@dataclass(frozen=True)
class NoShapeChange:
    """A change of neither columns, key nor rows. why: names the clause."""

    name: TableName
    why: str


@dataclass(frozen=True)
class DatabaseCharset:
    """The default character set of tables created in the database later. charset: None for the server's default.

    if_not_exists: an existing database keeps its own.
    """

    database: str
    charset: str | None
    if_not_exists: bool = False


@dataclass(frozen=True)
class Unfollowed:
    """A change that can't be followed: the table stops, with this reason."""

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
    """A parsed statement.

    kind: ``CREATE TABLE``, ``ALTER TABLE``, ``CREATE VIEW`` …, ``DML`` for rows changed in statement format,
        ``UNPARSED`` if even that isn't known.
    tables: the tables that it concerns; for DML, those that it may change; for UNPARSED, every name in it that could be
        a table's (most aren't).
    changes: what it does, in order. The changes of one table belong together: all are done or none.
    database_charset: what CREATE or ALTER DATABASE sets.
    may_concern_any: it may concern tables that it doesn't name (a call of a routine, a quote that never ends).
    temporary: temporary tables that it creates or drops.
    is_cut: it is longer than what is read of a statement, and may concern every table that its text names.
    """

    kind: str
    tables: tuple[TableName, ...] = ()
    changes: tuple[Change, ...] = ()
    database_charset: DatabaseCharset | None = None
    may_concern_any: bool = False
    temporary: tuple[TableName, ...] = ()
    is_cut: bool = False

    def failed(self) -> ParsedStatement:
        """Return what a failed statement did. A CREATE did nothing, but with MariaDB's OR REPLACE it has dropped."""
        if not self.kind.startswith("CREATE"):
            return self  # a failed DROP is logged with the tables that it did drop
        dropped = tuple(change for change in self.changes if isinstance(change, DropTable | DropDatabase))
        return replace(self, changes=dropped, database_charset=None)
