"""Packing of numbers as the servers do: the inverse of ``binlog.values`` and ``binlog.events.ByteCursor``."""

from __future__ import annotations

from binlake.binlog.values import DIGIT_BYTES, decimal_size


def packed_integer(value: int) -> bytes:
    """Return a length-encoded integer ("Integer and String Types" of the client/server protocol)."""
    if value < 251:
        return bytes([value])
    for lead, size in ((252, 2), (253, 3)):
        if value < 1 << 8 * size:
            return bytes([lead]) + value.to_bytes(size, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def fixed_packed(value: int) -> bytes:
    """Return a length-encoded integer in nine bytes, whatever the value."""
    return b"\xfe" + value.to_bytes(8, "little")


def fixed_variable(value: int) -> bytes:
    """Return what ``variable`` encodes in nine bytes, whatever the value."""
    return b"\xff" + value.to_bytes(8, "little")


def packed_bytes(data: bytes) -> bytes:
    """Return the data with its packed length before it."""
    return packed_integer(len(data)) + data


def variable(value: int) -> bytes:
    """Return an unsigned integer of mysql::serialization: trailing ones of the first byte count the bytes after it."""
    extra = max(0, (value.bit_length() - 1) // 7)
    if extra >= 8:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << (extra + 1) | (1 << extra) - 1).to_bytes(extra + 1, "little")


def variable_signed(value: int) -> bytes:
    """Return a signed integer in variable length; its lowest bit is the sign."""
    return variable(value << 1) if value >= 0 else variable((-value - 1) << 1 | 1)


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
    data = bytearray(b"".join(int(group or 0).to_bytes(DIGIT_BYTES[len(group)], "big") for group in groups))
    assert len(data) == decimal_size(precision, scale)
    if negative:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)
