"""A feed's ``where``: a condition in a small subset of SQL, parsed by sqlglot and evaluated by Arrow, never as code.

    db = 'shop' AND table = 'user' AND (after.age >= 18 OR op = 'delete')

Names are ``db``, ``table``, ``op`` ('insert', 'update', 'delete') and columns. A column without a prefix is the new
row's, for a delete the old row's; ``before.c`` and ``after.c`` choose one, and are NULL if there is no such row. A
column that a table doesn't have is NULL. A mutation passes if the condition is true, as in SQL: not if it is false or
NULL. Text compares by code points, case-sensitively.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
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
_MOST_LETTERS, _MOST_DEPTH, _MOST_DIGITS = 10_000, 64, 38
_UNDERSTOOD = {"this", "expression", "expressions", "low", "high", "negate"}
"""Names under which sqlglot keeps the parts of what is true or false; what else it keeps would change the meaning."""
_WORDS = "=, <>, <, <=, >, >=, AND, OR, NOT, IN (…), BETWEEN, LIKE, IS NULL, texts, numbers, TRUE, FALSE, NULL"


@dataclass(frozen=True)
class _Rows:
    """Mutations of one table, on which a condition is evaluated."""

    table: FeedTable
    batch: pa.RecordBatch

    def image(self, which: str) -> pa.StructArray:
        return self.batch.column(which)


Value = Any
"""An Arrow array, or a scalar with the same value for all rows."""
Node = Callable[[_Rows], Value]


@dataclass(frozen=True)
class Condition:
    """A parsed condition."""

    text: str
    node: Node

    def passing(self, table: FeedTable, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows pass. Raises FeedError if a column is compared with a value of no common type."""
        try:
            result = self.node(_Rows(table, batch))
        except (pa.ArrowException, ValueError) as error:
            raise FeedError(
                f"where: {self.text!r} can't be asked of {table.name}: {_first_line(error)}",
                remedy="compare columns with values of their own kind, or exclude the table from the feed",
            ) from None
        if isinstance(result, pa.Scalar):
            return pa.array([result.as_py() is True] * batch.num_rows, pa.bool_())
        return pc.fill_null(result, False)


def _first_line(error: Exception) -> str:
    """Return the start of an error's message, without the row values that Arrow may put after a colon."""
    return str(error).splitlines()[0].partition(": ")[0][:120]


def parse(text: str) -> Condition:
    """Parse a condition. Raises ConfigurationError, which names the part that isn't understood."""
    if len(text) > _MOST_LETTERS:
        raise _refused(text[:60] + "…", f"it has more than {_MOST_LETTERS:,} letters")
    try:
        statements = sqlglot.parse(text, read="mysql")
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
        raise _refused(text, str(error).splitlines()[0]) from None
    if len(statements) != 1 or statements[0] is None:
        raise _refused(text, "it is not one condition")
    try:
        return Condition(text, _boolean(statements[0], _MOST_DEPTH))
    except _NotUnderstoodError as error:
        raise _refused(text, str(error)) from None


def _refused(text: str, why: str) -> ConfigurationError:
    remedy = f"write a condition over db, table, op and columns with {_WORDS}"
    return ConfigurationError(f"where: {text!r}: {why}", remedy=remedy)


class _NotUnderstoodError(Exception):
    """A part of the condition isn't in the subset of SQL."""


def _boolean(part: sql.Expr, depth: int) -> Node:
    if depth == 0:
        raise _NotUnderstoodError("it is nested too deeply")
    build = _BOOLEANS.get(type(part))
    if build is None:
        raise _NotUnderstoodError(f"{part.sql('mysql')!r} is neither true nor false by itself")
    if any(value for name, value in part.args.items() if name not in _UNDERSTOOD):
        raise _NotUnderstoodError(f"{part.sql('mysql')!r} isn't understood as a whole")
    made = build(part, depth - 1)
    return _inverse(made) if part.args.get("negate") else made


def _operand(part: sql.Expr) -> Node:
    build = _OPERANDS.get(type(part))
    if build is None:
        raise _NotUnderstoodError(f"{part.sql('mysql')!r} can't be compared")
    return build(part)


# what is true or false ------------------------------------------------------------------------------------------------
def _joined(combine: Callable[[Value, Value], Value]) -> Callable[[Any, int], Node]:
    def build(part: Any, depth: int) -> Node:
        left, right = _boolean(part.left, depth), _boolean(part.right, depth)
        return lambda rows: combine(left(rows), right(rows))

    return build


def _not(part: Any, depth: int) -> Node:
    return _inverse(_boolean(part.this, depth))


def _inverse(node: Node) -> Node:
    return lambda rows: pc.invert(node(rows))


def _paren(part: Any, depth: int) -> Node:
    return _boolean(part.this, depth)


