"""CREATE TABLE for a recorded shape: a table that accepts the rows, and later statements, of the recorded one.

Parts that metadata don't hold are left out or chosen so that every row fits: collations (for unique keys, one under
which the most texts differ), foreign keys, checks, partitions, and expressions: a STORED column becomes a plain one;
indexes on expressions and DEFAULTs that are expressions are left out. So are comments.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlake.names import mysql_quote
from binlake.position import Flavour
from binlake.schema.datatypes import REGISTRY
from binlake.schema.table import BLOBS, LONG_TEXTS, Column, Index, TableName, TableSchema
from binlake.schema.types.byte_types import GEOMETRIES

_MOST_CHARACTERS = 700
"""Characters of a text in a key, for InnoDB takes 3072 bytes. The prefixes of primary keys aren't recorded."""


def create_database(name: str, charset: str) -> str:
    """Return the statement that creates a database unless it exists."""
    return f"CREATE DATABASE IF NOT EXISTS {mysql_quote(name)} CHARACTER SET {charset}"


def create_table(name: TableName, schema: TableSchema, flavour: Flavour) -> str:
    """Return the statement that creates the table, under sql_mode 0 and explicit_defaults_for_timestamp = ON."""
    unique = {column for index in schema.indexes if index.unique for column in index.columns}
    exact = unique | set(schema.key)
    keys = list(_keys(schema))
    leading = set(schema.key[:1]) if schema.key_kind == "primary" else set[str | None]()
    leading |= {index.columns[0] for index in schema.indexes if _is_writable(schema, index)}
    columns = [
        _column_clause(column, flavour, exact=column.name in exact, keyed=column.name in leading)
        for column in schema.columns
    ]
    versioned = " WITH SYSTEM VERSIONING" if schema.versioned else ""
    period = _period(schema)
    inside = ",\n  ".join([*columns, *keys, *period])
    table = name.quoted
    return f"CREATE TABLE {table} (\n  {inside}\n) DEFAULT CHARACTER SET {schema.charset}{versioned}"


def _column_clause(column: Column, flavour: Flavour, *, exact: bool, keyed: bool) -> str:
    words = [mysql_quote(column.name), _type(column)]
    if column.charset and column.type != "json":
        words.append(f"CHARACTER SET {column.charset}")
        words += [f"COLLATE {_exact_collation(column.charset, flavour)}"] if exact else []
    if column.row_time:
        return " ".join([*words, f"GENERATED ALWAYS AS ROW {column.row_time.upper()}"])
    if column.virtual is not None:
        return " ".join([*words, f"GENERATED ALWAYS AS ({column.virtual.expression}) VIRTUAL"])
    counts = column.auto_increment and keyed
    words += ["AUTO_INCREMENT"] if counts else []
    words.append("NULL" if column.nullable else "NOT NULL")  # behind it, where alone a NULL counts
    # A TIMESTAMP's default depends on the session's time zone; others are expressions in MySQL.
    has_default = column.type != "timestamp" and REGISTRY[column.type].has_default
    if not counts and column.default is not None and not column.generated and has_default:
        words.append(f"DEFAULT {_literal(column)}")
    if column.invisible and (column.nullable or "DEFAULT" in words[-1] or flavour == "mysql"):
        words.append("INVISIBLE")
    return " ".join(words)


def _type(column: Column) -> str:
    if REGISTRY[column.type].has_members:
        members = column.values or ("",)  # none are recorded of a column that is always NULL
        return f"{column.type}({','.join(map(_quoted, members))})"
    if not column.zerofill:
        return column.declared
    whole = column.precision is None
    return f"{column.type}({column.zerofill}) unsigned zerofill" if whole else f"{column.declared} zerofill"


def _exact_collation(charset: str, flavour: Flavour) -> str:
    """Return the collation under which the most texts differ: by bytes and, if there is one without padding, by
    trailing spaces."""
    if charset == "binary":
        return charset
    if flavour == "mariadb":
        return f"{charset}_nopad_bin"
    return "utf8mb4_0900_bin" if charset == "utf8mb4" else f"{charset}_bin"


def _literal(column: Column) -> str:
    """Return a column's default as a literal. The recorded text of bits and bytes is a literal already."""
    text = column.default or ""
    if REGISTRY[column.type].default_is_literal and text[:2].lower() in ("b'", "0x") and text.lower() != "0x":
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def _keys(schema: TableSchema) -> Iterator[str]:
    if schema.key_kind == "primary":
        yield f"PRIMARY KEY ({', '.join(_part(schema, name, None) for name in schema.key)})"
    for index in schema.indexes:
        if _is_writable(schema, index):
            parts = zip(index.columns, index.prefixes, strict=True)
            inside = ", ".join(_part(schema, name or "", prefix) for name, prefix in parts)
            method = " USING HASH" if index.by_hash else ""
            yield f"{_index_keyword(schema, index)} {mysql_quote(index.name)} ({inside}){method}"


def _is_writable(schema: TableSchema, index: Index) -> bool:
    """Return whether all parts of an index are recorded columns: not an expression, nor a plugin's hidden column."""
    return bool(index.columns) and all(name and schema.has(name) for name in index.columns)


def _index_keyword(schema: TableSchema, index: Index) -> str:
    """Return an index's keyword. A text without prefix implies FULLTEXT, a geometry SPATIAL."""
    kinds = [schema.column(name).type for name in index.columns if name]
    if index.unique:
        return "UNIQUE KEY"
    if kinds[0] in GEOMETRIES:
        return "SPATIAL KEY"
    whole_text = any(kind in LONG_TEXTS and not prefix for kind, prefix in zip(kinds, index.prefixes, strict=True))
    return "FULLTEXT KEY" if whole_text else "KEY"


def _part(schema: TableSchema, name: str, prefix: int | None) -> str:
    column = schema.column(name)
    if prefix is None and column.type in (*BLOBS, *LONG_TEXTS) and name in schema.key:
        return f"{mysql_quote(column.name)}({_MOST_CHARACTERS // len(schema.key)})"
    wanted = prefix is not None and column.type not in GEOMETRIES
    return mysql_quote(column.name) + (f"({prefix})" if wanted else "")


def _period(schema: TableSchema) -> list[str]:
    """Return the PERIOD clause of a versioned table whose ROW START and ROW END are declared; empty for others."""
    named = {column.row_time: mysql_quote(column.name) for column in schema.columns if column.row_time}
    return [f"PERIOD FOR SYSTEM_TIME ({named['start']}, {named['end']})"] if len(named) == 2 else []
