"""The server's catalog: its tables and their shapes, read from information_schema.

The shapes have the same normal form as those that DDL statements make (``binlake.ddl``): lengths only where they
matter, defaults as MySQL's information_schema shows them, geometry types by the server's own names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from binlake.config import SYSTEM_DATABASES
from binlake.ddl.definition import ZEROFILL_WIDTH, canonical_charset, charset_of_collation
from binlake.ddl.keys import key_index, with_key
from binlake.names import mysql_quote
from binlake.schema.table import Column, Index, RowTime, TableName, TableSchema, Virtual
from binlake.schema.virtual import leaves_generated_columns_out
from binlake.source.listed_tables import SEQUENCE, SYSTEM_VERSIONED, list_tables
from binlake.source.server import Source

_WITH_LENGTH = frozenset({"char", "varchar", "binary", "varbinary"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_WITH_CHARSET = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_WITH_FRACTION = frozenset({"time", "datetime", "timestamp"})
_ROW_TIMES: dict[str, RowTime] = {"ROW START": "start", "ROW END": "end"}
_MEMBERS_AT_ONCE = 200
"""The most names in one IN list."""


@dataclass(frozen=True)
class SourceTable:
    """One table of the server.

    kind: information_schema's TABLE_TYPE (``BASE TABLE``, ``VIEW``, ``SEQUENCE``, ``SYSTEM VERSIONED``).
    rows, size: the server's estimates; size in bytes.
    """

    name: TableName
    kind: str
    engine: str
    rows: int
    size: int
    schema: TableSchema

    @property
    def has_read_views(self) -> bool:
        """Tell whether a transaction keeps reading the rows of its beginning; of a sequence InnoDB shows the newest."""
        return self.engine.lower() == "innodb" and not self.schema.sequence


def database_charsets(source: Source) -> dict[str, str]:
    """Return each database's default character set, without the server's own databases."""
    rows = source.query("SELECT schema_name AS d, default_character_set_name AS c FROM information_schema.schemata")
    return {row["d"]: canonical_charset(row["c"]) for row in rows if row["d"].lower() not in SYSTEM_DATABASES}


def read_schemas(source: Source, names: Collection[TableName]) -> dict[TableName, TableSchema]:
    """Return the shapes of tables, with as few queries as possible, because a lock may be held meanwhile."""
    wanted = set(names)
    return _schemas(source, wanted)


Excluding = Callable[[TableName, TableSchema], TableSchema]


def read_tables(
    source: Source, names: Collection[TableName], excluding: Excluding = lambda name, schema: schema
) -> dict[TableName, SourceTable]:
    """Return shape, engine and kind of tables. Tables that don't exist are missing from the result.

    excluding: returns a shape with the columns that aren't mirrored noted in it.
    """
    wanted = set(names)
    listed = {table.name: table for table in list_tables(source) if table.name in wanted}
    schemas = _schemas(source, wanted)
    tables: dict[TableName, SourceTable] = {}
    for name, table in listed.items():
        tables[name] = SourceTable(
            name=name,
            kind=table.kind,
            engine=table.engine,
            rows=table.rows,
            size=table.size,
            schema=excluding(name, schemas.get(name) or TableSchema(())),
        )
    return tables


@dataclass(frozen=True)
class KeyPart:
    """A column as the index of its table's key orders it. collation: a text's; None for other types."""

    column: Column
    descending: bool = False
    collation: str | None = None


def key_parts(source: Source, name: TableName, schema: TableSchema) -> tuple[str, tuple[KeyPart, ...]]:
    """Return the index of a table's key and its leading parts that hold whole columns; no parts without an index."""
    index = key_index(schema)
    described = {
        row["name"].lower(): row["collation"]
        for row in _select(source, "column_name AS name, collation_name AS collation", "columns WHERE", "d", {name})
    }
    what = "index_name AS i, column_name AS c, sub_part AS part, collation AS direction"
    entries = [row for row in _select(source, what, "statistics WHERE", "seq_in_index", {name}) if row["i"] == index]
    parts: list[KeyPart] = []
    for column, row in zip(schema.key, entries, strict=False):
        if row["part"] is not None or (row["c"] or "").lower() != column.lower():
            break
        parts.append(KeyPart(schema.column(column), row["direction"] == "D", described.get(column.lower())))
    return index, tuple(parts)


def _by_database(names: Iterable[TableName]) -> Iterator[tuple[str, list[str]]]:
    """Yield each database with names of its tables, in portions that fit one statement."""
    tables: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        tables[name.database].append(name.table)
    for database, members in tables.items():
        for start in range(0, len(members), _MEMBERS_AT_ONCE):
            yield database, members[start : start + _MEMBERS_AT_ONCE]


