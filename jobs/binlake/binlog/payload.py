"""TRANSACTION_PAYLOAD: a transaction's events, compressed together. They are uncompressed in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.binlog import events, framing
from binlake.binlog.events import HEADER_SIZE, LARGEST_EVENT
from binlake.errors import Malformed
from binlake.kernels.layouts import SLACK

PIECE = 8 << 20
"""Bytes after which a piece is passed on. An event that is larger makes a larger piece."""
_LONGEST_HEAD = 256
_PLAIN, _ZSTD = 255, 0


def pieces(body: pa.Buffer) -> Iterator[tuple[npt.NDArray[np.uint8], int]]:
    """Yield whole events: a buffer with SLACK bytes at its end, and the bytes in use. The buffer is reused.

    body: the event's ("Transaction_payload_event"): fields of (type, length, value), then the compressed bytes.
    Raises Malformed.
    """
    head = events.ByteCursor(body[:_LONGEST_HEAD].to_pybytes())
    compressed = promised = 0
    algorithm = _PLAIN
    while kind := head.packed():
        value = events.ByteCursor(head.packed_bytes())
        if kind == 1:
            compressed = value.packed()
        elif kind == 2:
            algorithm = value.packed()
        elif kind == 3:
            promised = value.packed()
    if algorithm not in (_PLAIN, _ZSTD):
        raise Malformed(f"compression algorithm {algorithm}")
    if head.at + compressed > len(body):
        raise Malformed(f"{compressed} compressed bytes in an event of {len(body)}")
    data = body.slice(head.at, compressed or len(body) - head.at)
    if algorithm == _PLAIN:
        promised = len(data)
    try:
        stream = pa.BufferReader(data)
        yield from _whole_events(pa.CompressedInputStream(stream, "zstd") if algorithm == _ZSTD else stream, promised)
    except (pa.ArrowException, OSError):
        raise Malformed("the compressed payload is damaged") from None


def uncompressed(body: bytes) -> bytes:
    """Return all events of a payload that is known to be small. Raises Malformed."""
    return b"".join(buffer[:size].tobytes() for buffer, size in pieces(pa.py_buffer(body)))


def _whole_events(stream: pa.NativeFile, promised: int) -> Iterator[tuple[npt.NDArray[np.uint8], int]]:
    buffer = np.empty(max(min(PIECE, promised), HEADER_SIZE) + SLACK, np.uint8)
    spans = np.zeros(2, np.int64)
    held = given = 0
    while given < promised or held:
        got = stream.readinto(buffer.data[held : len(buffer) - SLACK])
        held += got
        given += got
        if given > promised or (not got and given < promised):
            raise Malformed(f"{given} bytes decompressed, {promised} promised")
        if not framing.whole_events(buffer.ctypes.data, held, spans):
            raise Malformed("an event in the payload that is shorter than its header")
        whole, needed = spans.tolist()
        if whole:
            yield buffer, whole
            held -= whole
            buffer[:held] = buffer[whole : whole + held].copy()
        elif needed - held > promised - given or needed > LARGEST_EVENT or given == promised:
            raise Malformed("an event that reaches beyond its payload")
        elif needed > len(buffer) - SLACK:  # one event larger than a piece
            larger = np.empty(needed + SLACK, np.uint8)
            larger[:held] = buffer[:held]
            buffer = larger
    if stream.read(1):
        raise Malformed(f"more bytes decompressed than the {promised} promised")
