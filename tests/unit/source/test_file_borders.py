"""A file of the log continues where the one before it ended, or is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

from mutate import Event, assemble, events

from binlake.binlog.events import EventType
from binlake.binlog.transport import FileTransport
from binlake.binlog_writer.event_bytes import previous_gtids
from binlake.errors import PositionLost
from binlake.position import FIRST_OFFSET, Flavour, Position, Range, Slice
from binlake.source.file_borders import check_borders

LOGS = Path(__file__).parents[2] / "binlogs"
A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000001"
LISTS = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


def files(folder: Path, flavour: Flavour, listed: list[str]) -> Range:
    """Write a file for each list of GTIDs that come before it, and return the range of all."""
    parts, _ = events((LOGS / f"{flavour}-plain.000001").read_bytes())
    slices = []
    for number, text in enumerate(listed, 1):
        kind, body = previous_gtids(text, flavour)
        changed = [Event(part.timestamp, kind, 1, 0, body) if part.kind in LISTS else part for part in parts]
        path = folder / f"binlog.{number:06}"
        path.write_bytes(assemble(changed, checksum=True))
        slices.append(Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, whole=True))
    server = "mariadb-1-db" if flavour == "mariadb" else A
    ends = [Position(server, part.file, part.stop, 0, listed[0]) for part in (slices[0], slices[-1])]
    return Range(ends[0], ends[1], tuple(slices))


@pytest.mark.parametrize(
    ("flavour", "listed", "read", "difference"),
    [
        ("mysql", [f"{A}:1-3", f"{A}:1-5"], f"{A}:4-5", ""),
        ("mysql", [f"{A}:1-3,{B}:1", f"{A}:1-5,{B}:1-2"], f"{A}:4-5,{B}:2", ""),
        ("mysql", [f"{A}:1-3", f"{A}:1-7"], f"{A}:4-5", f"{A}:6-7 came before it, and wasn't read"),
        ("mysql", [f"{A}:1-3", f"{A}:1-4"], f"{A}:4-5", f"it lacks {A}:5, which was read"),
        ("mysql", [f"{A}:1-3", f"{B}:1-9"], f"{A}:4-5", f"{B}:1-9 came before it"),
        ("mysql", ["", f"{A}:1"], "", ""),
        ("mariadb", ["0-1-3", "0-1-5"], "0-1-5", ""),
        ("mariadb", ["0-1-3,5-1-2", "0-1-5,5-1-2"], "0-1-5", ""),
        ("mariadb", ["0-1-9", "0-2-1"], "0-2-1", ""),
        ("mariadb", ["0-1-3", "0-1-7"], "0-1-5", "it lists 0-1-7, and 0-1-5 was read"),
        ("mariadb", ["0-1-3", "0-1-3"], "0-1-5", "it lists 0-1-3, and 0-1-5 was read"),
        ("mariadb", ["0-1-3", "0-2-5"], "0-1-5", "it lists 0-2-5, and 0-1-5 was read"),
        ("mariadb", ["0-1-3", ""], "0-1-5", "it lists , and 0-1-5 was read"),
    ],
)
def test_what_a_file_lists_is_what_was_read_before_it(
    flavour: Flavour, listed: list[str], read: str, difference: str, tmp_path: Path
) -> None:
    planned = files(tmp_path, flavour, listed)
    if not difference:
        check_borders(FileTransport(tmp_path), planned, [read, ""])
        return
    with pytest.raises(PositionLost, match="snapshot all tables again") as refused:
        check_borders(FileTransport(tmp_path), planned, [read, ""])
    assert difference in refused.value.message


def test_a_range_in_one_file_asks_nothing(tmp_path: Path) -> None:
    planned = files(tmp_path, "mysql", ["", ""])
    one = Range(planned.start, planned.stop, planned.slices[:1])
    check_borders(FileTransport(tmp_path / "nowhere"), one, [""])
