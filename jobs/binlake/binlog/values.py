"""Decoding of single values in Python, for types that are too rare for kernels.

Manual: MySQL source documentation, "Binary log row values" (decimal.cc, my_time.cc). Values that the server makes sort
as bytes are big-endian.
"""

from __future__ import annotations

import zlib

from binlake.binlog.events import LARGEST_EVENT, Malformed

DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that 0 … 9 decimal digits take."""


def decimal_size(precision: int, scale: int) -> int:
    """Return the size in bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


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


def uncompressed_column(data: bytes) -> bytes:
    """Uncompress a value of a COMPRESSED column of MariaDB (knowledge base, Storage-Engine Independent Column
    Compression)."""
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
    """Uncompress rows or query text of MariaDB's compressed events (``log_bin_compress``)."""
    if not data or data[0] & 0xF0 != 0x80:
        raise Malformed("an unknown compression of an event")
    width = data[0] & 7
    return inflate(data[1 + width :], int.from_bytes(data[1 : 1 + width], "big"), raw=False)


def inflate(data: bytes, size: int, *, raw: bool) -> bytes:
    """Inflate zlib data to exactly ``size`` bytes, without ever taking more memory. Raises Malformed."""
    if size > LARGEST_EVENT:
        raise Malformed(f"{size} bytes promised, more than an event has")
    engine = zlib.decompressobj(-15 if raw else 15)
    try:
        result = engine.decompress(data, size + 1)
    except zlib.error:
        raise Malformed("compressed bytes are damaged") from None
    if len(result) != size:
        raise Malformed(f"{len(result)} bytes decompressed, {size} promised")
    return result
