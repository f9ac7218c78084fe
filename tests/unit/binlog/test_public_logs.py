"""Logs of servers that can't be had here, from public texts of mysqlbinlog (tests/binlogs/public): the bytes are the
servers' own, as their checksums prove; what opens and ends a transaction isn't shown there, and is made beside them."""

from __future__ import annotations

import base64
import datetime
import re
import struct
import sys
import uuid
import zlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

from mutate import Event, assemble

from binlake.binlog import payload
from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations, SliceSummary, Stopped
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, FormatDescription
from binlake.binlog.reader import Emitted, read
from binlake.binlog.tablemap import NO_METADATA_REMEDY
from binlake.binlog.transport import FileTransport
from binlake.position import Slice

PUBLIC = Path(__file__).parents[2] / "binlogs" / "public"
OWNER = uuid.UUID("7f4be0b0-09b9-11ef-9bc6-0242ac130002")


def raw_events(text: str) -> list[bytes]:
    """Return the events of all BINLOG statements; each begins a line, and has as many lines as its size needs."""
    bodies: list[bytes] = []
    for block in re.findall(r"BINLOG '\n(.+?)\n'", text, re.DOTALL):
        begun = ""
        for line in block.split("\n"):
            begun += line
            event = base64.b64decode(begun)
            if len(event) >= HEADER_SIZE and len(event) == HEADER.unpack_from(event)[3]:
                bodies.append(event)
                begun = ""
        assert not begun
    return bodies


def parts_of(name: str) -> list[Event]:
    """Return the events of a public text, whose checksums are right."""
    events: list[Event] = []
    for event in raw_events((PUBLIC / f"{name}.txt").read_text(encoding="utf-8")):
        # The flag of a file in use (17, bit 0) is set and taken away without another checksum.
        sealed = event[:17] + bytes([event[17] & 0xFE]) + event[18:-4]
        assert zlib.crc32(sealed) == int.from_bytes(event[-4:], "little")
        timestamp, kind, server_id, _, _, flags = HEADER.unpack_from(event)
        events.append(Event(timestamp, kind, server_id, flags, event[HEADER_SIZE:-4]))
    return events


def transaction(number: int, of: list[Event]) -> list[Event]:
    """Return the events between a GTID, BEGIN and an XID, as MySQL writes them."""
    first = of[0]
    microseconds = first.timestamp * 1_000_000
    gtid = b"\0" + OWNER.bytes + struct.pack("<Q", number) + b"\2" + struct.pack("<QQ", number - 1, number)
    gtid += microseconds.to_bytes(7, "little") + b"\x64" + struct.pack("<I", 80036)
    begin = struct.pack("<IIBHH", 45, 0, 0, 0, 0) + b"\0BEGIN"
    made = [(EventType.GTID, gtid), (EventType.QUERY, begin), *((event.kind, event.body) for event in of)]
    made.append((EventType.XID, struct.pack("<Q", number)))
    return [Event(first.timestamp, kind, first.server_id, 0, body) for kind, body in made]


