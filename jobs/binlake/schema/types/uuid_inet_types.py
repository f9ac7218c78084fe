"""UUID, INET4 and INET6 of MariaDB: the log has their stored bytes, from which the server's text is rendered.

Sources: MariaDB's manual on UUID, INET4 and INET6; the stored order of UUID segments tried on MariaDB 10.11.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from binlake.schema.table import TEXTS, Column
from binlake.schema.types.connect_form import ConnectType, always, as_texts
from binlake.schema.types.constants import plain
from binlake.schema.types.datatype import (
    ArrowFunction,
    DataType,
    StoredBytes,
    lake_sha,
    server_char,
    server_sha,
    shown_bound,
    stored_log,
)
from binlake.schema.types.log_form import Wire, string_metadata


def _uuid_text(stored: bytes) -> str:
    """Return a stored UUID as text.

    Versions 1 to 5 (of the RFC's variant) are stored with their segments reversed, so that values sort by time; the
    others are stored as they are.
    """
    data = stored.ljust(16, b"\0")
    if data[6] & 0x80 and 0 < data[8] < 0x60:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[:6]
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _inet4_text(stored: bytes) -> str:
    """Return a stored INET4 in dotted decimals."""
    return ".".join(map(str, stored.ljust(4, b"\0")))


def _inet6_text(stored: bytes) -> str:
    """Return a stored INET6 as RFC 5952 writes it, except that a single group of zeros is shortened, too.

    IPv4-mapped and IPv4-compatible addresses end in dotted decimals.
    """
    data = stored.ljust(16, b"\0")
    groups = [int.from_bytes(data[place : place + 2], "big") for place in range(0, 16, 2)]
    start, length = _longest_zeros(groups)
    mapped = groups[:5] == [0] * 5 and groups[5] == 0xFFFF
    compatible = (start, length) == (0, 6)
    if mapped or compatible:
        return f"::{'ffff:' if mapped else ''}{_inet4_text(data[12:])}"
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


def _stored_uuid(text: str) -> bytes:
    data = uuid.UUID(text).bytes
    turned = data[10:] + data[8:10] + data[6:8] + data[4:6] + data[:4]
    return turned if _uuid_text(turned) == text else data


def _rendering(render: Callable[[bytes], str]) -> ArrowFunction:
    def values(stored: pa.Array) -> pa.Array:
        return pa.array([None if data is None else render(data) for data in stored.to_pylist()], pa.string())

    return values


def _bytes_of(pack: Callable[[str], bytes]) -> Callable[[pa.Array], Sequence[bytes | None]]:
    def packed(values: pa.Array) -> Sequence[bytes | None]:
        if pa.types.is_binary(values.type):
            return values.to_pylist()  # type: ignore[no-any-return]
        coded = values.dictionary_encode()
        known = [pack(text) for text in coded.dictionary.to_pylist()]
        return [None if at is None else known[at] for at in coded.indices.to_pylist()]

    return packed


def _fits(longest: int, after: Column) -> bool:
    """Return whether a column holds texts of so many characters."""
    return after.type in TEXTS and after.type != "tinytext" and (after.length or 255) >= longest


def _rendered(
    name: str,
    sizes: tuple[int, int],
    render: Callable[[bytes], str],
    pack: Callable[[str], bytes],
    canonical: Callable[[str], str | None],
) -> DataType:
    """Return the entry of a type. sizes: the bytes of a value, and the most characters of its text."""
    size, longest = sizes
    stored = StoredBytes(_rendering(render), _bytes_of(pack), lambda column: size, "binary", made_late=True)
    log = replace(stored_log(stored, Wire.STRING, 1), metadata=lambda field: string_metadata(Wire.STRING, size))
    return DataType(
        log=log,
        arrow=lambda column: pa.string(),
        delta=lambda column: "STRING",
        select=server_char,
        server_text=lambda column: server_sha(server_char(column)),
        lake_text=lake_sha,
        only="mariadb",
        converts=lambda before, after, strict: after.type == before.type or _fits(longest, after),
        default_text=lambda column, literal, flavour: canonical(plain(literal)),
        implicit_default=lambda column: render(b""),
        bound=shown_bound(lambda text: f"CAST('{text}' AS {name.upper()})"),
        longest_text=longest,
        stored=stored,
    )


def _canonical_uuid(text: str) -> str | None:
    return text.lower() if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) else None


def _canonical_inet6(text: str) -> str | None:
    address = ipaddress.IPv6Address(text)
    # How an embedded IPv4 address is printed differs between libraries.
    return None if address.ipv4_mapped or (int(address) >> 32 == 0 and int(address) > 1) else str(address)


def _packed_inet4(text: str) -> bytes:
    return ipaddress.IPv4Address(text).packed


def _packed_inet6(text: str) -> bytes:
    return ipaddress.IPv6Address(text).packed


TYPES = {
    "uuid": replace(
        _rendered("uuid", (16, 36), _uuid_text, _stored_uuid, _canonical_uuid),
        connect=always(ConnectType("string", as_texts, "io.debezium.data.Uuid")),
    ),
    "inet4": _rendered("inet4", (4, 15), _inet4_text, _packed_inet4, lambda text: str(ipaddress.IPv4Address(text))),
    "inet6": _rendered("inet6", (16, 39), _inet6_text, _packed_inet6, _canonical_inet6),
}
