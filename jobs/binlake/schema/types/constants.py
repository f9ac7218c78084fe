"""Constants as statements write them: the values of defaults, before a column's type makes its own of them.

The functions raise ValueError or ArithmeticError (decimal.InvalidOperation) for a constant that isn't known to be
converted exactly and equally by both servers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Literal as OneOf

import pyarrow as pa

from binlake.schema import charsets

NATIONAL = "national"
"""The character set of N'x': utf8mb3 on both servers."""
EXACT = Context(prec=200)
_ALL_CHARACTERS = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)


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


def number(literal: Literal) -> Decimal:
    """Return a literal's number."""
    if literal.kind == "bytes":
        if literal.charset:
            raise InvalidOperation  # a string
        return Decimal(int(literal.text or "0", 16))
    if len(literal.text) > 200 or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", literal.text, re.A):
        raise InvalidOperation
    return Decimal(literal.text)


def rounded(literal: Literal, scale: int) -> Decimal:
    """Return a literal's number with ``scale`` digits after the point, half away from zero."""
    exact = number(literal)
    made = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if made != exact and re.search("[eE]", literal.text):
        raise InvalidOperation  # a DOUBLE literal, which rounds in binary
    return made if made else made.copy_abs()  # no -0


def plain(literal: Literal) -> str:
    """Return a literal's text without spaces around it."""
    if literal.kind == "bytes":
        raise ValueError
    return literal.text.strip()


def characters(literal: Literal, charset: str | None) -> str:
    """Return the characters of a default in a column of this character set."""
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


def exact_value(arrow: pa.DataType, text: str) -> Any:
    """Return the server's text of a number as a value of an Arrow type; None where it isn't written so, or isn't
    whole."""
    if _NUMBER.fullmatch(text) is None:
        return None
    value = Decimal(text)
    if pa.types.is_decimal(arrow):
        return value
    return int(value) if value == int(value) else None
