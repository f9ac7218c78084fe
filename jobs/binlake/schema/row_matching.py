"""The rows of the log that meet a condition, worked out in Arrow as the server does.

A part of a condition may be undecided for a row, as where a text's collation knows more than is known here. So each
part has a set of values that it may have: true, false, NULL. A row is undecided where the whole may be true and may be
something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from binlake.schema.row_condition import (
    ComparedColumn,
    ComparedConstant,
    ComparisonSign,
    ConditionLeaf,
    ConditionNode,
    JoinedConditions,
    MissingValue,
    NegatedCondition,
    RefusedCondition,
    check,
    kind_of,
    leaves,
    moment_of,
    parsed,
)
from binlake.schema.table import Column
from binlake.schema.text_equality import TextEquality, text_equality

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

_MOST_DIGITS = 76
"""Of the arithmetic on constants: more than two of them have."""


@dataclass(frozen=True)
class _Possible:
    """For each row, which values a part of a condition may have."""

    true: Flags
    false: Flags
    null: Flags

    def negated(self) -> _Possible:
        return _Possible(self.false, self.true, self.null)

    def and_also(self, other: _Possible) -> _Possible:
        null = (self.null & (other.null | other.true)) | (self.true & other.null)
        return _Possible(self.true & other.true, self.false | other.false, null)


@dataclass(frozen=True)
class Matched:
    """For each row, whether it meets the condition, and whether that is undecided; None where all are decided."""

    met: Flags
    undecided: Flags | None


class RowMatcher:
    """A condition for the rows of one table, as the log describes its columns.

    columns, collations: side by side; the condition has the server's names of columns. A collation's number is 0 for
    what isn't text. The constructor raises RefusedCondition where the condition can't be worked out for these columns.
    """

    def __init__(self, text: str, columns: Sequence[Column], collations: Sequence[int]) -> None:
        self._node = parsed(text)
        self._columns = {column.served_name.lower(): column for column in columns}
        by_name = {column.served_name.lower(): number for column, number in zip(columns, collations, strict=True)}
        self._parts: dict[ConditionLeaf, Callable[[pa.StructArray], _Possible]] = {}
        for leaf in leaves(self._node):
            column = self._columns.get(leaf.column.lower())
            if column is None:
                raise RefusedCondition(f"the log's rows have no column {leaf.column!r}")
            check(leaf, column)
            self._parts[leaf] = _part(leaf, column, by_name[column.served_name.lower()])
        self.columns = frozenset(self._columns[leaf.column.lower()].name for leaf in self._parts)

    def matched(self, image: pa.StructArray) -> Matched:
        """Return which rows meet the condition. image: the columns and their side columns."""
        possible = self._possible(self._node, image)
        undecided = possible.true & (possible.false | possible.null)
        return Matched(possible.true, undecided if undecided.any() else None)

    def _possible(self, node: ConditionNode, image: pa.StructArray) -> _Possible:
        match node:
            case NegatedCondition(operand=operand):
                return self._possible(operand, image).negated()
            case JoinedConditions(all_of=all_of, operands=operands):
                parts = [self._possible(operand, image) for operand in operands]
                parts = parts if all_of else [part.negated() for part in parts]
                joined = parts[0]
                for part in parts[1:]:
                    joined = joined.and_also(part)
                return joined if all_of else joined.negated()
            case _:
                return self._parts[node](image)


def _part(leaf: ConditionLeaf, column: Column, collation: int) -> Callable[[pa.StructArray], _Possible]:
    """Return what evaluates a part of a condition. Raises RefusedCondition."""
    if isinstance(leaf, MissingValue):
        return lambda image: _missing(image, column)
    compare = _comparison(leaf, column, collation)
    is_null_safe = leaf.operator == "<=>"

    def evaluate(image: pa.StructArray) -> _Possible:
        values = image.field(column.name)
        true, undecided = compare(values)
        null, kept = _absent(values), _kept_beside(image, column)
        if leaf.operator == "<>":
            true = ~true
        true = true & ~null
        false = ~true & ~null
        if undecided is not None:
            true, false = true | undecided, false | undecided
        if kept is not None:  # an invalid value, of which no order is known
            true, false, null = true | kept, false | kept, null & ~kept
        return _Possible(true, false | null, np.zeros_like(null)) if is_null_safe else _Possible(true, false, null)

    return evaluate


def _absent(values: pa.Array) -> Flags:
    flags: Flags = values.is_null().to_numpy(zero_copy_only=False)
    return flags


def _kept_beside(image: pa.StructArray, column: Column) -> Flags | None:
    """Return which rows have an invalid value, kept in a side column; None without one."""
    for name in (f"{column.name}__text", f"{column.name}__bytes"):
        place = image.type.get_field_index(name)
        if place >= 0 and kind_of(column) in ("date", "moment", "text"):
            flags: Flags = image.field(place).is_valid().to_numpy(zero_copy_only=False)
            return flags if flags.any() else None
    return None


def _missing(image: pa.StructArray, column: Column) -> _Possible:
    null, kept = _absent(image.field(column.name)), _kept_beside(image, column)
    null = null if kept is None else null & ~kept
    return _Possible(null, ~null, np.zeros_like(null))


_Comparison = Callable[["pa.Array"], "tuple[Flags, Flags | None]"]
"""Returns which values are equal, or in the asked order; ``<>`` as ``=``. And which may be."""


def _comparison(leaf: ComparedColumn, column: Column, collation: int) -> _Comparison:
    kind, constants = kind_of(column), leaf.constants
    operator: ComparisonSign = "=" if leaf.operator in ("<>", "<=>") else leaf.operator
    if kind in ("text", "member"):
        equality = text_equality(collation)
        if equality is None:
            raise RefusedCondition(f"{column.name} has a collation (number {collation}) whose comparisons aren't known")
        texts = [constant.text for constant in constants]
        return _of_members(column, equality, texts) if kind == "member" else lambda v: equality.matches(v, texts)
    if kind == "bytes":
        return _of_set([constant.text.encode() for constant in constants])
    parts = [_of_one(column, operator, constant) for constant in constants]
    if len(parts) == 1:
        return lambda values: (parts[0](values), None)

    def any_of(values: pa.Array) -> tuple[Flags, None]:
        found = parts[0](values)
        for part in parts[1:]:
            found = found | part(values)
        return found, None

    return any_of


def _of_set(wanted: Sequence[Any]) -> _Comparison:
    def compare(values: pa.Array) -> tuple[Flags, None]:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.is_in(values, pa.array(wanted, values.type)).to_numpy(zero_copy_only=False), None

    return compare


def _of_members(column: Column, equality: TextEquality, texts: Sequence[str]) -> _Comparison:
    """Return the comparison of an ENUM, whose members are compared once. Raises RefusedCondition."""
    equal: list[str] = []
    for member in ("", *column.values):
        decided = [equality.decides(member, text) for text in texts]
        if True in decided:
            equal.append(member)
        elif None in decided:
            raise RefusedCondition(f"{column.name} has members that may be equal to {texts[decided.index(None)]!r}")
    return _of_set(equal)


def _of_one(column: Column, operator: ComparisonSign, constant: ComparedConstant) -> Callable[[pa.Array], Flags]:
    kind = kind_of(column)
    if kind in ("date", "moment"):
        moment = moment_of(column, constant)
        return lambda values: _compared(values, operator, _moment_scalar(values.type, moment))
    if kind == "float":
        number = float(constant.number)
        return lambda values: _compared_floats(values, operator, number)
    return lambda values: _compared_exactly(values, operator, constant.number)


def _moment_scalar(arrow: pa.DataType, moment: Any) -> pa.Scalar:
    import pyarrow as pa

    if pa.types.is_timestamp(arrow):  # an instant in UTC, whether the type says so or not
        return pa.scalar(moment, pa.timestamp("us")).cast(pa.int64()).cast(arrow)
    return pa.scalar(moment, arrow)


def _compared(values: pa.Array, operator: ComparisonSign, scalar: pa.Scalar) -> Flags:
    """Return where values are in an order to one of their type; False for NULL."""
    import pyarrow.compute as pc

    compare = {
        "=": pc.equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[operator]
    flags: Flags = pc.fill_null(compare(values, scalar), False).to_numpy(zero_copy_only=False)
    return flags


def _compared_floats(values: pa.Array, operator: ComparisonSign, number: float) -> Flags:
    import pyarrow as pa
    import pyarrow.compute as pc

    return _compared(pc.cast(values, pa.float64()), operator, pa.scalar(number, pa.float64()))


def _compared_exactly(values: pa.Array, operator: ComparisonSign, number: Decimal) -> Flags:
    """Compare whole numbers or decimals with a number of any size and scale."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(values.type):
        values = pc.cast(values, pa.int8())
    is_decimal = pa.types.is_decimal(values.type)
    with localcontext(prec=_MOST_DIGITS):
        unit = Decimal(1).scaleb(-values.type.scale if is_decimal else 0)
        if operator == "=" and number != number.quantize(unit, ROUND_FLOOR):
            return np.zeros(len(values), np.bool_)
        # a < 2.5 is a < 3, and a <= 2.5 is a <= 2
        up = operator in ("<", ">=")
        bound = number.quantize(unit, ROUND_CEILING if up else ROUND_FLOOR)
        if is_decimal:
            most = Decimal(10) ** (values.type.precision - values.type.scale) - unit
            least = -most
        else:
            bits = values.type.bit_width
            least, most = Decimal(-(2 ** (bits - 1))), Decimal(2 ** (bits - 1) - 1)
    if not least <= bound <= most:
        always = operator in (("<", "<=") if bound > most else (">", ">="))
        return np.full(len(values), always) & ~_absent(values)
    return _compared(values, operator, pa.scalar(bound if is_decimal else int(bound), values.type))
