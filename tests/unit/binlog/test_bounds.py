"""What a broken or malicious server sends is bounded at what servers send, and refused with its place."""

from __future__ import annotations

import dataclasses
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymysql.err import OperationalError

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs
from mutate import Event, assemble, events

from binlake.binlog import row_events
from binlake.binlog.border import Mutations, RolledBack, Stopped
from binlake.binlog.columns import TableDecoder
from binlake.binlog.events import HEADER, EventType, tagged_transaction
from binlake.binlog.query_event import Query
from binlake.binlog.query_texts import savepoint_name
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport
from binlake.errors import CorruptEvent, Malformed
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES
from binlake.source import driver
from binlake.source.dump import Dump

ERRORS = [RecursionError(), MemoryError(), KeyError("secret"), ValueError("secret")]
Change = Callable[[Event], Event | list[Event]]


def written(path: Path, name: str, change: Change) -> list[int]:
    """Write a log with some events changed; return the offsets of all its events."""
    parts, checksum = events((logs.HERE / f"{name}.000001").read_bytes())
    made: list[Event] = []
    for part in parts:
        changed = change(part)
        made += changed if isinstance(changed, list) else [changed]
    path.write_bytes(assemble(made, checksum=checksum))
    data, at, offsets = path.read_bytes(), 4, []
    while at < len(data):
        offsets.append(at)
        at += HEADER.unpack_from(data, at)[3]
    return offsets


def emitted(path: Path, skip: frozenset[int] = frozenset()) -> list[Emitted]:
    part = Slice(path.name, 4, path.stat().st_size, 0, True)
    return list(read(FileTransport(path), part, lambda _, table: table == "t", invalid=KEEP_DATES, skip=skip))


def rows(items: list[Emitted]) -> int:
    return sum(item.batch.num_rows for item in items if isinstance(item, Mutations))


def kinds_of(path: Path) -> dict[int, int]:
    """The type of each event, by its offset."""
    data, at, kinds = path.read_bytes(), 4, {}
    while at < len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, at)
        kinds[at] = kind
        at += size
    return kinds


# -- GTIDs -----------------------------------------------------------------------------------------------------------


def _as_mariadb(event: Event) -> Event:
    if event.kind != EventType.GTID:
        return event
    return dataclasses.replace(event, kind=EventType.MARIADB_GTID, body=struct.pack("<QIB6x", 7, 1, 0))


def _as_mysql(event: Event) -> Event:
    if event.kind != EventType.MARIADB_GTID:
        return event
    body = b"\1" + bytes(range(16)) + struct.pack("<QBQQ", 7, 2, 1, 2) + bytes(8)
    return dataclasses.replace(event, kind=EventType.GTID, body=body)


@pytest.mark.parametrize(("name", "change"), [("mysql-plain", _as_mariadb), ("mariadb-plain", _as_mysql)])
def test_gtids_of_the_other_kind_of_server_are_refused_with_their_place(
    name: str, change: Change, tmp_path: Path
) -> None:
    path = tmp_path / "b.000001"
    written(path, name, change)
    foreign = (EventType.MARIADB_GTID, EventType.GTID)[name.startswith("mariadb")]
    places = [at for at, kind in kinds_of(path).items() if kind == foreign]
    skip: set[int] = set()
    for place in places[:3]:
        with pytest.raises(CorruptEvent, match="other kind of server") as raised:
            emitted(path, frozenset(skip))
        assert raised.value.offset == place
        skip.add(place)
    whole = emitted(path, frozenset(places))
    assert rows(whole) == len(logs.log(name).expected["mutations"])


def test_a_tag_is_as_long_as_servers_allow() -> None:
    def variable(value: int) -> bytes:
        return b"\xff" + value.to_bytes(8, "little")

    def tagged(tag: bytes) -> bytes:
        uuid = b"".join(variable(byte) for byte in range(16))
        fields = variable(1) + uuid + variable(2) + variable(14) + variable(3) + variable(len(tag)) + tag
        return variable(1) * 3 + fields

    for size in (33, 8 << 20):
        with pytest.raises(Malformed, match="too long"):
            tagged_transaction(tagged(b"x" * size), timestamp=1, offset=4)
    assert tagged_transaction(tagged(b"x" * 32), timestamp=1, offset=4).gtid == (
        "00010203-0405-0607-0809-0a0b0c0d0e0f:" + "x" * 32 + ":7"
    )


# -- what is compressed ----------------------------------------------------------------------------------------------


def _promising(size: int, data: bytes) -> bytes:
    return bytes([0x84]) + size.to_bytes(4, "big") + zlib.compress(data, 9)


def test_rows_that_promise_more_than_an_event_has_stop_their_table(tmp_path: Path) -> None:
    path, bomb = tmp_path / "b.000001", _promising(2_300_000_000, bytes(1 << 20))

    def change(event: Event) -> Event:
        if EventType.WRITE_ROWS_COMPRESSED_V1 <= event.kind <= EventType.DELETE_ROWS_COMPRESSED_V1:
            return _with_bomb(event, bomb)
        return event

    written(path, "mariadb-compressed", change)
    stops = [item for item in emitted(path) if isinstance(item, Stopped)]
    assert stops
    assert all("2300000000 bytes promised" in stop.reason for stop in stops)


def _with_bomb(event: Event, bomb: bytes) -> Event:
    at = event.body.index(b"\x81") if b"\x81" in event.body else event.body.index(b"\x82")
    return dataclasses.replace(event, body=event.body[:at] + bomb)


