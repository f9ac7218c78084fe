"""The events of a binlog: their types, the common header, and the bodies of small events.

Layouts are those of MySQL's "Replication Event Types" (source documentation, libs/mysql/binlog/event) and of
MariaDB's "Replication Protocol" (knowledge base, Event Types). Offsets are bytes, integers little-endian.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum

from binlake.errors import Malformed
from binlake.gtid import uuid_text

MAGIC = b"\xfebin"
ENCRYPTED_MAGIC = b"\xfdbin"
HEADER_SIZE = 19
CHECKSUM_SIZE = 4
LARGEST_EVENT = (1 << 30) + (1 << 20)
"""Bytes of an event that is uncompressed: the servers' own limit (max_allowed_packet), and room for its headers."""

HEADER = struct.Struct("<IBIIIH")
"""Header: timestamp (s), type, server_id, size of the event, low 32 bits of the offset after it, flags."""

IN_USE = 0x01
"""Header flag of a format description: its file is being written (LOG_EVENT_BINLOG_IN_USE_F)."""
THREAD_SPECIFIC = 0x0004
"""Header flag: the statement used what its session alone has, as a temporary table (LOG_EVENT_THREAD_SPECIFIC_F)."""
HEADER_FLAGS = {
    IN_USE: "in_use", THREAD_SPECIFIC: "thread_specific", 0x0008: "suppress_use", 0x0010: "update_table_map_version",
    0x0020: "artificial", 0x0040: "relay_log", 0x0080: "ignorable", 0x0100: "no_filter", 0x0200: "mts_isolate",
    0x8000: "skip_replication",
}  # fmt: skip
"""Names of the header's flags, as the servers have them (LOG_EVENT_…_F, sql/log_event.h)."""
ROW_FLAGS = {0x1: "statement_end", 0x2: "no_foreign_key_checks", 0x4: "relaxed_unique_checks", 0x8: "complete_rows"}
"""Names of the flags of row events (Rows_event, rows_event.h)."""
ARTIFICIAL = 0x20
"""Header flag: the event was made for the connection and isn't in the file (LOG_EVENT_ARTIFICIAL_F)."""
_NO_NUMBER = 1 << 63
"""Upper bound of transaction numbers, which count from 1 to below this."""
IGNORABLE = 0x80
"""Header flag: readers that don't know the type may skip the event (LOG_EVENT_IGNORABLE_F)."""


class EventType(IntEnum):
    """Type codes of both servers; 160 and above are MariaDB's own."""

    UNKNOWN = 0
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


_SENT_ALONE = frozenset(
    (EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.MARIADB_GTID_LIST, EventType.START_ENCRYPTION)
)


def is_in_no_file(kind: int, end: int, flags: int) -> bool:
    """Return whether a server made an event up for the connection. ``end``, ``flags``: of its header.

    An end of 0 proves that only for the kinds that servers make up: MariaDB writes events inside a transaction with an
    end of 0 since 11.4 (binlog_legacy_event_pos=OFF, MDEV-31404).
    """
    if kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2) or flags & ARTIFICIAL:
        return True
    return end == 0 and kind in _SENT_ALONE