def _compared(compare: Callable[[Value, Value], Value], *, is_order: bool = False) -> Callable[[Any, int], Node]:
    def build(part: Any, depth: int) -> Node:
        left, right = _operand(part.this), _operand(part.expression)
        prepare = _in_order if is_order else _alike
        return lambda rows: compare(*prepare(left(rows), right(rows)))

    return build


def _in(part: Any, depth: int) -> Node:
    if not part.expressions:
        raise _NotUnderstoodError("IN wants a list of values")
    left, values = _operand(part.this), [_operand(value) for value in part.expressions]

    def node(rows: _Rows) -> Value:
        operand = left(rows)
        return reduce(pc.or_kleene, (pc.equal(*_alike(operand, value(rows))) for value in values))

    return node


def _between(part: Any, depth: int) -> Node:
    left, low, high = (_operand(side) for side in (part.this, part.args["low"], part.args["high"]))

    def node(rows: _Rows) -> Value:
        operand = left(rows)
        above = pc.greater_equal(*_in_order(operand, low(rows)))
        return pc.and_kleene(above, pc.less_equal(*_in_order(operand, high(rows))))

    return node


def _like(part: Any, depth: int) -> Node:
    left, pattern = _operand(part.this), part.expression
    if not (isinstance(pattern, sql.Literal) and pattern.is_string):
        raise _NotUnderstoodError("LIKE wants a text")
    return lambda rows: pc.match_like(_text(left(rows)), pattern.this)


def _text(value: Value) -> Value:
    return pc.cast(value, pa.string())


def _is(part: Any, depth: int) -> Node:
    left = _operand(part.this)
    if isinstance(part.expression, sql.Null):
        return lambda rows: pc.is_null(left(rows))
    if isinstance(part.expression, sql.Boolean):
        wanted = bool(part.expression.this)
        return lambda rows: pc.fill_null(pc.equal(pc.cast(left(rows), pa.bool_()), wanted), False)
    raise _NotUnderstoodError("IS wants NULL, TRUE or FALSE")


def _constant(part: Any, depth: int) -> Node:
    value = pa.scalar(None if isinstance(part, sql.Null) else bool(part.this), pa.bool_())
    return lambda rows: value


_BOOLEANS: Mapping[type, Callable[[Any, int], Node]] = {
    sql.And: _joined(pc.and_kleene),
    sql.Or: _joined(pc.or_kleene),
    sql.Not: _not,
    sql.Paren: _paren,
    sql.EQ: _compared(pc.equal),
    sql.NEQ: _compared(pc.not_equal),
    sql.LT: _compared(pc.less, is_order=True),
    sql.LTE: _compared(pc.less_equal, is_order=True),
    sql.GT: _compared(pc.greater, is_order=True),
    sql.GTE: _compared(pc.greater_equal, is_order=True),
    sql.In: _in,
    sql.Between: _between,
    sql.Like: _like,
    sql.Is: _is,
    sql.Boolean: _constant,
    sql.Null: _constant,
}


# what is compared -----------------------------------------------------------------------------------------------------
def _column(part: Any) -> Node:
    if part.args.get("db") or part.args.get("catalog"):
        raise _NotUnderstoodError(f"{part.sql('mysql')!r} has too many dots")
    name, image = str(part.name), str(part.table).lower()
    if image in ("before", "after"):
        return lambda rows: _field(rows, image, name)
    if image:
        raise _NotUnderstoodError(f"{part.sql('mysql')!r}: write before.{name} or after.{name}")
    quoted = bool(part.this.args.get("quoted"))
    special = None if quoted else _NAMES.get(name.lower())
    return special or (lambda rows: _of_newest_row(rows, name))


def _of_newest_row(rows: _Rows, name: str) -> Value:
    """Return a column of the new row; of the old row where there is no new one, but not where its value is NULL."""
    return pc.if_else(rows.image("after").is_valid(), _field(rows, "after", name), _field(rows, "before", name))


def _field(rows: _Rows, image: str, name: str) -> Value:
    """Return a column of an image. Names compare case-insensitively, as on the server."""
    struct = rows.image(image)
    for field in struct.type:
        if field.name.lower() == name.lower():
            values = _as_number(rows.table, field.name, pc.struct_field(struct, [field.name]))
            return pc.if_else(struct.is_valid(), values, pa.scalar(None, values.type))
    return pa.nulls(rows.batch.num_rows)


def _as_number(table: FeedTable, name: str, values: pa.Array) -> pa.Array:
    """Return the values of a DECIMAL above 38 digits, which are staged as text, as numbers; others as they are."""
    if not pa.types.is_string(values.type):
        return values
    column = next((column for column in table.columns if column.name == name), None)
    if column is None or column.type != "decimal":
        return values
    return pc.cast(values, pa.decimal256(column.precision or 10, column.scale or 0))


