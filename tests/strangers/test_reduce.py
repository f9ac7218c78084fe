"""The smallest part of a list for which something still holds."""

from __future__ import annotations

from collections.abc import Sequence

from strangers.reduce import reduced


def test_what_isnt_needed_goes() -> None:
    asked = 0

    def still(part: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return {3, 41, 97} <= {*part}

    assert reduced(range(100), still, 60) == [3, 41, 97]
    assert asked < 100


def test_the_order_is_kept_and_time_is_bounded() -> None:
    assert reduced([5, 1, 4], lambda part: 5 in part and 4 in part, 60) == [5, 4]
    assert reduced([5, 1, 4], lambda part: True, 0) == [5, 1, 4]
