"""Threads that merge a few rows each, one after the other."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from binlake.merge import turns
from binlake.merge.turns import QuickWork, Turns

PATIENCE = 30.0


def jobs_of(*works: Callable[[], object]) -> deque[QuickWork]:
    return deque(QuickWork(Future(), work) for work in works)


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


def test_one_thread_does_all_jobs_of_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WAITING", 1e9)  # a machine may be busy with others
    in_turn, done = Turns(), list[tuple[int, int]]()
    jobs = jobs_of(*[lambda number=number: done.append((number, threading.get_ident())) for number in range(20)])
    threads = [threading.Thread(target=in_turn.take_all, args=(jobs,)) for _ in range(4)]
    with in_turn.taken():
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [number for number, _ in done] == [*range(20)]
    assert len({thread for _, thread in done}) == 1


def test_while_a_job_is_done_without_a_turn_another_thread_takes_the_next() -> None:
    in_turn, done = Turns(), list[str]()
    others_are_done = threading.Event()

    def leaving() -> None:
        turns.leave()
        assert others_are_done.wait(PATIENCE)
        done.append("left")

    def last() -> None:
        done.append("last")
        others_are_done.set()

    jobs = jobs_of(leaving, lambda: done.append("second"), last)
    threads = [threading.Thread(target=in_turn.take_all, args=(jobs,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert done == ["second", "last", "left"]


def test_jobs_that_wait_for_a_store_are_done_at_once() -> None:
    in_turn, at_once = Turns(), threading.Barrier(3)
    jobs = jobs_of(lambda: threading.Event().wait(0.2) and None, *[lambda: at_once.wait(PATIENCE) and None] * 3)
    threads = [threading.Thread(target=in_turn.take_all, args=(jobs,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not jobs
    assert not at_once.broken


def test_each_item_has_its_own_outcome() -> None:
    def work(number: int) -> int:
        if number % 3 == 0:
            raise ValueError(number)
        return -number

    with ThreadPoolExecutor(2) as pool:
        futures = turns.submitted(pool, 2, work, range(9), lambda number: number % 2 == 0)
    failed = [future.exception() is not None for future in futures]
    assert failed == [number % 3 == 0 for number in range(9)]
    assert [future.result() for future, lost in zip(futures, failed, strict=True) if not lost] == [
        -1,
        -2,
        -4,
        -5,
        -7,
        -8,
    ]


def test_items_that_are_cancelled_are_left_out() -> None:
    began, may_end, done = threading.Event(), threading.Event(), list[int]()

    def work(number: int) -> None:
        began.set()
        assert may_end.wait(PATIENCE)
        done.append(number)

    with ThreadPoolExecutor(2) as pool:
        futures = turns.submitted(pool, 2, work, range(5), lambda number: True)
        assert began.wait(PATIENCE)
        assert [future.cancel() for future in futures] == [False, True, True, True, True]
        may_end.set()
        assert not wait(futures, timeout=PATIENCE).not_done
    assert done == [0]


class Rows:
    """Rows that a merge holds."""


@pytest.mark.parametrize("is_quick", [True, False])
def test_what_an_item_that_failed_held_is_freed_with_its_error(is_quick: bool) -> None:
    held: list[weakref.ref[Rows]] = []

    def work(number: int) -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        raise ValueError(number)

    gc.disable()
    try:
        with ThreadPoolExecutor(2) as pool:
            futures = turns.submitted(pool, 2, work, range(8), lambda number: is_quick)
            wait(futures)
        assert [repr(future.exception()) for future in futures] == [f"ValueError({number})" for number in range(8)]
        del futures
        assert [rows() for rows in held] == [None] * 8
    finally:
        gc.enable()


def test_nobody_waits_for_items_that_no_thread_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(in_turn: Turns) -> None:
        raise MemoryError("no thread")

    monkeypatch.setattr(Turns, "taken", fails)
    with ThreadPoolExecutor(2) as pool:
        futures = turns.submitted(pool, 2, str, range(3), lambda number: number < 2)
        assert not wait(futures, timeout=PATIENCE).not_done
    assert futures[2].result() == "2"
    assert [repr(future.exception()) for future in futures[:2]] == ["MemoryError('no thread')"] * 2


def test_an_item_that_another_thread_works_on_keeps_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, failed, taken = threading.Event(), threading.Event(), Turns.taken

    @contextmanager
    def fails_while_another_works(in_turn: Turns) -> Iterator[None]:
        if begun.is_set():
            raise MemoryError("no thread")
        with taken(in_turn):
            yield

    def work(number: int) -> int:
        turns.leave()
        begun.set()
        assert failed.wait(PATIENCE)
        return number

    monkeypatch.setattr(Turns, "taken", fails_while_another_works)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        pools = iter([first, second])

        def submit(*call: Any) -> Future[Any]:
            submitted: Future[Any] = next(pools).submit(*call)
            assert begun.wait(PATIENCE)
            return submitted

        pool: Any = SimpleNamespace(submit=submit)
        futures = turns.submitted(pool, 2, work, range(2), lambda _: True)
        futures[1].exception(PATIENCE)
        failed.set()
        assert futures[0].result(PATIENCE) == 0
    assert repr(futures[1].exception()) == "MemoryError('no thread')"
