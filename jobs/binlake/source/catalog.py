"""The server's catalog: its tables and their shapes, read from information_schema.

The shapes have the same normal form as those that DDL statements make (``binlake.ddl``): lengths only where they
matter, defaults as MySQL's information_schema shows them, geometry types by the server's own names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from binlake.config import SYSTEM_DATABASES
from binlake.ddl.definition import canonical_charset, charset_of_collation
from binlake.ddl.keys import key_index, with_key
from binlake.errors import (
    OF_CODE,
    UNREADABLE_REMEDY,
    ConfigurationError,
    SchemaMismatch,
    SourceError,
    UnfitColumn,
    unexpected,
)
from binlake.names import mysql_quote
from binlake.schema.datatypes import REGISTRY
from binlake.schema.table import BYTES, Column, Index, RowTime, TableName, TableSchema, Virtual
from binlake.schema.virtual import leaves_generated_columns_out
from binlake.source.listed_tables import MIRRORED, SEQUENCE, SYSTEM_VERSIONED, list_tables
from binlake.source.server import Source, denied

_ROW_TIMES: dict[str, RowTime] = {"ROW START": "start", "ROW END": "end"}
_MEMBERS_AT_ONCE = 200
"""The most names in one IN list."""
COLUMNS_HIDDEN = "SELECT is granted on some of its columns only, and the server shows no others"


@dataclass(frozen=True)
class Partition:
    """A partition of a table, with its subpartitions. rows: the server's estimate."""

    name: str
    rows: int


@dataclass(frozen=True)
class SourceTable:
    """One table of the server.

    kind: information_schema's TABLE_TYPE (``BASE TABLE``, ``VIEW``, ``SEQUENCE``, ``SYSTEM VERSIONED``).
    rows, size: the server's estimates; size in bytes. unreadable: why its shape can't be read, which then has no
    column, or can't be relied on; else empty. grant: what fixes it, where the account lacks a right. entry_remedy: what
    does, where the YAML's ``columns`` ask for what a column can't be. partitions: in their order; empty for a table
    without. A row may lie in another partition than its values say: EXCHANGE PARTITION … WITHOUT VALIDATION checks no
    row.
    """

    name: TableName
    kind: str
    engine: str
    rows: int
    size: int
    schema: TableSchema
    unreadable: str = ""
    partitions: tuple[Partition, ...] = ()
    grant: str = ""
    entry_remedy: str = ""

    @property
    def remedy(self) -> str:
        """Return what to do about a table that is unreadable."""
        return self.grant or self.entry_remedy or UNREADABLE_REMEDY

    @property
    def has_read_views(self) -> bool:
        """Return whether a transaction keeps reading the rows of its beginning; of a sequence InnoDB shows the
        newest."""
        return self.engine.lower() == "innodb" and not self.schema.sequence


def database_charsets(source: Source) -> dict[str, str]:
    """Return each database's default character set, without the server's own databases."""
    rows = source.query("SELECT schema_name AS d, default_character_set_name AS c FROM information_schema.schemata")
    return {row["d"]: canonical_charset(row["c"]) for row in rows if row["d"].lower() not in SYSTEM_DATABASES}


def read_schemas(source: Source, names: Collection[TableName]) -> dict[TableName, TableSchema]:
    """Return the shapes of tables, with as few queries as possible, because a lock may be held meanwhile.

    A table whose shape can't be read is missing from the result.
    """
    return _schemas(source, set(names), {})


Excluding = Callable[[TableName, TableSchema], TableSchema]


def read_tables(
    source: Source, names: Collection[TableName], excluding: Excluding = lambda name, schema: schema
) -> dict[TableName, SourceTable]:
    """Return shape, engine and kind of tables. Tables that don't exist are missing from the result.

    excluding: returns a shape with the columns that aren't mirrored noted in it. Raises what it raises, with the
    table's name; UnfitColumn concerns its table alone, which is unreadable then.
    """
    wanted = set(names)
    listed = {table.name: table for table in list_tables(source) if table.name in wanted}
    unreadable: dict[TableName, str] = {}
    schemas = _schemas(source, wanted, unreadable)
    partitions = read_partitions(source, [name for name, table in listed.items() if table.partitioned])
    lacking = {name: _lacking(source, name) for name, table in listed.items() if table.kind in MIRRORED}
    grants = {name: grant for name, grant in lacking.items() if grant}
    unreadable |= dict.fromkeys(grants, COLUMNS_HIDDEN)
    remedies: dict[TableName, str] = {}
    tables: dict[TableName, SourceTable] = {}
    for name, table in listed.items():
        schema = TableSchema(())
        with _noting(name, unreadable):
            try:
                schema = excluding(name, schemas.get(name) or schema)
            except UnfitColumn as error:
                unreadable[name], remedies[name] = error.message, error.remedy
            except ConfigurationError as error:
                raise ConfigurationError(f"{name}: {error.message}", remedy=error.remedy) from None
        tables[name] = SourceTable(
            name=name,
            kind=table.kind,
            engine=table.engine,
            rows=table.rows,
            size=table.size,
            schema=schema,
            unreadable=unreadable.get(name, ""),
            partitions=partitions.get(name, ()),
            grant=grants.get(name, ""),
            entry_remedy=remedies.get(name, ""),
        )
    return tables


