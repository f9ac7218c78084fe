"""The shape of a table after a change."""

from __future__ import annotations

from binlake.errors import SchemaMismatch, UnfollowedStatement
from binlake.schema.changes import (
    AddColumns,
    AddedColumn,
    AddUniqueKey,
    CreateTable,
    DropIndex,
    NoShapeChange,
    TableCharset,
    TruncateTable,
    Unfollowed,
)
from binlake.schema.definition import is_key_candidate
from binlake.schema.table import Column, TableName, TableSchema

ShapeChange = (
    CreateTable | AddColumns | AddUniqueKey | DropIndex | NoShapeChange | TableCharset | TruncateTable | Unfollowed
)

_RESNAPSHOT = "take a new snapshot of the table: binlake snapshot --tables {}"


def apply(schema: TableSchema, change: ShapeChange, *, table_charset: str = "utf8mb4") -> TableSchema:
    """The shape after the change, as information_schema shows it.

    table_charset: the table's default character set before the change, for columns that name none.
    Raises UnfollowedStatement where the change can't be followed (NotConstant: for what old rows get in an added
    column), SchemaMismatch where it doesn't fit the shape.
    """
    match change:
        case CreateTable():
            return change.schema
        case AddColumns():
            return _add_columns(schema, change, change.charset or table_charset)
        case AddUniqueKey():
            return _add_unique_key(schema, change)
        case DropIndex():
            if schema.key_kind == "unique" or (change.index.upper() == "PRIMARY" and schema.key_kind == "primary"):
                raise _stopped(change.name, f"the dropped index {change.index!r} may be the key")
            return schema
        case NoShapeChange() | TableCharset() | TruncateTable():
            return schema
        case Unfollowed():
            raise _stopped(change.name, change.why)


def _stopped(name: TableName, why: str) -> UnfollowedStatement:
    return UnfollowedStatement(f"{name}: {why}", remedy=_RESNAPSHOT.format(name))


def new_columns(schema: TableSchema, change: AddColumns, *, table_charset: str = "utf8mb4") -> tuple[Column, ...]:
    """The columns the change really adds (IF NOT EXISTS may add none), in the statement's order."""
    resolved = change.resolved(table_charset)
    return tuple(
        column
        for added, column in zip(change.columns, resolved, strict=True)
        if not (added.if_not_exists and schema.has(column.name))
    )


def _add_columns(schema: TableSchema, change: AddColumns, charset: str) -> TableSchema:
    columns = list(schema.columns)
    for added in change.columns:
        column = added.definition.column(charset)
        if any(other.name.lower() == column.name.lower() for other in columns):
            if added.if_not_exists:
                continue
            raise SchemaMismatch(
                f"{change.name}: the column {column.name!r} is added, but the recorded shape has it",
                remedy=_RESNAPSHOT.format(change.name),
            )
        added.definition.constant_default(charset)
        columns.insert(_place(columns, added, change.name), column)
    return schema.with_columns(tuple(columns))


def _place(columns: list[Column], added: AddedColumn, name: TableName) -> int:
    if added.first:
        return 0
    if added.after is None:
        return len(columns)
    for index, column in enumerate(columns):
        if column.name.lower() == added.after.lower():
            return index + 1
    raise SchemaMismatch(
        f"{name}: a column is added after {added.after!r}, which the recorded shape doesn't have",
        remedy=_RESNAPSHOT.format(name),
    )


def _add_unique_key(schema: TableSchema, change: AddUniqueKey) -> TableSchema:
    """A table with a primary key keeps it; another one may get this key, or the server may prefer it."""
    for name in change.index.columns:
        if not schema.has(name):
            raise SchemaMismatch(
                f"{change.name}: a key over {name!r}, which the recorded shape doesn't have",
                remedy=_RESNAPSHOT.format(change.name),
            )
    if schema.key_kind != "primary" and is_key_candidate(schema, change.index):
        raise _stopped(change.name, "a new unique key may become the key")
    return schema
