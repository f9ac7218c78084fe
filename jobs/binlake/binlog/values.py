"""Single values out of their bytes, in Python: what is too rare for kernels.

Manual: MySQL source documentation, "Binary log row values" (decimal.cc, my_time.cc). Big-endian where the server
makes values that sort as bytes.
"""

from __future__ import annotations

import zlib

from binlake.binlog.events import Malformed

DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes for 0 … 9 decimal digits."""


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


def clock_text(packed: int) -> str:
    """hour:minute:second from the packed form's low 17 (or, of TIME, 22) bits."""
    return f"{packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


def fraction_text(microseconds: int, digits: int) -> str:
    return f".{microseconds:06d}"[: digits + 1] if digits else ""


def date_text(year: int, month: int, day: int) -> str:
    return f"{year:04d}-{month:02d}-{day:02d}"


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
