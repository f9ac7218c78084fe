"""Threads that merge a few rows each, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from binlake.merge import turns
from binlake.merge.turns import Turns

PATIENCE = 30.0


class Worker:
    """A thread that takes its turn, says so, and stays until it is let go."""

    def __init__(self, in_turn: Turns) -> None:
        self.entered, self.may_end = threading.Event(), threading.Event()
        self.leaves, self.left = threading.Event(), threading.Event()
        self._in_turn = in_turn
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        with self._in_turn.taken():
            self.entered.set()
            if self.leaves.wait(0 if self.may_end.is_set() else PATIENCE):
                turns.leave()
                self.left.set()
            self.may_end.wait(PATIENCE)

    def end(self) -> None:
        self.may_end.set()
        self.leaves.set()
        self.thread.join(PATIENCE)


@contextmanager
def two_at_work(in_turn: Turns) -> Iterator[tuple[Worker, Worker]]:
    first = Worker(in_turn)
    assert first.entered.wait(PATIENCE)
    second = Worker(in_turn)
    try:
        yield first, second
    finally:
        first.end()
        second.end()


def test_the_second_one_waits_for_the_first() -> None:
    with two_at_work(Turns()) as (first, second):
        assert not second.entered.wait(0.1)
        first.end()
        assert second.entered.wait(PATIENCE)


def test_one_that_leaves_goes_on_beside_the_next() -> None:
    with two_at_work(Turns()) as (first, second):
        first.leaves.set()
        assert first.left.wait(PATIENCE)
        assert second.entered.wait(PATIENCE)
        assert first.thread.is_alive()


def test_in_a_store_that_lets_threads_wait_all_go_on_at_once() -> None:
    in_turn = Turns()
    with in_turn.taken():
        threading.Event().wait(0.2)  # as for a store's answer
    with two_at_work(in_turn) as (first, second):
        assert second.entered.wait(PATIENCE)
        assert first.thread.is_alive()


def test_a_failure_ends_the_turn() -> None:
    in_turn = Turns()
    with pytest.raises(ValueError, match="wrong"), in_turn.taken():
        raise ValueError("wrong")
    with two_at_work(in_turn) as (first, _):
        assert first.entered.is_set()


def test_who_has_no_turn_leaves_nothing() -> None:
    turns.leave()
    with two_at_work(Turns()) as (first, second):
        turns.leave()  # of this thread, which has none
        assert not second.entered.wait(0.1)
        assert first.entered.is_set()
