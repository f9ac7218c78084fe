"""Parsing of column and index definitions in CREATE TABLE and ALTER TABLE.

Sources: MySQL manual 15.1.24 CREATE TABLE (column_definition, data_type), 13.1.1 Numeric Data Type Syntax, 13.7
Spatial; MariaDB Knowledge Base, CREATE TABLE. Synonyms were tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any, Literal as OneOf

from binlake.ddl.alterations import AddForeignKey
from binlake.ddl.definition import (
    TEXT_TO_BYTES,
    ColumnDefinition,
    IndexDefinition,
    canonical_charset,
    charset_of_collation,
)
from binlake.ddl.literals import comment_text, default_value
from binlake.errors import UnfollowedStatement
from binlake.schema import lexer
from binlake.schema.datatypes import REGISTRY
from binlake.schema.lexer import Cursor, Dialect
from binlake.schema.table import KeyKind
from binlake.schema.virtual import canonical

_SYNONYMS = {
    **{name.upper(): name for name in REGISTRY},
    **{"INTEGER": "int", "MIDDLEINT": "mediumint", "BOOL": "tinyint", "BOOLEAN": "tinyint"},
    **{"INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint", "INT4": "int", "INT8": "bigint"},
    **{"DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal", "FLOAT4": "float", "FLOAT8": "double"},
    **{"CHARACTER": "char", "VARCHARACTER": "varchar", "NCHAR": "char", "NVARCHAR": "varchar", "LONG": "mediumtext"},
    **{"REAL": "double", "SERIAL": "bigint"},
}
# PARTITION BY and REMOVE PARTITIONING follow the last clause of ALTER TABLE without a comma.
_AFTER_DEFINITION = ("FIRST", "AFTER", "PARTITION", "REMOVE")
BY_TRANSACTION = "its rows are versioned by transactions, and their changes are logged as statements"
_TEXTUAL = frozenset(name for name, known in REGISTRY.items() if known.is_text)
_BYTES_TO_TEXT = {as_bytes: as_text for as_text, as_bytes in TEXT_TO_BYTES.items()}
# REAL_AS_FLOAT, ORACLE and MAXDB give these words another meaning.
_BY_SQL_MODE = ("REAL", "DATE", "BLOB", "TIMESTAMP")
_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")


def column_definition(cursor: Cursor, dialect: Dialect) -> ColumnDefinition:
    """Read a column's name, type and attributes, up to ``,``, ``)`` or what may follow in ALTER TABLE."""
    if dialect.flavour == "mariadb" and dialect.sql_mode & lexer.ORACLE:
        raise UnfollowedStatement("types mean something else under sql_mode ORACLE")
    name = cursor.column_name()
    definition = ColumnDefinition(
        name,
        "",
        strict=dialect.strict,
        flavour=dialect.flavour,
        session=dialect.session,
    )
    definition = _attributes(cursor, dialect, _data_type(cursor, dialect, definition))
    if definition.type == "json" and dialect.flavour == "mariadb":
        return replace(definition, type="longtext", charset=definition.charset or "utf8mb4")
    return definition


