"""Conversion of existing values by ALTER TABLE where their column gets another type, as far as it can be proved.

A conversion is ``same`` or ``cast`` only if the server and the lake convert every value that the old column could hold
to the same new value. Everything else is unprovable, with the reason. Under strict mode the statement would have failed
if a value didn't fit, which proves a lot; but three things pass strict mode without an error on both servers: trailing
spaces that don't fit are cut off, decimals and fractions of seconds are rounded, members of ENUM are matched without
regard to case. Each case is tried on both servers in tests/integration/test_ddl_conversions.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from binlake.ddl.definition import text_bytes
from binlake.schema import datatypes
from binlake.schema.arithmetic import INTEGER_BITS
from binlake.schema.charsets import bytes_per_character
from binlake.schema.table import INTEGERS, TEXTS, Column
from binlake.schema.types.byte_types import GEOMETRIES

_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_ANY_GEOMETRY = "geometry"
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_SMALLEST_CHARACTER = {"utf16": 2, "utf16le": 2, "ucs2": 2, "utf32": 4}
_WITHIN_UNICODE = frozenset({*_UNICODE, "utf8mb3", "ucs2", "latin1", "ascii"})
# Several characters of Unicode may become one of theirs.
_MANY_TO_ONE = frozenset({"big5", "gbk", "gb2312", "gb18030", "sjis", "cp932", "ujis", "eucjpms", "euckr"})


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
    old, new = before.type, after.type
    if new in ("datetime", "timestamp") and old in ("date", new):
        return _longer_date(before, after)
    proved = False
    if old in INTEGERS:
        proved = _from_integer(before, after, strict)
    elif old == "decimal":
        proved = _from_decimal(before, after, strict)
    elif old in ("float", "double"):
        proved = _from_float(before, after, strict)
    elif old in TEXTS:
        proved = _from_text(before, after, strict)
    elif old in ("enum", "set"):
        proved = _from_members(before, after, strict)
    elif old == "binary" or old == "varbinary" or old in _BLOBS:
        proved = _from_bytes(before, after)
    elif old == "bit":
        proved = _from_bits(before, after, strict)
    elif old == "json" and new == "longtext":
        proved = strict or after.charset in _UNICODE
    elif old in GEOMETRIES:
        proved = new in (old, _ANY_GEOMETRY)
    elif (longest := datatypes.entry(before).longest_text) is not None and new in TEXTS:
        proved = new != "tinytext" and (after.length or 255) >= longest
    elif old == "year" and new in INTEGERS:
        proved = INTEGER_BITS[new] >= 16 and before.length != 2  # a YEAR(2) becomes a number of two digits
    elif old == new:
        proved = datatypes.entry(before).keeps(before, after)
    return "" if proved else None


def _longer_date(before: Column, after: Column) -> str | None:
    if before.type == "date":
        # A TIMESTAMP counts from the session's midnight.
        if after.type != "datetime":
            return None
        return " 00:00:00" + ("." + "0" * after.fraction if after.fraction else "")
    if after.fraction < before.fraction:
        return None
    dot = "." if after.fraction and not before.fraction else ""
    return dot + "0" * (after.fraction - before.fraction)


def _range(column: Column) -> tuple[int, int]:
    bits = INTEGER_BITS[column.type]
    return (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _from_integer(before: Column, after: Column, strict: bool) -> bool:
    low, high = _range(before)
    if after.type in INTEGERS:
        new_low, new_high = _range(after)
        return strict or (new_low <= low and high <= new_high)
    if after.type == "decimal":
        return _into_decimal(after, len(str(high)), 0, negative=low < 0, strict=strict)
    if after.type in ("float", "double"):
        exact = 2 ** (24 if after.type == "float" else 53)
        signs = strict or low == 0 or not after.unsigned
        return signs and after.scale is None and -exact <= low and high <= exact
    if after.type in TEXTS:
        longest = max(len(str(low)), len(str(high)))
        return not before.zerofill and (strict or longest <= _least_characters(after))
    return after.type == "bit" and after.length == 1 and strict


def _into_decimal(after: Column, digits: int, scale: int, *, negative: bool, strict: bool) -> bool:
    """Return whether numbers with so many digits before the point, and ``scale`` after it, stayed the same in a
    DECIMAL.

    Under strict mode the statement would have failed if one didn't fit.
    """
    new_scale = after.scale or 0
    if datatypes.delta_type(after) == "STRING" and new_scale != scale:
        return False  # its text has more zeros
    fits = (after.precision or 0) - new_scale >= digits and not (negative and after.unsigned)
    return new_scale >= scale and (strict or fits)


def _from_decimal(before: Column, after: Column, strict: bool) -> bool:
    precision, scale = before.precision or 0, before.scale or 0
    if after.type == "decimal":
        becomes_text = datatypes.delta_type(after) == "STRING" != datatypes.delta_type(before)
        negative = not before.unsigned
        proved = _into_decimal(after, precision - scale, scale, negative=negative, strict=strict)
        return proved and not (becomes_text and scale > 6)
    if after.type in INTEGERS:
        low, high = _range(after)
        fits = 10**precision - 1 <= high and (before.unsigned or low < 0)
        return scale == 0 and (strict or fits)
    if after.type in TEXTS:
        # Spark writes 0E-7 for the zero of more decimals.
        plain = scale <= 6 or datatypes.delta_type(before) == "STRING"
        return plain and not before.zerofill and (strict or precision + 3 <= _least_characters(after))
    return False


def _from_float(before: Column, after: Column, strict: bool) -> bool:
    if after.type not in ("float", "double") or (before.type == "double" and after.type == "float"):
        return False
    rounded = after.scale is not None and (before.type, before.precision, before.scale) != (
        after.type,
        after.precision,
        after.scale,
    )
    return not rounded and (strict or before.unsigned or not after.unsigned)


def _from_text(before: Column, after: Column, strict: bool) -> bool:
    if after.type in TEXTS:
        if after.type == "char" and before.type != "char":
            return False  # trailing spaces go
        # A CHAR has no trailing spaces that could be cut off unseen.
        fits = _holds(before, after) or (before.type == "char" and strict)
        return fits and _keeps_characters(before.charset or "", after.charset or "", strict)
    if after.type == "varbinary" or after.type in _BLOBS:
        # The cast gives the bytes of UTF-8. A column in ascii may hold other bytes (MariaDB takes x'FF').
        return before.charset in ("utf8mb4", "utf8mb3") and _most_bytes(before) <= _most_bytes(after)
    return False


def _keeps_characters(old: str, new: str, strict: bool) -> bool:
    if old == new:
        return True
    superset = (new in _UNICODE and old in _WITHIN_UNICODE) or (old == "ascii" and new != "binary")
    return superset or (strict and new not in _MANY_TO_ONE)


def _holds(before: Column, after: Column) -> bool:
    """Return whether every text of the old column fits, including its trailing spaces."""
    same_bytes = before.charset == after.charset or (before.charset, after.charset) in (
        ("utf8mb3", "utf8mb4"),
        ("ascii", "utf8mb3"),
        ("ascii", "utf8mb4"),
        ("ascii", "latin1"),
    )
    if after.type == "longtext":
        return True  # a value has at most max_allowed_packet, 1 GiB
    if same_bytes and before.type.endswith("text") and after.type.endswith("text"):
        return text_bytes(before.type) <= text_bytes(after.type)
    return _most_characters(before) <= _least_characters(after)


def _most_characters(column: Column) -> int:
    if column.length is not None:
        return column.length
    return text_bytes(column.type) // _SMALLEST_CHARACTER.get(column.charset or "", 1)


def _least_characters(column: Column) -> int:
    """Return how many characters always fit, whichever they are."""
    if column.length is not None:
        return column.length
    return text_bytes(column.type) // bytes_per_character(column.charset or "")


def _most_bytes(column: Column) -> int:
    if column.length is not None:
        return column.length * bytes_per_character(column.charset or "")
    return text_bytes(column.type)


def _from_members(before: Column, after: Column, strict: bool) -> bool:
    if after.type == before.type:
        kept = [value for value in after.values if value in before.values]
        if len(kept) != len(before.values):
            return False  # another member may have been found for one that went
        appended = after.values[: len(before.values)] == before.values
        in_order = before.type == "enum" or tuple(kept) == before.values
        same_charset = before.charset == after.charset
        return in_order and (strict or (appended and same_charset))
    if after.type not in TEXTS:
        return False
    longest = max(map(len, before.values), default=0)
    if before.type == "set":
        longest = sum(map(len, before.values)) + max(len(before.values) - 1, 0)
    fits = longest <= _least_characters(after)
    return (strict or fits) and _keeps_characters(before.charset or "binary", after.charset or "", strict)


def _from_bytes(before: Column, after: Column) -> bool:
    if after.type == "binary":
        return before.type == "binary" and before.length == after.length
    return (after.type == "varbinary" or after.type in _BLOBS) and _most_bytes(before) <= _most_bytes(after)


def _from_bits(before: Column, after: Column, strict: bool) -> bool:
    length, new_length = before.length or 1, after.length or 1
    if after.type in INTEGERS:
        return length == 1
    if after.type != "bit" or datatypes.delta_type(before) != datatypes.delta_type(after):
        return False
    return (length + 7) // 8 == (new_length + 7) // 8 and (strict or length <= new_length)
