"""Encoding of binlog events: header, body, checksum. The inverse of ``binlog.events``, which names the manuals."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass

from binlake.binlog.border import Statement
from binlake.binlog.events import CHECKSUM_SIZE, HEADER, HEADER_SIZE, EventType
from binlake.binlog_writer.packed_numbers import fixed_packed, fixed_variable, variable, variable_signed
from binlake.gtid import GtidPosition, GtidSet, parse
from binlake.position import Flavour
from binlake.schema import charsets

VERSIONS: dict[Flavour, str] = {"mysql": "8.4.0-binlake", "mariadb": "10.11.0-MariaDB-binlake"}
"""Server versions in the format description: the events are those of such a server."""

_POST_HEADERS: dict[Flavour, dict[int, int]] = {
    "mysql": {2: 13, 4: 8, 9: 4, 11: 4, 15: 99, 17: 4, 18: 26, 19: 8, 26: 2, 30: 10, 31: 10, 32: 10, 33: 42, 34: 42,
              36: 18, 37: 52, 39: 10, 40: 40},
    "mariadb": {1: 56, 2: 13, 4: 8, 6: 18, 8: 4, 9: 4, 10: 4, 11: 4, 12: 18, 15: 228, 17: 4, 18: 26, 19: 8, 23: 8,
                24: 8, 25: 8, 26: 2, 30: 10, 31: 10, 32: 10, 39: 10, 40: 10, 41: 10, 161: 4, 162: 19, 163: 4, 165: 13,
                166: 8, 167: 8, 168: 8, 169: 10, 170: 10, 171: 10},
}  # fmt: skip
_TYPES: dict[Flavour, int] = {"mysql": 42, "mariadb": 171}
"""How many event types there are, and above the bytes of each type's fixed part: constants of the servers' sources."""

_BINLOG_VERSION = 4
_CRC32 = 1
_THREAD = 0
_UTF8MB4_GENERAL_CI = 45
"""A collation of utf8mb4 that both servers know; statements are written in utf8mb4."""
_NO_FOREIGN_KEY_CHECKS = 1 << 26
"""OPTION_NO_FOREIGN_KEY_CHECKS of both servers: another server must accept whatever the source's server accepted."""
_EXPLICIT_TIMESTAMPS = 1 << 24


@dataclass(frozen=True)
class Stamp:
    """The fields that the headers of a transaction's events have in common. server_id: of the server that committed
    it."""

    committed_us: int
    server_id: int

    @property
    def seconds(self) -> int:
        """Return the commit time in seconds since 1970 UTC, as headers have it."""
        return self.committed_us // 1_000_000


def event(kind: int, stamp: Stamp, body: bytes, offset: int, flags: int = 0) -> bytes:
    """Return a whole event that begins at ``offset`` of its file."""
    size = HEADER_SIZE + len(body) + CHECKSUM_SIZE
    end = offset + size & 0xFFFFFFFF
    data = HEADER.pack(stamp.seconds & 0xFFFFFFFF, kind, stamp.server_id, size, end, flags) + body
    return data + struct.pack("<I", zlib.crc32(data))


def format_description(flavour: Flavour) -> bytes:
    """Return the body of a file's first event."""
    lengths = bytes(_POST_HEADERS[flavour].get(kind, 0) for kind in range(1, _TYPES[flavour] + 1))
    version = VERSIONS[flavour].encode().ljust(50, b"\0")
    created = bytes(4)  # set only in a server's first file after its start, where replicas drop temporary tables
    return struct.pack("<H", _BINLOG_VERSION) + version + created + bytes([HEADER_SIZE]) + lengths + bytes([_CRC32])


def previous_gtids(text: str, flavour: Flavour) -> tuple[EventType, bytes]:
    """Return type and body of PREVIOUS_GTIDS or GTID_LIST. text: the GTID set executed before the file."""
    known = parse(text, flavour)
    if isinstance(known, GtidPosition):
        listed = [struct.pack("<IIQ", domain, *last) for domain, last in sorted(known.domains.items())]
        return EventType.MARIADB_GTID_LIST, struct.pack("<I", len(listed)) + b"".join(listed)
    return EventType.PREVIOUS_GTIDS, _gtid_set(known)


def _gtid_set(known: GtidSet) -> bytes:
    tagged = any(":" in member for member in known.members)
    count = len(known.members)
    head = b"\1" + count.to_bytes(6, "little") + b"\1" if tagged else struct.pack("<Q", count)
    data = bytearray(head)
    for member, intervals in sorted(known.members.items()):
        sid, _, tag = member.partition(":")
        data += uuid.UUID(sid).bytes
        if tagged:
            data += variable(len(tag)) + tag.encode()
        data += struct.pack("<Q", len(intervals))
        data += b"".join(struct.pack("<QQ", first, last + 1) for first, last in intervals)
    return bytes(data)


