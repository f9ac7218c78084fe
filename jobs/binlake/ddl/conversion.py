"""Conversion of existing values by ALTER TABLE where their column gets another type, as far as it can be proved.

A conversion is ``same`` or ``cast`` only if the server and the lake convert every value that the old column could hold
to the same new value. Everything else is unprovable, with the reason. Under strict mode the statement would have failed
if a value didn't fit, which proves a lot; but three things pass strict mode without an error on both servers: trailing
spaces that don't fit are cut off, decimals and fractions of seconds are rounded, members of ENUM are matched without
regard to case. The rules are those of the old type (``converts`` of its DataType). Each case is tried on both servers
in tests/integration/test_ddl_conversions.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from binlake.schema import datatypes
from binlake.schema.table import Column


@dataclass(frozen=True)
class Conversion:
    """The conversion of a column's values in the lake.

    kind: ``same``: values and Delta type stay. ``cast``: CAST(old AS the new Delta type) gives the server's new values.
        ``unprovable``: neither is known, for this reason.
    date_suffix: what the conversion appended to the server's text of every old date, also to the texts of invalid dates
        that the lake keeps in a side column.
    nulls_get_now: NULL became the time of the statement, under strict mode too, unless the statement failed.
    """

    kind: Literal["same", "cast", "unprovable"]
    reason: str = ""
    date_suffix: str = ""
    nulls_get_now: bool = False


def conversion(before: Column, after: Column, *, strict: bool) -> Conversion:
    """Return what ALTER TABLE made of the values of a column.

    strict: values that didn't fit would have made the statement fail.
    """
    not_null = before.nullable and not after.nullable
    if not_null and not strict and after.type != "timestamp":
        return Conversion("unprovable", "NULL may have become another value without strict mode")
    if (suffix := _provable(before, after, strict)) is None:
        return Conversion("unprovable", f"what {_described(before)} became as {_described(after)} can't be proved")
    kind: Literal["same", "cast"] = "same" if datatypes.delta_type(before) == datatypes.delta_type(after) else "cast"
    return Conversion(kind, date_suffix=suffix, nulls_get_now=not_null and after.type == "timestamp")


def _described(column: Column) -> str:
    size = column.precision if column.precision is not None else column.length
    arguments = [str(number) for number in (size, column.scale) if number is not None]
    text = column.type.upper() + (f"({','.join(arguments)})" if arguments else "")
    text += " UNSIGNED" if column.unsigned else ""
    return f"{text} {column.charset}" if column.charset else text


def _provable(before: Column, after: Column, strict: bool) -> str | None:
    """Return the suffix that every date's text got, empty for other types; None if the conversion isn't provable."""
    known = datatypes.entry(before)
    if known.date_suffix is not None:
        return known.date_suffix(before, after)
    return "" if known.converts(before, after, strict) else None
