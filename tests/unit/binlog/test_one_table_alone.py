"""What is wrong with one table's map or rows concerns that table: it stops there, with its place; the others continue.

Events whose bytes, sizes and checksums are sound; a file that is damaged ends the reading (test_damaged_logs.py).
"""

from __future__ import annotations

import dataclasses
import sys
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs
from mutate import Event, assemble, events

from binlake.binlog.border import Mutations, Stopped
from binlake.binlog.events import HEADER, EventType
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES

NAMES = ["mysql-plain", "mariadb-plain", "mariadb-compressed", "mysql-compressed"]
ROWS = (
    *(EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS),
    *(EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1),
    *range(int(EventType.WRITE_ROWS_COMPRESSED_V1), int(EventType.DELETE_ROWS_COMPRESSED_V1) + 1),
)
Change = Callable[[bytes], bytes]


def _in_another_table(event: Event) -> Event:
    """The same map or rows, under the name ``o``."""
    identity = (int.from_bytes(event.body[:6], "little") + 1000).to_bytes(6, "little")
    rest = event.body[6:].replace(b"\x01t\0", b"\x01o\0", 1) if event.kind == EventType.TABLE_MAP else event.body[6:]
    return dataclasses.replace(event, body=identity + rest)


def damaged(name: str, path: Path, kinds: tuple[int, ...], number: int, change: Change) -> int:
    """Writes a log in which what ``t`` goes through the table ``o`` goes through too, and the event of these kinds with
    this number is changed for ``t``; gives its offset."""
    parts, checksum = events((logs.HERE / f"{name}.000001").read_bytes())
    made: list[Event] = []
    changed = -1
    for part in parts:
        if part.kind not in (EventType.TABLE_MAP, *ROWS):
            made.append(part)
            continue
        made += [part, _in_another_table(part)]
        if part.kind in kinds:
            if number == 0:
                changed = len(made) - 2
                made[changed] = dataclasses.replace(part, body=change(part.body))
                assert made[changed] != part
            number -= 1
    path.write_bytes(assemble(made, checksum=checksum))
    tail = 4 if checksum else 0
    return 4 + sum(HEADER.size + len(event.body) + tail for event in made[:changed])


def assert_only_t_stops(name: str, path: Path, offset: int) -> Stopped:
    """``o`` has all mutations, ``t`` all but those of the event at the offset, or of the table map there."""
    part = Slice(path.name, 4, path.stat().st_size, 0, True)
    emitted = list(read(FileTransport(path), part, lambda _, table: table in ("t", "o"), invalid=KEEP_DATES))
    expected = logs.log(name).expected["mutations"]
    assert _mutations(emitted, "o", name) == expected
    offsets = sorted(_offsets(emitted, "o"))
    first = bisect_left(offsets, offset)
    missing = offsets.count(offsets[first])
    assert _mutations(emitted, "t", name) == [*expected[:first], *expected[first + missing :]]
    (stop,) = [item for item in emitted if isinstance(item, Stopped)]
    assert (stop.name.table, stop.file) == ("t", path.name)
    assert offset <= stop.offset < offsets[first]
    assert stop.remedy
    return stop


def _of(emitted: list[Emitted], table: str) -> list[Mutations]:
    return [item for item in emitted if isinstance(item, Mutations) and item.name.table == table]


def _mutations(emitted: list[Emitted], table: str, name: str) -> list[logs.Mutation]:
    return logs.mutations(_of(emitted, table), logs.log(name).expected["columns"])


def _offsets(emitted: list[Emitted], table: str) -> list[int]:
    return [at for item in _of(emitted, table) for at in item.batch.column("offset").to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rewritten.000001"


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-5],
        lambda body: body.replace(b"\x01v\x01l", b"\x01v\x01v"),
        lambda body: body.replace(b"\x02bi", b"\x02b\xff"),
        lambda body: body.replace(b"\x0c\x03", b"\x63\x03"),
        lambda body: body.replace(b"\x0c\x03", b"\x0c\x0d"),
        lambda body: body.replace(b"\x0c\x03", b"\x41\x27"),
    ],
    ids=["cut", "one name twice", "no text", "99 digits", "more fraction than digits", "a fraction of 39 digits"],
)
@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain", "mariadb-compressed"])
def test_a_table_map_that_makes_no_sense(name: str, change: Change, number: int, path: Path) -> None:
    assert_only_t_stops(name, path, damaged(name, path, (EventType.TABLE_MAP,), number, change))


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize(
    "change",
    [lambda body: body[:-8], lambda body: body.replace(b"\x0b\xff", b"\x0a\xff", 1)],
    ids=["cut", "fewer columns"],
)
@pytest.mark.parametrize("name", ["mysql-plain", "mariadb-plain", "mariadb-compressed"])
def test_rows_that_do_not_fit_their_map(name: str, change: Change, number: int, path: Path) -> None:
    assert_only_t_stops(name, path, damaged(name, path, ROWS, number, change))


@pytest.mark.parametrize("number", [0, 4])
def test_a_json_document_that_is_none(number: int, path: Path) -> None:
    """Of a value that is found wrong in its whole column the event is told all the same."""
    offset = damaged("mysql-plain", path, ROWS, number, lambda body: body.replace(b"\x02\0\0\x04", b"\x02\xff\0\x04"))
    assert "'j'" in assert_only_t_stops("mysql-plain", path, offset).reason
