"""Shapes without what they say of the values of columns that don't leave the server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from binlake.schema.expressions import Expressions, column_of, tokens_of
from binlake.schema.lexer import Token
from binlake.schema.table import Column, TableSchema, Virtual
from binlake.schema.virtual import canonical, text_like


def without_values(schema: TableSchema, withheld: Collection[str]) -> TableSchema:
    """Return the shape without values of some columns: their defaults, comments and members of ENUM and SET, and the
    literals of generated columns that are computed from them. What else depends on an expression stays the same.

    withheld: names of columns on the server, in lower case; the table may lack some of them.
    """
    columns = (*schema.columns, *schema.kept)
    names = {column.name.lower() for column in columns if column.served_name.lower() in withheld}
    if not names:
        return schema
    expressions = Expressions(schema.columns)

    def shown(column: Column) -> Column:
        if column.name.lower() in names:
            column = column.without_values
        elif column.expression is None or not _reads_any(column, names, expressions):
            return column
        return replace(column, virtual=_without_literals(column.virtual), stored=_without_literals(column.stored))

    kept = tuple(column.without_values if column.name.lower() in names else column for column in schema.kept)
    return replace(schema, columns=tuple(map(shown, schema.columns)), kept=kept)


def shows_members(schema: TableSchema) -> bool:
    """Return whether a shape has members of a withheld ENUM or SET, as an older binlake recorded them."""
    return any(column.values and (column.mask or column.name.lower() in schema.excluded) for column in schema.columns)


def _reads_any(column: Column, names: Collection[str], expressions: Expressions) -> bool:
    if expressions.are_too_long:
        return True
    read = (column_of(expressions.columns, token) for token in expressions.tokens_of(column))
    return any(other is not None and other.name.lower() in names for other in read)


def _without_literals(way: Virtual | None) -> Virtual | None:
    if way is None:
        return None
    return replace(way, expression=canonical(map(_without_literal, tokens_of(way))))


def _without_literal(token: Token) -> Token:
    match token.kind:
        case "string":
            return token._replace(text=text_like(token.text))
        case "number":
            return token._replace(text="0")
        case "bytes":
            return token._replace(text="")
    return token
