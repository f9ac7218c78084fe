"""Uncompressing of columns and events of MariaDB, and of zlib data within bounds."""

from __future__ import annotations

import zlib

from binlake.binlog.events import LARGEST_EVENT
from binlake.errors import Malformed


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