class ByteCursor:
    """Cursor that reads fields from a body. It raises Malformed past the end."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    @property
    def left(self) -> int:
        """Return the number of bytes not yet read."""
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """Read this many bytes. Raises Malformed past the end."""
        stop = self.at + size
        if size < 0 or stop > self.end:
            raise Malformed(f"{size} bytes wanted, {self.left} left")
        piece = self.data[self.at : stop]
        self.at = stop
        return piece

    def skip(self, size: int) -> None:
        """Pass over this many bytes. Raises Malformed past the end."""
        self.take(size)

    def uint(self, size: int) -> int:
        """Read an unsigned little-endian integer of this many bytes."""
        return int.from_bytes(self.take(size), "little")

    def rest(self) -> bytes:
        """Read all bytes up to the end."""
        return self.take(self.left)

    def packed(self) -> int:
        """Read a length-encoded integer ("Integer and String Types" of the client/server protocol)."""
        first = self.uint(1)
        if first < 251:
            return first
        if first == 251 or first == 255:
            raise Malformed("a length that isn't one")
        return self.uint({252: 2, 253: 3, 254: 8}[first])

    def packed_bytes(self) -> bytes:
        """Read a packed length, then that many bytes."""
        return self.take(self.packed())

    def variable(self) -> int:
        """Read an unsigned integer of MySQL's mysql::serialization.

        The number of trailing one bits in the first byte is the number of bytes that follow; eight follow 0xff.
        """
        first = self.uint(1)
        extra = 0
        while extra < 8 and first >> extra & 1:
            extra += 1
        if extra == 8:
            return self.uint(8)
        return first >> (extra + 1) | self.uint(extra) << (7 - extra)

    def variable_signed(self) -> int:
        """Read a signed integer of variable length; its lowest bit is the sign."""
        value = self.variable()
        return -(value >> 1) - 1 if value & 1 else value >> 1


@dataclass(frozen=True)
class FormatDescription:
    """FORMAT_DESCRIPTION_EVENT: how the events of its file are written.

    created: timestamp of the header (s). server_id: the server that wrote the file. checksum: bytes at the end of each
    event, 0 or 4. post_header: lengths by event type, as the file states them. size: the event's own, in bytes.
    """

    created: int
    server_id: int
    server_version: str
    checksum: int
    post_header: bytes
    size: int = 0

    @property
    def mariadb(self) -> bool:
        """Return whether MariaDB wrote the file."""
        return "mariadb" in self.server_version.lower()

    @property
    def may_leave_generated_columns_out(self) -> bool:
        """Return whether rows may lack generated columns (tried: 11.4.5 logs them always, 11.8.9 in inserts only)."""
        return self.mariadb and self.numbers >= (11, 4)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the server's version as numbers, such as (9, 7, 4); empty where it has none."""
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", self.server_version, re.ASCII)
        return tuple(map(int, match.groups())) if match else ()

    @property
    def has_explicit_timestamps(self) -> bool:
        """Return whether this MariaDB logs explicit_defaults_for_timestamp among the session's options.

        Source: Format_description_log_event::deduct_options_written_to_bin_log, sql/log_event.cc.
        """
        if not self.numbers:
            return False
        major, minor, patch = self.numbers
        first = {5: 17, 6: 9, 7: 5, 8: 4, 9: 2}
        return major > 10 or (major == 10 and (minor > 9 or patch >= first.get(minor, patch + 1)))

    def post_header_size(self, kind: int, default: int) -> int:
        """Return a kind's post-header size in bytes; ``default`` for kinds that the file doesn't list."""
        return self.post_header[kind - 1] if 0 < kind <= len(self.post_header) else default

    @classmethod
    def parse(cls, event: bytes) -> FormatDescription:
        """Parse the whole event, header included. Raises Malformed."""
        cursor = ByteCursor(event, HEADER_SIZE)
        if cursor.uint(2) != 4:
            raise Malformed("not a binlog of version 4")
        version = cursor.take(50).split(b"\0", 1)[0].decode("ascii", "replace")
        cursor.skip(4)
        if cursor.uint(1) != HEADER_SIZE:
            raise Malformed("the common header isn't 19 bytes")
        tail = cursor.rest()
        if len(tail) < 5:
            raise Malformed("no checksum algorithm")
        algorithm = tail[-5]
        if algorithm not in (0, 1):
            raise Malformed(f"checksum algorithm {algorithm}")
        created, _, server_id, *_ = HEADER.unpack_from(event)
        return cls(created, server_id, version, CHECKSUM_SIZE if algorithm == 1 else 0, tail[:-5], len(event))


@dataclass(frozen=True)
class Transaction:
    """A GTID event's facts about the transaction that it begins.

    committed_us: microseconds since 1970 UTC. gtid: None if it is anonymous. xid: the XA id of a MariaDB transaction
    that is only prepared, or whose outcome this is. is_void: its statement had no effect: an ALTER TABLE that only
    starts, or is rolled back (MariaDB's binlog_alter_two_phase).
    """

    offset: int
    committed_us: int
    gtid: str | None
    xid: str | None = None
    prepares: bool = False
    is_void: bool = False


_LONGEST_TAG = 32
"""Characters of a tag (MySQL manual 19.1.3.1)."""


def gtid_transaction(body: bytes, *, kind: int, timestamp: int, offset: int) -> Transaction:
    """Parse a GTID or ANONYMOUS_GTID event of MySQL ("Gtid_event", control_events.h). Raises Malformed."""
    cursor = ByteCursor(body)
    cursor.skip(1)
    sid = cursor.take(16)
    number = cursor.uint(8)
    committed = timestamp * 1_000_000
    if cursor.left >= 17:
        cursor.skip(17)  # logical timestamps of the replica's scheduler
        if cursor.left >= 7:
            committed = cursor.uint(7) & ~(1 << 55)
    gtid = f"{uuid_text(sid)}:{number}" if kind == EventType.GTID else None
    return Transaction(offset, committed, gtid)