def _data_type(cursor: Cursor, dialect: Dialect, definition: ColumnDefinition) -> ColumnDefinition:
    written = cursor.next()
    national = written.key in ("NATIONAL", "NCHAR", "NVARCHAR")
    if written.key == "NATIONAL":
        written = cursor.next()
    type_ = _SYNONYMS.get(written.key, "")
    if dialect.session_mode_unknown and written.key in _BY_SQL_MODE:
        raise UnfollowedStatement(f"{written.key} depends on the session's sql_mode, which the statement hides")
    if type_ == "char" and (cursor.accept("VARYING") or (national and cursor.accept_any("VARCHAR", "VARCHARACTER"))):
        type_ = "varchar"
    if national and type_ == "varchar":
        cursor.accept("VARYING")
    if written.key == "GEOMETRYCOLLECTION":
        type_ = "geomcollection" if dialect.flavour == "mysql" else "geometrycollection"
    if written.key == "DOUBLE":
        cursor.accept("PRECISION")
    if written.key == "REAL" and dialect.sql_mode & lexer.REAL_AS_FLOAT:
        type_ = "float"
    if type_ == "timestamp" and dialect.flavour == "mariadb" and dialect.sql_mode & lexer.MAXDB:
        type_ = "datetime"
    if written.key == "LONG":
        type_ = _long(cursor)
    if not type_ or REGISTRY[type_].only not in (None, dialect.flavour):
        raise UnfollowedStatement(f"the type of column {definition.name!r} isn't known")
    definition = replace(definition, type=type_, charset="utf8mb3" if national else None)
    if written.key in ("BOOL", "BOOLEAN"):
        return replace(definition, arguments=(1,))
    if written.key == "SERIAL":
        return replace(definition, unsigned=True, nullable=False, auto_increment=True, unique=True)
    return _type_details(cursor, dialect, definition)


def _long(cursor: Cursor) -> str:
    if cursor.accept("VARBINARY"):
        return "mediumblob"
    if not (cursor.accept("CHAR", "VARYING") or cursor.accept("CHARACTER", "VARYING")):
        cursor.accept_any("VARCHAR", "VARCHARACTER")
    return "mediumtext"


def _type_details(cursor: Cursor, dialect: Dialect, definition: ColumnDefinition) -> ColumnDefinition:
    """Read what belongs to the type: arguments, signedness, character set. Returns the definition with it."""
    type_ = definition.type
    if REGISTRY[type_].has_members:
        definition = replace(definition, values=_values(cursor))
    elif cursor.at("("):
        definition = replace(definition, arguments=_type_arguments(cursor))
    elif type_ in ("varchar", "varbinary"):
        raise cursor.not_understood(f"a length of column {definition.name!r}")
    if type_ == "float" and len(definition.arguments) == 1:
        # FLOAT(p) only chooses between FLOAT and DOUBLE.
        definition = replace(definition, type="float" if definition.arguments[0] <= 24 else "double", arguments=())
    while sign := cursor.accept_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        definition = replace(
            definition,
            unsigned=definition.unsigned or sign != "SIGNED",
            zerofill=definition.zerofill or sign == "ZEROFILL",
        )
    words = ("BINARY", "ASCII", "UNICODE", "BYTE", "CHARSET", "CHARACTER", "CHAR")
    while type_ in _TEXTUAL and (_skip_compressed(cursor, dialect) or cursor.at_any(*words)):
        if cursor.at_any(*words):
            definition = _character_set(cursor, definition)
    return definition


def _skip_compressed(cursor: Cursor, dialect: Dialect) -> bool:
    """Step over MariaDB's ``COMPRESSED[=method]``. The values are the same; the log has types of its own for them."""
    if dialect.flavour == "mysql" or not cursor.accept("COMPRESSED"):
        return False
    if cursor.accept("="):
        word_or_string(cursor)
    return True


def _character_set(cursor: Cursor, definition: ColumnDefinition) -> ColumnDefinition:
    if cursor.accept("BINARY"):  # the character set's binary collation
        return definition
    implied = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}.get(cursor.token.key)
    if implied:
        cursor.next()
        return replace(definition, charset=implied)
    return replace(definition, charset=charset_clause(cursor))


def charset_clause(cursor: Cursor) -> str | None:
    """Read ``CHARACTER SET [=] name``. Returns the name; None for DEFAULT."""
    if not cursor.accept("CHARSET"):
        if not cursor.accept_any("CHARACTER", "CHAR"):
            raise cursor.not_understood("CHARACTER SET expected")
        cursor.expect("SET")
    cursor.accept("=")
    return None if cursor.accept("DEFAULT") else canonical_charset(word_or_string(cursor))


def collation_clause(cursor: Cursor) -> str | None:
    """Read ``COLLATE [=] name``. Returns the collation's character set; None if the name doesn't contain it."""
    cursor.expect("COLLATE")
    cursor.accept("=")
    return None if cursor.accept("DEFAULT") else charset_of_collation(word_or_string(cursor))


