"""A column as a statement writes it, and the Column that the server makes of it.

The meaning of a written type can depend on the table's default character set: VARCHAR(9) in a table with the
character set binary is a VARBINARY(9), TEXT(300) is a TEXT or a TINYTEXT. Therefore ``ColumnDefinition`` keeps what
was written, and ``ColumnDefinition.column`` resolves it.

Sources: MySQL manual 13.1 to 13.4 and 13.6 (data types, their defaults), 15.1.24.7 Silent Column Specification
Changes; tried on MySQL 9.7 and MariaDB 10.11 (tests/integration/schema).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from binlake.ddl import defaults
from binlake.ddl.defaults import NotConstant
from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema import charsets
from binlake.schema.charsets import bytes_per_character
from binlake.schema.datatypes import REGISTRY
from binlake.schema.statement_session import UNKNOWN_SESSION, Session
from binlake.schema.table import BLOBS, BYTES, LONG_TEXTS, Column, KeyKind, RowTime, Virtual
from binlake.schema.types.constants import Literal
from binlake.schema.types.text_sizes import sized, text_bytes

TEXT_TO_BYTES = {"char": "binary", "varchar": "varbinary", **dict(zip(LONG_TEXTS, BLOBS, strict=True))}
ZERO_DATE = Literal("string", "0000-00-00 00:00:00")


def charset_of_collation(collation: str) -> str | None:
    """Return the character set of a collation; None if the collation is for several (MariaDB's ``uca1400_ai_ci``)."""
    charset = collation.lower().partition("_")[0]
    return None if charset.startswith("uca") else canonical_charset(charset)


def canonical_charset(charset: str) -> str:
    """Return the name of a character set as information_schema spells it."""
    charset = charset.lower()
    return "utf8mb3" if charset == "utf8" else charset


@dataclass(frozen=True)
class ColumnDefinition:
    """One column as it is written.

    type: information_schema's spelling of the written type, before the character set is applied.
    arguments: the numbers in parentheses after the type.
    values: members of ENUM and SET; bytes if they are written in hexadecimal.
    charset: the written character set; None for the table's default.
    strict: under sql_mode a VARCHAR that is too long is an error; else it becomes a TEXT.
    default: the written constant; None without DEFAULT. default_is_expression: it isn't a constant. now: the digits of
    CURRENT_TIMESTAMP, if that is the default.
    expression: a generated column's, canonical (see virtual.py). stored: it is computed when the row is written.
    primary, unique, references: the column has a PRIMARY KEY, UNIQUE or REFERENCES of its own.
    null_written: NULL is written, which isn't the same as NOT NULL missing. on_update: ON UPDATE CURRENT_TIMESTAMP.
    session: its explicit_defaults_for_timestamp, time and time zone decide how a TIMESTAMP is declared and what it
    holds.
    row_time: see table.Column. versioned: WITH SYSTEM VERSIONING, which makes the whole table versioned.
    comment: as the server stores it.
    """

    name: str
    type: str
    arguments: tuple[int, ...] = ()
    values: tuple[str | bytes, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    nullable: bool = True
    default: Literal | None = None
    default_is_expression: bool = False
    generated: bool = False
    expression: str = ""
    stored: bool = False
    invisible: bool = False
    auto_increment: bool = False
    primary: bool = False
    unique: bool = False
    references: bool = False
    strict: bool = True
    flavour: Flavour = "mysql"
    null_written: bool = False
    on_update: bool = False
    session: Session = UNKNOWN_SESSION
    now: int | None = None
    row_time: RowTime = ""
    versioned: bool = False
    comment: str = ""

    def settled(self, *, is_first_timestamp: bool, in_primary_key: bool) -> ColumnDefinition:
        """Return the definition with what the server adds to a TIMESTAMP while explicit_defaults_for_timestamp is off.

        The column becomes NOT NULL unless NULL is written. Without a default, the table's first TIMESTAMP gets
        CURRENT_TIMESTAMP, with ON UPDATE; others, and a first one with ON UPDATE of its own, get the zero date, or no
        default in a primary key of MySQL. Sources: MySQL manual 7.1.8, explicit_defaults_for_timestamp;
        promote_first_timestamp_column (sql/sql_table.cc of both servers). Raises UnfollowedStatement if the result
        depends on the variable and the log lacks it.
        """
        if self.type != "timestamp" or self.session.explicit_timestamps or self.row_time:
            return self
        nullable = self.null_written and not self.primary
        has_default = self.default_is_expression or self.default not in (None, Literal("null"))
        if self.session.explicit_timestamps is None:
            if nullable or (not self.nullable and has_default):
                return self
            raise UnfollowedStatement(
                f"whether explicit_defaults_for_timestamp was on, on which column {self.name!r} depends, isn't known"
            )
        if self.generated:
            return replace(self, nullable=nullable or self.flavour == "mariadb")
        if has_default or (nullable and not in_primary_key):
            return replace(self, nullable=nullable)
        if is_first_timestamp and not (nullable or self.on_update):
            digits = self.arguments[0] if self.arguments else 0
            return replace(self, nullable=False, default=None, default_is_expression=True, now=digits)
        zero = None if in_primary_key and self.flavour == "mysql" else ZERO_DATE
        return replace(self, nullable=False, default=zero)

    def column(self, table_charset: str) -> Column:
        """Return the column as information_schema shows it, in a table with this default character set."""
        column = self._typed(table_charset)
        default = defaults.kept(column, self.default, self.flavour)
        if default is None or column.default_is_expression:
            return column
        return replace(column, default=defaults.shown_text(column, default, self.flavour, self.session))

    def constant_default(self, table_charset: str) -> str | None:
        """Return the value that existing rows get when the column is added, as the server's text; None is NULL.

        A TIMESTAMP is in UTC. Raises NotConstant if it isn't the same for all rows or isn't known, and ImpossibleDate
        for a date that no calendar has.
        """
        if self.auto_increment:
            raise NotConstant(f"column {self.name!r} counts up by itself (AUTO_INCREMENT) in old rows")
        column = self._typed(table_charset)
        if self.now is not None and self.now == column.fraction and not self.generated:
            return self._time(column)
        default = defaults.kept(column, self.default, self.flavour)
        if default is not None and not column.default_is_expression:
            if column.type.endswith("blob") and default.kind == "string" and table_charset in charsets.NOT_ASCII:
                raise NotConstant(f"MariaDB writes the default of column {self.name!r} in {table_charset}")
            column = replace(column, default=defaults.server_text(column, default, self.flavour))
            if column.type in BYTES and defaults.hides_zero_bytes(column, default):
                raise NotConstant(f"the default of column {self.name!r} has zero bytes")
        text = defaults.old_row_default(column)
        if text is None or column.type != "timestamp":
            return text
        if (utc := self.session.utc(text)) is None:
            raise NotConstant(f"the default of column {self.name!r} (TIMESTAMP) depends on the session's time zone")
        return utc

    def _time(self, column: Column) -> str:
        """Return the statement's time as the server's text, the same for all rows. Raises NotConstant."""
        session = self.session
        text = {"timestamp": session.now, "datetime": session.local_now}.get(column.type, lambda _: None)(self.now or 0)
        if text is None:
            raise NotConstant(f"the time that is the default of column {self.name!r} isn't in the log")
        return text

    def _typed(self, table_charset: str) -> Column:
        """Return the column without its default."""
        charset = self.charset or canonical_charset(table_charset)
        type_ = self._resolved_type(charset)
        known = REGISTRY[type_]
        if known.has_members:
            # MySQL's information_schema shows no character set for bytes, MariaDB's does.
            shown_charset = None if charset == "binary" and self.flavour == "mysql" else charset
        else:
            shown_charset = charset if type_ in TEXT_TO_BYTES else None
        precision, scale = known.digits(self.arguments)
        expression = Virtual(self.expression, self.flavour) if self.generated and not self.row_time else None
        return Column(
            name=self.name,
            type=type_,
            unsigned=self._is_unsigned,
            length=known.length(self.arguments[0] if self.arguments else None, self._is_unsigned),
            precision=precision,
            scale=scale,
            fraction=self.arguments[0] if known.has_fraction and self.arguments else 0,
            charset=shown_charset,
            values=self._members(charset),
            nullable=self.nullable and not self.primary,
            default_is_expression=self.default_is_expression
            or defaults.is_kept_as_written(type_, self.default, self.flavour),
            generated=self.generated,
            invisible=self.invisible,
            auto_increment=self.auto_increment,
            zerofill=known.zerofill(self.arguments) if self.zerofill else 0,
            virtual=None if self.stored else expression,
            stored=expression if self.stored else None,
            row_time=self.row_time,
            comment=self.comment,
        )

    def _members(self, charset: str) -> tuple[str, ...]:
        """Return the members of an ENUM or SET as text, without trailing spaces, which the server drops.

        Raises UnfollowedStatement, also for characters in the place of which the server has question marks.
        """
        if not self.values:
            return ()
        own = "ascii" if charset == "binary" else charset
        try:
            decode, encode = charsets.decoder(own), charsets.encoder(own)
            texts = [value if isinstance(value, str) else decode(value) for value in self.values]
            known = all(encode(text) and charsets.NO_CHARACTER not in text for text in texts if text)
        except (KeyError, UnicodeError):
            known = False
        if not known or (own == "utf8mb3" and max(max(text, default="") for text in texts) > "\uffff"):
            raise UnfollowedStatement(f"a member of column {self.name!r} isn't valid {charset}")
        return tuple(text.rstrip(" ") for text in texts)

    def _resolved_type(self, charset: str) -> str:
        type_ = self.type
        if type_ in TEXT_TO_BYTES and charset == "binary":
            type_ = TEXT_TO_BYTES[type_]
        per_character = bytes_per_character(charset) if type_ in TEXT_TO_BYTES else 1
        size = (self.arguments[0] if self.arguments else 0) * per_character
        if type_ in ("text", "blob") and self.arguments and (size or self.flavour == "mysql"):
            return sized(size, text=type_ == "text")
        if type_ in ("varchar", "varbinary") and size > 65_535:
            if self.strict:
                raise UnfollowedStatement(f"column {self.name!r} is too long for its type")
            return sized(size, text=type_ == "varchar")
        return type_

    @property
    def _is_unsigned(self) -> bool:
        return self.unsigned or self.zerofill


@dataclass(frozen=True)
class IndexDefinition:
    """An index or the primary key as it is written.

    kind: ``none`` for an index that isn't unique. columns: its columns in order; None for a part that is an expression.
    prefixes: how many characters or bytes of each part are indexed; None for all.
    name: None if the server chooses it. by_hash: see table.Index.
    """

    kind: KeyKind
    columns: tuple[str | None, ...]
    prefixes: tuple[int | None, ...]
    name: str | None = None
    if_not_exists: bool = False
    by_hash: bool = False


def converted(column: Column, charset: str, flavour: Flavour) -> Column:
    """Return what CONVERT TO CHARACTER SET makes of a column that no other clause changes."""
    old = column.charset
    if old is None or (old == charset and column.type in TEXT_TO_BYTES):
        return column
    if REGISTRY[column.type].has_members:
        shown = None if charset == "binary" and flavour == "mysql" else charset
        return column if old == "binary" else replace(column, charset=shown)
    type_ = _grown(column.type, column, charset)
    return replace(column, type=TEXT_TO_BYTES[type_] if charset == "binary" else type_, charset=_shown(charset))


def keeps_members(column: Column, charset: str) -> bool:
    """Return whether the members of an ENUM or SET are the same texts after CONVERT TO CHARACTER SET; True for others.

    Both servers keep the bytes of the members, and read them in the new character set: in cp1251 latin1's 'é' is 'й'.
    Tried on MySQL 9.7 and MariaDB 10.11.
    """
    if not column.values or column.charset in (None, "binary", charset):
        return True
    if {column.charset, charset} <= {"utf8mb3", "utf8mb4"}:
        return True
    # A question mark may stand for bytes that are no character.
    are_ascii = all(value.isascii() and value.isprintable() and "?" not in value for value in column.values)
    return are_ascii and not {column.charset, charset} & charsets.NOT_ASCII


def converted_definition(
    definition: ColumnDefinition, old: Column | None, charset: str
) -> tuple[ColumnDefinition, Column]:
    """Return what becomes of a column that a statement defines besides CONVERT TO CHARACTER SET.

    The conversion wins over a character set written in the definition. old: the column that the definition changes;
    MySQL chooses the size of a TEXT without a length by the old column's characters.
    """
    if definition.charset != "binary":
        definition = replace(definition, charset=None)
    column = definition.column(charset)
    if definition.flavour == "mysql" and old is not None and old.charset and not definition.arguments:
        column = replace(column, type=_grown(column.type, old, charset))
    return definition, column


def _grown(type_: str, old: Column, charset: str) -> str:
    """Return the TEXT type that holds all characters of the old column; other types stay."""
    if type_ not in ("tinytext", "text", "mediumtext") or REGISTRY[old.type].has_members:
        return type_
    characters = (
        old.length if old.length is not None else text_bytes(old.type) // bytes_per_character(old.charset or "")
    )
    return sized(characters * bytes_per_character(charset), text=True)


def _shown(charset: str) -> str | None:
    return None if charset == "binary" else charset