def _select(source: Source, what: str, where: str, order: str, names: Iterable[TableName]) -> Iterator[dict[str, Any]]:
    """Yield rows of information_schema, with ``d`` and ``t``, the database and table that they belong to.

    information_schema compares without regard to case, so rows of other tables are dropped here.
    """
    wanted = set(names)
    for database, members in _by_database(wanted):
        if len(members) > 1:
            members.append("")  # MariaDB takes IN ('A', 'a') for one name, and looks up the first alone
        marks = ", ".join(["%s"] * len(members))
        rows = source.query(
            f"SELECT table_schema AS d, table_name AS t, {what} FROM information_schema.{where}"
            f" table_schema = %s AND table_name IN ({marks}) ORDER BY {order}",
            [database, *members],
        )
        yield from (row for row in rows if TableName(row["d"], row["t"]) in wanted)


def _schemas(source: Source, names: set[TableName]) -> dict[TableName, TableSchema]:
    without_columns = _options(source, names)
    columns = _columns(source, names)
    keys = _indexes(source, names)
    schemas: dict[TableName, TableSchema] = {}
    for name, by_table in columns.items():
        primary = tuple(column for column in keys[name].pop("PRIMARY", _NO_INDEX).columns if column)
        indexes = _in_order(source, name, list(keys[name].values()))
        schemas[name] = with_key(without_columns[name].with_columns(tuple(by_table)), primary, indexes)
    return schemas


def _options(source: Source, names: set[TableName]) -> dict[TableName, TableSchema]:
    """Return shapes without columns: what holds for each table as a whole. Views have no character set."""
    what = "table_collation AS collation, table_type AS kind, table_comment AS comment"
    return {
        TableName(row["d"], row["t"]): TableSchema(
            (),
            charset=charset_of_collation(row["collation"] or "") or "utf8mb4",
            sequence=row["kind"] == SEQUENCE,
            versioned=row["kind"] == SYSTEM_VERSIONED,
            unlogged=source.is_mariadb and leaves_generated_columns_out(source.release.version),
            comment=_as_text(row["comment"] or ""),
        )
        for row in _select(source, what, "tables WHERE", "table_schema, table_name", names)
    }


def _columns(source: Source, names: set[TableName]) -> dict[TableName, list[Column]]:
    columns: dict[TableName, list[Column]] = defaultdict(list)
    rows = _select(
        source,
        "column_name AS name, data_type AS type, column_type AS declared, column_default AS value, extra AS extra,"
        " is_nullable AS nullable, character_set_name AS charset, character_maximum_length AS length,"
        " numeric_precision AS digits, numeric_scale AS scale, datetime_precision AS fraction,"
        " generation_expression AS expression, column_comment AS comment",
        "columns WHERE",
        "table_schema, table_name, ordinal_position",
        names,
    )
    for row in rows:
        columns[TableName(row["d"], row["t"])].append(_column_of_row(row, mariadb=source.is_mariadb))
    return columns


def _column_of_row(row: dict[str, Any], *, mariadb: bool) -> Column:
    type_, declared, extra = row["type"].lower(), _as_text(row["declared"]), (row["extra"] or "").upper()
    virtual = "VIRTUAL GENERATED" in extra
    generated = virtual or "STORED GENERATED" in extra or extra.startswith("PERSISTENT")
    row_time = _ROW_TIMES.get(row["expression"] or "", "")
    is_computed = generated and not row_time
    expression = _expression(_as_text(row["expression"] or ""), mariadb=mariadb) if is_computed else None
    is_expression, default = False, row["value"] if row["value"] is None else _as_text(row["value"])
    if not generated and default is not None:
        is_expression, default = (_mariadb_default if mariadb else _mysql_default)(type_, default, extra)
    has_scale = type_ in ("decimal", "float", "double") and row["scale"] is not None
    return Column(
        name=row["name"],
        type=type_,
        unsigned=_is_unsigned(type_, declared),
        length=_length(type_, declared, row),
        precision=int(row["digits"]) if has_scale else None,
        scale=int(row["scale"]) if has_scale else None,
        fraction=int(row["fraction"] or 0) if type_ in _WITH_FRACTION else 0,
        charset=_charset(row["charset"]) if type_ in _WITH_CHARSET else None,
        values=tuple(_strings_in(declared)) if type_ in ("enum", "set") else (),
        nullable=row["nullable"] == "YES",
        default=None if generated else default,
        default_is_expression=is_expression,
        generated=generated,
        invisible="INVISIBLE" in extra,
        auto_increment="AUTO_INCREMENT" in extra,
        zerofill=_zerofill(type_, declared),
        row_time=row_time,
        virtual=expression if virtual else None,
        stored=None if virtual else expression,
        comment=_as_text(row["comment"] or ""),
    )


def _expression(expression: str, *, mariadb: bool) -> Virtual:
    if mariadb:
        return Virtual(expression, "mariadb")
    # MySQL's information_schema escapes the text once more, and takes its bytes for latin1.
    expression = re.sub(r"\\(.)", r"\1", expression, flags=re.S)
    with suppress(UnicodeError):
        expression = b"".join(_latin1(letter) for letter in expression).decode()
    return Virtual(expression, "mysql")


