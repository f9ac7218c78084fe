"""Encoding of the server's text of a JSON document to MySQL's binary JSON: the inverse of ``kernels.jsontext``.

Manual: MySQL source documentation, "JSON binary format" (sql-common/json_binary.h). The text doesn't distinguish a
DECIMAL from a DOUBLE, or a date from a string: a number that isn't a double's own text becomes a DECIMAL, and dates
stay strings, so that the server's text of the document stays the same.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from binlake.schema.doubles import double_text
from binlake.schema.types.packed_values import packed_decimal

_SMALL_OBJECT, _SMALL_ARRAY = 0, 2
_LITERAL, _INT16, _INT32, _UINT32, _INT64, _UINT64 = 4, 5, 7, 8, 9, 0xA
_DOUBLE, _STRING, _OPAQUE = 0xB, 0xC, 0xF
_LITERALS: tuple[tuple[Any, int], ...] = ((None, 0), (True, 1), (False, 2))
_NEWDECIMAL = 246
_MOST_SMALL = 0xFFFF
"""Bytes of the largest container with two-byte offsets."""
_MOST_DIGITS = 65


class _Decimal(str):
    """The text of a number that isn't the text of a double."""


def binary_json(text: str) -> bytes:
    """Return a document's binary form. Raises ValueError for a text that isn't a document's."""
    document = json.loads(text, parse_int=_whole, parse_float=_real)
    kind, data = _value(document)
    return bytes([kind]) + data


def _whole(text: str) -> int | float | _Decimal:
    number = int(text)
    if -(1 << 63) <= number < 1 << 64:
        return number
    return _Decimal(text) if len(text.lstrip("-")) <= _MOST_DIGITS else float(text)


def _real(text: str) -> float | _Decimal:
    number = float(text)
    shortest = double_text(number)
    if "." not in shortest and "e" not in shortest:
        shortest += ".0"
    digits = len(text.lstrip("-").replace(".", ""))
    return number if shortest == text or "e" in text.lower() or digits > _MOST_DIGITS else _Decimal(text)


def _value(value: Any) -> tuple[int, bytes]:
    """Return type and bytes of a value that isn't stored inside its entry."""
    if isinstance(value, dict):
        return _container(value)
    if isinstance(value, list):
        return _container(value)
    if isinstance(value, _Decimal):
        whole, _, fraction = value.lstrip("-").partition(".")
        scale = len(fraction)
        precision = max(len(whole.lstrip("0")) + scale, 1)
        packed = packed_decimal(value, precision, scale)
        return _OPAQUE, bytes([_NEWDECIMAL]) + _length(len(packed) + 2) + bytes([precision, scale]) + packed
    if isinstance(value, str):
        data = value.encode()
        return _STRING, _length(len(data)) + data
    if isinstance(value, float):
        return _DOUBLE, struct.pack("<d", value)
    for literal, code in _LITERALS:
        if value is literal:
            return _LITERAL, bytes([code])
    return _integer(value)


def _integer(value: int) -> tuple[int, bytes]:
    if -(1 << 15) <= value < 1 << 15:
        return _INT16, struct.pack("<h", value)
    if -(1 << 31) <= value < 1 << 31:
        return _INT32, struct.pack("<i", value)
    if value < 1 << 63:
        return _INT64, struct.pack("<q", value)
    return _UINT64, struct.pack("<Q", value)


def _length(size: int) -> bytes:
    """Encode a length with seven bits per byte, the lowest first."""
    data = bytearray()
    while size > 0x7F:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    data.append(size)
    return bytes(data)


def _container(value: dict[str, Any] | list[Any]) -> tuple[int, bytes]:
    keys: list[bytes] = []
    if isinstance(value, dict):
        members = sorted((key.encode(), item) for key, item in value.items())
        members.sort(key=lambda member: len(member[0]))  # stable: by length, then by bytes
        keys, values = [key for key, _ in members], [_value(item) for _, item in members]
    else:
        values = [_value(item) for item in value]
    kind = _SMALL_OBJECT if isinstance(value, dict) else _SMALL_ARRAY
    small = _laid_out(keys, values, large=False)
    if small is not None:
        return kind, small
    large = _laid_out(keys, values, large=True)
    assert large is not None
    return kind + 1, large


def _laid_out(keys: list[bytes], values: list[tuple[int, bytes]], *, large: bool) -> bytes | None:
    """Return a container: count, size, key entries, value entries, keys, values; None if two bytes are too small."""
    width, code = (4, "<I") if large else (2, "<H")
    at = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    size = at + sum(map(len, keys)) + sum(len(data) for kind, data in values if not _inlined(kind, large=large))
    if not large and size > _MOST_SMALL:
        return None
    entries = bytearray(struct.pack(code, len(values)) + struct.pack(code, size))
    for key in keys:
        entries += struct.pack(code, at) + struct.pack("<H", len(key))
        at += len(key)
    behind = bytearray(b"".join(keys))
    for kind, data in values:
        entries.append(kind)
        if _inlined(kind, large=large):
            sign = kind in (_INT16, _INT32) and bool(data[-1] & 0x80)
            entries += data + (b"\xff" if sign else b"\0") * (width - len(data))
        else:
            entries += struct.pack(code, at)
            behind += data
            at += len(data)
    return bytes(entries + behind)


def _inlined(kind: int, *, large: bool) -> bool:
    return kind in (_LITERAL, _INT16) or (large and kind in (_INT32, _UINT32))