def _operation(rows: _Rows) -> Value:
    names = pa.array([None, "insert", "update", "delete"])
    return names.take(rows.batch.column("op"))


_NAMES: Mapping[str, Node] = {
    "db": lambda rows: pa.scalar(rows.table.name.database),
    "table": lambda rows: pa.scalar(rows.table.name.table),
    "op": _operation,
}


def _literal(part: Any) -> Node:
    value = pa.scalar(part.this) if part.is_string else _numeral(Decimal(part.this))
    return lambda rows: value


def _negative(part: Any) -> Node:
    if not (isinstance(part.this, sql.Literal) and not part.this.is_string):
        raise _NotUnderstoodError(f"{part.sql('mysql')!r} is no number")
    value = _numeral(Decimal(part.this.this).copy_negate())  # a minus would round to 28 digits
    return lambda rows: value


def _numeral(number: Decimal) -> pa.Scalar:
    is_whole = number == number.to_integral_value() and abs(number) < 2**63
    try:
        return pa.scalar(int(number) if is_whole else number)
    except pa.ArrowException:
        raise _NotUnderstoodError(f"{number} has too many digits") from None


def _given(part: Any) -> Node:
    value = pa.scalar(None) if isinstance(part, sql.Null) else pa.scalar(bool(part.this))
    return lambda rows: value


_OPERANDS: Mapping[type, Callable[[Any], Node]] = {
    sql.Column: _column,
    sql.Literal: _literal,
    sql.Neg: _negative,
    sql.Boolean: _given,
    sql.Null: _given,
}


def _in_order(left: Value, right: Value) -> tuple[Value, Value]:
    """Return both sides as ``_alike`` does. Raises ValueError for texts and a number, which would be ordered as texts:
    10 before 9."""
    for texts, other in ((left, right), (right, left)):
        is_number = pa.types.is_integer(other.type) or pa.types.is_decimal(other.type)
        if is_number and pa.types.is_string(texts.type) and not isinstance(texts, pa.Scalar):
            raise ValueError("texts and a number have no order")
    return _alike(left, right)


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Return both sides in types that compare exactly: a literal takes the column's type where it can."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        other = right.type if pa.types.is_null(left.type) else left.type
        other = pa.bool_() if pa.types.is_null(other) else other
        return pc.cast(left, other), pc.cast(right, other)
    for column, other, turned in ((left, right, False), (right, left, True)):
        if isinstance(other, pa.Scalar) and not isinstance(column, pa.Scalar) and column.type != other.type:
            pair = _converted(column, other)
            return (pair[1], pair[0]) if turned else pair
    return left, right


def _converted(column: Value, value: pa.Scalar) -> tuple[Value, Value]:
    """Return a column and the literal it is compared with, in types that compare exactly."""
    kind = column.type
    if pa.types.is_boolean(kind) and pa.types.is_integer(value.type):
        return pc.cast(column, pa.int8()), value
    if pa.types.is_floating(kind):
        return pc.cast(column, pa.float64()), pa.scalar(float(value.as_py()), pa.float64())
    if pa.types.is_integer(kind) and not pa.types.is_string(value.type):
        return column, value  # Arrow finds a type for both
    if pa.types.is_decimal(kind):
        return _wide(column, number := pa.scalar(_number(value.as_py()))), number
    if pa.types.is_binary(kind) and pa.types.is_string(value.type):
        return column, pa.scalar(value.as_py().encode())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column, _moment(value, kind)
    return column, value.cast(kind)


def _moment(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Return a literal as a date or time.

    Raises ValueError for a number, which Arrow takes for the time since 1970, and for a text without a time zone where
    one is wanted.
    """
    zone = "Z" if pa.types.is_timestamp(kind) and kind.tz else ""
    example = "2024-01-02" if pa.types.is_date(kind) else f"2024-01-02 03:04:05{zone}"
    if pa.types.is_string(value.type):
        with suppress(pa.ArrowInvalid):
            return value.cast(kind)
    raise ValueError(f"{value.as_py()!r} isn't written as '{example}'")


def _number(value: Any) -> Decimal:
    """Return a literal as a number. Raises ValueError."""
    try:
        return Decimal(value)
    except ArithmeticError:
        raise ValueError(f"{value!r} is no number") from None


def _wide(column: Value, value: pa.Scalar) -> Value:
    """Return a column of decimals, in 256 bits where no type of 128 holds it and the literal."""
    kind, other = column.type, value.type
    digits = max(kind.precision - kind.scale, other.precision - other.scale) + max(kind.scale, other.scale)
    is_narrow = digits > _MOST_DIGITS and pa.types.is_decimal128(kind)
    return pc.cast(column, pa.decimal256(kind.precision, kind.scale)) if is_narrow else column
