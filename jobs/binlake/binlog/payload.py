"""TRANSACTION_PAYLOAD: a transaction's events, compressed as one."""

from __future__ import annotations

import pyarrow as pa

from binlake.binlog import events
from binlake.binlog.events import Malformed

MOST_BYTES = 1 << 32
"""A payload that promises more isn't believed."""


def uncompressed(body: bytes) -> bytes:
    """The events in a TRANSACTION_PAYLOAD ("Transaction_payload_event"): fields of (type, length, value), then the
    bytes. Raises Malformed."""
    cursor = events.Cursor(body)
    compressed_size = uncompressed_size = 0
    algorithm = 255
    while True:
        kind = cursor.packed()
        if kind == 0:
            break
        value = events.Cursor(cursor.packed_bytes())
        if kind == 1:
            compressed_size = value.packed()
        elif kind == 2:
            algorithm = value.packed()
        elif kind == 3:
            uncompressed_size = value.packed()
    data = cursor.take(compressed_size) if compressed_size else cursor.rest()
    if algorithm == 255:
        return data
    if algorithm != 0 or uncompressed_size > MOST_BYTES:
        raise Malformed(f"compression algorithm {algorithm}")
    try:
        result: bytes = pa.decompress(data, uncompressed_size, codec="zstd", asbytes=True)
    except (pa.ArrowException, OSError):
        raise Malformed("the compressed payload is damaged") from None
    if len(result) != uncompressed_size:
        raise Malformed(f"{len(result)} bytes decompressed, {uncompressed_size} promised")
    return result
