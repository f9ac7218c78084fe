"""Bounds of chunks: places in the order of a table's key, and the SQL conditions that part its rows there.

A bound carries all that its comparison depends on: the columns, literals of their types and collations, the direction
of the index. Whatever is altered meanwhile, two chunks that meet in it share no row and leave out none, since a value
that isn't NULL is less than a literal, equal to it, or greater.

Literals compare as their columns do, so that both servers make ranges of the index of them (tried on MySQL 9.7 and
MariaDB 10.11): text by its bytes with character set and collation, ENUM by the numbers of its values. For ``<`` and
``>`` no index over ENUM or SET is used (Field_enum::optimize_range in sql/field.h), for a list of numbers it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from binlake.names import mysql_quote
from binlake.schema import datatypes
from binlake.schema.table import Column, TableSchema
from binlake.schema.types.datatype import KeyBound
from binlake.serialization import dump, load
from binlake.source.catalog import KeyPart


@dataclass(frozen=True)
class Edge:
    """A bound's value in one column of the key. literal: SQL. descending: whether the index orders the column so."""

    column: str
    literal: str
    descending: bool = False


Bound = tuple[Edge, ...]
"""A bound: values of the key's leading columns, as many as are needed."""


def write(bound: Bound | None) -> str | None:
    """Return a bound as JSON, as metadata keeps it."""
    return None if bound is None else json.dumps([dump(edge) for edge in bound])


def read(text: str | None, schema: TableSchema) -> Bound | None:
    """Parse what ``write`` returned. A bare number is a bound in the key's first column, as version 0.1.0 wrote it."""
    if text is None:
        return None
    edges = json.loads(text)
    return (Edge(schema.key[0], text),) if isinstance(edges, int) else tuple(load(Edge, edge) for edge in edges)


def from_on(schema: TableSchema, bound: Bound) -> str:
    """Return the SQL condition for the rows at a bound and after it, in the index's order."""
    return _side(schema, bound, behind=True, itself=True)


def behind(schema: TableSchema, bound: Bound) -> str:
    """Return the SQL condition for the rows after a bound, in the index's order."""
    return _side(schema, bound, behind=True, itself=False)


def before(schema: TableSchema, bound: Bound) -> str:
    """Return the SQL condition for the rows before a bound, in the index's order."""
    return _side(schema, bound, behind=False, itself=False)


def _side(schema: TableSchema, bound: Bound, *, behind: bool, itself: bool) -> str:
    """Return a row comparison written out column by column, since servers differ on ``(a, b) > (x, y)``."""
    edge, *rest = bound
    column = schema.column(edge.column)
    greater = behind is not edge.descending
    if not rest:
        return _compared(column, edge.literal, (">" if greater else "<") + ("=" if itself else ""))
    further = _compared(column, edge.literal, ">" if greater else "<")
    within = _side(schema, tuple(rest), behind=behind, itself=itself)
    return f"({further} OR ({mysql_quote(column.served_name)} = {edge.literal} AND {within}))"


def _compared(column: Column, literal: str, operator: str) -> str:
    return _bound_of(column).condition(column, literal, operator)


def is_usable(part: KeyPart) -> bool:
    """Return whether bounds can use the column."""
    bound = datatypes.entry(part.column).bound
    return bound is not None and bound.is_usable(part.column)


def is_last(part: KeyPart, edge: Edge) -> bool:
    """Return whether the edge is known to lie at the column's last value, in the index's order."""
    return _bound_of(part.column).is_end(part.column, edge.literal, part.descending)


def _bound_of(column: Column) -> KeyBound:
    bound = datatypes.entry(column).bound
    assert bound is not None
    return bound


def selected(parts: Sequence[KeyPart]) -> str:
    """Return the select list of the key values that ``of_row`` takes, named ``k0``, ``k1`` …"""
    return ", ".join(f"{_bound_of(part.column).value(part.column)} AS k{n}" for n, part in enumerate(parts))


def of_row(parts: Sequence[KeyPart], row: dict[str, Any]) -> Bound | None:
    """Return the bound at a row; None where one of its values has no literal."""
    edges: list[Edge] = []
    for number, part in enumerate(parts):
        literal = _bound_of(part.column).literal(part.column, part.collation, row[f"k{number}"])
        if literal is None:
            return None
        edges.append(Edge(part.column.name, literal, part.descending))
    return tuple(edges)
