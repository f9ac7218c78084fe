"""CREATE TABLE of a recorded shape: a table that takes the rows, and the statements that follow, of the one recorded.

What metadata doesn't tell is left out, or chosen so that every row fits: collations (of unique keys the one by which
the most texts differ), foreign keys, checks, comments, partitions, expressions (a STORED column is a plain one, an
index on an expression none, DEFAULT of one none).
"""

from __future__ import annotations

from collections.abc import Iterator

from binlake.names import mysql_quote
from binlake.position import Flavour
from binlake.schema.table import Column, Index, TableName, TableSchema

_GEOMETRIES = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
     "geometrycollection"}
)  # fmt: skip
_BLOBS = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})
_NO_DEFAULT = _GEOMETRIES | _BLOBS | _TEXTS | {"json", "vector", "timestamp"}
"""A TIMESTAMP's is told in the session's time zone; those of the others are expressions in MySQL."""
_MOST_CHARACTERS = 700
"""Of a text in a key: InnoDB takes 3072 bytes. What a primary key's prefix was isn't recorded."""


def create_database(name: str, charset: str) -> str:
    """Unless it is there."""
    return f"CREATE DATABASE IF NOT EXISTS {mysql_quote(name)} CHARACTER SET {charset}"


def create_table(name: TableName, schema: TableSchema, flavour: Flavour) -> str:
    """For sql_mode 0 and explicit_defaults_for_timestamp."""
    unique = {column for index in schema.indexes if index.unique for column in index.columns}
    exact = unique | set(schema.key)
    keys = list(_keys(schema))
    leading = set(schema.key[:1]) if schema.key_kind == "primary" else set[str | None]()
    leading |= {index.columns[0] for index in schema.indexes if _is_told(schema, index)}
    columns = [_column(one, flavour, exact=one.name in exact, keyed=one.name in leading) for one in schema.columns]
    versioned = " WITH SYSTEM VERSIONING" if schema.versioned else ""
    period = _period(schema)
    inside = ",\n  ".join([*columns, *keys, *period])
    table = f"{mysql_quote(name.database)}.{mysql_quote(name.table)}"
    return f"CREATE TABLE {table} (\n  {inside}\n) DEFAULT CHARACTER SET {schema.charset}{versioned}"


def _column(column: Column, flavour: Flavour, *, exact: bool, keyed: bool) -> str:
    told = [mysql_quote(column.name), _type(column)]
    if column.charset and column.type != "json":
        told.append(f"CHARACTER SET {column.charset}")
        told += [f"COLLATE {_exact_collation(column.charset, flavour)}"] if exact else []
    if column.row_time:
        return " ".join([*told, f"GENERATED ALWAYS AS ROW {column.row_time.upper()}"])
    if column.virtual is not None:
        return " ".join([*told, f"GENERATED ALWAYS AS ({column.virtual.expression}) VIRTUAL"])
    counts = column.auto_increment and keyed
    told += ["AUTO_INCREMENT"] if counts else []
    told.append("NULL" if column.nullable else "NOT NULL")  # behind it, where alone a NULL counts
    if not counts and column.default is not None and not column.generated and column.type not in _NO_DEFAULT:
        told.append(f"DEFAULT {_literal(column)}")
    if column.invisible and (column.nullable or "DEFAULT" in told[-1] or flavour == "mysql"):
        told.append("INVISIBLE")
    return " ".join(told)


def _type(column: Column) -> str:
    if column.type in ("enum", "set"):
        return f"{column.type}({','.join(map(_quoted, column.values))})"
    if not column.zerofill:
        return column.declared
    whole = column.precision is None
    return f"{column.type}({column.zerofill}) unsigned zerofill" if whole else f"{column.declared} zerofill"


def _exact_collation(charset: str, flavour: Flavour) -> str:
    """By which the most texts differ: by their bytes, and by the blanks at their end where there is such a one."""
    if charset == "binary":
        return charset
    if flavour == "mariadb":
        return f"{charset}_nopad_bin"
    return "utf8mb4_0900_bin" if charset == "utf8mb4" else f"{charset}_bin"


def _literal(column: Column) -> str:
    """A constant: of bits and bytes the text is one already."""
    text = column.default or ""
    if column.type in ("bit", "binary", "varbinary") and text[:2].lower() in ("b'", "0x") and text.lower() != "0x":
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def _keys(schema: TableSchema) -> Iterator[str]:
    if schema.key_kind == "primary":
        yield f"PRIMARY KEY ({', '.join(_part(schema, name, None) for name in schema.key)})"
    for index in schema.indexes:
        if _is_told(schema, index):
            parts = zip(index.columns, index.prefixes, strict=True)
            inside = ", ".join(_part(schema, name or "", prefix) for name, prefix in parts)
            yield f"{_word(schema, index)} {mysql_quote(index.name)} ({inside}){' USING HASH' if index.by_hash else ''}"


def _is_told(schema: TableSchema, index: Index) -> bool:
    """Not of an expression, nor of what needs a plugin's parser."""
    return bool(index.columns) and all(name and schema.has(name) for name in index.columns)


def _word(schema: TableSchema, index: Index) -> str:
    """Of texts without a length only FULLTEXT can be, of a geometry SPATIAL."""
    kinds = [schema.column(name).type for name in index.columns if name]
    if index.unique:
        return "UNIQUE KEY"
    if kinds[0] in _GEOMETRIES:
        return "SPATIAL KEY"
    whole_text = any(kind in _TEXTS and not prefix for kind, prefix in zip(kinds, index.prefixes, strict=True))
    return "FULLTEXT KEY" if whole_text else "KEY"


def _part(schema: TableSchema, name: str, prefix: int | None) -> str:
    column = schema.column(name)
    if prefix is None and column.type in _BLOBS | _TEXTS and name in schema.key:
        return f"{mysql_quote(column.name)}({_MOST_CHARACTERS // len(schema.key)})"
    wanted = prefix is not None and column.type not in _GEOMETRIES
    return mysql_quote(column.name) + (f"({prefix})" if wanted else "")


def _period(schema: TableSchema) -> list[str]:
    """Of a versioned table whose columns of time were declared."""
    named = {column.row_time: mysql_quote(column.name) for column in schema.columns if column.row_time}
    return [f"PERIOD FOR SYSTEM_TIME ({named['start']}, {named['end']})"] if len(named) == 2 else []