@contextmanager
def _noting(name: TableName, unreadable: dict[TableName, str]) -> Iterator[None]:
    """Note an error in one table's entries, so that only that table is refused: MySQL names a key's column, too, that
    the account may not read, and that the table doesn't show."""
    try:
        yield
    except SchemaMismatch as error:
        unreadable[name] = f"its shape can't be read: {error.message}"
    except OF_CODE as error:
        unreadable[name] = f"its shape can't be read: {unexpected(error)}"


def _lacking(source: Source, name: TableName) -> str:
    """Return the GRANT that an account lacks which may read some of a table's columns; empty where it may read all.

    information_schema shows such an account these columns alone, as if the table had no others. Both servers allow SHOW
    CREATE TABLE only to accounts that may read the whole table, invisible columns and all (tried on MySQL 9.7, MariaDB
    10.11).
    """
    table = name.quoted
    try:
        source.query(f"SHOW CREATE TABLE {table}")
    except SourceError as error:
        if denied(error):
            user, _, host = str(source.query("SELECT CURRENT_USER() AS user")[0]["user"]).rpartition("@")
            return f"GRANT SELECT ON {table} TO {mysql_quote(user)}@{mysql_quote(host)};"
        # Whoever reads its rows meets the error again.
    return ""


def read_partitions(source: Source, names: Collection[TableName]) -> dict[TableName, tuple[Partition, ...]]:
    """Return the partitions of tables in their order. Tables without any are missing from the result."""
    rows_by_name: dict[TableName, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    what, order = "partition_name AS p, table_rows AS n", "partition_ordinal_position, subpartition_ordinal_position"
    for row in _select(source, what, "partitions WHERE partition_name IS NOT NULL AND", order, names):
        rows_by_name[TableName(row["d"], row["t"])][row["p"]] += int(row["n"] or 0)
    return {name: tuple(Partition(*item) for item in rows.items()) for name, rows in rows_by_name.items()}


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
    for column, row in zip(map(schema.column, schema.key), entries, strict=False):
        served = column.served_name.lower()
        if row["part"] is not None or (row["c"] or "").lower() != served:
            break
        parts.append(KeyPart(column, row["direction"] == "D", described.get(served)))
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


def _schemas(source: Source, names: set[TableName], unreadable: dict[TableName, str]) -> dict[TableName, TableSchema]:
    """Return the shapes of tables. unreadable: gets the others that are there, each with the reason."""
    without_columns = _options(source, names)
    columns = _columns(source, names, unreadable)
    keys = _indexes(source, names)
    schemas: dict[TableName, TableSchema] = {}
    for name, by_table in columns.items():
        primary = tuple(column for column in keys[name].pop("PRIMARY", _NO_INDEX).columns if column)
        with _noting(name, unreadable):
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


def _columns(source: Source, names: set[TableName], unreadable: dict[TableName, str]) -> dict[TableName, list[Column]]:
    columns: dict[TableName, list[Column]] = defaultdict(list)
    rows = _select(
        source,
        "column_name AS name, data_type AS type, column_type AS declared, column_default AS value, extra AS extra,"
        " is_nullable AS nullable, character_set_name AS charset,"
        " numeric_precision AS digits, numeric_scale AS scale, datetime_precision AS fraction,"
        " generation_expression AS expression, column_comment AS comment",
        "columns WHERE",
        "table_schema, table_name, ordinal_position",
        names,
    )
    for row in rows:
        name = TableName(row["d"], row["t"])
        with _noting(name, unreadable):
            columns[name].append(_column_of_row(row, mariadb=source.is_mariadb))
    return {name: of_table for name, of_table in columns.items() if name not in unreadable}


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
    unsigned, written, known = _is_unsigned(type_, declared), re.match(r"\w+\((\d+)", declared), REGISTRY.get(type_)
    has_scale = known is not None and known.has_scale and row["scale"] is not None
    return Column(
        name=row["name"],
        type=type_,
        unsigned=unsigned,
        length=known.length(int(written[1]) if written else None, unsigned) if known else None,
        precision=int(row["digits"]) if has_scale else None,
        scale=int(row["scale"]) if has_scale else None,
        fraction=int(row["fraction"] or 0) if known and known.has_fraction else 0,
        charset=_charset(row["charset"]) if known and known.is_text else None,
        values=tuple(_strings_in(declared)) if known and known.has_members else (),
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
    written = re.fullmatch(r"[a-z]+(?:\((\d+)(?:,(\d+))?\))? unsigned zerofill", declared)
    return REGISTRY[type_].zerofill(tuple(int(part) for part in written.groups() if part)) if written else 0


def _as_text(value: str | bytes) -> str:
    # MySQL's data dictionary gives some of its text columns as bytes.
    return value.decode() if isinstance(value, bytes) else value


def _charset(charset: str | None) -> str | None:
    return "utf8mb3" if charset == "utf8" else charset


def _is_unsigned(type_: str, declared: str) -> bool:
    has_members = type_ in REGISTRY and REGISTRY[type_].has_members  # which may be called so
    return not has_members and ("unsigned" in declared or "zerofill" in declared)


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
        if type_ in BYTES and (value or type_ == "binary"):
            return False, "0x" + value.encode().rstrip(b"\0").hex().upper()
        return False, value
    if type_ in BYTES and (digits := re.fullmatch(r"x'([0-9A-Fa-f]*)'", text)):  # since 11.8
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
    """Return indexes in the table's order, which SHOW INDEX shows and information_schema doesn't."""
    if sum(index.unique for index in indexes) < 2:
        return indexes
    shown = source.query(f"SHOW INDEX FROM {name.quoted}")
    order = [row["Key_name"] for row in shown]
    return sorted(indexes, key=lambda index: order.index(index.name))
