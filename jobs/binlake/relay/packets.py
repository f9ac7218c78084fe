"""Packets of the binary protocol of mysql-replication-relay. Pure. Source: its README, "The protocol".

A command is a header of 32 bytes and its payload, a reply a header of 9 bytes and its payload. Integers are
little-endian. A checksum is the sum of the fields and of each byte of the payload. A string is its size, including a
final zero byte, in four bytes, then its bytes. In the reply to AUTHENTICATE, the description puts client id and token
into the first eight bytes, but the original clients read token and id from the eight bytes after them; both are sent.
POLLV2 isn't described, but the original Pascal client may send it: it is POLL with numbers of names, which are all 0 in
the original, too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

VERSION = 0x00010020
"""The protocol's version. Clients of any version 1.x are served: their packets are the same."""
HEADER_SIZE = 32
MOST_PAYLOAD = 4096
"""The most bytes of AUTHENTICATE and ADD_FILTER, which contain names; a server's names have 64 characters."""
_HEADER = struct.Struct("<HHIIIIIII")
_REPLY = struct.Struct("<BII")
_MASK = 0xFFFFFFFF
_INSERTED, _DELETED = 1, 4
"""Operations with only one row."""


class Command(IntEnum):
    """Codes of commands, with which a request's header begins."""

    PING = 1
    AUTHENTICATE = 2
    ADD_FILTER = 3
    POLL = 4
    POLLV2 = 5


class ReplyCode(IntEnum):
    """Codes of replies. DISCONNECTED: another connection took the client over. NOTHING: no event waits. A client takes
    everything but OK for an error."""

    OK = 0
    DISCONNECTED = 0xF0
    NOTHING = 0xFC
    FAILED = 0xFF


class BadPacket(Exception):
    """The bytes are no command. The text is sent to the client, and the connection is closed."""


@dataclass(frozen=True)
class Header:
    """A request's header. Sizes are in bytes; all fields are unsigned integers."""

    command: int
    payload_size: int
    version: int
    client_id: int
    client_token: int
    checksum: int
    sum: int
    """Sum of the header's fields."""

    @classmethod
    def parse(cls, data: bytes) -> Header:
        """Parse 32 bytes. Raises BadPacket for another protocol version."""
        command, subcommand, size, version, client_id, token, checksum, first, second = _HEADER.unpack(data)
        if version >> 16 != VERSION >> 16:
            raise BadPacket(f"protocol version {version:#010x} isn't spoken here, {VERSION:#010x} is")
        total = command + subcommand + size + version + client_id + token + first + second
        return cls(command, size, version, client_id, token, checksum, total & _MASK)


def reply(result: ReplyCode, payload: bytes = b"") -> bytes:
    """Return a reply's bytes: code, size of the payload, checksum, payload."""
    return _REPLY.pack(result, len(payload), result + len(payload) + sum(payload) & _MASK) + payload


def failure(why: str) -> bytes:
    """Return the reply to a command that failed; ``why`` is text for the client's user."""
    return reply(ReplyCode.FAILED, why.encode() + b"\0")


def displaced() -> bytes:
    """Return the reply to a client that another connection has taken over."""
    return reply(ReplyCode.DISCONNECTED, b"another connection registered by this client's name since\0")


def hash_of(secret: bytes) -> int:
    """Return the 64-bit FNV-1a hash that is sent for the shared secret. It doesn't protect from eavesdroppers."""
    value = 0xCBF29CE484222325
    for byte in secret:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class _Payload:
    """Reader of a payload's fields. Raises BadPacket at the payload's end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def integer(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def name(self) -> str:
        data = self._take(self.integer(4))
        if not data.endswith(b"\0") or b"\0" in data[:-1]:
            raise BadPacket("a name must end with its only zero byte")
        try:
            return data[:-1].decode()
        except UnicodeDecodeError:
            raise BadPacket("a name isn't UTF-8") from None

    def _take(self, size: int) -> bytes:
        stop = self._at + size
        if stop > len(self._data):
            raise BadPacket("the payload ends too early")
        piece = self._data[self._at : stop]
        self._at = stop
        return piece


def authentication(payload: bytes) -> tuple[int, str]:
    """Return the secret's hash and the client's name. Raises BadPacket."""
    fields = _Payload(payload)
    key = fields.integer(8)
    fields.integer(8)  # token and id, which the client doesn't know yet
    return key, fields.name()


def authenticated(client_id: int, token: int) -> bytes:
    """Return the payload of a successful AUTHENTICATE."""
    return struct.pack("<IIII", client_id, token, token, client_id)


@dataclass(frozen=True)
class FilterFields:
    """Fields of ADD_FILTER. operations: bits 1 insert, 2 update, 4 delete."""

    operations: int
    discard: int
    queue_limit: int
    database: str
    table: str


def filter_fields(payload: bytes) -> FilterFields:
    """Parse the payload of ADD_FILTER. Raises BadPacket."""
    fields = _Payload(payload)
    return FilterFields(fields.integer(1), fields.integer(1), fields.integer(4), fields.name(), fields.name())


ColumnTexts = tuple[str, bytes | None, bytes | None]
"""A column's name, and its text before and after; None for NULL or no row."""


def event(
    operation: int,
    position: int,
    remaining: int,
    names: tuple[str, str],
    columns: Sequence[ColumnTexts],
    *,
    numbered: bool = False,
) -> bytes:
    """Return the payload of the reply to POLL. operation: 1, 2 or 4. numbered: as for POLLV2, with numbers of names.

    As in the original, a missing row has empty values, and NULL is the text ``NULL``, which the protocol can't
    distinguish from that text.
    """
    inserted, deleted = operation == _INSERTED, operation == _DELETED
    number = bytes(4) if numbered else b""
    data = bytearray(struct.pack("<BQI", operation, position, min(remaining, _MASK)) + number)
    for name in names:
        data += number + _string(name.encode())
    data += struct.pack("<I", len(columns))
    for name, before, after in columns:
        data += number + _string(name.encode()) + _value(before, inserted) + _value(after, deleted)
    return bytes(data)


def _value(text: bytes | None, no_row: bool) -> bytes:
    return _string(b"" if no_row else b"NULL" if text is None else text)


def _string(data: bytes) -> bytes:
    return struct.pack("<I", len(data) + 1) + data + b"\0"