def test_a_statement_that_promises_more_is_refused_and_can_be_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "b.000001"

    def change(event: Event) -> Event:
        if event.kind != EventType.QUERY_COMPRESSED:
            return event
        _, _, database, _, status = struct.unpack_from("<IIBHH", event.body)
        head = event.body[: 13 + status + database + 1]
        return dataclasses.replace(event, body=head + _promising(1 << 31, bytes(100)))

    written(path, "mariadb-compressed", change)
    places = [at for at, kind in kinds_of(path).items() if kind == EventType.QUERY_COMPRESSED]
    with pytest.raises(CorruptEvent, match="bytes promised") as raised:
        emitted(path)
    assert raised.value.offset == places[0]
    emitted(path, frozenset(places))


def test_compressed_events_are_decoded_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    path = logs.HERE / "mariadb-compressed.000001"
    expected = len(logs.log("mariadb-compressed").expected["mutations"])
    monkeypatch.setattr(row_events, "_AT_ONCE", 10)
    assert rows(emitted(path)) == expected


# -- savepoints ------------------------------------------------------------------------------------------------------


def _query(text: bytes) -> Event:
    return Event(1, EventType.QUERY, 1, 0, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + text)


def test_many_savepoints_take_no_longer_each(tmp_path: Path) -> None:
    path, statements = tmp_path / "b.000001", []
    for number in range(5_000):
        statements += [_query(b"SAVEPOINT `s%d`" % number), _query(b"ROLLBACK TO `s%d`" % number)]

    def before_the_first_commit(event: Event) -> Event | list[Event]:
        if event.kind != EventType.XID or not statements:
            return event
        made = [*statements, event]
        statements.clear()
        return made

    written(path, "mariadb-checksum-none", before_the_first_commit)
    began = time.process_time()
    items = emitted(path)
    assert time.process_time() - began < 5
    assert sum(isinstance(item, RolledBack) for item in items) >= 5_000


def test_a_long_text_about_a_savepoint_has_no_name() -> None:
    began = time.process_time()
    assert savepoint_name(b"SAVEPOINT a" + b" " * 200_000 + b"b") == ""
    assert time.process_time() - began < 1
    assert savepoint_name(b"SAVEPOINT `a``b`") == "a`b"


# -- unexpected errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_unexpected_error_has_a_place_that_can_be_stepped_over(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = logs.HERE / "mysql-plain.000001"

    def fails(body: bytes) -> Any:
        raise error

    monkeypatch.setattr(Query, "parse", fails)
    places = [at for at, kind in kinds_of(path).items() if kind == EventType.QUERY]
    with pytest.raises(CorruptEvent, match=f"can't be read: {type(error).__name__} at") as raised:
        emitted(path)
    assert raised.value.offset in places
    assert raised.value.raw
    assert "secret" not in raised.value.message
    assert rows(emitted(path, frozenset(places))) == len(logs.log("mysql-plain").expected["mutations"])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_unexpected_error_in_a_tables_rows_stops_the_table(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: TableDecoder, prepared: Any) -> Any:
        raise error

    monkeypatch.setattr(TableDecoder, "decode", fails)
    stops = [item for item in emitted(logs.HERE / "mysql-plain.000001") if isinstance(item, Stopped)]
    assert stops
    assert {stop.name.table for stop in stops} == {"t"}
    assert f"its rows can't be decoded: {type(error).__name__} at" in stops[0].reason
    assert "secret" not in stops[0].reason
    assert "binlake snapshot" in stops[0].remedy


# -- packets ---------------------------------------------------------------------------------------------------------


class EndlessPacket:
    """A socket on which a packet never ends: part after part of 16 MiB."""

    def __init__(self, part: int) -> None:
        self.bytes = (b"\xff\xff\xff\0" + bytes(part)) if part else b""
        self.sent = 0

    def settimeout(self, seconds: float) -> None: ...

    def recv_into(self, buffer: memoryview) -> int:
        size = min(len(buffer), 1 << 20)
        places = (self.sent + np.arange(size)) % len(self.bytes)
        buffer[:size] = np.frombuffer(self.bytes, np.uint8)[places].tobytes()
        self.sent += size
        return size


def test_the_parts_of_an_event_are_joined_up_to_what_a_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LARGEST_PACKET", 40 << 20)
    dump = Dump.__new__(Dump)
    dump.file, dump.offset = "binlog.000007", 4711
    dump._where = "host"
    dump._socket = EndlessPacket(0xFFFFFF)  # type: ignore[assignment]
    dump._buffer, dump._at, dump._end = np.empty(4 << 20, np.uint8), 0, 0
    with pytest.raises(CorruptEvent, match=r"binlog.000007:4711: an event of more than"):
        dump._packet()


def test_the_parts_of_an_answer_are_joined_up_to_what_a_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LARGEST_PACKET", 40 << 20)
    session = driver.DriverConnection.__new__(driver.DriverConnection)
    read, closed = iter([b"\xff\xff\xff\0", bytes(0xFFFFFF)] * 100), []

    class Parent:
        def _read_bytes(self, size: int) -> bytes:
            return next(read)

        def _force_close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(driver.DriverConnection.__base__, "_read_bytes", Parent._read_bytes)
    monkeypatch.setattr(driver.DriverConnection.__base__, "_force_close", Parent._force_close)
    for size in (4, 0xFFFFFF, 4, 0xFFFFFF, 4):
        session._read_bytes(size)
    with pytest.raises(OperationalError, match="no server sends"):
        session._read_bytes(0xFFFFFF)
    assert closed
