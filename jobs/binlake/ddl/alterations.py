"""The clauses of ALTER TABLE, CREATE INDEX and DROP INDEX that change a table's shape.

    Alteration = AddColumn | DropColumn | RenameColumn | ChangeColumn | AlterDefault | AlterVisibility
               | AddKey | DropKey | RenameKey | AddForeignKey
               | TableCharset | ConvertCharset

Clauses without effect on columns, keys and inherited character sets have no class. Names are as written; the server
compares those of columns and indexes without regard to case. Source: MySQL manual 15.1.11; MariaDB Knowledge Base,
ALTER TABLE (IF EXISTS and IF NOT EXISTS are MariaDB's).
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.ddl.defaults import Literal
from binlake.ddl.definition import ColumnDefinition, IndexDefinition


@dataclass(frozen=True)
class ColumnPlace:
    """Where a column stands: first, or after another one; neither: last if it is new, else where it was."""

    first: bool = False
    after: str | None = None

    def __bool__(self) -> bool:
        return self.first or self.after is not None


@dataclass(frozen=True)
class AddColumn:
    """A new column."""

    definition: ColumnDefinition
    place: ColumnPlace = ColumnPlace()
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    """A column goes, and its part of every index."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    """RENAME COLUMN: only the name changes."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True)
class ChangeColumn:
    """CHANGE and MODIFY: the column ``old`` gets this definition, its name included."""

    old: str
    definition: ColumnDefinition
    place: ColumnPlace = ColumnPlace()
    if_exists: bool = False


@dataclass(frozen=True)
class AlterDefault:
    """ALTER column SET DEFAULT, DROP DEFAULT. Rows that are there stay as they are.

    default: None where the default goes or is an expression.
    """

    name: str
    default: Literal | None
    is_expression: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class AlterVisibility:
    """ALTER column SET VISIBLE, SET INVISIBLE."""

    name: str
    invisible: bool


@dataclass(frozen=True)
class AddKey:
    """A new index or the primary key, as ``index.kind`` says."""

    index: IndexDefinition


@dataclass(frozen=True)
class DropKey:
    """An index, by its name; PRIMARY is the primary key's."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameKey:
    """RENAME INDEX."""

    old: str
    new: str


@dataclass(frozen=True)
class AddForeignKey:
    """A foreign key: the server makes an index for it where none begins with its columns.

    name: of the constraint, else of the foreign key, else None.
    """

    name: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class TableCharset:
    """The character set that columns added later inherit."""

    charset: str


@dataclass(frozen=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: all text columns, and what columns added later inherit."""

    charset: str


@dataclass(frozen=True)
class SystemVersioning:
    """ADD or DROP SYSTEM VERSIONING (MariaDB): current rows stay as they are; with DROP the former ones go."""

    on: bool


Alteration = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeColumn
    | AlterDefault
    | AlterVisibility
    | AddKey
    | DropKey
    | RenameKey
    | AddForeignKey
    | TableCharset
    | ConvertCharset
    | SystemVersioning
)
