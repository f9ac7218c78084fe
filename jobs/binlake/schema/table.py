"""A table's shape: its columns and its key between two DDL statements."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import Annotated, Any, Literal, TypeVar

from pydantic import PlainSerializer

from binlake.errors import ConfigurationError, UsageError
from binlake.names import mysql_quote, shown
from binlake.position import Flavour, Position
from binlake.schema.invalid import InvalidValues
from binlake.schema.mask import Mask
from binlake.serialization import dump

KeyKind = Literal["primary", "unique", "none"]
RowTime = Literal["", "start", "end"]
ComparedAs = Literal["whole", "decimal", "float", "year", "date", "moment", "text", "member", "bytes", "other"]
"""Kinds of values in a condition of rows."""
INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
"""Types without a length, by the bytes of a value's length: one, two, three, four."""
TEXTS = frozenset({"char", "varchar", *LONG_TEXTS})
BYTES = frozenset({"binary", "varbinary", *BLOBS})
"""Types of integers, texts and bytes, as Column has them."""


@dataclass(frozen=True)
class Virtual:
    """How a generated column is computed.

    expression: its text as the flavour's default sql_mode reads it. It isn't compared where shapes are: the catalog and
        a statement write the same expression differently.
    """

    expression: str = field(compare=False)
    flavour: Flavour


