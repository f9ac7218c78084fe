"""Damages a real log in ways that only an enemy would: sizes, offsets and checksums are made right again afterwards.

A log is a list of event bodies with their headers; a mutation changes one body (or what is compressed in it), and
``assemble`` writes a file whose framing is sound, so that what reads bodies is alone with them.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.binlog.events import HEADER, HEADER_SIZE, MAGIC, ByteCursor, EventType

Random = Any
"""numpy.random.Generator."""

_ROWS_COMPRESSED = range(int(EventType.WRITE_ROWS_COMPRESSED_V1), int(EventType.DELETE_ROWS_COMPRESSED) + 1)
_INTERESTING = np.array([0, 1, 2, 7, 8, 0x20, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF], np.uint8)


@dataclass
class Event:
    """Header fields that stay, and the body without its checksum."""

    timestamp: int
    kind: int
    server_id: int
    flags: int
    body: bytes


def events(data: bytes) -> tuple[list[Event], bool]:
    """Of a whole file; whether it has checksums."""
    size = HEADER.unpack_from(data, len(MAGIC))[3]
    checksum = 4 if data[len(MAGIC) + size - 5] == 1 else 0
    events: list[Event] = []
    at = len(MAGIC)
    while at < len(data):
        timestamp, kind, server_id, size, _, flags = HEADER.unpack_from(data, at)
        tail = 4 if kind == EventType.FORMAT_DESCRIPTION else checksum  # that one always has a checksum
        events.append(Event(timestamp, kind, server_id, flags, data[at + HEADER_SIZE : at + size - tail]))
        at += size
    return events, bool(checksum)


def assemble(parts: list[Event], *, checksum: bool, start: int = 0) -> bytes:
    """A file with sound sizes, positions and checksums; or its events alone, as they stand from ``start`` on."""
    out = io.BytesIO()
    out.write(b"" if start else MAGIC)
    for part in parts:
        description = part.kind == EventType.FORMAT_DESCRIPTION
        body = part.body[:-1] + bytes([checksum]) if description and part.body else part.body
        size = HEADER_SIZE + len(body) + (4 if checksum or description else 0)
        position = (start + out.tell() + size) & 0xFFFFFFFF
        event = HEADER.pack(part.timestamp, part.kind, part.server_id, size, position, part.flags) + body
        out.write(event)
        if checksum or description:
            out.write(zlib.crc32(event).to_bytes(4, "little"))
    return out.getvalue()


def damaged(random: Random, body: bytes) -> bytes:
    """A few bytes of a body changed, taken away or put in."""
    data = bytearray(body)
    for _ in range(int(random.integers(1, 5))):
        if not data:
            break
        # Lengths and bitmaps stand at the beginning.
        near = min(len(data), 64) if random.random() < 0.4 else len(data)
        place = int(random.integers(0, near))
        how = int(random.integers(0, 8))
        if how < 2:
            data[place] ^= 1 << int(random.integers(0, 8))
        elif how == 2:
            data[place] = int(random.integers(0, 256))
        elif how == 3:
            data[place] = int(random.choice(_INTERESTING))
        elif how == 4:
            width = int(random.integers(1, 9))
            data[place : place + width] = bytes([int(random.choice(_INTERESTING))]) * min(width, len(data) - place)
        elif how == 5:
            del data[place : place + int(random.integers(1, 16))]
        elif how == 6:
            data[place:place] = random.bytes(int(random.integers(1, 16)))
        else:
            del data[place:]
    return bytes(data)


def _packed(value: int) -> bytes:
    return bytes([value]) if value < 251 else b"\xfd" + value.to_bytes(3, "little")


def _payload(random: Random, body: bytes) -> bytes:
    """Events inside a TRANSACTION_PAYLOAD damaged, then compressed again."""
    cursor = ByteCursor(body)
    while cursor.packed():
        cursor.packed_bytes()
    promised = _payload_size(body)
    plain = pa.decompress(cursor.rest(), promised, codec="zstd", asbytes=True)
    pieces: list[bytes] = []
    at = 0
    while at < len(plain):
        size = HEADER.unpack_from(plain, at)[3]
        pieces.append(plain[at : at + size])
        at += size
    place = int(random.integers(0, len(pieces)))
    header, inner = pieces[place][:HEADER_SIZE], damaged(random, pieces[place][HEADER_SIZE:])
    if random.random() < 0.9:  # else the inner event lies about its size
        header = header[:9] + (HEADER_SIZE + len(inner)).to_bytes(4, "little") + header[13:]
    pieces[place] = header + inner
    plain = b"".join(pieces)
    compressed = pa.compress(plain, codec="zstd", asbytes=True)
    size = len(plain) + (int(random.integers(-9, 10)) if random.random() < 0.1 else 0)
    fields = [(1, len(compressed)), (2, 0), (3, max(size, 0))]
    head = b"".join(bytes([kind, len(_packed(value))]) + _packed(value) for kind, value in fields)
    return head + b"\0" + bytes(compressed)


def _payload_size(body: bytes) -> int:
    cursor = ByteCursor(body)
    size = 0
    while kind := cursor.packed():
        value = ByteCursor(cursor.packed_bytes())
        if kind == 3:
            size = value.packed()
    return size


def _rows(random: Random, body: bytes) -> bytes:
    """MariaDB's compressed rows: what is compressed damaged, then compressed again."""
    start = _compressed_at(body)
    width = body[start] & 7
    plain = zlib.decompress(body[start + 1 + width :])
    plain = damaged(random, plain)
    size = len(plain) + (int(random.integers(-9, 10)) if random.random() < 0.1 else 0)
    return body[:start] + bytes([0x84]) + max(size, 0).to_bytes(4, "big") + zlib.compress(plain)


