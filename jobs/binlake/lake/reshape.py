"""How a Delta table's columns follow the server's: which stay, move, are renamed, go and come."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from binlake.batch.steps import ReshapeStep
from binlake.config import InvalidDates
from binlake.names import spark_quote, spark_string
from binlake.schema import datatypes
from binlake.schema.conversion import conversion
from binlake.schema.defaults import is_impossible_date
from binlake.schema.table import Column


@dataclass(frozen=True)
class LakeColumn:
    """A column as it stands afterwards. origin: the column that holds its values until then; None for a new one.

    suffix: what kept texts of invalid dates have behind them now. value: what all rows have in a new column, and those
    with NULL in one that was there, in Spark SQL.
    """

    name: str
    kind: str
    origin: str | None
    kind_before: str | None
    suffix: str = ""
    value: str | None = None

    @property
    def is_written(self) -> bool:
        """Whether rows that are there need other values, so that they are written anew."""
        changed = self.origin is not None and (self.kind_before != self.kind or bool(self.suffix))
        return changed or self.value is not None

    @property
    def expression(self) -> str:
        """Spark SQL over the old columns."""
        value = spark_quote(self.origin) if self.origin else self.value or "NULL"
        if self.origin and self.value:
            value = f"COALESCE({value}, {self.value})"
        if self.suffix:
            value = f"CONCAT({value}, {spark_string(self.suffix)})"
        return f"CAST({value} AS {self.kind}) AS {spark_quote(self.name)}"


def lake_columns_after(step: ReshapeStep, invalid_dates: InvalidDates) -> list[LakeColumn]:
    """The Delta table's columns after the step, side columns of invalid dates included."""
    mirrored = {column.name: column for column in step.before.mirrored}
    kept = {column.name for column in step.after.mirrored}
    fills = dict((column.name, text) for column, text in step.fills)
    keeps_text = invalid_dates == "keep_text"
    columns: list[LakeColumn] = []
    for column, origin in zip(step.after.columns, step.origins, strict=True):
        if column.name not in kept:
            continue
        old = mirrored.get(origin) if origin else None
        text = fills.get(column.name)
        columns.append(_lake_column(column, old, _value(column, old, text, keeps_text=keeps_text)))
        if keeps_text and datatypes.entry(column).may_be_invalid_date:
            columns.append(_side_column(column, old, text))
    for column, origin in zip(step.after.kept, step.kept_origins, strict=True):
        kind = datatypes.delta_type(column)
        columns.append(LakeColumn(column.name, kind, origin, kind))
    return columns


def _value(column: Column, old: Column | None, text: str | None, *, keeps_text: bool) -> str | None:
    """A fill in Spark SQL. A date whose text is kept beside it is NULL here, and not on the server."""
    if text is None or is_impossible_date(column, text):
        return None
    value = default_expression(column, text)
    if keeps_text and old is not None and datatypes.entry(old).may_be_invalid_date:
        return f"IF({spark_quote(datatypes.text_column(old))} IS NULL, {value}, NULL)"
    return value


def _side_column(column: Column, old: Column | None, text: str | None) -> LakeColumn:
    """The column that keeps the texts of invalid dates."""
    name = datatypes.text_column(column)
    if old is None or not datatypes.entry(old).may_be_invalid_date:
        kept = spark_string(text) if text is not None and is_impossible_date(column, text) else None
        return LakeColumn(name, "STRING", None, None, value=kept)
    suffix = conversion(old, column, strict=True).date_suffix
    return LakeColumn(name, "STRING", datatypes.text_column(old), "STRING", suffix)


def _lake_column(column: Column, old: Column | None, value: str | None) -> LakeColumn:
    before = datatypes.delta_type(old) if old else None
    return LakeColumn(column.name, datatypes.delta_type(column), old.name if old else None, before, value=value)


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_DIGITS = {"TINYINT": 10, "SMALLINT": 10, "INT": 10, "BIGINT": 20}
"""Of a DECIMAL before its point, into which Delta widens an integer."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)\Z")


def widens(column: LakeColumn) -> bool:
    """Whether Delta's type widening takes the old values as they stand ("Supported type changes", Delta's manual)."""
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


def reshaped_fields(fields: list[dict[str, Any]], columns: list[LakeColumn]) -> list[dict[str, Any]]:
    """Delta's schema fields after a reshape that casts nothing. Raises KeyError where an origin isn't there.

    A renamed field keeps its physical name and id, by which column mapping finds its data.
    """
    have = {field["name"].lower(): field for field in fields}
    return [
        {**have[column.origin.lower()], "name": column.name} if column.origin else _new_field(column)
        for column in columns
    ]


def renames_or_drops(fields: list[dict[str, Any]], columns: list[LakeColumn]) -> bool:
    """Whether column mapping is needed: a name of a data file's column stands for another, or for none."""
    origins = {column.origin.lower() for column in columns if column.origin}
    renamed = any(column.origin is not None and column.origin != column.name for column in columns)
    return renamed or any(field["name"].lower() not in origins for field in fields)


def _new_field(column: LakeColumn) -> dict[str, Any]:
    parsed = StructType.fromDDL(f"c {column.kind}")
    assert isinstance(parsed, StructType)
    return {**parsed.fields[0].jsonValue(), "name": column.name, "nullable": True, "metadata": {}}


def default_expression(column: Column, text: str) -> str:
    """A server's constant, of a TIMESTAMP in UTC, as a Spark SQL expression of the column's Delta type."""
    kind = datatypes.delta_type(column)
    if column.type == "timestamp":
        return f"CAST({spark_string(text + '+00:00')} AS {kind})"
    if column.type == "bit":
        number = int(text.strip("b'") or "0", 2) if text.startswith("b'") else int(text)
        if kind == "BOOLEAN":
            return "true" if number else "false"
        return f"X'{number:0{2 * (((column.length or 1) + 7) // 8)}X}'"
    if column.type == "time":
        return f"{_microseconds(text)}L"
    if kind == "BINARY":
        data = bytes.fromhex(text[2:]) if text[:2].lower() == "0x" else text.encode()
        return f"X'{(data.ljust(column.length or 0, bytes(1)) if column.type == 'binary' else data).hex()}'"
    return f"CAST({spark_string(text)} AS {kind})"


def _microseconds(text: str) -> int:
    """``[-]H:MM:SS[.ffffff]`` as signed microseconds."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = digits.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000
    return sign * (total + int(fraction.ljust(6, "0")[:6] or 0))
