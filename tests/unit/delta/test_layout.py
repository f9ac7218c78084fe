"""Which data files are written again: few files, none wide, and no more work than what changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta.layout import FEWEST, Rewrite, TableFile, data_files, old_enough, rewrites, smallest
from binlake.schema.table import Column, TableSchema

WHOLE, SMALL = 100, 10
"""Bytes, of a target of 100."""


def whole(low: int, high: int, *, deleted: int = 0) -> TableFile:
    return TableFile(f"whole {low}-{high}", WHOLE, 100, (low,), (high,), deleted)


def small(low: int, high: int, number: int = 0) -> TableFile:
    return TableFile(f"small {low}-{high} {number}", SMALL, 10, (low,), (high,))


def chosen(*files: TableFile, overlap: int | None = 4) -> list[Rewrite]:
    return rewrites(files, target=100, overlap=overlap)


def test_an_empty_table_and_whole_files_side_by_side_need_nothing() -> None:
    assert chosen() == []
    assert chosen(*(whole(n, n + 9) for n in range(0, 1000, 10))) == []


def test_a_few_small_files_wait_for_more() -> None:
    assert chosen(*(small(n, n) for n in range(FEWEST - 1))) == []


def test_small_files_at_the_end_become_one_and_what_is_whole_stays() -> None:
    appended = [small(n, n + 9) for n in range(100, 150, 10)]
    (group,) = chosen(whole(0, 49), whole(50, 99), *appended)
    assert (set(group.files), group.into) == (set(appended), 1)


def test_small_files_fill_files_up_to_the_target() -> None:
    groups = chosen(*(small(n, n) for n in range(24)))
    assert [len(group.files) for group in groups] == [10, 10, 4]
    assert [(group.low, group.high) for group in groups] == [((0,), (9,)), ((10,), (19,)), ((20,), (23,))]


def test_small_files_aren_t_put_together_over_a_whole_one_between() -> None:
    """The file that came of it would be looked into for every key of the one between."""
    left, right = [small(n, n) for n in range(4)], [small(n, n) for n in range(200, 204)]
    groups = chosen(*left, whole(50, 99), *right)
    assert [set(group.files) for group in groups] == [set(left), set(right)]
    assert len(chosen(*left, *right)) == 1


def test_a_file_of_which_much_is_deleted_is_written_without_that() -> None:
    marked = whole(0, 9, deleted=20)
    assert chosen(marked, whole(10, 19, deleted=19)) == [Rewrite((marked,), 1)]


def test_wide_files_are_sorted_among_themselves_and_narrow_ones_stay() -> None:
    """The cost follows what changed: the hundred files below aren't read."""
    narrow = [whole(n, n + 9) for n in range(0, 1000, 10)]
    wide = [whole(n, 990 + n) for n in range(4)]
    assert chosen(*narrow, *wide[:3]) == []
    (group,) = chosen(*narrow, *wide)
    assert (set(group.files), group.into) == (set(wide), 4)


def test_without_sorting_wide_files_stay() -> None:
    assert chosen(*(whole(0, 99 + n) for n in range(9)), overlap=None) == []


def test_small_wide_files_become_one_wide_file_first() -> None:
    narrow = [whole(n, n + 9) for n in range(0, 100, 10)]
    wide = [small(0, 99, number) for number in range(8)]
    (group,) = chosen(*narrow, *wide)
    assert (set(group.files), group.into) == (set(wide), 1)


@pytest.mark.parametrize("overlap", [None, 4])
def test_files_without_statistics_are_put_together_by_size(overlap: int | None) -> None:
    unknown = [TableFile(f"f{number}", SMALL, 10) for number in range(12)]
    groups = chosen(*unknown, overlap=overlap)
    assert [len(group.files) for group in groups] == [10]


def test_a_key_of_two_columns_is_ordered_by_both() -> None:
    """Files of one tenant follow each other by the second column."""
    files = [TableFile(f"f{n}", WHOLE, 10, (1, n * 10), (1, n * 10 + 9)) for n in range(20)]
    assert chosen(*files) == []
    over = [TableFile(f"g{n}", WHOLE, 10, (1, 0), (1, 199)) for n in range(6)]
    (group,) = chosen(*files, *over)
    assert set(group.files) == set(over)


def test_the_files_of_a_table(tmp_path: Path) -> None:
    schema = TableSchema((Column("id", "int"), Column("v", "int")), ("id",), "primary")
    for low in (10, 1):
        write_deltalake(str(tmp_path), pa.table({"id": [low, low + 5], "v": [1, 2]}), mode="append")
    in_order = sorted(data_files(DeltaTable(str(tmp_path)), str(tmp_path), schema), key=lambda file: file.low)
    assert [(file.low, file.high, file.rows, file.deleted) for file in in_order] == [
        ((1,), (6,), 2, 0),
        ((10,), (15,), 2, 0),
    ]
    assert all((tmp_path / file.path).stat().st_size == file.bytes for file in in_order)


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([4_000, 5_000, 90_000, 12_000_000], [4_000, 5_000, 90_000]),  # small ones, whatever their number
        ([100_000, 120_000, 210_000, 440_000], [100_000, 120_000, 210_000]),  # not one larger than the others together
        ([300_000, 5_000], [5_000]),
        ([12_000_000], []),
        ([100_000] * 60, [100_000] * 40),  # so many bytes at most
        ([], []),
    ],
)
def test_the_smallest_files_are_written_anew_with_a_batchs_rows(sizes: list[int], chosen: list[int]) -> None:
    touched = [{"path": f"f{number}", "size": size} for number, size in enumerate(sizes)]
    assert [add["size"] for add in smallest(touched, 4_000_000)] == chosen


@pytest.mark.parametrize(
    ("size", "seconds", "is_chosen"),
    [
        (5_000, 0, True),
        (5_000, -60, True),
        (1_000_000, 1, False),
        (1_000_000, 30, False),
        (1_000_000, 80, True),
        (15_000_000, 60, False),
        (15_000_000, 1200, True),
        (15_000_000, -3600, False),
    ],
    ids=[
        "small", "small, by a clock that is ahead", "written a second ago", "half a minute ago", "long enough ago",
        "large and a minute old", "large, of hourly batches", "large, by a clock that is ahead",
    ],
)  # fmt: skip
def test_a_file_that_was_written_lately_isnt_written_anew(size: int, seconds: int, is_chosen: bool) -> None:
    now = 1_800_000_000_000
    add = {"path": "f", "size": size, "modificationTime": now - 1000 * seconds, "stats": '{"numRecords": 7}'}
    assert old_enough([add], now) == [add] * is_chosen
    assert old_enough([{**add, "stats": None}], now), "of which nobody knows how many rows it has"
