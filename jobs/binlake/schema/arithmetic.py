"""Generated columns that the lake computes itself: sums, differences and products of whole numbers and DECIMALs.

Both servers compute these exactly: whole numbers in 64 bits, DECIMALs in 65 digits; they refuse or cut larger results.
A column holds the result rounded half away from zero to its scale; where the sql_mode isn't strict, a result out of
range becomes the nearest value that fits (MySQL manual 14.24.4, "Rounding Behavior"; 13.1.7, "Out-of-Range and Overflow
Handling").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Literal

from binlake.names import spark_quote
from binlake.schema.lexer import Lexer, Token
from binlake.schema.table import Column, TableSchema, Virtual

if TYPE_CHECKING:
    import pyarrow as pa

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_DIGITS = {8: 3, 16: 5, 24: 8, 32: 10, 64: 20}
_MOST_DIGITS = 38
"""Digits that a DECIMAL may have in Delta."""
_EXACT = Context(prec=200)
END = Token("end", "", "", 0, 0)


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
    operand: Term


@dataclass(frozen=True)
class Combined:
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
    term = _Parser(schema, (column.name,)).column(column)
    if not isinstance(term, Stored):
        raise NotComputable
    return term


def tokens_of(virtual: Virtual) -> list[Token]:
    """Return the words of an expression."""
    lexer = Lexer(virtual.expression, 0, virtual.flavour)
    while lexer.step():
        pass
    return [token for token in lexer.tokens if token.kind != "end"]


def column_of(columns: Sequence[Column], token: Token) -> Column | None:
    """Return the column that a name means."""
    if not token.is_name:
        return None
    return next((column for column in columns if column.name.lower() == token.text.lower()), None)


class _Parser:
    """Parser of an expression, from left to right.

    within: names of the generated columns whose expressions led to this one.
    """

    def __init__(self, schema: TableSchema, within: tuple[str, ...]) -> None:
        self._schema = schema
        self._within = within
        self._tokens: list[Token] = []
        self._at = 0

    def column(self, column: Column) -> Term:
        exact = column.type in INTEGER_BITS or (column.type == "decimal" and (column.precision or 0) <= _MOST_DIGITS)
        if column not in self._schema.logged or not exact:
            raise NotComputable
        if not column.generated:
            return Reference(column)
        if column.expression is None:
            raise NotComputable
        self._tokens, self._at = tokens_of(column.expression), 0
        term = self._sum()
        if self._at != len(self._tokens) or _most_digits(term) > _MOST_DIGITS:
            raise NotComputable
        return Stored(column, term)

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
        column = column_of(self._schema.columns, token)
        if column is None or column.name in self._within:
            raise NotComputable
        return _Parser(self._schema, (*self._within, column.name)).column(column)


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


def _bounds(column: Column) -> tuple[int, int]:
    """Return the least and the greatest unscaled value that a column holds."""
    if column.type == "decimal":
        most = 10 ** (column.precision or 0) - 1
        return (0 if column.unsigned else -most), most
    bits = INTEGER_BITS[column.type]
    return (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# -- by Spark -----------------------------------------------------------------------------------------------


def sql(term: Term, image: str) -> str:
    """Return Spark SQL over the row ``image``, a DECIMAL of the term's scale."""
    match term:
        case Constant(unscaled=unscaled, scale=scale):
            return f"CAST({_written(unscaled, scale)} AS DECIMAL({_most_digits(term)},{scale}))"
        case Reference(column=column):
            return f"CAST({image}.{spark_quote(column.name)} AS DECIMAL({_most_digits(term)},{_scale(term)}))"
        case Negated(operand=operand):
            return f"(-{sql(operand, image)})"
        case Combined(operator=operator, left=left, right=right):
            # Spark gives an operation the digits that its operands may need, up to 38.
            digits = None if _has_decimal(term) else _MOST_DIGITS
            sides = [_side(side, image, digits) for side in (left, right)]
            combined = f" {operator} ".join(sides)
            return f"({combined})" if digits is None else f"CAST({combined} AS DECIMAL({digits},0))"
        case Stored(column=column, operand=operand):
            return _held_sql(column, sql(operand, image), _scale(operand))


def _side(term: Term, image: str, digits: int | None) -> str:
    value = sql(term, image)
    if digits is None and _has_decimal(term):
        return value
    return f"CAST({value} AS DECIMAL({digits or _most_digits(term)},0))"


def _held_sql(column: Column, value: str, scale: int) -> str:
    held = column.scale or 0
    low, high = (f"{_written(bound, held)}BD" for bound in _bounds(column))
    rounded = f"ROUND({value}, {held})" if scale > held else value
    # LEAST and GREATEST pass over NULL.
    return f"IF({value} IS NULL, NULL, GREATEST(LEAST({rounded}, {high}), {low}))"


def _written(unscaled: int, scale: int) -> str:
    return f"{Decimal(unscaled).scaleb(-scale, _EXACT):f}"


# -- by ourselves -------------------------------------------------------------------------------------------


def computed(term: Stored, image: pa.StructArray, arrow: pa.DataType) -> pa.Array:
    """Return a generated column's values, of the type ``arrow``, from the rows' other columns."""
    names = sorted(_names(term))
    columns = {name: image.field(name).to_pylist() for name in names}
    rows = range(len(image))
    values = [_value(term, {name: columns[name][row] for name in names}) for row in rows]
    scale = _scale(term)
    import pyarrow as pa  # Airflow parses DAGs without it

    if not pa.types.is_decimal(arrow):
        return pa.array(values, arrow)
    return pa.array([None if value is None else Decimal(value).scaleb(-scale, _EXACT) for value in values], arrow)


def _value(term: Term, row: Mapping[str, int | Decimal | None]) -> int | None:
    """Return the value times 10**scale; None for NULL."""
    match term:
        case Constant(unscaled=unscaled):
            return unscaled
        case Reference(column=column):
            stored = row[column.name]
            return None if stored is None else int(Decimal(stored).scaleb(_scale(term), _EXACT))
        case Negated(operand=operand):
            value = _value(operand, row)
            return None if value is None else -value
        case Combined(operator=operator, left=left, right=right):
            first, second = _value(left, row), _value(right, row)
            if first is None or second is None:
                return None
            if operator == "*":
                product: int = first * second
                return product
            first, second = (
                _shifted(number, _scale(term) - _scale(side)) for number, side in ((first, left), (second, right))
            )
            return first + second if operator == "+" else first - second
        case Stored(column=column, operand=operand):
            value = _value(operand, row)
            return None if value is None else _held(column, value, _scale(operand))


def _shifted(number: int, digits: int) -> int:
    return number * int(10**digits)


def _held(column: Column, value: int, scale: int) -> int:
    """Return what a column holds of ``value`` / 10**scale, as an unscaled number."""
    held = column.scale or 0
    if scale > held:
        unit = 10 ** (scale - held)
        size = (abs(value) + unit // 2) // unit
        value = -size if value < 0 else size
    else:
        value = _shifted(value, held - scale)
    low, high = _bounds(column)
    return max(low, min(high, value))


def _names(term: Term) -> frozenset[str]:
    match term:
        case Constant():
            return frozenset()
        case Reference(column=column):
            return frozenset({column.name})
        case Negated(operand=operand) | Stored(operand=operand):
            return _names(operand)
        case Combined(left=left, right=right):
            return _names(left) | _names(right)