def _compressed_at(body: bytes) -> int:
    """Where the compressed part begins: the first place from which zlib reads to the end."""
    for start in range(8, len(body) - 2):
        if body[start] & 0xF0 == 0x80:
            try:
                zlib.decompress(body[start + 1 + (body[start] & 7) :])
            except zlib.error:
                continue
            return start
    raise ValueError("nothing compressed")


def mutated(random: Random, data: bytes) -> bytes:
    """One damaged file: mostly one event's body, sometimes events left out, doubled, swapped or given another type."""
    parts, checksum = events(data)
    if random.random() < 0.02:  # the framing itself
        return data[:4] + damaged(random, data[4:])
    for _ in range(int(random.integers(1, 3))):
        place = int(random.integers(0, len(parts))) if random.random() < 0.1 else _interesting(random, parts)
        part = parts[place]
        how = random.random()
        if how < 0.9:
            body = part.body
            try:
                if part.kind == EventType.TRANSACTION_PAYLOAD and random.random() < 0.8:
                    body = _payload(random, body)
                elif part.kind in _ROWS_COMPRESSED and random.random() < 0.8:
                    body = _rows(random, body)
                else:
                    body = damaged(random, body)
            except (ValueError, zlib.error, pa.ArrowException, OSError):
                body = damaged(random, body)  # it was damaged before
            except Exception as error:
                if type(error).__name__ != "Malformed":
                    raise
                body = damaged(random, body)
            parts[place] = Event(part.timestamp, part.kind, part.server_id, part.flags, body)
        elif how < 0.93:
            del parts[place]
        elif how < 0.96:
            parts.insert(int(random.integers(1, len(parts) + 1)), part)
        else:
            kind = int(random.integers(0, 175))
            parts[place] = Event(part.timestamp, kind, part.server_id, part.flags, part.body)
        if not parts:
            break
    return assemble(parts, checksum=checksum if random.random() < 0.9 else not checksum)


def _interesting(random: Random, parts: list[Event]) -> int:
    """Table maps, rows and what is compressed more often than the rest."""
    weights = np.array([4.0 if part.kind in (19, 40) or 23 <= part.kind <= 39 or part.kind >= 160 else 1.0
                        for part in parts])  # fmt: skip
    return int(random.choice(len(parts), p=weights / weights.sum()))
