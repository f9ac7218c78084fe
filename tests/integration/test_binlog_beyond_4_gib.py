"""Offsets beyond 4 GiB: the log's own 32 bits have wrapped, ours continue. The file is a hole with events behind."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.transport import FileTransport
from binlake.errors import CorruptEvent
from binlake.position import Slice
from binlog_slices import copy_of_log, read_all, rows, written
from servers import Server

WRAP = 1 << 32


def _moved(data: bytes, target: int) -> bytes:
    """Events as the server would have written them at ``target``: their ends and checksums are others."""
    moved = bytearray()
    at = 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        event = bytearray(data[at : at + size])
        struct.pack_into("<I", event, 13, (target + at + size) % WRAP)
        struct.pack_into("<I", event, size - 4, zlib.crc32(event[:-4]))
        moved += event
        at += size
    return bytes(moved)


def _sparse(folder: Path, source: Path, part: Slice, target: int) -> tuple[FileTransport, Slice]:
    """The events of ``part`` at ``target`` of a file that begins as its own does."""
    data = source.read_bytes()
    description = struct.unpack_from("<I", data, 4 + 9)[0]
    path = folder / part.file
    with path.open("wb") as file:
        file.write(data[: 4 + description])
        file.seek(target)
        file.write(_moved(data[part.start : part.stop], target))
    return FileTransport(folder), Slice(part.file, target, target + part.stop - part.start, 0, True)


def _first_size(source: Path, part: Slice) -> int:
    return int(struct.unpack_from("<I", source.read_bytes(), part.start + 9)[0])


@pytest.mark.parametrize("place", ["across", "first event ends at the wrap", "begins at the wrap", "second wrap"])
def test_rows_beyond_4_gib(server: Server, database: str, tmp_path: Path, place: str) -> None:
    server.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(300))", database=database)
    with written(server) as made:
        for number in range(20):
            server.execute(f"INSERT INTO a VALUES ({number}, REPEAT('v', {number * 15}))", database=database)
    source = copy_of_log(server, made.part.file)
    target = {
        "across": WRAP - (made.part.stop - made.part.start) // 2,
        "first event ends at the wrap": WRAP - _first_size(source, made.part),
        "begins at the wrap": WRAP,
        "second wrap": 2 * WRAP + 12_345,
    }[place]
    transport, part = _sparse(tmp_path, source, made.part, target)
    here, there = (rows(read_all(*place, database)) for place in ((FileTransport(server.datadir), made.part),
                                                                  (transport, part)))  # fmt: skip
    assert [row["after"] for row in there] == [{"id": n, "v": "v" * (n * 15)} for n in range(20)]
    assert [row["offset"] - target for row in there] == [row["offset"] - made.part.start for row in here]
    limits = [(boundary.start_offset - target, boundary.gtid) for boundary in transaction_boundaries(transport, part)]
    assert limits == [
        (boundary.start_offset - made.part.start, boundary.gtid)
        for boundary in transaction_boundaries(FileTransport(server.datadir), made.part)
    ]
    later = Slice(part.file, target + limits[10][0], part.stop, 0, False)
    assert [row["after"]["id"] for row in rows(read_all(transport, later, database))] == list(range(10, 20))


def test_an_event_that_ends_elsewhere_is_seen_beyond_4_gib_too(server: Server, database: str, tmp_path: Path) -> None:
    with written(server) as made:
        server.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)", database=database)
    transport, part = _sparse(tmp_path, copy_of_log(server, made.part.file), made.part, WRAP + 500)
    path = tmp_path / part.file
    with path.open("r+b") as file:  # the same events, 19 bytes farther
        file.seek(part.start)
        data = file.read()
        file.seek(part.start + 19)
        file.write(data)
    with pytest.raises(CorruptEvent, match="ends elsewhere"):
        read_all(transport, Slice(part.file, part.start + 19, part.stop + 19, 0, True), database)
