"""Constant defaults: the text that the server shows, and the value that old rows get in an added column.

The text is that of information_schema.columns.column_default on MySQL: without quotes, as the type writes its values
(``1.50`` for DECIMAL(9,2) DEFAULT 1.5, ``b'101'`` for BIT, ``0x61`` for binary strings up to their first zero byte).
Only conversions that are exact and the same on both servers are done; everything else raises NotConstant.
Source: MySQL manual 13.6 Data Type Default Values; tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

from datetime import date

from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema.datatypes import REGISTRY
from binlake.schema.statement_session import Session
from binlake.schema.table import INTEGERS, Column
from binlake.schema.types.constants import NATIONAL, Literal
from binlake.schema.types.temporal_types import moment_text
from binlake.schema.types.time_types import year_text


class NotConstant(UnfollowedStatement):
    """The value of old rows in an added column isn't a constant, or doesn't follow from the statement."""


class ImpossibleDate(NotConstant):
    """Old rows get a date in an added column that no calendar has, such as 0000-00-00. text: the server's text."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


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
        return year_text(Literal("string", column.default))
    return column.default


def is_impossible_date(column: Column, text: str) -> bool:
    """Return whether the server's text of a DATE, DATETIME or TIMESTAMP is no date. False for other types."""
    known = REGISTRY.get(column.type)
    if known is None or not known.may_be_invalid_date:
        return False
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def _implicit_default(column: Column) -> str:
    known = REGISTRY[column.type]
    if known.may_be_invalid_date:
        zero = moment_text(column, "0000-00-00")
        assert zero is not None
        raise ImpossibleDate(f"old rows get the invalid date 0000-00-00 in column {column.name!r}", zero)
    if known.implicit_default is None:
        raise NotConstant(f"what old rows get in column {column.name!r} ({column.type.upper()}) isn't known")
    return known.implicit_default(column)


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
    known = REGISTRY[column.type]
    if literal.kind == "temporal" and not known.takes_temporal:
        return None  # it is written in another way
    return known.default_text(column, literal, flavour)
