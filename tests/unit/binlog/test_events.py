"""The bodies of small events."""

from __future__ import annotations

import struct

import pytest

from binlake.binlog.events import ARTIFICIAL, EventType, FormatDescription, is_in_no_file, mariadb_transaction
from binlake.binlog.query_event import Query
from binlake.errors import Malformed

FLAG = 1 << 24


@pytest.mark.parametrize(
    ("version", "known"),
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
def test_mariadb_tells_explicit_defaults_for_timestamp_since(version: str, known: bool) -> None:
    description = FormatDescription(0, 1, version, 4, b"")
    for flags, expected in ((FLAG, True), (0, False)):
        query = Query(1, "", 0, 0, 0, 0, False, b"", flags)
        assert query.session(5, description).explicit_timestamps is (expected if known else None)


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
    assert is_in_no_file(kind, end, flags) is expected


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


def query(status: str, text: bytes) -> Query:
    """A QUERY_EVENT with these status variables, in hexadecimal digits."""
    variables = bytes.fromhex(status)
    return Query.parse(struct.pack("<IIBHH", 1, 0, 1, 0, len(variables)) + variables + b"d\0" + text)


FIRST = "00 00 00 00 01 01 00 00 20 54 00 00 00 00 06 03 73 74 64"
COLLATIONS = "83 05 21 00 00 08 23 00 00 0a 2d 00 00 09 36 00 00 0b 3c 00 00 0c"


@pytest.mark.parametrize("collations", ["", "83 00", COLLATIONS], ids=["10.11", "11.4", "11.8"])
def test_default_collations_stand_before_the_clients(collations: str) -> None:
    """As MariaDB logs CREATE TABLE with CHARSET and without COLLATE."""
    behind = "04 0c 00 08 00 00 09 05 06 2b 30 33 3a 30 30 80 40 e2 01 81 08 00 00 00 00 00 00 00"
    parsed = query(f"{FIRST} {collations} {behind}", b"CREATE TABLE \x8e\xb1")
    assert (parsed.client_collation, parsed.server_collation, parsed.time_zone) == (12, 2304, "+03:00")
    assert (parsed.microsecond, parsed.database, parsed.text) == (123456, "d", b"CREATE TABLE \x8e\xb1")


def test_a_text_is_not_guessed_where_its_character_set_is_behind_something_new() -> None:
    assert query(f"{FIRST} c8 01 04 0c 00 08 00 00 09", b"CREATE TABLE t").text == b"CREATE TABLE t"
    assert query(f"{FIRST} 04 0c 00 08 00 00 09 c8 01", b"CREATE TABLE \x8e\xb1").client_collation == 12
    with pytest.raises(Malformed, match="status variable 200"):
        query(f"{FIRST} c8 01 04 0c 00 08 00 00 09", b"CREATE TABLE \x8e\xb1")
