"""Parsing of CREATE TABLE from the table's name on.

Sources: MySQL manual 15.1.24 CREATE TABLE, 15.1.24.3 LIKE, 15.1.24.4 SELECT; MariaDB Knowledge Base, CREATE TABLE.
In row format both servers log CREATE TABLE … SELECT with the columns written out (MySQL adds START TRANSACTION), and
MySQL writes out a generated invisible primary key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from binlake.ddl.alterations import AddForeignKey
from binlake.ddl.changes import Change, CreateLike, CreateTable, Unfollowed
from binlake.ddl.column_definitions import (
    charset_clause,
    collation_clause,
    column_definition,
    index_definition,
    word_or_string,
)
from binlake.ddl.definition import ColumnDefinition, IndexDefinition, canonical_charset
from binlake.ddl.keys import Constraint, new_keys, with_key
from binlake.ddl.literals import comment_text
from binlake.errors import SchemaMismatch, UnfollowedStatement
from binlake.schema.engines import why_member_refused, why_refused
from binlake.schema.lexer import Cursor, Dialect
from binlake.schema.table import TableName, TableSchema

_QUERY = ("SELECT", "WITH", "VALUES", "TABLE", "(")


@dataclass
class _Options:
    """The options after the columns.

    charset: the table's default character set; None if it isn't written. with_rows: the statement also writes rows;
    MySQL logs such a statement only if it created the table. members: the tables that a MERGE table unites. comment:
    the table's.
    """

    charset: str | None = None
    with_rows: bool = False
    engine: str | None = None
    versioned: bool = False
    members: tuple[TableName, ...] = ()
    comment: str = ""


def create_table(
    cursor: Cursor, dialect: Dialect, name: TableName, *, if_not_exists: bool, default_charset: str
) -> tuple[Change, ...]:
    """Parse what follows the table's name. Returns the changes. Raises UnfollowedStatement."""
    if like := _like(cursor):
        return (CreateLike(name, like, if_not_exists),)
    if not cursor.at("(") or (cursor.peek().key in _QUERY):
        raise _from_query()
    definitions, indexes = table_elements(cursor, dialect)
    options = _table_options(cursor)
    engine = options.engine or ("MERGE" if options.members else None)
    if engine and (why := why_refused(engine, dialect.flavour)):
        members = (Unfollowed(member, why_member_refused(name)) for member in options.members)
        return (Unfollowed(name, why), *members)
    charset = options.charset or canonical_charset(default_charset)
    if not options.with_rows:  # else MySQL has written out all that the columns have
        definitions = _settled(definitions, indexes)
    columns = tuple(definition.column(charset) for definition in definitions)
    versioned = options.versioned or any(definition.versioned for definition in definitions)
    schema = _with_key(TableSchema(columns, charset=charset, versioned=versioned, comment=options.comment), indexes)
    return (CreateTable(name, schema, if_not_exists and not options.with_rows),)


def _settled(
    definitions: tuple[ColumnDefinition, ...], constraints: tuple[Constraint, ...]
) -> tuple[ColumnDefinition, ...]:
    """Return the definitions with what the server adds to a TIMESTAMP (see ColumnDefinition.settled).

    Raises UnfollowedStatement.
    """
    first = next(
        (definition for definition in definitions if definition.type == "timestamp" and not definition.row_time), None
    )
    keys = [
        definition
        for definition in constraints
        if isinstance(definition, IndexDefinition) and definition.kind == "primary"
    ]
    primary = {name.lower() for key in keys for name in key.columns if name}
    return tuple(
        definition.settled(is_first_timestamp=definition is first, in_primary_key=definition.name.lower() in primary)
        for definition in definitions
    )


def _with_key(schema: TableSchema, constraints: Iterable[Constraint]) -> TableSchema:
    """Return the shape with its keys. Raises UnfollowedStatement for a column that is there twice, or not at all."""
    names = [column.name.lower() for column in schema.columns]
    if len(set(names)) != len(names):
        raise UnfollowedStatement("the statement names a column twice")
    try:
        return with_key(schema, *new_keys((), (), constraints))
    except SchemaMismatch as error:
        raise UnfollowedStatement(error.message) from None


def _from_query() -> UnfollowedStatement:
    return UnfollowedStatement("its columns come from a query, logged in statement format")


