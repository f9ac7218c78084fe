"""Single values out of their bytes, in Python: what is too rare for kernels, and what the kernels are held against.

Manual: MySQL source documentation, "Binary log row values" (decimal.cc, my_time.cc). Big-endian where the server
makes values that sort as bytes.
"""

from __future__ import annotations

import zlib

from binlake.binlog.events import Malformed

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes for 0 … 9 decimal digits."""


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal_unscaled(data: bytes, at: int, precision: int, scale: int) -> int:
    """The decimal times 10**scale. Raises Malformed."""
    if scale > precision or not precision:
        raise Malformed(f"DECIMAL({precision},{scale})")
    size = decimal_size(precision, scale)
    raw = bytearray(data[at : at + size])
    if len(raw) < size:
        raise Malformed("a decimal is cut off")
    negative = not raw[0] & 0x80
    raw[0] ^= 0x80
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    whole = precision - scale
    groups = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    value, place = 0, 0
    for digits in groups:
        width = _DIGIT_BYTES[digits]
        group = int.from_bytes(raw[place : place + width], "big")
        if group >= 10**digits:
            raise Malformed("a decimal with a digit above 9")
        value = value * 10**digits + group
        place += width
    return -value if negative else value


def decimal_text(unscaled: int, scale: int) -> str:
    """As the server prints it: all digits of the fraction, a zero before the point."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def clock_text(packed: int) -> str:
    """hour:minute:second from the packed form's low 17 (or, of TIME, 22) bits."""
    return f"{packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


def fraction_text(microseconds: int, digits: int) -> str:
    return f".{microseconds:06d}"[: digits + 1] if digits else ""


def date_text(year: int, month: int, day: int) -> str:
    return f"{year:04d}-{month:02d}-{day:02d}"


def packed_text(packed: int, kind: int) -> str:
    """DATE (10), TIME (11), DATETIME (12) and TIMESTAMP (7) in the packed form that JSON keeps."""
    sign = "-" if packed < 0 else ""
    whole, micro = abs(packed) >> 24, abs(packed) & 0xFFFFFF
    if kind == 11:
        return f"{sign}{clock_text(whole)}{fraction_text(micro, 6)}"
    day, clock = whole >> 17, whole & 0x1FFFF
    text = date_text((day >> 5) // 13, (day >> 5) % 13, day & 31)
    return text if kind == 10 else f"{text} {clock_text(clock)}{fraction_text(micro, 6)}"


def fraction_size(digits: int) -> int:
    if digits > 6:
        raise Malformed(f"{digits} digits after the second")
    return (digits + 1) // 2


def fraction_us(data: bytes, at: int, digits: int) -> int:
    """Microseconds of a non-negative fraction."""
    size = fraction_size(digits)
    return int.from_bytes(data[at : at + size], "big") * (1, 10_000, 100, 1)[size]


def uncompressed_column(data: bytes) -> bytes:
    """A value of MariaDB's COMPRESSED columns (knowledge base, Storage-Engine Independent Column Compression)."""
    if not data:
        return b""
    head = data[0]
    if head == 0:
        return data[1:]
    if head & 0xF0 != 0x80:
        raise Malformed(f"compression method {head >> 4}")
    width = head & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    return inflate(data[1 + width :], size, raw=bool(head & 8))


def uncompressed_event(data: bytes) -> bytes:
    """Rows or query text of MariaDB's compressed events (``log_bin_compress``)."""
    if not data or data[0] & 0xF0 != 0x80:
        raise Malformed("an unknown compression of an event")
    width = data[0] & 7
    return inflate(data[1 + width :], int.from_bytes(data[1 : 1 + width], "big"), raw=False)


def inflate(data: bytes, size: int, *, raw: bool) -> bytes:
    """zlib, to exactly ``size`` bytes: never more memory than was promised."""
    engine = zlib.decompressobj(-15 if raw else 15)
    try:
        result = engine.decompress(data, size + 1)
    except zlib.error:
        raise Malformed("compressed bytes are damaged") from None
    if len(result) != size:
        raise Malformed(f"{len(result)} bytes decompressed, {size} promised")
    return result
