"""Rows that are told apart by all their values: how many copies go, and which of a data file's rows these are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from binlake.merge.rows_without_key import Copies

ROWS = pa.table(
    {
        "f": [0.0, -0.0, None, 0.0, None, 0.0, 0.0],
        "v": ["a", "a", None, "a", None, "b", "a"],
        "b": pa.array([b"", b"", None, b"", None, b"", b""]),
    }
)


def copies(places: list[int], counts: list[int]) -> Copies:
    return Copies(ROWS.take(pa.array(places)), np.array(counts))


def test_the_first_copies_go_and_no_others() -> None:
    gone = copies([0], [2])
    assert gone.met_in(ROWS, BitMap64()) == BitMap64([0, 3])
    assert not gone


def test_null_is_a_value_and_both_zeros_differ() -> None:
    assert copies([2, 1], [1, 1]).met_in(ROWS, BitMap64()) == BitMap64([1, 2])


def test_rows_that_are_hidden_are_no_copies() -> None:
    gone = copies([0], [3])
    assert gone.met_in(ROWS, BitMap64([0, 3])) == BitMap64([6])
    assert gone
    assert gone.met_in(ROWS, BitMap64([0])) == BitMap64([3, 6])
    assert not gone


def test_a_file_without_copies_loses_nothing() -> None:
    gone = copies([5], [1])
    assert gone.met_in(ROWS.slice(0, 3), BitMap64()) == BitMap64()
    assert gone.met_in(ROWS.slice(0, 0), BitMap64()) == BitMap64()
    assert gone