def _like(cursor: Cursor) -> TableName | None:
    if cursor.accept("LIKE"):
        return cursor.table_name()
    if cursor.accept("(", "LIKE"):
        like = cursor.table_name()
        cursor.expect(")")
        return like
    return None


def table_elements(
    cursor: Cursor, dialect: Dialect, *, if_not_exists: bool = False
) -> tuple[tuple[ColumnDefinition, ...], tuple[Constraint, ...]]:
    """Read ``(column, index, …)``. Returns columns and constraints, including the columns' own keys in their order.

    if_not_exists: said of the columns; see own_keys.
    """
    cursor.expect("(")
    definitions: list[ColumnDefinition] = []
    indexes: list[Constraint] = []
    while True:
        index = index_definition(cursor)
        if index is None:
            definition = column_definition(cursor, dialect)
            definitions.append(definition)
            indexes += own_keys(definition, if_not_exists=if_not_exists)
        else:
            indexes.append(index)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(definitions), tuple(indexes)


def own_keys(definition: ColumnDefinition, *, if_not_exists: bool = False) -> tuple[Constraint, ...]:
    """Return the column's own PRIMARY KEY, UNIQUE and REFERENCES. With PRIMARY KEY, MariaDB ignores UNIQUE.

    if_not_exists: IF NOT EXISTS or IF EXISTS is said of the column; then it holds for the column's keys, too.
    """
    names = (definition.name,)
    own: list[Constraint] = []
    if definition.primary:
        own.append(IndexDefinition("primary", names, (None,), if_not_exists=if_not_exists))
    if definition.unique and not (definition.primary and definition.flavour == "mariadb"):
        own.append(IndexDefinition("unique", names, (None,), if_not_exists=if_not_exists))
    return (*own, AddForeignKey(None, names)) if definition.references else tuple(own)


def _table_options(cursor: Cursor) -> _Options:
    """Read the table options, and the rest of the statement."""
    options = _Options()
    while not cursor.at_end:
        if cursor.token.kind == "broken":
            raise cursor.not_understood("a quote or comment that never ends")
        if cursor.accept("WITH", "SYSTEM", "VERSIONING"):
            options.versioned = True
            continue
        if cursor.at("SEQUENCE"):
            raise UnfollowedStatement("sequences aren't mirrored")
        if cursor.at_any("SELECT", "AS", "VALUES", "TABLE") or (cursor.at("(") and cursor.peek().key in _QUERY):
            raise _from_query()
        if cursor.at("CHARSET") or cursor.at("CHARACTER", "SET") or cursor.at("CHAR", "SET"):
            options.charset = charset_clause(cursor)
        elif cursor.at("COLLATE"):
            options.charset = collation_clause(cursor) or options.charset
        elif cursor.at("ENGINE"):
            options.engine = engine_clause(cursor)
        elif at_comment(cursor):
            options.comment = comment_clause(cursor)
        elif cursor.at("UNION"):
            options.members = union_clause(cursor)
        elif cursor.at("("):
            cursor.skip_parentheses()
        else:
            options.with_rows = options.with_rows or cursor.at("START", "TRANSACTION")
            cursor.next()
    return options


def engine_clause(cursor: Cursor) -> str:
    """Read ``ENGINE [=] name``, or the same with the old word TYPE. Returns the name."""
    cursor.next()
    cursor.accept("=")
    return word_or_string(cursor)


def at_comment(cursor: Cursor) -> bool:
    """Return whether ``COMMENT [=] 'text'`` is next. COMMENT is a name, too, as of a tablespace."""
    return cursor.at("COMMENT") and cursor.peek(2 if cursor.at("COMMENT", "=") else 1).kind == "string"


def comment_clause(cursor: Cursor) -> str:
    """Read ``COMMENT [=] 'text'`` of a table. Returns the comment."""
    cursor.expect("COMMENT")
    cursor.accept("=")
    return comment_text(cursor, "table")


def union_clause(cursor: Cursor) -> tuple[TableName, ...]:
    """Read ``UNION [=] (table, …)``. Returns the members of a MERGE table."""
    cursor.expect("UNION")
    cursor.accept("=")
    cursor.expect("(")
    members = () if cursor.at(")") else cursor.table_names()
    cursor.expect(")")
    return members
