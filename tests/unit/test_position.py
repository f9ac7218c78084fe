"""Positions compare by file number and offset, and survive their text form."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from binlake.errors import UsageError
from binlake.position import Position, Range, Slice, file_number
from binlake.serialization import dumps, loads

positions = st.builds(
    Position,
    server=st.sampled_from(["3e11fa47-71ca-11e1-9e33-c80aa9429562", "mariadb-1-db/1.example"]),
    file=st.integers(1, 10**7).map(lambda number: f"mysql-bin.{number:06d}"),
    offset=st.integers(4, 2**40),
    created=st.integers(0, 2**32 - 1),
    gtid_set=st.sampled_from(["", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "0-1-77"]),
)


@given(positions)
def test_text_and_json_bring_back_the_same_position(position: Position) -> None:
    assert Position.parse(str(position), position.gtid_set) == position
    assert loads(Position, dumps(position)) == position


def test_files_compare_as_numbers() -> None:
    assert Position("s", "binlog.999999", 900, 1) < Position("s", "binlog.1000000", 4, 1)
    assert file_number("a.b.000042") == 42


def test_offsets_beyond_four_gibibytes_compare() -> None:
    assert Position("s", "b.000001", 2**32 + 5, 1) > Position("s", "b.000001", 7, 1)


@given(positions, positions)
def test_of_two_positions_one_alone_comes_first(first: Position, second: Position) -> None:
    second = replace(second, server=first.server)
    assert [first < second, first > second, first.order == second.order].count(True) == 1
    assert (first <= second) == (not first > second)
    assert (first >= second) == (not first < second)


def test_the_same_place_with_another_gtid_set_comes_neither_before_nor_behind() -> None:
    with_gtid, without_gtid = Position("s", "b.000001", 4, 1, "0-1-7"), Position("s", "b.000001", 4, 1)
    assert not with_gtid < without_gtid
    assert not with_gtid > without_gtid
    assert with_gtid <= without_gtid <= with_gtid
    assert with_gtid != without_gtid


def test_positions_of_two_servers_do_not_compare() -> None:
    with pytest.raises(ValueError, match="two servers"):
        assert Position("a", "b.000001", 4, 1) < Position("b", "b.000001", 5, 1)


@pytest.mark.parametrize("text", ["", "nonsense", "server/binlog:4@1", "server/binlog.000001:x@1", "binlog.000001:4@1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Position.parse(text)


@given(positions, positions)
def test_ranges_survive_json(start: Position, stop: Position) -> None:
    frozen = Range(start, stop, (Slice(start.file, start.offset, start.offset + 9, start.created, True),))
    assert loads(Range, dumps(frozen)) == frozen
    assert frozen.size == 9
