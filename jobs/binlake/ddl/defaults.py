"""Constant defaults: the text that the server shows, and the value that old rows get in an added column.

The text is that of information_schema.columns.column_default on MySQL: without quotes, as the type writes its values
(``1.50`` for DECIMAL(9,2) DEFAULT 1.5, ``b'101'`` for BIT, ``0x61`` for binary strings up to their first zero byte).
Only conversions that are exact and the same on both servers are done; everything else raises NotConstant.
Source: MySQL manual 13.6 Data Type Default Values; tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Literal as OneOf

from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema import charsets
from binlake.schema.datatypes import REGISTRY
from binlake.schema.statement_session import Session
from binlake.schema.table import BYTES, INTEGERS, TEXTS, Column

_ZERO_DATES = frozenset({"date", "datetime", "timestamp"})
_ALL_CHARACTERS = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_EXACT = Context(prec=200)


NATIONAL = "national"
"""The character set of N'x': utf8mb3 on both servers."""


class NotConstant(UnfollowedStatement):
    """The value of old rows in an added column isn't a constant, or doesn't follow from the statement."""


class ImpossibleDate(NotConstant):
    """Old rows get a date in an added column that no calendar has, such as 0000-00-00. text: the server's text."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@dataclass(frozen=True)
class Literal:
    """A constant as it is written.

    kind: ``bytes`` for x'41' and b'1'; ``temporal`` for DATE'…', TIME'…', TIMESTAMP'…'.
    text: the value; hexadecimal digits for ``bytes``; empty for ``null``.
    charset: the character set of an introducer (_latin1'x'), NATIONAL for N'x'; else empty.
    """

    kind: OneOf["null", "string", "number", "bytes", "temporal"]
    text: str = ""
    charset: str = ""


def old_row_default(column: Column) -> str | None:
    """Return the value that existing rows get in an added column, as the server's text; None is NULL.

    It is the column's default, or for NOT NULL without default the type's implicit one (manual 13.6). A TIMESTAMP is in
    the time zone in which the default is written. Raises NotConstant, with the reason, if it isn't a constant or isn't
    known, and ImpossibleDate.
    """
    if column.generated:
        raise NotConstant(f"column {column.name!r} is computed by the server for old rows")
    if column.default_is_expression:
        raise NotConstant(f"the default of column {column.name!r} is an expression")
    if column.default is None:
        return None if column.nullable else _implicit_default(column)
    if is_impossible_date(column, column.default):
        raise ImpossibleDate(f"the default of column {column.name!r} is an invalid date", column.default)
    if column.type == "year" and column.length == 2:
        return _year_text(Literal("string", column.default))
    return column.default


def is_impossible_date(column: Column, text: str) -> bool:
    """Return whether the server's text of a DATE, DATETIME or TIMESTAMP is no date. False for other types."""
    if column.type not in _ZERO_DATES:
        return False
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def _implicit_default(column: Column) -> str:
    if column.type in _ZERO_DATES:
        zero = _date_text("0000-00-00", column.type != "date", column.fraction)
        assert zero is not None
        raise ImpossibleDate(f"old rows get the invalid date 0000-00-00 in column {column.name!r}", zero)
    implicit = REGISTRY[column.type].implicit_default
    if implicit is None:
        raise NotConstant(f"what old rows get in column {column.name!r} ({column.type.upper()}) isn't known")
    return implicit(column)


def hides_zero_bytes(column: Column, literal: Literal) -> bool:
    """Return whether the server's text of this default leaves out zero bytes, other than the padding of BINARY."""
    raw = bytes.fromhex(literal.text) if literal.kind == "bytes" else literal.text.encode()
    return b"\0" in (raw.rstrip(b"\0") if column.type == "binary" else raw)


