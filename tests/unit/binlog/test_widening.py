"""Images that lack columns, widened to all columns."""

from __future__ import annotations

import numpy as np
import pytest

from binlake.binlog.widening import widened
from binlake.errors import Malformed
from binlake.kernels import layouts

PROGRAM = layouts.many(10, layouts.PROGRAM)
PROGRAM["size"] = 1
PROGRAM[1]["prefix"] = 2
PRESENT = [True, True, False, True, False, False, False, False, False, True]
IMAGE = bytes([0b0000_0100, 7, 3, 0]) + b"abc" + b"\x09"
"""Columns 0 and 1 have values, 3 is NULL, 9 has one."""
WIDE = bytes([0b1111_1100, 0b01, 7, 3, 0]) + b"abc" + b"\x09"


def test_absent_columns_are_null() -> None:
    assert widened(IMAGE * 3, PROGRAM, PRESENT) == WIDE * 3


@pytest.mark.parametrize("size", range(1, len(IMAGE)))
def test_a_cut_image_is_malformed(size: int) -> None:
    with pytest.raises(Malformed):
        widened(IMAGE + IMAGE[:size], PROGRAM, PRESENT)


def test_an_image_without_columns_is_malformed() -> None:
    with pytest.raises(Malformed):
        widened(b"\0", PROGRAM, np.zeros(10, bool).tolist())
