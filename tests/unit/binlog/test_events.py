"""The bodies of small events."""

from __future__ import annotations

import struct

import pytest

from binlake.binlog.events import (
    ARTIFICIAL,
    EventType,
    FormatDescription,
    Query,
    mariadb_transaction,
    stands_in_no_file,
)

FLAG = 1 << 24


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("10.5.16-MariaDB-log", False),
        ("10.5.17-MariaDB", True),
        ("10.6.8-MariaDB", False),
        ("10.6.9-MariaDB", True),
        ("10.9.1-MariaDB", False),
        ("10.10.0-MariaDB", True),
        ("10.11.19-MariaDB-0+deb12u1-log", True),
        ("11.0.0-MariaDB", True),
        ("10.4.99-MariaDB", False),
        ("MariaDB", False),
    ],
)
def test_mariadb_tells_explicit_defaults_for_timestamp_since(version: str, told: bool) -> None:
    description = FormatDescription(0, 1, version, 4, b"")
    for flags, expected in ((FLAG, True), (0, False)):
        query = Query(1, "", 0, 0, 0, 0, False, b"", flags)
        assert query.session(5, description).explicit_timestamps is (expected if told else None)


def test_mysql_has_another_word_for_it_than_flags() -> None:
    description = FormatDescription(0, 1, "8.4.0", 4, b"")
    assert Query(1, "", 0, 0, 0, 0, False, b"", FLAG).session(5, description).explicit_timestamps is None
    assert Query(1, "", 0, 0, 0, 0, False, b"", FLAG, False).session(5, description).explicit_timestamps is False


@pytest.mark.parametrize(
    ("kind", "end", "flags", "expected"),
    [
        (EventType.WRITE_ROWS_V1, 0, 0, False),  # MariaDB 11.4, inside a transaction
        (EventType.ROTATE, 0, 0, True),
        (EventType.ROTATE, 868, 0, False),
        (EventType.FORMAT_DESCRIPTION, 0, 0, True),
        (EventType.MARIADB_GTID_LIST, 0, 0, True),
        (EventType.QUERY, 100, ARTIFICIAL, True),
        (EventType.HEARTBEAT, 868, 0, True),
    ],
)
def test_an_end_of_zero_alone_makes_no_event_up(kind: EventType, end: int, flags: int, expected: bool) -> None:
    assert stands_in_no_file(kind, end, flags) is expected


@pytest.mark.parametrize(
    ("extra", "rest", "is_void"),
    [
        (None, b"", False),
        (0x01, b"\1", False),  # several engines
        (0x02, b"", True),  # START ALTER
        (0x04, bytes(8), False),  # COMMIT ALTER, with the number of its start
        (0x08, bytes(8), True),  # ROLLBACK ALTER
        (0x10, bytes(4), False),  # the thread's number, since 12
        (0x12, bytes(4), True),
    ],
)
def test_an_alter_in_two_phases_counts_where_it_is_committed(extra: int | None, rest: bytes, is_void: bool) -> None:
    """Flags of MariaDB's GTID event (Gtid_log_event, sql/log_event.h), behind those of DDL and of a group commit."""
    flags = 0x20 | 0x02
    body = struct.pack("<QIBQ", 7, 3, flags, 99) + (b"" if extra is None else bytes([extra]) + rest)
    begun = mariadb_transaction(body.ljust(21, b"\0"), timestamp=5, server_id=9, offset=4)
    assert (begun.gtid, begun.is_void, begun.prepares, begun.xid) == ("3-9-7", is_void, False, None)
