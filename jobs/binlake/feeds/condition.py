"""A feed's ``where``: SQL of a closed set of words, parsed by sqlglot, carried out by Arrow. It is never run as code.

    db = 'shop' AND table = 'user' AND (after.age >= 18 OR op = 'delete')

Names are ``db``, ``table``, ``op`` ('insert', 'update', 'delete') and columns. A column without a prefix is that of the
new row, of a delete that of the old one; ``before.c`` and ``after.c`` say which, and are NULL where there is none. A
column that a table doesn't have is NULL there. A mutation passes where the condition is true, as in SQL: neither false
nor NULL. Text compares by its code points, with regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as sql

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.errors import ConfigurationError, FeedError
from binlake.feeds.contract import FeedTable

OPERATIONS = {"insert": INSERT, "update": UPDATE, "delete": DELETE}
_MOST_LETTERS, _MOST_DEPTH = 10_000, 64
_WORDS = "=, <>, <, <=, >, >=, AND, OR, NOT, IN (…), BETWEEN, LIKE, IS NULL, texts, numbers, TRUE, FALSE, NULL"


@dataclass(frozen=True)
class _Rows:
    """What a condition is asked about: mutations of one table."""

    table: FeedTable
    batch: pa.RecordBatch

    def image(self, which: str) -> pa.StructArray:
        return self.batch.column(which)


Value = Any
"""An Arrow array, or a scalar that stands for all rows."""
Node = Callable[[_Rows], Value]


@dataclass(frozen=True)
class Condition:
    """A parsed condition."""

    text: str
    node: Node

    def passing(self, table: FeedTable, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows pass. Raises FeedError where a column and what it is compared with have no common type."""
        try:
            found = self.node(_Rows(table, batch))
        except (pa.ArrowException, ValueError) as error:
            raise FeedError(
                f"where: {self.text!r} can't be asked of {table.name}: {_first_line(error)}",
                remedy="compare columns with values of their own kind, or exclude the table from the feed",
            ) from None
        if isinstance(found, pa.Scalar):
            return pa.array([found.as_py() is True] * batch.num_rows, pa.bool_())
        return pc.fill_null(found, False)


def _first_line(error: Exception) -> str:
    """Without what stands in a row, which Arrow's messages may tell behind it."""
    return str(error).splitlines()[0].partition(": ")[0][:120]


def parse(text: str) -> Condition:
    """Raises ConfigurationError, which names what isn't understood."""
    if len(text) > _MOST_LETTERS:
        raise _refused(text[:60] + "…", f"it has more than {_MOST_LETTERS:,} letters")
    try:
        found = sqlglot.parse(text, read="mysql")
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
        raise _refused(text, str(error).splitlines()[0]) from None
    if len(found) != 1 or found[0] is None:
        raise _refused(text, "it is not one condition")
    try:
        return Condition(text, _boolean(found[0], _MOST_DEPTH))
    except _NotUnderstoodError as error:
        raise _refused(text, str(error)) from None


def _refused(text: str, why: str) -> ConfigurationError:
    remedy = f"write a condition over db, table, op and columns with {_WORDS}"
    return ConfigurationError(f"where: {text!r}: {why}", remedy=remedy)


class _NotUnderstoodError(Exception):
    """A part of the condition is outside of the closed set."""


def _boolean(one: sql.Expr, depth: int) -> Node:
    if depth == 0:
        raise _NotUnderstoodError("it is nested too deeply")
    build = _BOOLEANS.get(type(one))
    if build is None:
        raise _NotUnderstoodError(f"{one.sql()!r} is neither true nor false by itself")
    return build(one, depth - 1)


def _operand(one: sql.Expr) -> Node:
    build = _OPERANDS.get(type(one))
    if build is None:
        raise _NotUnderstoodError(f"{one.sql()!r} can't be compared")
    return build(one)


# what is true or false ------------------------------------------------------------------------------------------------
def _joined(combine: Callable[[Value, Value], Value]) -> Callable[[Any, int], Node]:
    def build(one: Any, depth: int) -> Node:
        left, right = _boolean(one.left, depth), _boolean(one.right, depth)
        return lambda rows: combine(left(rows), right(rows))

    return build


def _not(one: Any, depth: int) -> Node:
    inner = _boolean(one.this, depth)
    return lambda rows: pc.invert(inner(rows))


def _paren(one: Any, depth: int) -> Node:
    return _boolean(one.this, depth)


def _compared(compare: Callable[[Value, Value], Value]) -> Callable[[Any, int], Node]:
    def build(one: Any, depth: int) -> Node:
        left, right = _operand(one.this), _operand(one.expression)
        return lambda rows: compare(*_alike(left(rows), right(rows)))

    return build


def _in(one: Any, depth: int) -> Node:
    if one.args.get("query") or one.args.get("unnest") or not one.expressions:
        raise _NotUnderstoodError("IN wants a list of values")
    sought, values = _operand(one.this), [_operand(value) for value in one.expressions]

    def node(rows: _Rows) -> Value:
        found = sought(rows)
        return reduce(pc.or_kleene, (pc.equal(*_alike(found, value(rows))) for value in values))

    return node


def _between(one: Any, depth: int) -> Node:
    sought, low, high = (_operand(part) for part in (one.this, one.args["low"], one.args["high"]))

    def node(rows: _Rows) -> Value:
        found = sought(rows)
        above = pc.greater_equal(*_alike(found, low(rows)))
        return pc.and_kleene(above, pc.less_equal(*_alike(found, high(rows))))

    return node


