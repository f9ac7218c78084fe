"""How a Delta table's columns follow the server's: which stay, move, are renamed, go and come."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from binlake.ddl.conversion import conversion
from binlake.ddl.defaults import is_impossible_date
from binlake.delta.delta_schema import completed, delta_field, delta_type
from binlake.names import spark_quote, spark_string
from binlake.planner.steps import ReshapeStep
from binlake.schema import datatypes
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn, lake_columns, own_columns
from binlake.schema.table import Column


@dataclass(frozen=True)
class ReshapedColumn:
    """A column as it is afterwards. origin: the column that holds its values until then; None for a new one.

    arrow: the column's type in data files; arrow_before: that of its origin. suffix: the text that is now behind kept
    texts of invalid dates. value: for all rows of a new column, and for rows with NULL in one that was there, in Spark
    SQL. constant: the same, where it is known without Spark.
    """

    name: str
    kind: str
    origin: str | None
    kind_before: str | None
    arrow: pa.DataType
    suffix: str = ""
    value: str | None = None
    constant: pa.Scalar | None = None
    arrow_before: pa.DataType | None = None

    @property
    def is_written(self) -> bool:
        """Return whether rows that are there need other values, so that they are rewritten."""
        changed = self.origin is not None and (self.kind_before != self.kind or bool(self.suffix))
        return changed or self.value is not None

    @property
    def expression(self) -> str:
        """Return the column as Spark SQL over the old columns."""
        value = spark_quote(self.origin) if self.origin else self.value or "NULL"
        if self.origin and self.value:
            value = f"COALESCE({value}, {self.value})"
        if self.suffix:
            value = f"CONCAT({value}, {spark_string(self.suffix)})"
        return f"CAST({value} AS {self.kind}) AS {spark_quote(self.name)}"


def lake_columns_after(step: ReshapeStep, invalid: InvalidValues) -> list[ReshapedColumn]:
    """Return the Delta table's columns after the step."""
    origins = {column.name: origin for column, origin in zip(step.after.columns, step.origins, strict=True)}
    before = {(column.source.name, column.holds): column for column in lake_columns(step.before, invalid)}
    fills = {column.name: text for column, text in step.fills}
    columns: list[ReshapedColumn] = []
    for lake_column in lake_columns(step.after, invalid):
        origin, text = origins[lake_column.source.name] or "", fills.get(lake_column.source.name)
        old = before.get((origin, lake_column.holds))
        if lake_column.is_side:
            columns.append(_side_column(lake_column, old, text))
        else:
            new = _reshaped(lake_column, old, value=_value(lake_column.source, before.get((origin, "text")), text))
            if text is not None and new.value is not None and (origin, "text") not in before:
                new = replace(new, constant=constant(lake_column, text))
            columns.append(new)
    own_ones = own_columns(step.after)
    columns += [ReshapedColumn(own.name, own.delta, own.name, own.delta, own.arrow) for own in own_ones]
    for column, kept_origin in zip(step.after.kept, step.kept_origins, strict=True):
        kind = datatypes.delta_type(column)
        columns.append(ReshapedColumn(column.name, kind, kept_origin, kind, datatypes.arrow_type(column)))
    return columns


def _value(column: Column, side: LakeColumn | None, text: str | None) -> str | None:
    """Return a fill as Spark SQL. A date whose text is kept beside it is NULL here, and not on the server."""
    if text is None or is_impossible_date(column, text):
        return None
    value = datatypes.entry(column).lake_constant(column, text)
    return f"IF({spark_quote(side.name)} IS NULL, {value}, NULL)" if side else value


def _side_column(side: LakeColumn, old: LakeColumn | None, text: str | None) -> ReshapedColumn:
    """Return the column that keeps the texts of invalid dates."""
    if old is None:
        if text is None or not is_impossible_date(side.source, text):
            return _reshaped(side, None)
        return replace(_reshaped(side, None, value=spark_string(text)), constant=pa.scalar(text, side.arrow))
    return _reshaped(side, old, suffix=conversion(old.source, side.source, strict=True).date_suffix)