def word_or_string(cursor: Cursor) -> str:
    """Read a name, with or without quotes, or a string. Raises UnfollowedStatement for other tokens."""
    token = cursor.next()
    if token.kind not in ("word", "quoted", "string"):
        raise cursor.not_understood("a name or string expected")
    return token.text


def _type_arguments(cursor: Cursor) -> tuple[int, ...]:
    cursor.expect("(")
    numbers = [_whole_part(cursor) if cursor.peek().key == ")" else cursor.integer()]
    while cursor.accept(","):
        numbers.append(cursor.integer())
    cursor.expect(")")
    return tuple(numbers)


def _whole_part(cursor: Cursor) -> int:
    """Read a type's argument. ``10.7`` means 10: field_length of sql/sql_yacc.yy reads DECIMAL_NUM up to the point."""
    token = cursor.token
    decimal = re.fullmatch(r"([0-9]{0,20})\.[0-9]*", token.text) if token.kind == "number" else None
    if decimal is None:
        return cursor.integer()
    cursor.next()
    return int(decimal[1] or 0)


def _values(cursor: Cursor) -> tuple[str | bytes, ...]:
    """Read the members of an ENUM or SET: texts, or bytes in the column's character set."""
    cursor.expect("(")
    values: list[str | bytes] = []
    while True:
        if cursor.token.kind not in ("string", "bytes"):
            raise cursor.not_understood("a string expected")
        token = cursor.next()
        values.append(token.text if token.kind == "string" else bytes.fromhex(token.text))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(values)


def _attributes(cursor: Cursor, dialect: Dialect, definition: ColumnDefinition) -> ColumnDefinition:
    while not cursor.at_end and not cursor.at_any(",", ")", *_AFTER_DEFINITION):
        definition = replace(definition, **_attribute(cursor, dialect, definition))
    return definition


def _attribute(cursor: Cursor, dialect: Dialect, definition: ColumnDefinition) -> dict[str, Any]:
    """Read one attribute. Returns the fields of ColumnDefinition that it sets."""
    if cursor.accept("NOT", "NULL"):
        return {"nullable": False, "null_written": False}
    if cursor.accept("NULL"):
        return {"nullable": True, "null_written": True}
    if _skip_plain_attribute(cursor):
        return {}
    plain = _flags(cursor)
    if plain is not None:
        return plain
    if cursor.accept("DEFAULT"):
        return _default(cursor, dialect)
    if cursor.accept("ON", "UPDATE"):
        _skip_function(cursor)
        return {"on_update": True}
    if cursor.accept("REFERENCES"):
        cursor.qualified_name()
        _skip_reference(cursor)
        return {"references": True}
    if cursor.at("COLLATE"):
        return _collated(definition, collation_clause(cursor))
    if cursor.at_any("CHARSET", "CHARACTER") and definition.type in _TEXTUAL:
        return {"charset": charset_clause(cursor)}
    if cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        return _row_time(cursor, definition) or {"generated": True, "expression": _expression(cursor)}
    if cursor.accept("COMMENT"):
        return {"comment": comment_text(cursor, "column")}
    if _skip_compressed(cursor, dialect):
        return {}
    raise cursor.not_understood(f"an attribute of column {definition.name!r}")


def _flags(cursor: Cursor) -> dict[str, Any] | None:
    """Read an attribute of fixed words. Returns the fields that it sets; None where another one follows."""
    if cursor.accept("AUTO_INCREMENT"):  # a NULL behind it counts, one in front of it doesn't
        return {"auto_increment": True, "nullable": False}
    if cursor.accept("SERIAL", "DEFAULT", "VALUE"):
        return {"auto_increment": True, "nullable": False, "unique": True}
    if cursor.accept("UNIQUE"):
        cursor.accept("KEY")
        return {"unique": True}
    if cursor.accept("PRIMARY") or cursor.at("KEY"):
        cursor.accept("KEY")
        return {"primary": True}
    if cursor.accept_any("STORED", "PERSISTENT"):
        return {"stored": True}
    if cursor.at_any("VISIBLE", "INVISIBLE"):  # the one said last counts
        return {"invisible": cursor.next().key == "INVISIBLE"}
    return {"versioned": True} if cursor.accept("WITH", "SYSTEM", "VERSIONING") else None