def _like(one: Any, depth: int) -> Node:
    sought, pattern = _operand(one.this), one.expression
    if not (isinstance(pattern, sql.Literal) and pattern.is_string):
        raise _NotUnderstoodError("LIKE wants a text")
    return lambda rows: pc.match_like(_text(sought(rows)), pattern.this)


def _text(value: Value) -> Value:
    return pc.cast(value, pa.string())


def _is(one: Any, depth: int) -> Node:
    sought = _operand(one.this)
    if isinstance(one.expression, sql.Null):
        return lambda rows: pc.is_null(sought(rows))
    if isinstance(one.expression, sql.Boolean):
        wanted = bool(one.expression.this)
        return lambda rows: pc.fill_null(pc.equal(pc.cast(sought(rows), pa.bool_()), wanted), False)
    raise _NotUnderstoodError("IS wants NULL, TRUE or FALSE")


def _constant(one: Any, depth: int) -> Node:
    value = pa.scalar(None if isinstance(one, sql.Null) else bool(one.this), pa.bool_())
    return lambda rows: value


_BOOLEANS: Mapping[type, Callable[[Any, int], Node]] = {
    sql.And: _joined(pc.and_kleene),
    sql.Or: _joined(pc.or_kleene),
    sql.Not: _not,
    sql.Paren: _paren,
    sql.EQ: _compared(pc.equal),
    sql.NEQ: _compared(pc.not_equal),
    sql.LT: _compared(pc.less),
    sql.LTE: _compared(pc.less_equal),
    sql.GT: _compared(pc.greater),
    sql.GTE: _compared(pc.greater_equal),
    sql.In: _in,
    sql.Between: _between,
    sql.Like: _like,
    sql.Is: _is,
    sql.Boolean: _constant,
    sql.Null: _constant,
}


# what is compared -----------------------------------------------------------------------------------------------------
def _column(one: Any) -> Node:
    if one.args.get("db") or one.args.get("catalog"):
        raise _NotUnderstoodError(f"{one.sql()!r} has too many dots")
    name, image = str(one.name), str(one.table).lower()
    if image in ("before", "after"):
        return lambda rows: _field(rows, image, name)
    if image:
        raise _NotUnderstoodError(f"{one.sql()!r}: write before.{name} or after.{name}")
    quoted = bool(one.this.args.get("quoted"))
    special = None if quoted else _NAMES.get(name.lower())
    return special or (lambda rows: _newest(rows, name))


def _newest(rows: _Rows, name: str) -> Value:
    """Of the new row; of the old one only where there is no new row, not where its value is NULL."""
    return pc.if_else(rows.image("after").is_valid(), _field(rows, "after", name), _field(rows, "before", name))


def _field(rows: _Rows, image: str, name: str) -> Value:
    """A column of an image, by its name without regard to case, as the server does."""
    struct = rows.image(image)
    for field in struct.type:
        if field.name.lower() == name.lower():
            found = pc.struct_field(struct, [field.name])
            return pc.if_else(struct.is_valid(), found, pa.scalar(None, found.type))
    return pa.nulls(rows.batch.num_rows)


def _operation(rows: _Rows) -> Value:
    names = pa.array([None, "insert", "update", "delete"])
    return names.take(rows.batch.column("op"))


_NAMES: Mapping[str, Node] = {
    "db": lambda rows: pa.scalar(rows.table.name.database),
    "table": lambda rows: pa.scalar(rows.table.name.table),
    "op": _operation,
}


def _literal(one: Any) -> Node:
    if one.is_string:
        value = pa.scalar(one.this)
    else:
        number = Decimal(one.this)
        value = pa.scalar(int(number) if number == number.to_integral_value() and abs(number) < 2**63 else number)
    return lambda rows: value


def _negative(one: Any) -> Node:
    if not (isinstance(one.this, sql.Literal) and not one.this.is_string):
        raise _NotUnderstoodError(f"{one.sql()!r} is no number")
    number = Decimal(one.this.this)
    value = pa.scalar(-int(number) if number == number.to_integral_value() and abs(number) < 2**63 else -number)
    return lambda rows: value


def _given(one: Any) -> Node:
    value = pa.scalar(None) if isinstance(one, sql.Null) else pa.scalar(bool(one.this))
    return lambda rows: value


_OPERANDS: Mapping[type, Callable[[Any], Node]] = {
    sql.Column: _column,
    sql.Literal: _literal,
    sql.Neg: _negative,
    sql.Boolean: _given,
    sql.Null: _given,
}


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Both in a type that compares exactly: what is written in the condition takes the column's, as far as it can."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        other = right.type if pa.types.is_null(left.type) else left.type
        other = pa.bool_() if pa.types.is_null(other) else other
        return pc.cast(left, other), pc.cast(right, other)
    for one, other, turned in ((left, right, False), (right, left, True)):
        if isinstance(other, pa.Scalar) and not isinstance(one, pa.Scalar) and one.type != other.type:
            pair = _converted(one, other)
            return (pair[1], pair[0]) if turned else pair
    return left, right


def _converted(column: Value, value: pa.Scalar) -> tuple[Value, Value]:
    """A column and what is written beside it."""
    kind = column.type
    if pa.types.is_boolean(kind) and pa.types.is_integer(value.type):
        return pc.cast(column, pa.int8()), value
    if pa.types.is_floating(kind):
        return pc.cast(column, pa.float64()), pa.scalar(float(value.as_py()), pa.float64())
    if pa.types.is_integer(kind) and not pa.types.is_string(value.type):
        return column, value  # Arrow finds a type for both
    if pa.types.is_decimal(kind):
        return column, pa.scalar(Decimal(str(value.as_py())))
    if pa.types.is_binary(kind) and pa.types.is_string(value.type):
        return column, pa.scalar(value.as_py().encode())
    return column, value.cast(kind)
