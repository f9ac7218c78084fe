"""Doubles as MySQL and MariaDB print them.

Both print the shortest digits that give the same double back, as Python's ``repr`` does, in a notation of their own.
MySQL cuts expressions (though not columns) to 22 characters, which loses digits; inside JSON it prints all digits, as
MariaDB does everywhere. The form with all digits is written here.
"""

from __future__ import annotations

from collections.abc import Iterable

_PLAIN_MOST = 15
"""Bound of plain notation. A double is 0.DIGITS x 10^point: plain from point -14 to 15, and above while there are more
digits than that."""


def double_text(value: float) -> str:
    """Return the server's text of a finite double: ``0.1``, ``-0``, ``123``, ``1e15``, ``1.5e-20``."""
    text = repr(value)
    if "e" not in text:
        if text.endswith(".0"):
            text = text[:-2]
        # As many characters as 15 digits have at most
        if len(text) <= _PLAIN_MOST:
            return text
    return _placed(text)


def _placed(text: str) -> str:
    """Return the same digits with the point or exponent in the server's notation."""
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole) + len(fraction) - len(digits))
    digits = digits.rstrip("0")
    if point <= -_PLAIN_MOST or point > max(_PLAIN_MOST, len(digits) - 1):
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


def double_texts(values: Iterable[float | None]) -> list[str | None]:
    """Return the server's texts of many doubles; None stays None."""
    return [None if value is None else double_text(value) for value in values]
