"""A column as a statement writes it, and the Column that the server makes of it.

What a written type becomes can depend on the table's default character set: VARCHAR(9) in a table with the
character set binary is a VARBINARY(9), TEXT(300) is a TEXT or a TINYTEXT. Therefore ``ColumnDefinition`` keeps what
was written, and ``ColumnDefinition.column`` resolves it.

Sources: MySQL manual 13.1 to 13.4 and 13.6 (data types, their defaults), 15.1.24.7 Silent Column Specification
Changes; tried on MySQL 9.7 and MariaDB 10.11 (tests/integration/schema).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from binlake.errors import UnfollowedStatement
from binlake.schema import defaults
from binlake.schema.defaults import Literal, NotConstant
from binlake.schema.lexer import Flavour
from binlake.schema.table import Column, KeyKind, TableSchema

TEXT_TO_BYTES = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
_BLOB_SIZES = (
    (255, "tinytext", "tinyblob"),
    (65_535, "text", "blob"),
    (16_777_215, "mediumtext", "mediumblob"),
    (4_294_967_295, "longtext", "longblob"),
)
_BYTES_PER_CHARACTER = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "gbk", "big5", "sjis", "cp932", "euckr", "gb2312"), 2),
}
_INTEGER_WIDTH = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}


def charset_of_collation(collation: str) -> str | None:
    """The character set of a collation; None where the collation fits several (MariaDB's ``uca1400_ai_ci``)."""
    charset = collation.lower().partition("_")[0]
    return None if charset.startswith("uca") else canonical_charset(charset)


def canonical_charset(charset: str) -> str:
    """As information_schema spells it."""
    charset = charset.lower()
    return "utf8mb3" if charset == "utf8" else charset


@dataclass(frozen=True)
class ColumnDefinition:
    """One column as written.

    type: information_schema's spelling of the written type, before the character set decides.
    arguments: the numbers in parentheses after the type. charset: None where the table's default counts.
    strict: whether sql_mode makes too long a VARCHAR an error instead of a TEXT.
    default: None where no DEFAULT is written; default_is_expression: it isn't a constant.
    key: the column's own PRIMARY KEY or UNIQUE.
    """

    name: str
    type: str
    arguments: tuple[int, ...] = ()
    values: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    nullable: bool = True
    default: Literal | None = None
    default_is_expression: bool = False
    generated: bool = False
    invisible: bool = False
    auto_increment: bool = False
    key: KeyKind = "none"
    strict: bool = True
    flavour: Flavour = "mysql"

    def column(self, table_charset: str) -> Column:
        """The column as information_schema shows it, in a table with this default character set."""
        column = self._typed(table_charset)
        if self.default is None or column.default_is_expression:
            return column
        try:
            return replace(column, default=self._default_text(column))
        except NotConstant:
            # Rows never need it, unless the column is added to them: constant_default refuses that.
            return replace(column, default=self.default.text)

    def constant_default(self, table_charset: str) -> str | None:
        """The value, as the server's text, that rows get which are older than the column; None is NULL.

        Raises NotConstant where that isn't one constant for all rows.
        """
        if self.auto_increment:
            raise NotConstant(f"column {self.name!r} counts up by itself (AUTO_INCREMENT) in old rows")
        column = self._typed(table_charset)
        if self.default is not None and not column.default_is_expression:
            column = replace(column, default=self._default_text(column))
            if column.type in defaults.BYTES and defaults.hides_zero_bytes(column, self.default):
                raise NotConstant(f"the default of column {self.name!r} has zero bytes")
        return defaults.old_row_default(column)

    def _typed(self, table_charset: str) -> Column:
        """The column without its default."""
        charset = self.charset or canonical_charset(table_charset)
        type_ = self._resolved_type(charset)
        if type_ in ("enum", "set"):
            # MySQL's information_schema shows no character set for bytes, MariaDB's does.
            shown_charset = None if charset == "binary" and self.flavour == "mysql" else charset
        else:
            shown_charset = charset if type_ in TEXT_TO_BYTES else None
        decimal = type_ == "decimal"
        return Column(
            name=self.name,
            type=type_,
            unsigned=self.unsigned or self.zerofill,
            length=self._length(type_),
            precision=(self.arguments[0] or 10 if self.arguments else 10) if decimal else None,
            scale=(self.arguments[1] if len(self.arguments) > 1 else 0) if decimal else None,
            fraction=self.arguments[0] if type_ in ("time", "datetime", "timestamp") and self.arguments else 0,
            charset=shown_charset,
            values=self.values,
            nullable=self.nullable and not self.auto_increment and self.key != "primary",
            default_is_expression=self.default_is_expression or self._is_kept_as_written(type_),
            generated=self.generated,
            invisible=self.invisible,
        )

    def _is_kept_as_written(self, type_: str) -> bool:
        """MariaDB shows x'41' as the default of a TEXT or BLOB, not its value."""
        large = type_.endswith(("text", "blob"))
        return large and self.default is not None and self.default.kind == "bytes" and self.flavour == "mariadb"

    def _resolved_type(self, charset: str) -> str:
        type_ = self.type
        if type_ in TEXT_TO_BYTES and charset == "binary":
            type_ = TEXT_TO_BYTES[type_]
        per_character = _BYTES_PER_CHARACTER.get(charset, 1) if type_ in TEXT_TO_BYTES else 1
        size = (self.arguments[0] if self.arguments else 0) * per_character
        if type_ in ("text", "blob") and self.arguments and (size or self.flavour == "mysql"):
            return self._sized(type_ == "text", size)
        if type_ in ("varchar", "varbinary") and size > 65_535:
            if self.strict:
                raise UnfollowedStatement(f"column {self.name!r} is too long for its type")
            return self._sized(type_ == "varchar", size)
        return type_

    def _sized(self, is_text: bool, size: int) -> str:
        """The smallest TEXT or BLOB that holds this many bytes."""
        for limit, text, blob in _BLOB_SIZES:
            if size <= limit:
                return text if is_text else blob
        raise UnfollowedStatement(f"column {self.name!r} is too long for its type")

    def _length(self, type_: str) -> int | None:
        written = self.arguments[0] if self.arguments else None
        if type_ in ("char", "binary"):
            return 1 if written is None else written
        if type_ in ("varchar", "varbinary"):
            return written
        if type_ == "bit":
            return written or 1
        if type_ == "vector":
            return written or 2048
        # Display widths are noise, except that TINYINT(1) is how MySQL says boolean.
        is_boolean = type_ == "tinyint" and written == 1 and not (self.unsigned or self.zerofill)
        return 1 if is_boolean else None

    def _default_text(self, column: Column) -> str | None:
        assert self.default is not None
        if column.type.endswith("blob") and self.default.kind == "number":
            raise NotConstant(f"the default of column {self.name!r} is a number, shown as written")
        text = defaults.server_text(column, self.default, flavour=self.flavour, float_digits=self.arguments)
        if not self.zerofill or text is None:
            return text
        if column.type == "decimal" and column.precision is not None:
            return text.rjust(column.precision + (1 if column.scale else 0), "0")
        if column.type in _INTEGER_WIDTH:
            return text.rjust(self.arguments[0] if self.arguments else _INTEGER_WIDTH[column.type], "0")
        raise NotConstant(f"the default of column {self.name!r} (ZEROFILL) isn't understood")


@dataclass(frozen=True)
class IndexDefinition:
    """An index as written.

    columns: its columns in order; empty where a part is an expression.
    prefixes: characters or bytes of each part that is indexed, None for all of it.
    """

    kind: KeyKind
    columns: tuple[str, ...]
    prefixes: tuple[int | None, ...]

    def covers_whole_columns(self, schema: TableSchema) -> bool:
        return bool(self.columns) and all(
            prefix is None or prefix == schema.column(name).length
            for name, prefix in zip(self.columns, self.prefixes, strict=True)
        )


def table_schema(columns: tuple[Column, ...], indexes: tuple[IndexDefinition, ...]) -> TableSchema:
    """The shape with its key: the primary key, else the first unique key of whole columns that are NOT NULL.

    Raises UnfollowedStatement for a column that isn't there or is there twice.
    """
    names = [column.name.lower() for column in columns]
    if len(set(names)) != len(names):
        raise UnfollowedStatement("the statement names a column twice")
    schema = TableSchema(columns)
    for index in indexes:
        for name in index.columns:
            if not schema.has(name):
                raise UnfollowedStatement(f"the statement has a key over the unknown column {name!r}")
    for index in indexes:
        if index.kind == "primary":
            key = {name.lower() for name in index.columns}
            columns = tuple(replace(c, nullable=False) if c.name.lower() in key else c for c in columns)
            return TableSchema(columns, _spelled(schema, index.columns), "primary")
    for index in indexes:
        if index.kind == "unique" and is_key_candidate(schema, index):
            return TableSchema(columns, _spelled(schema, index.columns), "unique")
    return schema


def is_key_candidate(schema: TableSchema, index: IndexDefinition) -> bool:
    """Whether a unique index finds every row: whole columns, none of them nullable."""
    return index.covers_whole_columns(schema) and not any(schema.column(name).nullable for name in index.columns)


def _spelled(schema: TableSchema, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns as the table spells them."""
    return tuple(schema.column(name).name for name in names)
