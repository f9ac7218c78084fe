"""Packing of numbers in events: the inverse of ``binlog.events.ByteCursor``."""

from __future__ import annotations


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
