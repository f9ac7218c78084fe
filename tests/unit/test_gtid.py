"""Sets of GTIDs, against the servers' text and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from binlake.errors import UsageError
from binlake.gtid import GtidPosition, GtidSet

A, B = "06eb8d9b-e57e-11f1-9680-02fc00000001", "aaaaaaaa-0000-0000-0000-000000000001"
TAGGED = bytes.fromhex(  # PREVIOUS_GTIDS of MySQL 9.7.4
    "010300000000000106eb8d9be57e11f1968002fc000000010001000000000000000100000000000000040000000000000006eb8d9be57e11f1"
    "968002fc0000000108626c7565010000000000000001000000000000000300000000000000aaaaaaaa0000000000000000000000010001000000"
    "0000000007000000000000000800000000000000"
)
numbers = st.sets(st.integers(1, 40), max_size=20)


def of(numbers: set[int]) -> GtidSet:
    return GtidSet().adding(f"{A}:{number}" for number in numbers)


@pytest.mark.parametrize("text", ["", f"{A}:1-3", f"{A}:1-3:5:blue:1-2,{B}:7", f"{A}:blue:1"])
def test_the_servers_text_comes_back(text: str) -> None:
    assert str(GtidSet.parse(text)) == text


def test_a_set_with_tags_from_its_bytes() -> None:
    assert str(GtidSet.decode(TAGGED)) == f"{A}:1-3:blue:1-2,{B}:7"


@pytest.mark.parametrize("size", range(8, len(TAGGED), 7))
def test_bytes_that_end_early(size: int) -> None:
    with pytest.raises(ValueError, match="cut off"):
        GtidSet.decode(TAGGED[:size])


@pytest.mark.parametrize("text", ["1-2", f"{A}", f"{A}:0", f"{A}:3-1", f"{A}:1-2-3", f"x{A}:1", "0-1-2"])
def test_what_is_no_set(text: str) -> None:
    with pytest.raises(UsageError, match="is not a GTID set"):
        GtidSet.parse(text)


@given(numbers, numbers)
def test_sets_are_sets_of_numbers(ours: set[int], theirs: set[int]) -> None:
    assert of(ours).contains(of(theirs)) == (theirs <= ours)
    assert GtidSet.parse(str(of(ours))) == of(ours)
    assert {n for n in range(1, 41) if of(ours).has(f"{A}:{n}")} == ours


def test_a_tag_is_another_counter() -> None:
    assert not GtidSet.parse(f"{A}:1-5").has(f"{A}:blue:1")
    assert not GtidSet.parse(f"{A}:1-5").contains(GtidSet.parse(f"{A}:blue:1"))


def test_mariadb_counts_by_domain() -> None:
    position = GtidPosition.parse("0-1-100,5-2-7")
    assert str(position) == "0-1-100,5-2-7"
    assert position.has("0-9-100")
    assert not position.has("0-1-101")
    assert not position.has("1-1-1")
    assert position.contains(GtidPosition.parse("0-3-99"))
    assert not position.contains(GtidPosition.parse("6-1-1"))
    assert str(position.adding(["0-2-101", "6-1-1"])) == "0-2-101,5-2-7,6-1-1"


def test_the_last_of_a_domain_counts_though_its_number_is_lower() -> None:
    """gtid_strict_mode=OFF."""
    position = GtidPosition.parse("0-1-100")
    assert str(position.adding(["0-9-1"])) == str(position.union(GtidPosition.parse("0-9-1"))) == "0-9-1"
    assert str(position.highest(GtidPosition.parse("0-9-1,5-2-7"))) == "0-1-100,5-2-7"


def test_mariadbs_list_from_its_bytes() -> None:
    body = bytes.fromhex("02000000") + bytes.fromhex(
        "00000000010000006400000000000000" + "05000000020000000700000000000000"
    )
    assert str(GtidPosition.decode(body)) == "0-1-100,5-2-7"
    with pytest.raises(ValueError, match="cut off"):
        GtidPosition.decode(body[:-1])


@pytest.mark.parametrize(
    ("text", "other", "left"),
    [
        (f"{A}:1-10", f"{A}:3-4:7", f"{A}:1-2:5-6:8-10"),
        (f"{A}:1-10", f"{A}:1-20", ""),
        (f"{A}:5-6,{B}:1", f"{A}:1-5:9", f"{A}:6,{B}:1"),
    ],
)
def test_what_is_in_one_set_alone(text: str, other: str, left: str) -> None:
    assert str(GtidSet.parse(text).without(GtidSet.parse(other))) == left