def _reshaped(column: LakeColumn, old: LakeColumn | None, suffix: str = "", value: str | None = None) -> ReshapedColumn:
    name, kind, arrow = (old.name, old.delta, old.arrow) if old else (None, None, None)
    return ReshapedColumn(column.name, column.delta, name, kind, column.arrow, suffix, value, arrow_before=arrow)


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_DIGITS = {"TINYINT": 10, "SMALLINT": 10, "INT": 10, "BIGINT": 20}
"""The digits before the point of a DECIMAL into which Delta widens an integer."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)\Z")


def widens(column: ReshapedColumn) -> bool:
    """Return whether Delta's type widening takes the old values as they are ("Supported type changes", Delta's
    manual)."""
    before, after = column.kind_before or "", column.kind
    if column.suffix or column.origin is None or column.value is not None:
        return False
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS.index(before) < _INTEGERS.index(after)
    decimal = _DECIMAL.match(after)
    if decimal is None:
        return (before, after) in (("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP_NTZ"))
    precision, scale = int(decimal[1]), int(decimal[2])
    if before in _DIGITS:
        return precision - scale >= _DIGITS[before]
    narrower = _DECIMAL.match(before)
    return (
        narrower is not None and scale >= int(narrower[2]) and precision - scale >= int(narrower[1]) - int(narrower[2])
    )


def reshaped_fields(fields: list[dict[str, Any]], columns: Sequence[ReshapedColumn]) -> list[dict[str, Any]]:
    """Return Delta's schema fields after a reshape that casts nothing. Raises KeyError where an origin isn't there.

    A renamed field keeps its physical name and id, by which column mapping finds its data. Where columns have ids of
    binlake's own, new ones get some, too.
    """
    have = {field["name"].lower(): field for field in completed(fields)}
    after = [
        {**have[column.origin.lower()], "name": column.name} if column.origin else delta_field(column.name, column.kind)
        for column in columns
    ]
    return completed(after)


def renames_or_drops(fields: list[dict[str, Any]], columns: Sequence[ReshapedColumn]) -> bool:
    """Return whether column mapping is needed: a name of a data file's column belongs to another column, or to none."""
    origins = {column.origin.lower() for column in columns if column.origin}
    renamed = any(column.origin is not None and column.origin != column.name for column in columns)
    return renamed or any(field["name"].lower() not in origins for field in fields)


def constant(column: LakeColumn, text: str) -> pa.Scalar | None:
    """Return a server's constant, of a TIMESTAMP in UTC, as the lake has it: what ``lake_constant`` is by Spark.

    None for lists, and for texts that aren't as the server writes them.
    """
    try:
        value = datatypes.entry(column.source).constant(column.source, column.arrow, text)
        return None if value is None else pa.scalar(value, column.arrow)
    except (ValueError, ArithmeticError):  # it doesn't fit, whatever the server made of it
        return None


@dataclass(frozen=True)
class BesideColumn:
    """A column of a table beside a mirror. kind: its type in Spark SQL. arrow: the same in data files."""

    name: str
    kind: str
    arrow: pa.DataType


def reshaped(
    fields: Sequence[Mapping[str, Any]],
    wanted: Sequence[BesideColumn],
    renamed: Sequence[tuple[str, str]],
    begun: Sequence[str] = (),
) -> list[ReshapedColumn]:
    """Return the columns that a table beside a mirror has once the wanted ones are added.

    fields: of its Delta schema. A column in whose place another comes, of another type or by a new name, steps aside
    under a name with a number. begun: those of ``wanted`` that begin without a value, also where one of the name was
    dropped before.
    """
    names = {old.lower(): new for old, new in renamed}
    kinds = {column.name.lower(): column for column in wanted}
    come, begun_names = {new.lower() for _, new in renamed}, {name.lower() for name in begun}
    have = {field["name"].lower() for field in fields}
    taken = have | kinds.keys() | come
    columns: list[ReshapedColumn] = []
    stay: set[str] = set()
    for field in fields:
        name, lower, same = field["name"], field["name"].lower(), str(field["type"])
        new = names.get(lower, name)
        if new.lower() in kinds and (lower in names or lower not in come):
            wanted_here = kinds[new.lower()]
            new = wanted_here.name
            if delta_type(wanted_here.kind) != field["type"] or (lower in begun_names and lower not in names):
                new = _aside(new, taken)
        elif lower in come and lower not in names:
            new = _aside(name, taken)
        stay.add(new.lower())
        columns.append(ReshapedColumn(new, same, name, same, pa.null()))
    columns += [
        ReshapedColumn(column.name, column.kind, None, None, column.arrow)
        for column in wanted
        if column.name.lower() not in stay
    ]
    return columns


def _aside(name: str, taken: set[str]) -> str:
    """Return a free name for a column that steps aside, and take it."""
    number = 1
    while f"{name}__{number}".lower() in taken:
        number += 1
    taken.add(f"{name}__{number}".lower())
    return f"{name}__{number}"