def server_text(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    """Return the server's text of a column's constant default; None is NULL.

    Raises NotConstant if the conversion isn't known to be exact.
    """
    if literal.kind == "null":
        return None
    if column.type.endswith("blob") and literal.kind == "number":
        raise NotConstant(f"the default of column {column.name!r} is a number, shown as written")
    try:
        text = _convert(column, literal, flavour)
    except (ValueError, ArithmeticError):
        text = None
    if text is None or (column.zerofill and column.type not in (*INTEGERS, "decimal")):
        raise NotConstant(f"the default of column {column.name!r} isn't understood")
    return text.rjust(column.zerofill, "0")


def shown_text(column: Column, literal: Literal, flavour: Flavour, session: Session) -> str | None:
    """Return the text of a default that information_schema shows; a default that isn't understood stays as written.

    MySQL shows a TIMESTAMP in the time zone in which it was written, MariaDB in the reader's, which is UTC here. For
    values of old rows use ``server_text``.
    """
    try:
        text = server_text(column, literal, flavour)
    except NotConstant:
        return literal.text
    utc = session.utc(text) if text and column.type == "timestamp" and flavour == "mariadb" else None
    return utc or text


def kept(column: Column, literal: Literal | None, flavour: Flavour) -> Literal | None:
    """Return the default that the server keeps; None for MySQL's types that have no constant default.

    Without strict mode MySQL accepts '' and drops it (manual 13.3.4;
    sql/create_field.cc, ``Create_field::init``).
    """
    return literal if flavour == "mariadb" or REGISTRY[column.type].has_default else None


def is_kept_as_written(type_: str, literal: Literal | None, flavour: Flavour) -> bool:
    """Return whether the server shows a default as it is written, as MariaDB does for x'41', _latin1'x' and DATE'…' of
    a TEXT or BLOB."""
    if literal is None or flavour != "mariadb" or not type_.endswith(("text", "blob")):
        return False
    return literal.kind in ("bytes", "temporal") or literal.charset not in ("", NATIONAL)


def _convert(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    type_ = column.type
    if literal.kind == "temporal" and type_ not in (*_ZERO_DATES, "time"):
        return None  # it is written in another way
    if type_ in INTEGERS:
        return str(_rounded(literal, 0))
    if type_ == "decimal":
        return f"{_rounded(literal, column.scale or 0):.{column.scale or 0}f}"
    if type_ in ("float", "double"):
        return _floating(column, literal)
    if type_ == "bit":
        return f"b'{_bit_text(literal):b}'"
    if type_ == "year":
        year = _year_text(literal)
        return year[2:] if year and column.length == 2 else year
    if type_ == "time":
        return _time_text(_plain(literal), column.fraction)
    if type_ in _ZERO_DATES and literal.kind == "number" and not _number(literal):
        return _date_text("0000-00-00", type_ != "date", column.fraction)
    if type_ in _ZERO_DATES:
        return _date_text(_plain(literal), type_ != "date", column.fraction)
    if type_ in TEXTS:
        text = _characters(literal, column.charset)
        return text.rstrip(" ") if type_ == "char" else text
    if type_ in BYTES:
        return _binary_text(type_, literal, flavour)
    if type_ in ("enum", "set") and literal.kind == "number":
        return None  # a number is a member's place, or its text
    if type_ == "enum":
        return _member(column.values, _characters(literal, column.charset).rstrip(" "))
    if type_ == "set":
        return _members(column.values, _characters(literal, column.charset))
    canonical = REGISTRY[type_].canonical
    return canonical(_plain(literal)) if canonical else None


def _number(literal: Literal) -> Decimal:
    if literal.kind == "bytes":
        if literal.charset:
            raise InvalidOperation  # a string
        return Decimal(int(literal.text or "0", 16))
    if len(literal.text) > 200 or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", literal.text, re.A):
        raise InvalidOperation
    return Decimal(literal.text)


def _rounded(literal: Literal, scale: int) -> Decimal:
    number = _number(literal)
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    if rounded != number and re.search("[eE]", literal.text):
        raise InvalidOperation  # a DOUBLE literal, which rounds in binary
    return rounded if rounded else rounded.copy_abs()  # no -0


def _floating(column: Column, literal: Literal) -> str | None:
    """Return the text of a number that is printed as written: few digits, no exponent. None for others."""
    number, scale = _number(literal), column.scale
    if scale is not None and (
        _rounded(literal, scale) != number or abs(number) >= Decimal(10) ** ((column.precision or 0) - scale)
    ):
        return None  # halves are rounded to even, and MariaDB cuts what is too large
    digits = len(number.normalize(_EXACT).as_tuple().digits)
    if digits > (6 if column.type == "float" else 15) or (number.is_signed() and (column.unsigned or number.is_zero())):
        return None
    if number and not Decimal("0.0001") <= abs(number) < Decimal("1e14"):
        return None
    if column.type == "float":
        struct.pack("<f", float(number))  # raises OverflowError, an ArithmeticError, beyond FLOAT
    if scale is not None:
        return f"{number:.{scale}f}"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bit_text(literal: Literal) -> int:
    if literal.kind == "string":
        return int.from_bytes(literal.text.encode("ascii"), "big")
    return int(_rounded(literal, 0))


def _plain(literal: Literal) -> str:
    if literal.kind == "bytes":
        raise ValueError
    return literal.text.strip()


def _characters(literal: Literal, charset: str | None) -> str:
    """Return the characters of a default in a column of this character set. Raises ValueError."""
    if literal.kind == "bytes":
        return _decoded_bytes(literal, charset or "ascii")
    # The bytes of 'é' are those of the session's character set, which an introducer takes for another one's.
    if charsets.NO_CHARACTER in literal.text or (literal.charset and not literal.text.isascii()):
        raise ValueError
    if literal.charset in charsets.NOT_ASCII or (literal.charset == "binary" and charset in charsets.NOT_ASCII):
        raise ValueError
    if literal.kind == "number":
        written = re.fullmatch(r"(-?)0*(\d*)(\.\d+)?\.?", literal.text, re.A)
        if not written or (written[1] and not Decimal(literal.text)):
            raise ValueError
        return f"{written[1]}{written[2] or 0}{written[3] or ''}"
    return literal.text


def _decoded_bytes(literal: Literal, charset: str) -> str:
    """Return the text of a literal such as x'e9', whose bytes are in the column's or the introducer's character set.

    Raises ValueError if it has bytes that are no character, or may have characters that the column's set lacks.
    """
    own = charset if literal.charset in ("", "binary") else literal.charset
    text = charsets.decoder("ascii" if own == "binary" else own)(bytes.fromhex(literal.text))
    if own != charset and not text.isascii() and charset not in _ALL_CHARACTERS:
        raise ValueError  # the column's character set may lack one
    return text


def _binary_text(type_: str, literal: Literal, flavour: Flavour) -> str:
    # Beyond ASCII the bytes depend on the session's character set.
    raw = bytes.fromhex(literal.text) if literal.kind == "bytes" else _characters(literal, "ascii").encode("ascii")
    shown = raw.partition(b"\0")[0] if flavour == "mysql" else raw.rstrip(b"\0")
    return "" if not raw and type_ != "binary" else "0x" + shown.hex().upper()


def _year_text(literal: Literal) -> str | None:
    year = int(_plain(literal))
    if literal.kind == "number" and year == 0:
        return "0000"
    if 0 <= year <= 99 and len(literal.text) <= 2:
        return str(year + (2000 if year < 70 else 1900))
    if literal.text == "0000":
        return "0000"
    return str(year) if 1901 <= year <= 2155 else None


def _fraction_text(written: str | None, digits: int) -> str:
    """Return a fraction of a second with its point, as ``.250`` for three digits; empty for none.

    Raises ValueError if digits other than zeros would be cut or rounded away, in which the servers differ.
    """
    written = (written or "").rstrip("0")
    if len(written) > digits:
        raise ValueError
    return "." + written.ljust(digits, "0") if digits else ""


_TIME = re.compile(r"(-?)(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?", re.A)
_TIME_DIGITS = re.compile(r"(-?)(\d{0,3}?)(\d{0,2}?)(\d{1,2})", re.A)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?", re.A)
_DATE_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?()", re.A)


def _time_text(text: str, fraction: int) -> str | None:
    match = _TIME.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
    if not match:
        return None
    sign, *parts = match.groups(default="0")
    hours, minutes, seconds = (int(part or "0") for part in parts[:3])
    if hours > 838 or minutes > 59 or seconds > 59 or (sign and not hours + minutes + seconds):
        return None
    rest = _fraction_text(parts[3] if len(parts) > 3 else "", fraction)
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{rest}"


def _date_text(text: str, with_time: bool, fraction: int) -> str | None:
    match = _DATE.fullmatch(text) or _DATE_DIGITS.fullmatch(text)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part or "0") for part in match.groups()[:6])
    rest = _fraction_text(match[7], fraction)
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        return None
    if with_time:
        return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{rest}"
    return None if hour or minute or second else f"{year:04}-{month:02}-{day:02}"


def _member(values: tuple[str, ...], text: str) -> str | None:
    """Return the member of an ENUM or SET that equals the text, or the only one that differs in case; else None."""
    if text in values:
        return text
    alike = [value for value in values if value.casefold() == text.casefold()]
    return alike[0] if len(alike) == 1 else None


def _members(values: tuple[str, ...], text: str) -> str | None:
    members = [_member(values, part) for part in text.split(",")] if text else []
    return None if None in members else ",".join(value for value in values if value in members)
