"""Conditions on rows of metadata that are met without a query engine: columns compared with values, all of which must
hold.

deltalake plans a query for each question, which takes 5 ms where the rows themselves are in memory.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from arro3.core import DataType, Schema

from binlake.caches import remembered

_Value = str | int
_LITERAL = r"'(?:[^']|'')*'|-?\d+"
_ONE = re.compile(
    rf"""\s*(?P<column>"[^"]+"|[a-z_]+)\s*
    (?: (?P<compared>>=|<=|=|<|>)\s*(?P<value>{_LITERAL})
      | IN\s*\((?P<values>\s*(?:{_LITERAL})(?:\s*,\s*(?:{_LITERAL}))*)\s*\)
      | IS\s+(?P<null>(?:NOT\s+)?NULL) )
    \s*(?P<further>AND\s|$)""",
    re.VERBOSE,
)
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, ">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_PYTHON = ((DataType.utf8(), str), (DataType.int64(), int))


@dataclass(frozen=True)
class Comparison:
    """A column compared with values. kind: ``=``, ``<`` and the like, ``IN``, ``NULL``, ``NOT NULL``."""

    column: str
    kind: str
    values: tuple[_Value, ...] = ()

    def fits(self, schema: Schema) -> bool:
        """Return whether the values are of the column's type."""
        if self.column not in schema.names:
            return False
        kind = schema.field(self.column).type
        wanted = next((python for arrow, python in _PYTHON if arrow == kind), None)
        return all(type(value) is wanted for value in self.values)

    def is_met(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row meets the comparison: as in SQL, null meets none with a value."""
        value = row[self.column]
        if self.kind in ("NULL", "NOT NULL"):
            return (value is None) == (self.kind == "NULL")
        if value is None:
            return False
        return value in self.values if self.kind == "IN" else _COMPARED[self.kind](value, self.values[0])

    def may_hold(self, least: Mapping[str, Any], most: Mapping[str, Any]) -> bool:
        """Return whether a row of a file may meet the comparison, by the file's statistics. Those of text may be
        cut."""
        low, high = least.get(self.column), most.get(self.column)
        if type(low) is not int or type(high) is not int or not self.values:
            return True
        if self.kind in ("=", "IN"):
            return any(isinstance(value, int) and low <= value <= high for value in self.values)
        return any(_COMPARED[self.kind](bound, self.values[0]) for bound in (low, high))


@remembered("conditions of metadata")
def comparisons(condition: str) -> tuple[Comparison, ...] | None:
    """Return the comparisons that a condition in SQL consists of; None for one of another form."""
    parsed: list[Comparison] = []
    place, continues = 0, True
    while continues:
        match = _ONE.match(condition, place)
        if match is None:
            return None
        parsed.append(_comparison(match))
        place, continues = match.end(), bool(match["further"])
    return tuple(parsed)


def _comparison(match: re.Match[str]) -> Comparison:
    column = match["column"].strip('"')
    if match["null"]:
        return Comparison(column, " ".join(match["null"].split()))
    if match["values"]:
        return Comparison(column, "IN", tuple(map(_value, re.findall(_LITERAL, match["values"]))))
    return Comparison(column, match["compared"], (_value(match["value"]),))


def _value(text: str) -> _Value:
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)