def _collated(definition: ColumnDefinition, charset: str | None) -> dict[str, Any]:
    """Return the fields that COLLATE sets. charset: the collation's; None if its name doesn't contain it.

    MariaDB makes text of bytes that have a collation of text, so ``BLOB COLLATE latin1_bin`` is a TEXT.
    """
    if definition.type in _BYTES_TO_TEXT and definition.flavour == "mariadb" and charset not in (None, "binary"):
        return {"type": _BYTES_TO_TEXT[definition.type], "charset": charset}
    textual = definition.type in _TEXTUAL or definition.type == "json"
    return {"charset": definition.charset or charset} if textual else {}


def _row_time(cursor: Cursor, definition: ColumnDefinition) -> dict[str, Any]:
    """Read ``ROW START`` or ``ROW END`` of a system-versioned table. Returns the fields that it sets; else empty."""
    which = "start" if cursor.accept("ROW", "START") else "end" if cursor.accept("ROW", "END") else ""
    if which and definition.type != "timestamp":
        raise UnfollowedStatement(BY_TRANSACTION)
    return {"generated": True, "stored": True, "nullable": False, "row_time": which} if which else {}


def _expression(cursor: Cursor) -> str:
    """Read an expression in parentheses. Returns its canonical text (see virtual.canonical)."""
    start = cursor.index + 1
    cursor.skip_parentheses()
    return canonical(cursor.lexer.tokens[start : cursor.index - 1])