def decoded(path: Path, description: Event, transactions: list[list[Event]]) -> list[Emitted]:
    inside = [event for number, of in enumerate(transactions, 1) for event in transaction(number, of)]
    path.write_bytes(assemble([description, *inside], checksum=True))
    part = Slice(path.name, 4, path.stat().st_size, 0, True)
    return list(read(FileTransport(path), part, lambda *_: True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "binlog.000001"


SINGLE = struct.unpack("<f", struct.pack("<f", 12345.678))[0]
ROW = {
    "id": 1, "varchar_col": "Example text", "char_col": "ABCDE", "int_col": 12345, "smallint_col": 32767,
    "tinyint_col": 127, "bigint_col": 9223372036854775807, "float_col": SINGLE,
    "double_col": 12345678.91011, "decimal_col": Decimal("12345.67"), "date_col": datetime.date(2024, 5, 10),
    "time_col": 55_800_000_000, "datetime_col": datetime.datetime(2024, 5, 10, 15, 30),
    "timestamp_col": datetime.datetime(2024, 5, 12, 8, 56, 26, tzinfo=datetime.UTC), "year_col": 2024,
    "blob_col": b"binary data here", "text_col": "Longer piece of text", "enum_col": "val1", "set_col": "set1,set2",
}  # fmt: skip
"""As the INSERT in the log's own Rows_query event has it."""
CHANGED = ROW | {"int_col": 2222}

DESCRIPTIONS = {"8.4.2-2": "mysql", "8.4.8-8": "mysql", "9.0.0-debug": "mysql"}


def description_of(version: str) -> Event:
    if version == "8.0.36":
        return parts_of("mysql-8.0.36")[0]
    by_version = {FormatDescription.parse(event).server_version: event for event in raw_events(
        (PUBLIC / "descriptions.txt").read_text(encoding="utf-8"))}  # fmt: skip
    timestamp, kind, server_id, _, _, flags = HEADER.unpack_from(by_version[version])
    return Event(timestamp, kind, server_id, flags, by_version[version][HEADER_SIZE:-4])


@pytest.mark.parametrize("version", ["8.0.36", *DESCRIPTIONS])
def test_rows_of_8_0_are_what_its_statements_say(version: str, path: Path) -> None:
    """The description of 8.0.36 is that of the rows; behind those of 8.4 and 9.0, which differ in the lengths of kinds
    that aren't written any more and know more kinds, the same rows mean the same."""
    _, *rest = parts_of("mysql-8.0.36")
    assert [event.kind for event in rest] == [
        kind
        for rows in (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)
        for kind in (EventType.ROWS_QUERY, EventType.TABLE_MAP, rows)
    ]
    emitted = decoded(path, description_of(version), [rest[at : at + 3] for at in (0, 3, 6)])
    batches = [item for item in emitted if isinstance(item, Mutations)]
    rows = pa.Table.from_batches([batch.batch for batch in batches]).to_pylist()
    assert [(row["op"], row["before"], row["after"]) for row in rows] == [
        (INSERT, None, ROW),
        (UPDATE, ROW, CHANGED),
        (DELETE, CHANGED, None),
    ]
    assert [row["gtid"] for row in rows] == [f"{OWNER}:{number}" for number in (1, 2, 3)]
    assert {batch.key for batch in batches} == {("id",)}
    types = {column.name: column.type for column in batches[0].columns}
    assert (types["enum_col"], types["set_col"], types["year_col"]) == ("enum", "set", "year")
    (summary,) = [item for item in emitted if isinstance(item, SliceSummary)]
    assert summary.gtid_set == f"{OWNER}:1-3"
    assert not [item for item in emitted if isinstance(item, Stopped)]


@pytest.mark.parametrize(
    ("name", "table"), [("mysql-8.0.41-minimal", "test.categories"), ("mysql-5.7.21", "xiaohaizi.s1")]
)
def test_rows_without_metadata_stop_their_table_and_say_which_servers_write_it(
    name: str, table: str, path: Path
) -> None:
    description, *rest = parts_of(name)
    emitted = decoded(path, description, [rest])
    (stop,) = [item for item in emitted if isinstance(item, Stopped)]
    assert (str(stop.name), stop.remedy) == (table, NO_METADATA_REMEDY)
    assert "MySQL 8.0" in stop.remedy
    assert not [item for item in emitted if isinstance(item, Mutations)]


def test_a_compressed_transaction_of_8_0_is_read_to_its_end(path: Path) -> None:
    lines = (PUBLIC / "mysql-8.0-payload.txt").read_text(encoding="utf-8").splitlines()
    body = base64.b64decode("".join(line for line in lines if not line.startswith("#")))
    inside = b"".join(bytes(buffer[:used]) for buffer, used in payload.pieces(pa.py_buffer(body)))
    kinds, at = [], 0
    while at < len(inside):
        _, kind, _, size, _, _ = HEADER.unpack_from(inside, at)
        kinds.append(kind)
        at += size
    assert (kinds, at) == ([EventType.QUERY, EventType.TABLE_MAP, EventType.UPDATE_ROWS, EventType.XID], 960)
    assert inside.count(b"Once Upon a Time in the West") == 2
    compressed = Event(1646406641, EventType.TRANSACTION_PAYLOAD, 223344, 0, body)
    begun = [event for event in transaction(1, [compressed]) if event.kind in (EventType.GTID, compressed.kind)]
    path.write_bytes(assemble([parts_of("mysql-8.0.36")[0], *begun], checksum=True))
    part = Slice(path.name, 4, path.stat().st_size, 0, True)
    (stop,) = [item for item in read(FileTransport(path), part, lambda *_: True) if isinstance(item, Stopped)]
    assert (str(stop.name), stop.remedy) == ("demo.movies", NO_METADATA_REMEDY)


def test_descriptions_tell_flavour_checksum_and_lengths() -> None:
    events = raw_events((PUBLIC / "descriptions.txt").read_text(encoding="utf-8"))
    by_version = {description.server_version: description for description in map(FormatDescription.parse, events)}
    assert {version: description.mariadb for version, description in by_version.items()} == {
        **dict.fromkeys(DESCRIPTIONS, False),
        "10.5.10-MariaDB-1:10.5.10+maria~focal-log": True,
    }
    assert {description.checksum for description in by_version.values()} == {4}
    for description in by_version.values():
        assert description.post_header_size(EventType.TABLE_MAP, 0) == 8
        rows = EventType.WRITE_ROWS_V1 if description.mariadb else EventType.WRITE_ROWS
        assert description.post_header_size(rows, 0) == (8 if description.mariadb else 10)