@dataclass(frozen=True)
class GtidEvent:
    """MySQL's event that begins a transaction. ordinal: number in the file, from 1. only_rows: it has no statement."""

    gtid: str | None
    stamp: Stamp
    ordinal: int
    only_rows: bool

    def encoded(self, length: int) -> tuple[EventType, bytes]:
        """Return type and body. length: bytes of the transaction with this event, whose size doesn't depend on it."""
        sid, tag, number = _parts(self.gtid)
        if tag:
            return EventType.GTID_TAGGED, self._tagged(sid, tag, number, length)
        body = bytes([not self.only_rows]) + sid + struct.pack("<q", number)
        body += b"\2" + struct.pack("<qq", self.ordinal - 1, self.ordinal)
        body += self.stamp.committed_us.to_bytes(7, "little") + fixed_packed(length)
        return EventType.GTID if self.gtid else EventType.ANONYMOUS_GTID, body

    def _tagged(self, sid: bytes, tag: str, number: int, length: int) -> bytes:
        fields = [
            variable(0) + variable(not self.only_rows),
            variable(1) + b"".join(variable(byte) for byte in sid),
            variable(2) + variable_signed(number),
            variable(3) + variable(len(tag)) + tag.encode(),
            variable(4) + variable_signed(self.ordinal - 1),
            variable(5) + variable_signed(self.ordinal),
            variable(6) + variable(self.stamp.committed_us),
            variable(8) + fixed_variable(length),
        ]
        rest = variable(0) + b"".join(fields)
        size = len(rest) + 2
        if len(variable(1)) + len(variable(size)) + len(rest) != size:
            size += 1
        return variable(1) + variable(size) + rest


def _parts(gtid: str | None) -> tuple[bytes, str, int]:
    """Return uuid, tag and number of a GTID of MySQL."""
    if gtid is None:
        return bytes(16), "", 0
    sid, *words = gtid.split(":")
    return uuid.UUID(sid).bytes, words[0] if len(words) > 1 else "", int(words[-1])


def mariadb_gtid(gtid: str, *, statement: bool) -> bytes:
    """Return the body of MariaDB's GTID event; the server id is in the header."""
    domain, _, number = (int(part) for part in gtid.split("-"))
    flags = 0x21 if statement else 0x0C  # FL_STANDALONE and FL_DDL, or FL_TRANSACTIONAL and FL_ALLOW_PARALLEL
    return (struct.pack("<QIB", number, domain, flags)).ljust(19, b"\0")


def begin() -> bytes:
    """Return BEGIN as a query event's body."""
    return _query("", b"BEGIN", _charsets("utf8mb4"), 0)


def statement(logged: Statement, flavour: Flavour, number: int) -> bytes:
    """Return a statement as a query event's body. number: the transaction's, for DDL of MySQL that has one."""
    flags = _NO_FOREIGN_KEY_CHECKS
    variables, behind = b"", b""
    session = logged.session
    if flavour == "mariadb" and session.explicit_timestamps:
        flags |= _EXPLICIT_TIMESTAMPS
    if session.time_zone:
        zone = session.time_zone.encode()
        variables += bytes([5, len(zone)]) + zone
    if session.microsecond is not None:
        variables += bytes([128 if flavour == "mariadb" else 13]) + session.microsecond.to_bytes(3, "little")
    if flavour == "mysql" and session.explicit_timestamps is not None:
        behind += bytes([16, session.explicit_timestamps])
    if flavour == "mysql" and logged.has_xid:
        behind += bytes([17]) + struct.pack("<Q", number)
    status = bytes([0]) + struct.pack("<I", flags) + bytes([1]) + struct.pack("<Q", logged.sql_mode)
    return _query(
        logged.database,
        logged.text.encode(),
        status + _charsets(logged.server_charset) + variables + behind,
        logged.error,
    )


def _charsets(of_databases: str) -> bytes:
    """Return the status variable with the collations of client, connection and new databases."""
    server = charsets.default_collation(of_databases)
    return bytes([4]) + struct.pack("<HHH", _UTF8MB4_GENERAL_CI, _UTF8MB4_GENERAL_CI, server)


def _query(database: str, text: bytes, status: bytes, error: int) -> bytes:
    name = database.encode()
    head = struct.pack("<IIBHH", _THREAD, 0, len(name), error, len(status))
    return head + status + name + b"\0" + text


def rotate(next_file: str) -> bytes:
    """Return the body of ROTATE_EVENT, which names the next file."""
    return struct.pack("<Q", 4) + next_file.encode()