def tagged_transaction(body: bytes, *, timestamp: int, offset: int) -> Transaction:
    """Parse a GTID_TAGGED event of MySQL 8.3 and later. Raises Malformed.

    It has numbered fields in MySQL's serialization format ("libs/mysql/serialization", source documentation).
    """
    cursor = ByteCursor(body)
    cursor.variable()  # version of the format
    cursor.variable()  # size of the message
    cursor.variable()  # last field that a reader must know
    sid, number, tag, committed = b"", 0, "", timestamp * 1_000_000
    while cursor.left:
        identity = cursor.variable()
        if identity == 0:
            cursor.variable()
        elif identity == 1:
            sid = bytes(_byte(cursor) for _ in range(16))
        elif identity == 2:
            number = cursor.variable_signed()
        elif identity == 3:
            raw = cursor.take(cursor.variable())
            if not raw.isascii() or len(raw) > _LONGEST_TAG:
                raise Malformed("a tag that isn't ASCII, or is too long")
            tag = raw.decode("ascii")
        elif identity in (4, 5):
            cursor.variable_signed()
        elif identity == 6:
            committed = cursor.variable()
            break  # what follows isn't needed
        else:
            break
    if len(sid) != 16 or not 0 < number < _NO_NUMBER:
        raise Malformed("a tagged GTID without uuid or number")
    return Transaction(offset, committed, f"{uuid_text(sid)}:{tag}:{number}" if tag else f"{uuid_text(sid)}:{number}")


def _byte(cursor: ByteCursor) -> int:
    value = cursor.variable()
    if value > 255:
        raise Malformed("a byte above 255")
    return value


def mariadb_transaction(body: bytes, *, timestamp: int, server_id: int, offset: int) -> Transaction:
    """Parse a GTID_EVENT of MariaDB (knowledge base, GTID_EVENT). Raises Malformed.

    The event is written at the commit, with the same second as the XID or COMMIT event that ends the group. Optional
    fields follow the flags, then zeros up to 19 bytes.
    """
    cursor = ByteCursor(body)
    number, domain, flags = cursor.uint(8), cursor.uint(4), cursor.uint(1)
    if not 0 < number < _NO_NUMBER:
        raise Malformed(f"a transaction of the number {number}")
    if flags & 2:  # FL_GROUP_COMMIT_ID
        cursor.skip(8)
    xid = None
    if flags & 0xC0:  # FL_PREPARED_XA, FL_COMPLETED_XA
        form, global_size, branch_size = cursor.uint(4), cursor.uint(1), cursor.uint(1)
        xid = xa_id(cursor.take(global_size), cursor.take(branch_size), form)
    extra = cursor.uint(1) if cursor.left else 0
    is_void = bool(extra & 0x0A)  # FL_START_ALTER_E1, FL_ROLLBACK_ALTER_E1
    gtid = f"{domain}-{server_id}-{number}"
    return Transaction(offset, timestamp * 1_000_000, gtid, xid, bool(flags & 0x40), is_void)


def xa_id(gtrid: bytes, bqual: bytes, form: int) -> str:
    """Return an XA id as the servers write it: ``X'6162',X'',1``."""
    return f"X'{gtrid.hex()}',X'{bqual.hex()}',{form}"


@dataclass(frozen=True)
class XaPrepare:
    """XA_PREPARE_LOG_EVENT: an XA transaction is prepared, or, if ``one_phase``, committed at once."""

    xid: str
    one_phase: bool

    @classmethod
    def parse(cls, body: bytes) -> XaPrepare:
        """Parse an XA_PREPARE_LOG_EVENT of either server. Raises Malformed."""
        cursor = ByteCursor(body)
        one_phase = bool(cursor.uint(1))
        form, global_size, branch_size = cursor.uint(4), cursor.uint(4), cursor.uint(4)
        return cls(xa_id(cursor.take(global_size), cursor.take(branch_size), form), one_phase)


def rotate_target(body: bytes) -> tuple[str, int]:
    """Parse a ROTATE_EVENT. Returns the next file and the offset in it. Raises Malformed."""
    cursor = ByteCursor(body)
    offset = cursor.uint(8)
    return cursor.rest().decode("utf-8", "replace"), offset
