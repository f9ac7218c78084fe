"""The clauses of ALTER TABLE, CREATE INDEX and DROP INDEX that change a table's shape.

    Alteration = AddColumn | DropColumn | RenameColumn | ChangeColumn | AlterDefault | AlterVisibility
               | AddKey | DropKey | RenameKey | AddForeignKey
               | TableCharset | ConvertCharset | SystemVersioning | TableComment

Clauses without effect on columns, keys, comments and inherited character sets have no class. Names are as written; the
server compares those of columns and indexes without regard to case. Source: MySQL manual 15.1.11; MariaDB Knowledge
Base, ALTER TABLE (IF EXISTS and IF NOT EXISTS are MariaDB's).
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.ddl.definition import ColumnDefinition, IndexDefinition
from binlake.schema.types.constants import Literal


@dataclass(frozen=True)
class ColumnPlace:
    """The place of a column: first, or after another one. With neither, a new column comes last; others stay."""

    first: bool = False
    after: str | None = None

    def __bool__(self) -> bool:
        return self.first or self.after is not None


@dataclass(frozen=True)
class AddColumn:
    """ADD COLUMN."""

    definition: ColumnDefinition
    place: ColumnPlace = ColumnPlace()
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    """DROP COLUMN: the column is dropped, and its part of every index."""

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
    """CHANGE and MODIFY: the column ``old`` gets this definition, which includes its name."""

    old: str
    definition: ColumnDefinition
    place: ColumnPlace = ColumnPlace()
    if_exists: bool = False


@dataclass(frozen=True)
class AlterDefault:
    """ALTER column SET DEFAULT, DROP DEFAULT. Existing rows keep their values.

    default: None if the default is dropped or is an expression.
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
    """ADD INDEX, ADD PRIMARY KEY and the like, as ``index.kind`` says."""

    index: IndexDefinition


@dataclass(frozen=True)
class DropKey:
    """DROP INDEX. The primary key's name is PRIMARY."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameKey:
    """RENAME INDEX."""

    old: str
    new: str


@dataclass(frozen=True)
class AddForeignKey:
    """ADD FOREIGN KEY: the server adds an index for it if none begins with its columns.

    name: the constraint's, else the foreign key's, else None.
    """

    name: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class TableCharset:
    """[DEFAULT] CHARACTER SET: columns added later inherit it."""

    charset: str


@dataclass(frozen=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: all text columns are converted, and columns added later inherit it."""

    charset: str


@dataclass(frozen=True)
class SystemVersioning:
    """ADD or DROP SYSTEM VERSIONING (MariaDB). Current rows stay as they are; DROP deletes the former ones."""

    on: bool


@dataclass(frozen=True)
class TableComment:
    """COMMENT of the table; empty takes it away."""

    comment: str


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
    | TableComment
)
