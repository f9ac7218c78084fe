"""Generated columns that the lake computes itself: sums, differences and products of whole numbers and DECIMALs.

Both servers compute these exactly: whole numbers in 64 bits, DECIMALs in 65 digits; they refuse or cut larger results.
A column holds the result rounded half away from zero to its scale; where the sql_mode isn't strict, a result out of
range becomes the nearest value that fits (MySQL manual 14.24.4, "Rounding Behavior"; 13.1.7, "Out-of-Range and Overflow
Handling").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Literal

from binlake.schema.expressions import DEEPEST, END, Expressions, column_of
from binlake.schema.lexer import Token
from binlake.schema.table import Column, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_DIGITS = {8: 3, 16: 5, 24: 8, 32: 10, 64: 20}
_MOST_DIGITS = 38
"""Digits that a DECIMAL may have in Delta."""
_MOST_PARTS = 500
"""Numbers, columns and operations in one expression that the lake computes. A column that another refers to counts with
all of its own, each time."""
_EXACT = Context(prec=200)


class NotComputable(Exception):
    """An expression that is more than plain arithmetic."""


@dataclass(frozen=True)
class Constant:
    """A number written in the expression: ``unscaled`` / 10**scale."""

    unscaled: int
    scale: int


@dataclass(frozen=True)
class Reference:
    """A column's own value."""

    column: Column


@dataclass(frozen=True)
class Negated:
    """A term with the other sign."""

    operand: Term


@dataclass(frozen=True)
class Combined:
    """Two terms joined by an operator."""

    operator: Literal["+", "-", "*"]
    left: Term
    right: Term


@dataclass(frozen=True)
class Stored:
    """A generated column: its expression's value, converted to the column's type."""

    column: Column
    operand: Term


Term = Constant | Reference | Negated | Combined | Stored


def parsed(column: Column, schema: TableSchema) -> Stored:
    """Return how a generated column is computed from others. Raises NotComputable."""
    return Formulas(schema).of(column)


class Formulas:
    """How the generated columns of one table are computed; each is parsed once. expressions: the table's."""

    def __init__(self, schema: TableSchema, expressions: Expressions | None = None) -> None:
        self.expressions = expressions or Expressions(schema.columns)
        self._logged = {column.name for column in schema.logged}
        self._known: dict[str, Stored | None] = {}

    def of(self, column: Column) -> Stored:
        """Return how a generated column is computed from others. Raises NotComputable."""
        term = self.term(column, 0)
        if not isinstance(term, Stored):
            raise NotComputable
        return term

    def term(self, column: Column, depth: int) -> Reference | Stored:
        """Return a column's value as a part of an expression, ``depth`` levels deep. Raises NotComputable."""
        exact = column.type in INTEGER_BITS or (column.type == "decimal" and (column.precision or 0) <= _MOST_DIGITS)
        if column.name not in self._logged or not exact:
            raise NotComputable
        if not column.generated:
            return Reference(column)
        if column.name not in self._known:
            self._known[column.name] = None  # also for an expression that leads back here
            self._known[column.name] = self._parsed(column, depth)
        if (known := self._known[column.name]) is None:
            raise NotComputable
        return known

    def _parsed(self, column: Column, depth: int) -> Stored:
        if column.expression is None or self.expressions.are_too_long:
            raise NotComputable
        stored = Stored(column, _Parser(self, column, depth).whole())
        if not _is_small(stored) or _most_digits(stored.operand) > _MOST_DIGITS:
            raise NotComputable
        return stored


class _Parser:
    """Parser of a column's expression, from left to right. depth: levels of parentheses and columns above it."""

    def __init__(self, formulas: Formulas, column: Column, depth: int) -> None:
        self._formulas = formulas
        self._tokens = formulas.expressions.tokens_of(column)
        self._depth = depth
        self._at = 0

    def whole(self) -> Term:
        term = self._sum()
        if self._at != len(self._tokens):
            raise NotComputable
        return term

    @property
    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else END

    def _sum(self) -> Term:
        left = self._product()
        while (operator := self._next.key) in ("+", "-"):
            self._at += 1
            left = Combined("+" if operator == "+" else "-", left, self._product())
        return left

    def _product(self) -> Term:
        left = self._operand()
        while self._next.key == "*":
            self._at += 1
            left = Combined("*", left, self._operand())
        return left

    def _operand(self) -> Term:
        token = self._next
        self._at += 1
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotComputable
        term = self._operand_of(token)
        self._depth -= 1
        return term

    def _operand_of(self, token: Token) -> Term:
        if token.key == "(":
            term = self._sum()
            if self._next.key != ")":
                raise NotComputable
            self._at += 1
            return term
        if token.key == "-":
            return Negated(self._operand())
        if token.kind == "number" and re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", token.text):
            whole, _, fraction = token.text.partition(".")
            return Constant(int(whole + fraction), len(fraction))
        column = column_of(self._formulas.expressions.columns, token)
        if column is None:
            raise NotComputable
        return self._formulas.term(column, self._depth)


