"""Single values as the servers pack them in rows, and their texts.

Manual: MySQL source documentation, "Binary log row values" (decimal.cc, my_time.cc). Values that the server makes sort
as bytes are big-endian.
"""

from __future__ import annotations

from binlake.errors import Malformed

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that 0 … 9 decimal digits take."""


def decimal_size(precision: int, scale: int) -> int:
    """Return the size in bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def packed_decimal(text: str, precision: int, scale: int) -> bytes:
    """Return a DECIMAL(precision, scale) as in rows and JSON: groups of nine digits, big-endian (strings/decimal.cc).

    text: plain digits, at most ``scale`` after the point. Raises ValueError if it doesn't fit.
    """
    negative = text.startswith("-")
    whole, _, fraction = text.lstrip("-+").partition(".")
    integral = precision - scale
    whole, fraction = whole.lstrip("0").rjust(integral, "0"), fraction.ljust(scale, "0")
    if len(whole) > integral or len(fraction) > scale or not (whole + fraction + "0").isdigit():
        raise ValueError(f"not a DECIMAL({precision},{scale})")
    first = integral % 9
    groups = [whole[:first]] + [whole[at : at + 9] for at in range(first, integral, 9)]
    groups += [fraction[at : at + 9] for at in range(0, scale, 9)]
    data = bytearray(b"".join(int(group or 0).to_bytes(_DIGIT_BYTES[len(group)], "big") for group in groups))
    assert len(data) == decimal_size(precision, scale)
    if negative:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


def clock_text(packed: int) -> str:
    """Return hour:minute:second from the packed form's low 17 bits (22 bits for TIME)."""
    return f"{packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


def fraction_text(microseconds: int, digits: int) -> str:
    """Return a fraction of a second as ``.123``; empty for no digits."""
    return f".{microseconds:06d}"[: digits + 1] if digits else ""


def date_text(year: int, month: int, day: int) -> str:
    """Return a date as ``YYYY-MM-DD``, also one that no calendar has."""
    return f"{year:04d}-{month:02d}-{day:02d}"


def fraction_size(digits: int) -> int:
    """Return the size in bytes of a fraction with this many digits. Raises Malformed for more than 6 digits."""
    if digits > 6:
        raise Malformed(f"{digits} digits after the second")
    return (digits + 1) // 2


def fraction_us(data: bytes, at: int, digits: int) -> int:
    """Return the microseconds of a non-negative fraction."""
    size = fraction_size(digits)
    return int.from_bytes(data[at : at + size], "big") * (1, 10_000, 100, 1)[size]
