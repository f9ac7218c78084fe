"""Real logs rewritten into forms that a test server can't be made to write: they mean what they meant."""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate, count
from pathlib import Path
from unittest import mock

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs
from mutate import Event, assemble, events

from binlake.binlog import transport
from binlake.binlog.border import Mutations, SliceSummary, Stopped
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.events import HEADER, IGNORABLE, EventType
from binlake.binlog.reader import Emitted, read
from binlake.binlog.row_events import up_to_last_failing
from binlake.binlog.transport import FileTransport, LogChunk
from binlake.errors import CorruptEvent, UnsupportedEvent
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES

GIB = 1 << 30
ROWS_V2 = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)
ROWS = (*ROWS_V2, EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1)


def rewritten(name: str, path: Path, change: Callable[[Event], list[Event]], *, checksum: bool = True) -> Slice:
    parts, _ = events((logs.HERE / f"{name}.000001").read_bytes())
    path.write_bytes(assemble([new for part in parts for new in change(part)], checksum=checksum))
    return Slice(path.name, 4, path.stat().st_size, 0, True)


def mutations(path: Path, part: Slice, name: str, sent: FileTransport | None = None) -> list[logs.Mutation]:
    emitted = list(read(sent or FileTransport(path), part, lambda _, table: table == "t", invalid=KEEP_DATES))
    assert not [item for item in emitted if isinstance(item, Stopped)]
    return logs.mutations(emitted, logs.log(name).expected["columns"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rewritten.000001"


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain", "mysql-compressed", "mariadb-compressed"])
def test_a_log_taken_apart_and_put_together_is_the_same_log(name: str, checksum: bool, path: Path) -> None:
    part = rewritten(name, path, lambda event: [event], checksum=checksum)
    if checksum:
        assert path.read_bytes() == (logs.HERE / f"{name}.000001").read_bytes()
    assert mutations(path, part, name) == logs.log(name).expected["mutations"]


@pytest.mark.parametrize("size", [3, 20, 255, 60_000])
def test_extra_row_data_is_stepped_over_by_its_length(size: int, path: Path) -> None:
    """As NDB and partitioned tables write it: two bytes of length, which count themselves, before the rows."""

    def with_extra(event: Event) -> list[Event]:
        if event.kind in ROWS_V2:
            assert event.body[8:10] == b"\x02\0"
            body = event.body[:8] + size.to_bytes(2, "little") + b"\xff" * (size - 2) + event.body[10:]
            event = dataclasses.replace(event, body=body)
        return [event]

    part = rewritten("mysql-plain", path, with_extra)
    assert mutations(path, part, "mysql-plain") == logs.log("mysql-plain").expected["mutations"]


def test_rows_of_version_1_mean_the_same(path: Path) -> None:
    def older(event: Event) -> list[Event]:
        if event.kind in ROWS_V2:
            event = dataclasses.replace(event, kind=event.kind - 7, body=event.body[:8] + event.body[10:])
        return [event]

    part = rewritten("mysql-types", path, older)
    assert mutations(path, part, "mysql-types") == logs.log("mysql-types").expected["mutations"]


@pytest.mark.parametrize("identity", [1, 0xFFFFFF + 1, (1 << 48) - 1])
@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain"])
def test_one_table_id_for_two_shapes_one_after_the_other(name: str, identity: int, path: Path) -> None:
    def same_id(event: Event) -> list[Event]:
        if event.kind in (EventType.TABLE_MAP, *ROWS):
            event = dataclasses.replace(event, body=identity.to_bytes(6, "little") + event.body[6:])
        return [event]

    part = rewritten(name, path, same_id)
    assert mutations(path, part, name) == logs.log(name).expected["mutations"]


@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain", "mysql-compressed"])
def test_offsets_beyond_4_gib(name: str, path: Path) -> None:
    """Positions in events have 32 bits; ours don't."""
    data = (logs.HERE / f"{name}.000001").read_bytes()
    head = HEADER.unpack_from(data, 4)[3] + 4
    start = 5 * GIB
    parts, checksum = events(data)
    with path.open("wb") as file:  # a hole takes no room on the disk
        file.write(data[:head])
        file.seek(start)
        file.write(assemble(parts[1:], checksum=checksum, start=start))
        stop = file.tell()
    part = Slice(path.name, start, stop, 0, True)
    assert mutations(path, part, name) == logs.log(name).expected["mutations"]
    emitted = list(read(FileTransport(path), part, lambda _, table: table == "t", invalid=KEEP_DATES))
    offsets = [row["offset"] for item in emitted if isinstance(item, Mutations) for row in item.batch.to_pylist()]
    assert start < min(offsets) < max(offsets) < stop
    limits = list(transaction_boundaries(FileTransport(path), part))
    assert limits[0].start_offset >= start
    assert limits[-1].end_offset <= stop


@pytest.mark.parametrize("kind", [1, 99, 173, 255])
def test_an_unknown_event_stops_the_reading_unless_it_may_be_ignored(kind: int, path: Path) -> None:
    def foreign(flags: int) -> Callable[[Event], list[Event]]:
        def add(event: Event) -> list[Event]:
            return [Event(0, kind, 1, flags, b"something new"), event] if event.kind == EventType.XID else [event]

        return add

    part = rewritten("mysql-plain", path, foreign(0x80))
    assert mutations(path, part, "mysql-plain") == logs.log("mysql-plain").expected["mutations"]
    part = rewritten("mysql-plain", path, foreign(0))
    with pytest.raises(UnsupportedEvent, match=rf"rewritten\.000001:\d+: .* {kind},"):
        mutations(path, part, "mysql-plain")


@pytest.mark.parametrize("flags", [0, IGNORABLE])
def test_rows_in_pieces_are_refused_by_name_before_any_of_them_is_passed_over(flags: int, path: Path) -> None:
    """PARTIAL_ROW_DATA_EVENT of MariaDB 12.3 (knowledge base): how many pieces, which, flags, the size of the whole."""
    numbers = count(1)

    def in_pieces(event: Event) -> list[Event]:
        if event.kind not in ROWS or next(numbers) != 2:
            return [event]
        half = len(event.body) // 2
        whole = b"\1" + len(event.body).to_bytes(8, "little")
        heads = (struct.pack("<II", 2, 1) + whole, struct.pack("<II", 2, 2) + b"\0")
        pieces = zip(heads, (event.body[:half], event.body[half:]), strict=True)
        return [Event(event.timestamp, EventType.PARTIAL_ROW_DATA, 1, flags, head + piece) for head, piece in pieces]

    part = rewritten("mariadb-plain", path, in_pieces)
    emitted: list[Emitted] = []
    with pytest.raises(UnsupportedEvent, match=r"rewritten\.000001:\d+: .*PARTIAL_ROW_DATA_EVENT") as refused:
        emitted.extend(read(FileTransport(path), part, lambda _, table: table == "t"))
    assert "binlog_row_event_fragment_threshold" in refused.value.remedy


@pytest.mark.parametrize("kind", [EventType.INCIDENT, EventType.START_ENCRYPTION])
def test_no_flag_makes_a_known_event_one_to_step_over(kind: EventType, path: Path) -> None:
    def add(event: Event) -> list[Event]:
        return [Event(0, kind, 1, IGNORABLE, b"\1\0\0"), event] if event.kind == EventType.XID else [event]

    part = rewritten("mysql-plain", path, add)
    with pytest.raises(UnsupportedEvent) as refused:
        mutations(path, part, "mysql-plain")
    if kind == EventType.INCIDENT:  # a snapshot of one table doesn't get past it
        assert "snapshot all tables again" in refused.value.remedy


@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain", "mysql-checksum-none", "mariadb-checksum-none"])
@pytest.mark.parametrize("closed", [EventType.STOP, EventType.ROTATE, None])
def test_a_file_that_its_server_did_not_close(name: str, closed: EventType | None, path: Path) -> None:
    parts, _ = events((logs.HERE / f"{name}.000001").read_bytes())
    kept = [part for part in parts if part.kind not in (EventType.STOP, EventType.ROTATE)]
    body = b"" if closed == EventType.STOP else (4).to_bytes(8, "little") + b"binlog.1000000"
    last = [] if closed is None else [Event(0, closed, 1, 0, body)]
    path.write_bytes(assemble([*kept, *last], checksum="none" not in name))
    part = Slice(path.name, 4, path.stat().st_size, 0, True)
    summary = list(read(FileTransport(path), part, lambda _, table: False))[-1]
    assert isinstance(summary, SliceSummary)
    assert summary.ends_open == (closed is None)
    up_to_there = dataclasses.replace(part, whole=False)
    summary = list(read(FileTransport(path), up_to_there, lambda _, table: False))[-1]
    assert isinstance(summary, SliceSummary)
    assert not summary.ends_open, "it may continue"


def test_a_file_that_is_encrypted_from_its_second_event_on_is_refused(path: Path) -> None:
    """As MariaDB's encrypt_binlog writes it. Its server sends the same event, and in the clear what follows."""

    def encrypted(event: Event) -> list[Event]:
        start = Event(0, EventType.START_ENCRYPTION, 1, IGNORABLE, b"\1\1\0\0\0" + bytes(12))
        return [start, event] if event.kind == EventType.MARIADB_GTID_LIST else [event]

    part = rewritten("mariadb-plain", path, encrypted)
    with pytest.raises(CorruptEvent, match="encrypted") as refused:
        mutations(path, part, "mariadb-plain")
    assert "through its server" in refused.value.remedy
    with pytest.raises(CorruptEvent, match="encrypted"):
        FileTransport(path).whole_events(part.file)
    assert mutations(path, part, "mariadb-plain", SentByServer(path)) == logs.log("mariadb-plain").expected["mutations"]


class SentByServer(FileTransport):
    """A file as its server sends it."""

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        with mock.patch.object(transport, "_refuse_encrypted"):
            yield from super().chunks(part)


CONTENTS = {
    "mysql-plain": {EventType.GTID, EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS},
    "mysql-compressed": {EventType.TRANSACTION_PAYLOAD},
    "mysql-partial-json": {EventType.PARTIAL_UPDATE_ROWS},
    "mysql-anonymous": {EventType.ANONYMOUS_GTID},
    "mysql-tagged": {EventType.GTID_TAGGED},
    "mysql-rows-query": {EventType.ROWS_QUERY},
    "mysql-xa": {EventType.XA_PREPARE},
    "mariadb-plain": {EventType.MARIADB_GTID, EventType.ANNOTATE_ROWS, EventType.WRITE_ROWS_V1},
    "mariadb-compressed": {EventType.QUERY_COMPRESSED, EventType.WRITE_ROWS_COMPRESSED_V1},
    "mariadb-xa": {EventType.XA_PREPARE},
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_log_holds_what_its_name_says(name: str) -> None:
    parts, _ = events((logs.HERE / f"{name}.000001").read_bytes())
    assert CONTENTS[name] <= {part.kind for part in parts}


@pytest.mark.parametrize("name", logs.NAMES)
def test_checksums_are_as_the_name_says(name: str) -> None:
    _, checksum = events((logs.HERE / f"{name}.000001").read_bytes())
    assert checksum == ("checksum-none" not in name)


def test_there_is_no_annotation_without_the_setting() -> None:
    parts, _ = events((logs.HERE / "mariadb-without-annotation.000001").read_bytes())
    assert EventType.ANNOTATE_ROWS not in {part.kind for part in parts}


def _refused(name: str, path: Path, kind: EventType, change: Callable[[bytes], bytes]) -> None:
    part = rewritten(
        name, path, lambda event: [dataclasses.replace(event, body=change(event.body)) if event.kind == kind else event]
    )
    with pytest.raises(CorruptEvent, match=rf"{path.name}:\d+:"):
        mutations(path, part, name)


@pytest.mark.parametrize("number", [0, 1 << 63, (1 << 64) - 1])
def test_a_gtid_that_no_server_gives_is_refused(number: int, path: Path) -> None:
    raw = number.to_bytes(8, "little")
    _refused("mysql-plain", path, EventType.GTID, lambda body: body[:17] + raw + body[25:])
    _refused("mariadb-plain", path, EventType.MARIADB_GTID, lambda body: raw + body[8:])


def test_a_tag_that_isnt_ascii_is_refused(path: Path) -> None:
    _refused("mysql-tagged", path, EventType.GTID_TAGGED, lambda body: body.replace(b"fixture", b"f\xe9xture"))


def _offsets_of_rows(path: Path) -> list[int]:
    parts, _ = events(path.read_bytes())
    ends = accumulate((HEADER.size + len(part.body) + 4 for part in parts), initial=4)
    return [offset for offset, part in zip(ends, parts, strict=False) if part.kind in ROWS]


def _offsets_decoded(emitted: list[Emitted]) -> set[int]:
    return {at for item in emitted if isinstance(item, Mutations) for at in item.batch.column("offset").to_pylist()}


@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain"])
def test_of_the_events_before_a_statement_that_cannot_be_read_one_and_the_last_are_told(name: str, path: Path) -> None:
    """Six events of rows stand before an ALTER TABLE, two behind it: what is in order behind the last is decoded."""
    numbers = count()

    def cut(event: Event) -> list[Event]:
        is_wrong = event.kind in ROWS and next(numbers) in (1, 3, 4, 7)
        return [dataclasses.replace(event, body=event.body[:-8]) if is_wrong else event]

    part = rewritten(name, path, cut)
    emitted = list(read(FileTransport(path), part, lambda _, table: table == "t"))
    offsets = _offsets_of_rows(path)
    assert [item.offset for item in emitted if isinstance(item, Stopped)] == [offsets[at] for at in (1, 4, 7)]
    assert _offsets_decoded(emitted) == {offsets[at] for at in (0, 5, 6)}


@pytest.mark.parametrize("failing", [set(), {0}, {6}, {0, 1, 2}, {2, 4}, set(range(7))])
def test_what_lies_behind_the_last_that_fails_is_found_by_halves(failing: set[int]) -> None:
    asked = []

    def fails(first: int, end: int) -> bool:
        asked.append(end - first)
        return bool(failing.intersection(range(first, end)))

    assert up_to_last_failing(7, fails) == max(failing, default=-1) + 1
    assert sum(asked) <= 7


@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain"])
@pytest.mark.parametrize("wrong", [b"\xe2\x82\x28", b"\xff\xfe\xfd", b"\xed\xa0\x80", b"\xc0\xafx"])
def test_bytes_that_are_no_text_stop_their_table(name: str, wrong: bytes, path: Path) -> None:
    """With the place in the log and the column's name; never as a question mark, and never shown."""
    euro = "€".encode()

    def change(event: Event) -> list[Event]:
        return [dataclasses.replace(event, body=event.body.replace(euro, wrong)) if event.kind in ROWS else event]

    part = rewritten(name, path, change)
    emitted = list(read(FileTransport(path), part, lambda _, table: table == "t"))
    stops = [item for item in emitted if isinstance(item, Stopped)]
    assert (stops[0].file, stops[0].offset) == (path.name, _offsets_of_rows(path)[0])
    assert _offsets_decoded(emitted).isdisjoint(stop.offset for stop in stops)
    assert all("'v'" in stop.reason and stop.remedy for stop in stops)
