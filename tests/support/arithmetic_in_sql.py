"""Generated columns as Spark SQL: another way to compute what binlake/schema/arithmetic.py does."""

from __future__ import annotations

from decimal import Decimal

from binlake.names import spark_quote
from binlake.schema.arithmetic import (
    _EXACT,
    _MOST_DIGITS,
    Combined,
    Constant,
    Negated,
    Reference,
    Stored,
    Term,
    _bounds,
    _has_decimal,
    _most_digits,
    _operands,
    _scale,
)
from binlake.schema.table import Column


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
            value, scale = sql(operand, image), _scale(operand)
            if _has_stored(term):  # else the text would double with each column that refers to the one before
                return f"transform(array({value}), v -> {_held_sql(column, 'v', scale)})[0]"
            return _held_sql(column, value, scale)


def _has_stored(term: Term) -> bool:
    return any(isinstance(operand, Stored) or _has_stored(operand) for operand in _operands(term))


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