def _is_small(term: Term) -> bool:
    """Return whether a term has few enough parts and levels to be computed for each row."""
    level, parts, depth = [term], 0, 0
    while level:
        parts, depth = parts + len(level), depth + 1
        if parts > _MOST_PARTS or depth > DEEPEST:
            return False
        level = [operand for part in level for operand in _operands(part)]
    return True


def _operands(term: Term) -> tuple[Term, ...]:
    match term:
        case Negated(operand=operand) | Stored(operand=operand):
            return (operand,)
        case Combined(left=left, right=right):
            return left, right
    return ()


def _scale(term: Term) -> int:
    match term:
        case Constant(scale=scale):
            return scale
        case Reference(column=column) | Stored(column=column):
            return column.scale or 0
        case Negated(operand=operand):
            return _scale(operand)
        case Combined(operator="*", left=left, right=right):
            return _scale(left) + _scale(right)
        case Combined(left=left, right=right):
            return max(_scale(left), _scale(right))


def _most_digits(term: Term) -> int:
    """Return how many decimal digits the value may have; whole numbers stay within the server's 64 bits."""
    match term:
        case Constant(unscaled=unscaled, scale=scale):
            return max(len(str(unscaled)), scale + 1)
        case Reference(column=column) | Stored(column=column):
            bits = INTEGER_BITS.get(column.type)
            return _DIGITS[bits] if bits else column.precision or 0
        case Negated(operand=operand):
            return _most_digits(operand)
        case Combined(operator=operator, left=left, right=right):
            if not _has_decimal(term):
                return _DIGITS[64]
            if operator == "*":
                return _most_digits(left) + _most_digits(right) + 1
            whole = max(_most_digits(left) - _scale(left), _most_digits(right) - _scale(right))
            return whole + _scale(term) + 1


def _has_decimal(term: Term) -> bool:
    match term:
        case Constant(scale=scale):
            return scale > 0
        case Reference(column=column) | Stored(column=column):
            return column.type == "decimal"
        case Negated(operand=operand):
            return _has_decimal(operand)
        case Combined(left=left, right=right):
            return _has_decimal(left) or _has_decimal(right)


def integer_range(column: Column) -> tuple[int, int]:
    """Return the least and the greatest value of a column of whole numbers."""
    bits = INTEGER_BITS[column.type]
    return (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _bounds(column: Column) -> tuple[int, int]:
    """Return the least and the greatest unscaled value that a column holds."""
    if column.type == "decimal":
        most = 10 ** (column.precision or 0) - 1
        return (0 if column.unsigned else -most), most
    return integer_range(column)


def computed(term: Stored, image: pa.StructArray, arrow: pa.DataType) -> pa.Array:
    """Return a generated column's values, of the type ``arrow``, from the rows' other columns."""
    import numpy as np  # Airflow parses DAGs without these
    import pyarrow as pa

    columns = {column.name: image.field(column.name) for column in _references(term)}
    absent = np.zeros(len(image), np.bool_)
    for stored in columns.values():
        absent |= stored.is_null().to_numpy(zero_copy_only=False)
    values = _values(term, columns, len(image))  # of numbers without a bound
    if pa.types.is_decimal(arrow):
        scale = _scale(term)
        values = np.array([Decimal(value).scaleb(-scale, _EXACT) for value in values], object)
    values[absent] = None
    return pa.array(values, arrow)


def _values(term: Term, columns: Mapping[str, pa.Array], rows: int) -> NDArray[Any]:
    """Return the values times 10**scale; of rows in which a column is NULL any number."""
    import numpy as np

    match term:
        case Constant(unscaled=unscaled):
            return np.full(rows, unscaled, object)
        case Reference(column=column):
            scale, stored = _scale(term), columns[column.name].to_pylist()
            if scale:
                return np.array([0 if one is None else int(one.scaleb(scale, _EXACT)) for one in stored], object)
            return np.array([int(one or 0) for one in stored], object)
        case Negated(operand=operand):
            negated: NDArray[Any] = -_values(operand, columns, rows)
            return negated
        case Combined(operator=operator, left=left, right=right):
            first, second = (_values(side, columns, rows) for side in (left, right))
            if operator == "*":
                product: NDArray[Any] = first * second
                return product
            first, second = (
                numbers * 10 ** (_scale(term) - _scale(side)) for numbers, side in ((first, left), (second, right))
            )
            combined: NDArray[Any] = first + second if operator == "+" else first - second
            return combined
        case Stored(column=column, operand=operand):
            return _held(column, _values(operand, columns, rows), _scale(operand))


def _held(column: Column, values: NDArray[Any], scale: int) -> NDArray[Any]:
    """Return what a column holds of ``values`` / 10**scale, as unscaled numbers."""
    import numpy as np

    held = column.scale or 0
    if scale > held:
        unit = 10 ** (scale - held)
        sizes = (abs(values) + unit // 2) // unit
        values = np.where(values < 0, -sizes, sizes)
    else:
        values = values * 10 ** (held - scale)
    low, high = _bounds(column)
    bounded: NDArray[Any] = np.minimum(np.maximum(values, low), high)
    return bounded


def _references(term: Term) -> set[Column]:
    if isinstance(term, Reference):
        return {term.column}
    return set().union(*map(_references, _operands(term)))
