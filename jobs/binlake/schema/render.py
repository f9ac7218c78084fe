"""MariaDB's UUID, INET4, INET6 and VECTOR: the log has their stored bytes, from which the server's text is rendered.

Sources: MariaDB's manual on UUID, INET4, INET6 and VECTOR; the stored order of UUID segments tried on MariaDB 10.11.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from binlake.schema.table import Column

Renderer = Callable[[bytes], str]


def uuid_text(stored: bytes) -> str:
    """Return a stored UUID as text.

    Versions 1 to 5 (of the RFC's variant) are stored with their segments reversed, so that values sort by time; the
    others are stored as they are.
    """
    data = stored.ljust(16, b"\0")
    if data[6] & 0x80 and 0 < data[8] < 0x60:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[:6]
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def inet4_text(stored: bytes) -> str:
    """Return a stored INET4 in dotted decimals."""
    return ".".join(map(str, stored.ljust(4, b"\0")))


def inet6_text(stored: bytes) -> str:
    """Return a stored INET6 as RFC 5952 writes it, except that a single group of zeros is shortened, too.

    IPv4-mapped and IPv4-compatible addresses end in dotted decimals.
    """
    data = stored.ljust(16, b"\0")
    groups = [int.from_bytes(data[place : place + 2], "big") for place in range(0, 16, 2)]
    start, length = _longest_zeros(groups)
    mapped = groups[:5] == [0] * 5 and groups[5] == 0xFFFF
    compatible = (start, length) == (0, 6)
    if mapped or compatible:
        return f"::{'ffff:' if mapped else ''}{inet4_text(data[12:])}"
    if not length:
        return ":".join(f"{group:x}" for group in groups)
    head = ":".join(f"{group:x}" for group in groups[:start])
    tail = ":".join(f"{group:x}" for group in groups[start + length :])
    return f"{head}::{tail}"


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    """Return start and length of the longest run of zero groups, the first of several."""
    best, start = (0, 0), 0
    for place in range(len(groups) + 1):
        if place == len(groups) or groups[place]:
            if place - start > best[1]:
                best = (start, place - start)
            start = place + 1
    return best


RENDERERS: dict[str, Renderer] = {"uuid": uuid_text, "inet4": inet4_text, "inet6": inet6_text}
"""Functions from stored bytes to text, by column type."""


def _stored_uuid(text: str) -> bytes:
    data = uuid.UUID(text).bytes
    turned = data[10:] + data[8:10] + data[6:8] + data[4:6] + data[:4]
    return turned if uuid_text(turned) == text else data


STORED: dict[str, tuple[int, Callable[[str], bytes]]] = {
    "uuid": (16, _stored_uuid),
    "inet4": (4, lambda text: ipaddress.IPv4Address(text).packed),
    "inet6": (16, lambda text: ipaddress.IPv6Address(text).packed),
}
"""The inverse by column type: how many bytes are stored, and a function from text to bytes that raises ValueError."""


def is_vector_in_bytes(recorded: Column, logged: Column) -> bool:
    """Return whether a column is a VECTOR that MariaDB's log calls VARBINARY; MySQL's has a type of its own."""
    in_bytes = logged.type == "varbinary" and logged.length == 4 * (recorded.length or 0)
    return recorded.type == "vector" and in_bytes


def vectors_in_bytes(recorded: Iterable[Column], logged: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of VECTOR columns that the table map calls VARBINARY."""
    by_name = {column.name: column for column in logged}
    shared = (column for column in recorded if column.name in by_name)
    return tuple(column.name for column in shared if is_vector_in_bytes(column, by_name[column.name]))


def vectors(stored: pa.Array) -> pa.Array:
    """Return stored little-endian floats as lists of float32; every bit stays as it is."""
    lists = [None if data is None else np.frombuffer(data, "<f4") for data in stored.to_pylist()]
    return pa.array(lists, pa.list_(pa.float32()))
