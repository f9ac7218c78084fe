"""A table's shape: its columns and its key between two DDL statements."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import PlainSerializer

from binlake.errors import ConfigurationError, UsageError
from binlake.position import Flavour, Position
from binlake.schema.invalid import InvalidValues
from binlake.serialization import dump

KeyKind = Literal["primary", "unique", "none"]
RowTime = Literal["", "start", "end"]


@dataclass(frozen=True)
class Virtual:
    """How a generated column is computed.

    expression: as the default sql_mode of the flavour reads it; the catalog and a statement write one expression
        differently, so that it doesn't count where shapes are compared.
    """

    expression: str = field(compare=False)
    flavour: Flavour


@dataclass(frozen=True)
class Column:
    """One column, as the server declares it.

    type: the lower-case DATA_TYPE of information_schema.columns (``int``, ``varchar``, ``enum`` …).
    length: characters of CHAR and VARCHAR, bytes of BINARY and VARBINARY, bits of BIT, dimensions of VECTOR,
        display width of an integer where declared; 2 of MariaDB's YEAR(2).
    precision, scale: of DECIMAL; of FLOAT and DOUBLE where declared.
    fraction: digits after the second of TIME, DATETIME, TIMESTAMP.
    charset: of text, ENUM and SET; None for everything else.
    values: of ENUM and SET, in order.
    default: the constant a row gets that doesn't name the column, as the server's text; None is NULL.
    default_is_expression: the default isn't a constant (CURRENT_TIMESTAMP, an expression).
    zerofill: digits to which the server's text is filled with zeros; 0 where it isn't ZEROFILL.
    virtual: of a generated column that isn't stored, how it is computed.
    stored: of a generated column that is, how it is computed; None also in shapes that were recorded before this was.
    row_time: which end of a row's time the column has, in a system-versioned table (ROW START, ROW END).
    """

    name: str
    type: str
    unsigned: bool = False
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int = 0
    charset: str | None = None
    values: tuple[str, ...] = ()
    nullable: bool = True
    default: str | None = None
    default_is_expression: bool = False
    generated: bool = False
    invisible: bool = False
    auto_increment: bool = False
    zerofill: int = 0
    virtual: Virtual | None = None
    row_time: RowTime = ""
    stored: Virtual | None = field(default=None, compare=False)

    @property
    def expression(self) -> Virtual | None:
        """How a generated column is computed; None for any other."""
        return self.virtual or self.stored

    @property
    def declared(self) -> str:
        """The type as people write it: ``varchar(40)``, ``decimal(9,2) unsigned``; of ENUM and SET without values."""
        numbers = [self.precision, self.scale] if self.precision is not None else [self.length or self.fraction or None]
        inside = ",".join(str(number) for number in numbers if number is not None)
        return self.type + (f"({inside})" if inside else "") + (" unsigned" if self.unsigned else "")


@dataclass(frozen=True)
class Index:
    """One index other than the primary key.

    columns: None for a part that is an expression. prefixes: characters or bytes of each part that are indexed, None
    for all of it. by_hash: MariaDB was told to keep it by a hash of its values (USING HASH).
    """

    name: str
    columns: tuple[str | None, ...]
    prefixes: tuple[int | None, ...]
    unique: bool = False
    by_hash: bool = False


@dataclass(frozen=True)
class TableSchema:
    """Columns in the order of the table, and the key by which MERGE finds rows.

    key: column names of the primary key, else of a unique key without nullable columns, else empty.
    excluded: lower-case names of columns that don't leave the server; names that the table hasn't are no error.
    charset: the table's default character set, inherited by columns added later.
    indexes: those besides the primary key, unique ones first and in the server's order. They decide which key follows
        when one goes; as long as they don't, two shapes are equal whatever their indexes.
    kept: columns that the server dropped and the lake keeps, under the names that they have there.
    untold: names of virtual columns whose values the log doesn't tell (see virtual.py); the lake leaves them out.
    sequence: a MariaDB sequence, a table of one row that each logged row takes the place of.
    unlogged: the server's log has generated columns in inserts alone (MariaDB 11.5 and newer). It doesn't count where
        shapes are compared: ``untold`` has what follows from it.
    versioned: MariaDB keeps former rows in the table (WITH SYSTEM VERSIONING); the lake has the current ones.
    invalid: the policies on invalid values under which the rows were read; None where an older binlake didn't say. The
        YAML alone changes them, so that shapes are equal whatever they are.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    key_kind: KeyKind = "none"
    excluded: Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str])] = frozenset()
    charset: str = "utf8mb4"
    indexes: tuple[Index, ...] = field(default=(), compare=False)
    kept: tuple[Column, ...] = field(default=(), compare=False)
    untold: tuple[str, ...] = ()
    sequence: bool = False
    versioned: bool = False
    unlogged: bool = field(default=False, compare=False)
    invalid: InvalidValues | None = field(default=None, compare=False)

    @property
    def row_end(self) -> str | None:
        """The column that tells the current rows of a versioned table from the former ones."""
        shown = (column.name for column in self.columns if column.row_time == "end")
        return next(shown, "row_end") if self.versioned else None

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns of the log that no statement declared, and that the catalog doesn't show."""
        declared = any(column.row_time for column in self.columns)
        return ("row_start", "row_end") if self.versioned and not declared else ()

    @property
    def mirrored(self) -> tuple[Column, ...]:
        """The columns that the lake has."""
        return tuple(column for column in self.logged if column.name not in self.untold)

    @property
    def logged(self) -> tuple[Column, ...]:
        """The columns that are staged from the log."""
        return tuple(column for column in self.columns if column.name.lower() not in self.excluded)

    def excluding(self, names: frozenset[str]) -> TableSchema:
        """With other excluded columns. Raises ConfigurationError for one of the key, by which MERGE finds rows."""
        if needed := [name for name in self.key if name.lower() in names]:
            raise ConfigurationError(
                f"the column {needed[0]!r} can't be excluded: it belongs to the key",
                remedy="take it off tables.exclude_columns in the YAML, or exclude the table",
            )
        return replace(self, excluded=names)

    def column(self, name: str) -> Column:
        """By name, without regard to case as the server does; raises KeyError."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)

    def has(self, name: str) -> bool:
        return any(column.name.lower() == name.lower() for column in self.columns)

    def with_columns(self, columns: tuple[Column, ...]) -> TableSchema:
        return replace(self, columns=columns)

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that name this shape; equal shapes have equal ones."""
        shape = {key: value for key, value in dump(self).items() if key not in ("indexes", "unlogged", "invalid")}
        for column in (*shape["columns"], *shape["kept"]):
            del column["stored"]  # it doesn't count where shapes are compared
        text = json.dumps(shape, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, order=True)
class TableName:
    """A table's name on the server. A name is not an identity: see table_id."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """``database.table``; the first dot parts them. Raises UsageError."""
        database, _, table = text.partition(".")
        if not database or not table:
            raise UsageError(f"{text!r} is no table's name", remedy="write database.table")
        return cls(database, table)


_NAMESPACE = uuid.UUID("b1a7e1a6-0000-5000-8000-62696e6c616b")


def table_id(source: str, name: TableName, born: Position) -> str:
    """Identity of one life of a table: from its creation or first snapshot on."""
    text = json.dumps([source, name.database, name.table, str(born)], ensure_ascii=False)
    return str(uuid.uuid5(_NAMESPACE, text))