def _latin1(letter: str) -> bytes:
    """Encode a letter in MySQL's latin1, which is cp1252 with its gaps filled."""
    try:
        return letter.encode("cp1252")
    except UnicodeEncodeError:
        return letter.encode("latin1")


def _zerofill(type_: str, declared: str) -> int:
    """Return to how many characters ZEROFILL fills; for ``decimal(5,2) unsigned zerofill`` that includes the point."""
    digits = re.fullmatch(r"[a-z]+(?:\((\d+)(?:,(\d+))?\))? unsigned zerofill", declared)
    if not digits:
        return 0
    point = 1 if type_ == "decimal" and int(digits[2] or 0) else 0
    return int(digits[1] or ZEROFILL_WIDTH[type_]) + point


def _as_text(value: str | bytes) -> str:
    # MySQL's data dictionary gives some of its text columns as bytes.
    return value.decode() if isinstance(value, bytes) else value


def _charset(charset: str | None) -> str | None:
    return "utf8mb3" if charset == "utf8" else charset


def _is_unsigned(type_: str, declared: str) -> bool:
    return type_ not in ("enum", "set") and ("unsigned" in declared or "zerofill" in declared)


def _length(type_: str, declared: str, row: dict[str, Any]) -> int | None:
    if type_ in _WITH_LENGTH:
        return int(row["length"])
    if type_ == "bit":
        return int(row["digits"])
    if type_ == "vector":
        return int(declared.partition("(")[2].rstrip(")"))
    # Display widths are noise, except that TINYINT(1) is how MySQL says boolean, and YEAR(2) has two digits.
    return {"tinyint(1)": 1, "year(2)": 2}.get(declared)


_STRING = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.S)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "\\": "\\", "'": "'"}


def _strings_in(text: str) -> Iterator[str]:
    """Yield the strings in ``enum('a','b''c')``. The server doubles quotes, and escapes NUL, line ends, backslashes."""
    for match in _STRING.finditer(text):
        yield re.sub(
            r"''|\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]) if escape[1] else "'", match[1], flags=re.S
        )


def _mysql_default(type_: str, text: str, extra: str) -> tuple[bool, str | None]:
    """Return whether MySQL's default is an expression, and the constant."""
    return (True, None) if "DEFAULT_GENERATED" in extra else (False, text)


def _mariadb_default(type_: str, text: str, extra: str) -> tuple[bool, str | None]:
    """Return whether MariaDB's default is an expression, and the constant.

    MariaDB shows strings in quotes, NULL as a word, and expressions as they are.
    """
    if text == "NULL":
        return False, None
    if _STRING.fullmatch(text):
        value = next(_strings_in(text))
        if type_ in _BYTES and (value or type_ == "binary"):
            return False, "0x" + value.encode().rstrip(b"\0").hex().upper()
        return False, value
    if type_ in _BYTES and (digits := re.fullmatch(r"x'([0-9A-Fa-f]*)'", text)):  # since 11.8
        return False, "0x" + bytes.fromhex(digits[1]).rstrip(b"\0").hex().upper()
    if re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?|b'[01]*'", text, re.I):
        return False, text
    return True, None


_NO_INDEX = Index("", (), ())


def _indexes(source: Source, names: set[TableName]) -> dict[TableName, dict[str, Index]]:
    """Return the indexes of each table by their names; the primary key is PRIMARY."""
    parts: dict[TableName, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    columns_of_indexes = _select(
        source,
        "index_name AS i, column_name AS c, sub_part AS part, non_unique AS plain, index_type AS kind",
        "statistics WHERE",
        "table_schema, table_name, index_name, seq_in_index",
        names,
    )
    for row in columns_of_indexes:
        parts[TableName(row["d"], row["t"])][row["i"]].append(row)
    indexes: dict[TableName, dict[str, Index]] = defaultdict(dict)
    for table, by_name in parts.items():
        for name, rows in by_name.items():
            columns, prefixes = tuple(row["c"] for row in rows), tuple(row["part"] for row in rows)
            by_hash = source.is_mariadb and rows[0]["kind"] == "HASH"
            indexes[table][name] = Index(name, columns, prefixes, not int(rows[0]["plain"]), by_hash)
    return indexes


def _in_order(source: Source, name: TableName, indexes: list[Index]) -> list[Index]:
    """Return indexes in the table's order, which SHOW INDEX tells and information_schema doesn't."""
    if sum(index.unique for index in indexes) < 2:
        return indexes
    shown = source.query(f"SHOW INDEX FROM {mysql_quote(name.database)}.{mysql_quote(name.table)}")
    order = [row["Key_name"] for row in shown]
    return sorted(indexes, key=lambda index: order.index(index.name))