def _skip_plain_attribute(cursor: Cursor) -> bool:
    """Step over an attribute that influences neither shape nor values. Tells whether there was one."""
    if cursor.accept("WITHOUT", "SYSTEM", "VERSIONING"):  # of a table that may have none
        return True
    if cursor.accept_any("VIRTUAL", "ENFORCED") or cursor.accept("NOT", "ENFORCED"):
        return True
    if cursor.accept_any("COLUMN_FORMAT", "STORAGE", "SRID"):
        cursor.next()
        return True
    if cursor.accept_any("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "REF_SYSTEM_ID"):
        cursor.accept("=")
        cursor.next()
        return True
    if cursor.at("CONSTRAINT") or cursor.at("CHECK"):
        if cursor.accept("CONSTRAINT") and not cursor.at("CHECK"):
            cursor.name()
        cursor.expect("CHECK")
        cursor.skip_parentheses()
        return True
    if cursor.token.is_name and cursor.peek().key == "=":  # MariaDB: an attribute of the engine's own
        cursor.index += 2
        cursor.next()
        return True
    return False


def _skip_reference(cursor: Cursor) -> None:
    if cursor.at("("):
        cursor.skip_parentheses()
    while cursor.at("MATCH") or (cursor.at("ON") and cursor.peek().key in ("DELETE", "UPDATE")):
        if cursor.accept("MATCH"):
            cursor.next()
            continue
        cursor.index += 2
        if cursor.accept_any("SET", "NO"):  # SET NULL, SET DEFAULT, NO ACTION
            cursor.next()
        elif not cursor.accept_any("RESTRICT", "CASCADE"):
            raise cursor.not_understood("a foreign key's action")


def _default(cursor: Cursor, dialect: Dialect) -> dict[str, Any]:
    now = _now(cursor)
    literal = default_value(cursor, dialect) if now is None else None
    return {"default": literal, "default_is_expression": literal is None, "now": now}


def _now(cursor: Cursor) -> int | None:
    """Step over CURRENT_TIMESTAMP or a synonym. Returns the digits of its fraction; None if none is next."""
    if not cursor.at_any(*_NOW) or cursor.peek().key == ".":
        return None
    cursor.next()
    if not cursor.accept("("):
        return 0
    digits = 0 if cursor.at(")") else cursor.integer()
    cursor.expect(")")
    return digits


def _skip_function(cursor: Cursor) -> None:
    """Step over a function such as ``CURRENT_TIMESTAMP`` or ``NOW(3)``."""
    cursor.name()
    if cursor.at("("):
        cursor.skip_parentheses()


def index_definition(cursor: Cursor) -> IndexDefinition | AddForeignKey | None:
    """Read a table's index or constraint, up to ``,`` or ``)``. Returns None if none is next.

    A CHECK is returned as an index without columns.
    """
    if cursor.accept("PERIOD", "FOR", "SYSTEM_TIME"):
        cursor.skip_parentheses()
        return IndexDefinition("none", (), ())
    if cursor.at("PERIOD", "FOR"):
        raise UnfollowedStatement("tables with periods aren't mirrored")
    named, symbol = cursor.accept("CONSTRAINT"), None
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if named and not cursor.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        symbol = cursor.name()
    if cursor.accept("CHECK"):
        cursor.skip_to(",", ")", "PARTITION")
        return IndexDefinition("none", (), ())
    start = cursor.index
    kind = _index_kind(cursor)
    if kind is None:
        if named:
            raise cursor.not_understood("a constraint")
        return None
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS") or if_not_exists
    name = None if cursor.at("(") or cursor.at_any("USING", "TYPE") else cursor.name()
    if cursor.accept_any("USING", "TYPE"):
        cursor.next()
    index = index_parts(cursor, "none" if kind == "foreign" else kind)
    cursor.skip_to(",", ")", "PARTITION")
    if kind == "foreign":
        return AddForeignKey(symbol or name, tuple(column for column in index.columns if column))
    return replace(index, name=name or symbol, if_not_exists=if_not_exists, by_hash=using_hash(cursor, start))


def using_hash(cursor: Cursor, start: int) -> bool:
    """Return whether USING HASH is between the token ``start`` and here, on MariaDB; MySQL's InnoDB ignores it."""
    words = [token.key for token in cursor.lexer.tokens[start : cursor.index]]
    by_hash = any(pair in (("USING", "HASH"), ("TYPE", "HASH")) for pair in itertools.pairwise(words))
    return by_hash and cursor.lexer.flavour == "mariadb"


def _index_kind(cursor: Cursor) -> OneOf["primary", "unique", "none", "foreign"] | None:
    """Step over the words that begin an index or constraint. Returns its kind; None if none is next."""
    if cursor.accept("PRIMARY", "KEY"):
        return "primary"
    if cursor.accept("FOREIGN", "KEY"):
        return "foreign"
    if cursor.accept("UNIQUE"):
        cursor.accept_any("KEY", "INDEX")
        return "unique"
    if cursor.accept("VECTOR", "INDEX") or cursor.accept_any("INDEX", "KEY"):
        return "none"
    if cursor.accept_any("FULLTEXT", "SPATIAL"):
        cursor.accept_any("KEY", "INDEX")
        return "none"
    return None


def index_parts(cursor: Cursor, kind: KeyKind) -> IndexDefinition:
    """Read the parts of an index, ``(a, b(10) DESC, …)``; a part that is an expression becomes None."""
    cursor.expect("(")
    columns: list[str | None] = []
    prefixes: list[int | None] = []
    while True:
        if cursor.at("("):
            columns.append(None)
            prefixes.append(None)
            cursor.skip_parentheses()
        else:
            columns.append(cursor.name())
            prefixes.append(_type_arguments(cursor)[0] if cursor.at("(") else None)
        cursor.accept_any("ASC", "DESC")
        if cursor.at("WITHOUT", "OVERLAPS"):
            raise UnfollowedStatement("tables with periods aren't mirrored")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return IndexDefinition(kind, tuple(columns), tuple(prefixes))
