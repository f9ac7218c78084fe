"""Decimals, doubles, dates and MySQL's binary JSON to the server's text in plain Python: what kernels are held against.

Manual: MySQL source documentation, "Binary log row values" (decimal.cc, my_time.cc) and "JSON binary format"
(sql-common/json_binary.h).
"""

from __future__ import annotations

import base64
import struct

from binlake.errors import Malformed
from binlake.schema.types.packed_values import clock_text, date_text, decimal_size, fraction_text

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_OPAQUE = 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_MOST_DEEP = 100
"""The server refuses deeper documents (JSON_DOCUMENT_MAX_DEPTH)."""
_OPAQUE_DECIMAL, _OPAQUE_DATES, _OPAQUE_TIME = 246, {7, 10, 12}, 11

_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_ESCAPES |= {code: f"\\u{code:04x}" for code in range(32) if code not in (8, 9, 10, 12, 13)}


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
        width = decimal_size(digits, 0)
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


def packed_text(packed: int, kind: int) -> str:
    """DATE (10), TIME (11), DATETIME (12) and TIMESTAMP (7) in the packed form that JSON keeps."""
    sign = "-" if packed < 0 else ""
    whole, micro = abs(packed) >> 24, abs(packed) & 0xFFFFFF
    if kind == 11:
        return f"{sign}{clock_text(whole)}{fraction_text(micro, 6)}"
    day, clock = whole >> 17, whole & 0x1FFFF
    text = date_text((day >> 5) // 13, (day >> 5) % 13, day & 31)
    return text if kind == 10 else f"{text} {clock_text(clock)}{fraction_text(micro, 6)}"


def json_text(data: bytes) -> str:
    """The value's text. Raises Malformed."""
    if not data:
        return "null"  # the server reads an empty value, left by INSERT IGNORE, so
    parts: list[str] = []
    try:
        _value(data[0], data, 1, len(data), parts, 0)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise Malformed(f"JSON: {type(error).__name__}") from None
    return "".join(parts)


def _value(kind: int, data: bytes, start: int, end: int, out: list[str], depth: int) -> None:
    """A value that isn't inlined; ``start`` is its first byte after the type."""
    if start > end or depth > _MOST_DEEP:
        raise Malformed("JSON: nested too deep, or a value beyond its parent")
    if kind <= _LARGE_ARRAY:
        _container(kind, data, start, end, out, depth)
    elif kind == _LITERAL:
        out.append(_LITERALS[data[start]] if data[start] in _LITERALS else _bad())
    elif kind in _NUMBERS:
        out.append(str(struct.unpack_from(_NUMBERS[kind], data, start)[0]))
    elif kind == _DOUBLE:
        out.append(double_text(struct.unpack_from("<d", data, start)[0]))
    elif kind == _STRING:
        size, at = _length(data, start)
        out.append(quoted(_slice(data, at, size, end).decode("utf-8")))
    elif kind == _OPAQUE:
        size, at = _length(data, start + 1)
        out.append(_opaque(data[start], _slice(data, at, size, end)))
    else:
        _bad()


def _bad() -> str:
    raise Malformed("JSON: a type that isn't known")


def _slice(data: bytes, at: int, size: int, end: int) -> bytes:
    if at + size > end:
        raise Malformed("JSON: a value beyond its parent")
    return data[at : at + size]


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, low ones first; at most five bytes."""
    size = 0
    for place in range(5):
        byte = data[at + place]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size, at + place + 1
    raise Malformed("JSON: a length without end")


def _container(kind: int, data: bytes, start: int, end: int, out: list[str], depth: int) -> None:
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    number, width = ("<I", 4) if large else ("<H", 2)
    count, size = struct.unpack_from(number + number[1], data, start)
    if size > end - start:
        raise Malformed("JSON: a container beyond its parent")
    end = start + size
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    keys = start + 2 * width
    entries = keys + (count * (width + 2) if is_object else 0)
    if entries + count * (1 + width) > end:
        raise Malformed("JSON: more members than bytes")
    out.append("{" if is_object else "[")
    for place in range(count):
        if place:
            out.append(", ")
        if len(out) > 4 * len(data) + 16:  # members that point to one value many times
            raise Malformed("JSON: more text than bytes")
        if is_object:
            at = keys + place * (width + 2)
            offset = struct.unpack_from(number, data, at)[0]
            length = struct.unpack_from("<H", data, at + width)[0]
            out.append(quoted(_slice(data, start + offset, length, end).decode("utf-8")))
            out.append(": ")
        at = entries + place * (1 + width)
        member = data[at]
        inline = member in (_LITERAL, _INT16, _UINT16) or (large and member in (_INT32, _UINT32))
        where = at + 1 if inline else start + struct.unpack_from(number, data, at + 1)[0]
        _value(member, data, where, end, out, depth + 1)
    out.append("}" if is_object else "]")


def quoted(string: str) -> str:
    return f'"{string.translate(_ESCAPES)}"'


def _opaque(kind: int, data: bytes) -> str:
    if kind == _OPAQUE_DECIMAL:
        precision, scale = data[0], data[1]
        return decimal_text(decimal_unscaled(data, 2, precision, scale), scale)
    if kind in _OPAQUE_DATES or kind == _OPAQUE_TIME:
        packed = int.from_bytes(data[:8], "little", signed=True)
        return f'"{packed_text(packed, kind)}"'
    # the server's base64 breaks lines after 76 characters; the newline is escaped like any other
    encoded = base64.b64encode(data).decode("ascii")
    lines = [encoded[at : at + 76] for at in range(0, len(encoded), 76)]
    return quoted(f"base64:type{kind}:" + "\n".join(lines))


def double_text(value: float) -> str:
    """As MySQL prints a double in JSON: the shortest digits that read back the same; the exponent form outside
    1e-15 … 1e15; always with a point or an exponent."""
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = int(exponent.split("e")[0] or 0)
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + power - (len(whole + fraction) - len(digits)) if digits else 1
    digits = digits.rstrip("0") or "0"
    if not -15 < point <= 15:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits}{'0' * (point - len(digits))}.0"
    return f"{sign}{digits[:point]}.{digits[point:]}"