@dataclass(frozen=True)
class Column:
    """One column, as it is declared on the server.

    type: the lower-case DATA_TYPE of information_schema.columns (``int``, ``varchar``, ``enum`` …).
    length: characters of CHAR and VARCHAR, bytes of BINARY and VARBINARY, bits of BIT, dimensions of VECTOR,
        display width of an integer if declared; 2 for MariaDB's YEAR(2).
    precision, scale: of DECIMAL; of FLOAT and DOUBLE if declared.
    fraction: digits after the second of TIME, DATETIME, TIMESTAMP.
    charset: of text, ENUM and SET; None for everything else.
    values: of ENUM and SET, in order; none in shapes that withhold the column, see ``without_values``.
    default: the constant that a row gets if an INSERT doesn't name the column, as the server's text; None is NULL.
    default_is_expression: the default isn't a constant (CURRENT_TIMESTAMP, an expression).
    zerofill: digits to which the server fills the text with zeros; 0 if the column isn't ZEROFILL.
    virtual: how a VIRTUAL generated column is computed; None for any other.
    stored: how a STORED generated column is computed; None for any other, and in shapes recorded by older versions.
    row_time: which end of a row's time the column holds in a system-versioned table (ROW START, ROW END).
    comment: its COMMENT; empty without one, and in shapes recorded by older versions. It isn't compared where shapes
        are: no row depends on it.
    mask: what is written of its values in their place; None for the values themselves. See ``shown``.
    server_name: the column's name on the server where the YAML gives it another one in the lake, which is ``name``;
        else empty. lake_type: the type that the YAML gives it in the lake, else empty. See lake_forms.py.
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
    comment: str = field(default="", compare=False, repr=False)
    mask: Mask | None = None
    server_name: str = ""
    lake_type: str = ""

    @property
    def served_name(self) -> str:
        """Return the name that the column has on the server."""
        return self.server_name or self.name

    @property
    def shown(self) -> Column:
        """Return the column that staging and the lake have of it: itself, but for one with a mask or another type."""
        if self.mask is None and self.lake_type:
            is_boolean = self.lake_type == "boolean"
            default = f"b'{self.default}'" if is_boolean and self.default in ("0", "1") else self.default
            return replace(
                self, type="bit" if is_boolean else self.lake_type, length=1 if is_boolean else None, unsigned=False,
                precision=None, scale=None, zerofill=0, auto_increment=False, default=default,
            )  # fmt: skip
        if self.mask is None:
            return self
        if self.mask.kind == "hash":
            return Column(
                self.name, "char", length=self.mask.length, charset="ascii", nullable=self.nullable,
                generated=self.generated, virtual=self.virtual, stored=self.stored, row_time=self.row_time,
                mask=self.mask, server_name=self.server_name,
            )  # fmt: skip
        column = self.without_values if self.mask.kind == "nothing" else self
        return replace(column, nullable=True, zerofill=0, auto_increment=False)

    @property
    def without_values(self) -> Column:
        """Return the column without what its definition says of values: default, comment, members of ENUM and SET."""
        return replace(self, default=None, comment="", values=())

    @property
    def expression(self) -> Virtual | None:
        """Return how a generated column is computed; None for any other."""
        return self.virtual or self.stored

    @property
    def declared(self) -> str:
        """Return the type as SQL writes it: ``varchar(40)``, ``decimal(9,2) unsigned``; ENUM and SET without values."""
        numbers = [self.precision, self.scale] if self.precision is not None else [self.length or self.fraction or None]
        inside = ",".join(str(number) for number in numbers if number is not None)
        return self.type + (f"({inside})" if inside else "") + (" unsigned" if self.unsigned else "")


@dataclass(frozen=True)
class Index:
    """One index other than the primary key.

    columns: its parts; None for an expression. prefixes: how many characters or bytes of each part are indexed; None
    for all. by_hash: declared USING HASH, on MariaDB.
    """

    name: str
    columns: tuple[str | None, ...]
    prefixes: tuple[int | None, ...]
    unique: bool = False
    by_hash: bool = False


_NOT_COMPARED = (
    "indexes", "unlogged", "invalid", "soft_delete", "row_metadata", "without_rows", "where", "snapshot_where", "shard",
)  # fmt: skip


@dataclass(frozen=True)
class TableSchema:
    """Columns in the order of the table, and the key by which MERGE finds rows.

    key: column names of the primary key, else of a unique key without nullable columns, else empty.
    excluded: lower-case names of columns that aren't read from the server; the table may lack some of them.
    charset: the table's default character set, inherited by columns added later.
    indexes: all indexes besides the primary key, unique ones first, in the server's order. They decide which key is
        used when the present one is dropped. They aren't compared where shapes are.
    kept: columns that the server dropped and the lake keeps, under their names in the lake.
    untold: names of virtual columns whose values the log lacks (see virtual.py); the lake leaves them out.
    sequence: a MariaDB sequence: a table of one row, which each logged row replaces.
    unlogged: the server logs generated columns in inserts only (MariaDB 11.5 and newer). It isn't compared where shapes
        are: ``untold`` has its effect.
    versioned: MariaDB keeps former rows in the table (WITH SYSTEM VERSIONING); the lake has the current ones.
    invalid: the policies on invalid values under which the rows were read; None if an older binlake recorded the shape.
        It isn't compared where shapes are: only the YAML changes it.
    soft_delete: deleted rows stay in the lake, marked. row_metadata: facts about each row's newest mutation that the
    lake has as columns.
        without_rows: the mirror has this shape, and never a row. They aren't compared where shapes are, either.
    where: the condition of the rows that the mirror has, see row_condition.py; empty for all rows. snapshot_where: the
        condition that snapshots of the table ask for beside it, and the log doesn't. They aren't compared, either.
    shard: the table that shows it with others, the column that distinguishes them, and this table's value there; empty
        for a table by itself. It isn't compared, either.
    comment: the table's; see Column.
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
    soft_delete: bool = field(default=False, compare=False)
    row_metadata: tuple[str, ...] = field(default=(), compare=False)
    without_rows: bool = field(default=False, compare=False)
    comment: str = field(default="", compare=False)
    where: str = field(default="", compare=False)
    snapshot_where: str = field(default="", compare=False)
    shard: tuple[str, ...] = field(default=(), compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without what was worked out of them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def row_end(self) -> str | None:
        """Return the column whose value shows whether a row of a versioned table is current; None for other tables."""
        shown = (column.name for column in self.columns if column.row_time == "end")
        return next(shown, "row_end") if self.versioned else None

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return columns that the log has, but no statement declared and the catalog doesn't show."""
        declared = any(column.row_time for column in self.columns)
        return ("row_start", "row_end") if self.versioned and not declared else ()

    @cached_property
    def mirrored(self) -> tuple[Column, ...]:
        """Return the columns that the lake has."""
        return tuple(column for column in self.logged if column.name not in self.untold)

    @cached_property
    def logged(self) -> tuple[Column, ...]:
        """Return the columns that are staged from the log, as they are staged."""
        return tuple(column.shown for column in self.columns if column.name.lower() not in self.excluded)

    @cached_property
    def masks(self) -> Mapping[str, Mask]:
        """Return the masks of columns, by their names in lower case."""
        return {column.name.lower(): column.mask for column in self.columns if column.mask is not None}

    @property
    def hidden_values(self) -> frozenset[str]:
        """Return the names of columns of which nothing is shown, in lower case."""
        return frozenset(name for name, mask in self.masks.items() if mask.kind == "nothing")

    @cached_property
    def unmasked(self) -> TableSchema:
        """Return the shape of the rows that the server gives."""
        return self.masking({}) if self.masks else self

    def masking(self, masks: Mapping[str, Mask]) -> TableSchema:
        """Return the shape with other masks, by column in lower case. What the definition of a masked column says of
        values isn't kept."""
        if not masks and not self.masks:
            return self
        masked = (
            replace(column.without_values, mask=mask)
            if (mask := masks.get(column.name.lower()))
            else replace(column, mask=None)
            for column in self.columns
        )
        return replace(self, columns=tuple(masked))

    def excluding(self, names: frozenset[str]) -> TableSchema:
        """Return the shape with other excluded columns, of which nothing is kept that their definitions say of values.
        Raises ConfigurationError for a column of the key."""
        if needed := [name for name in self.key if name.lower() in names]:
            raise ConfigurationError(
                f"the column {needed[0]!r} can't be excluded: it belongs to the key",
                remedy="take it off tables.exclude_columns in the YAML, or exclude the table",
            )
        without = (column.without_values if column.name.lower() in names else column for column in self.columns)
        return replace(self, excluded=names, columns=tuple(without) if names else self.columns)

    def commented_as(self, other: TableSchema) -> TableSchema:
        """Return the shape with the comments of the table and its columns in the server's shape of the same columns."""
        comments = {
            column.served_name: column.comment
            for column in other.columns
            if column.served_name.lower() not in self.excluded
        }
        columns = (
            replace(column, comment="" if column.mask else comments.get(column.served_name, ""))
            for column in self.columns
        )
        return replace(self, columns=tuple(columns), comment=other.comment)

    def column(self, name: str) -> Column:
        """Return a column by its name, whose case doesn't matter. Raises KeyError."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)

    def shown(self, name: str) -> Column:
        """Return a column as staging and the lake have it, by its name, whose case doesn't matter. Raises KeyError."""
        return self.column(name).shown

    def has(self, name: str) -> bool:
        """Return whether a column has this name, in any case."""
        return any(column.name.lower() == name.lower() for column in self.columns)

    def with_columns(self, columns: tuple[Column, ...]) -> TableSchema:
        """Return the shape with other columns, and all else as it is."""
        return replace(self, columns=columns)

    @property
    def lake_comments(self) -> dict[str, str]:
        """Return the comments of the lake's columns, by name; without those that have none."""
        return {column.name: column.comment for column in (*self.mirrored, *self.kept) if column.comment}

    def uncommented(self) -> dict[str, Any]:
        """Return the shape as it is recorded, without the comments, for texts that differ if shapes do."""
        shape: dict[str, Any] = dump(self)
        for part in (shape, *shape["columns"], *shape["kept"]):
            del part["comment"]
        for name in ("where", "snapshot_where", "shard"):  # texts of an older binlake have none of them
            if not shape[name]:
                del shape[name]
        for column in (*shape["columns"], *shape["kept"]):  # texts of an older binlake have none
            for name in ("mask", "server_name", "lake_type"):
                if not column[name]:
                    del column[name]
        return shape

    @cached_property
    def fingerprint(self) -> str:
        """Return twelve hex digits that identify this shape. Equal shapes have the same."""
        shape = {key: value for key, value in self.uncommented().items() if key not in _NOT_COMPARED}
        for column in (*shape["columns"], *shape["kept"]):
            del column["stored"]  # it isn't compared where shapes are
        text = json.dumps(shape, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_Derived = TypeVar("_Derived")


def once_per_shape(derive: Callable[[TableSchema], _Derived]) -> Callable[[TableSchema], _Derived]:
    """Keep what a function derives from a shape with that shape, so that it is worked out once for each.

    A shape is never changed; one that ``replace`` makes has nothing kept yet, and one that was pickled has nothing any
    more.
    """
    name = f"{derive.__module__}.{derive.__qualname__}"

    @wraps(derive)
    def derived(schema: TableSchema) -> _Derived:
        kept = schema.__dict__
        if name not in kept:
            kept[name] = derive(schema)
        result: _Derived = kept[name]
        return result

    return derived


@dataclass(frozen=True, order=True)
class TableName:
    """A table's name on the server. A name is not an identity: see table_id.

    ``str`` has it as it is; formatted, as in a message, it is one line.
    """

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        """Return the name as MySQL's statements have it."""
        return f"{mysql_quote(self.database)}.{mysql_quote(self.table)}"

    def __format__(self, specification: str) -> str:
        return format(shown(str(self)), specification)

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse ``database.table``, split at the first dot. Raises UsageError."""
        database, _, table = text.partition(".")
        if not database or not table:
            raise UsageError(f"{text!r} is no table's name", remedy="write database.table")
        return cls(database, table)


_NAMESPACE = uuid.UUID("b1a7e1a6-0000-5000-8000-62696e6c616b")


def table_id(source: str, name: TableName, born: Position) -> str:
    """Return the identity of one life of a table. born: the position of its creation or first snapshot."""
    text = json.dumps([source, name.database, name.table, str(born)], ensure_ascii=False)
    return str(uuid.uuid5(_NAMESPACE, text))
