"""What threads ask for at the same time is made by one of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from binlake.once import once


def test_threads_that_ask_at_once_are_given_the_same() -> None:
    made: list[object] = []

    @once
    def thing(name: str) -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        given = {*pool.map(thing, ["one"] * 8)}
    assert given == {*made}
    assert len(made) == 1
    assert thing("another") is not thing("one")


def test_what_failed_is_tried_again() -> None:
    tries = iter([False, True])

    @once
    def thing() -> str:
        if not next(tries):
            raise OSError("not now")
        return "made"

    with pytest.raises(OSError, match="not now"):
        thing()
    assert thing() == "made"
