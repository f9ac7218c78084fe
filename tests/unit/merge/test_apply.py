"""What a merge says of the tables at work, and how it ends when it is interrupted."""

from __future__ import annotations

import gc
import io
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from binlake.merge import apply
from binlake.report import Report


def test_each_table_is_told_of_when_it_ends_and_one_that_takes_long_when_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables: Any = [SimpleNamespace(life=SimpleNamespace(id=name, name=name), steps=[]) for name in ("shop.a", "shop.b")]
    said, progress = io.StringIO(), []
    at_work = apply._AtWork(tables, Report(said))

    def tell() -> None:
        at_work.tell(lambda done, total, detail="": progress.append((done, total, detail)))

    with at_work.on(tables[:1]):
        tell()
    monkeypatch.setattr(apply, "_SAID_EVERY", 0)
    with at_work.on(tables[1:]):
        tell()
        tell()
    assert said.getvalue().splitlines() == [
        "shop.a: 0 mutations merged in 0.0 s, 1 of 2 tables left",
        "shop.b: merging 0 mutations",
        "shop.b: 0 mutations merged in 0.0 s, no table left",
    ]
    assert progress[0] == (0, 2, "0 of 2 tables; now shop.a")
    assert progress[-1] == (1, 2, "1 of 2 tables; now shop.b")


def test_two_lives_of_one_name_are_told_of_one_after_the_other() -> None:
    tables: Any = [SimpleNamespace(life=SimpleNamespace(id=life, name="shop.a"), steps=[]) for life in ("old", "new")]
    said = io.StringIO()
    with apply._AtWork(tables, Report(said)).on(tables):
        pass
    assert [line.split(", ")[1] for line in said.getvalue().splitlines()] == ["1 of 2 tables left", "no table left"]


def test_who_interrupts_a_merge_does_not_wait_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = Event()
    context = SimpleNamespace(cancelAllJobs=cancelled.set)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    with ThreadPoolExecutor(1) as pool:
        at_work, waiting = (pool.submit(cancelled.wait, 30) for _ in range(2))
        apply._give_up([at_work, waiting])
    assert at_work.result() is True
    assert waiting.cancelled()


class Rows:
    """Rows that a merge holds."""


def test_the_rows_of_a_merge_that_failed_are_freed_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Rows]] = []

    class Group:
        def __init__(self, *_: Any) -> None:
            self.rows = Rows()

        def run(self) -> None:
            rows = Rows()
            held.extend([weakref.ref(rows), weakref.ref(self.rows)])
            raise OSError("the disk is full")

    monkeypatch.setattr(apply, "_Group", Group)
    monkeypatch.setattr(apply, "shown_progress", lambda *_: nullcontext(lambda *_: None))
    names = ("shop.a", "shop.b")
    tables = [SimpleNamespace(life=SimpleNamespace(id=name, name=name), steps=[None], names={name}) for name in names]
    steps: Any = SimpleNamespace(tables=tables, beside=[])
    gc.disable()
    try:
        with suppress(OSError):
            apply.apply_batch(Any, Any, 1, "", steps, Report(quiet=True))  # type: ignore[arg-type]
            pytest.fail("nothing was raised")
        assert [rows() for rows in held] == [None] * 4
    finally:
        gc.enable()
