"""Readers take the next piece as they get free; order, bounds and errors hold."""

from __future__ import annotations

import threading

import pytest

from binlake.staging.stage import share_out

SECONDS = 20


def test_a_long_piece_lets_no_other_reader_idle() -> None:
    """It ends only when all others have: a wave with a barrier would wait for it before the third is begun."""
    others_read = threading.Event()
    ended: list[str] = []

    def work(piece: str, reader: int) -> str:
        if piece == "long":
            assert others_read.wait(SECONDS)
        return piece

    def end(piece: str) -> None:
        ended.append(piece)
        if ended == ["b", "c", "d"]:
            others_read.set()

    assert share_out(["long", "b", "c", "d"], [1, 2], work, end) == ["long", "b", "c", "d"]
    assert ended == ["b", "c", "d", "long"]


def test_a_reader_has_one_piece_at_a_time() -> None:
    busy: set[str] = set()
    most = 0
    all_at_work = threading.Barrier(3)
    lock = threading.Lock()

    def work(piece: int, reader: str) -> int:
        nonlocal most
        with lock:
            assert reader not in busy
            busy.add(reader)
            most = max(most, len(busy))
        if piece < 3:
            all_at_work.wait(SECONDS)
        threading.Event().wait(0.001)
        with lock:
            busy.remove(reader)
        return piece

    assert share_out(range(60), ["a", "b", "c"], work) == list(range(60))
    assert most == 3


@pytest.mark.parametrize("where", ["work", "ended"])
def test_after_an_error_no_piece_is_begun_and_those_that_run_are_waited_for(where: str) -> None:
    failed = threading.Event()
    begun: list[int] = []
    finished: list[int] = []

    def end(piece: int) -> None:
        if where == "ended" and piece == 0:
            failed.set()
            raise ValueError("piece 0")

    def work(piece: int, reader: str) -> int:
        begun.append(piece)
        if where == "work" and piece == 0:
            failed.set()
            raise ValueError("piece 0")
        if piece == 1:
            assert failed.wait(SECONDS)
            threading.Event().wait(0.05)
        finished.append(piece)
        return piece

    with pytest.raises(ValueError, match="piece 0"):
        share_out([0, 1, 2, 3], ["a", "b"], work, end)
    assert begun == [0, 1]
    assert finished[-1] == 1


def test_nothing_to_read() -> None:
    assert share_out([], ["a"], lambda piece, reader: piece) == []
