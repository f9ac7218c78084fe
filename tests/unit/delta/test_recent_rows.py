"""Rows of small data files, remembered from their writing on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.delta import recent_rows


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    recent_rows._recent.clear()


def rows(count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(count), pa.int64())})


def test_rows_of_a_small_file_are_known_and_others_are_not() -> None:
    recent_rows.keep("t/a", rows(10), ["n"])
    recent_rows.keep("t/large", rows(200_000), ["n"])
    assert recent_rows.of("t/a") == recent_rows.of("t/a", ["n"]) == rows(10)
    assert recent_rows.of("t/large") is None
    assert recent_rows.of("t/b") is None


def test_a_file_without_rows_is_known() -> None:
    recent_rows.keep("t/empty", rows(0), ["n"])
    known = recent_rows.of("t/empty")
    assert known is not None
    assert known.num_rows == 0


def test_files_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows._recent, "most", 200)  # bytes: two files of ten numbers
    paths = [f"t/{number}" for number in range(9)]
    for path in paths:
        recent_rows.keep(path, rows(10), ["n"])
    assert sum(recent_rows.of(path) is not None for path in paths) == 2


def test_a_file_that_is_gone_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows._recent, "most", 200)  # bytes: two files of ten numbers
    recent_rows.keep("t/a", rows(10), ["n"])
    recent_rows.keep("t/b", rows(10), ["n"])
    recent_rows.forget(["t/a", "t/unknown"])
    recent_rows.keep("t/c", rows(10), ["n"])
    assert recent_rows.of("t/a") is None
    assert recent_rows.of("t/b") is not None
    assert recent_rows.of("t/c") is not None


def wide_rows(count: int) -> pa.Table:
    return rows(count).append_column("text", pa.array(["x" * 100] * count))


def test_of_a_larger_file_the_key_is_known() -> None:
    recent_rows.keep("t/a", wide_rows(10_000), ["n"])
    assert recent_rows.of("t/a", ["n"]) == rows(10_000)
    assert recent_rows.of("t/a", ["n", "text"]) is None
    assert recent_rows.of("t/a") is None


def test_columns_that_were_read_are_known_unless_more_is() -> None:
    recent_rows.keep_columns("t/a", rows(10))
    assert recent_rows.of("t/a", ["n"]) == rows(10)
    assert recent_rows.of("t/a") is None
    recent_rows.keep("t/b", wide_rows(10), ["n"])
    recent_rows.keep_columns("t/b", rows(10))
    assert recent_rows.of("t/b") == recent_rows.of("t/b", ["n", "a column that came later"]) == wide_rows(10)


@pytest.mark.parametrize("numbers", [[1, None, -(2**31)], [2**31, 0], [2**63 - 1]])
def test_numbers_that_are_kept_with_fewer_bytes_come_as_they_were(numbers: list[int | None]) -> None:
    columns = pa.table({"n": pa.array(numbers, pa.int64())})
    recent_rows.keep_columns("t/a", columns)
    assert recent_rows.of("t/a", ["n"]) == columns
