"""What verify says while it works."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from binlake.schema.table import TableName
from binlake.verify.verify_progress import ComparisonProgress

LARGE, SMALL = TableName("shop", "orders"), TableName("shop", "colours")


def part(*, done: bool) -> Future[object]:
    future: Future[object] = Future()
    if done:
        future.set_result({})
    return future


def test_half_of_the_work_is_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    said: list[tuple[float, float, str]] = []
    parts = {LARGE: [part(done=True), part(done=False)], SMALL: [part(done=True)]}
    how_far = ComparisonProgress(parts, {LARGE: 1_000_000, SMALL: 10}, began=100.0)
    how_far.show(lambda done, total, detail="": said.append((done, total, detail)), [SMALL], 3)
    assert said == [
        (500_020, 2_000_020, "1 of 3 tables; 500,010 of about 1,000,010 rows read by the server, 50,001 rows/s")
    ]


def test_tables_that_are_empty_are_counted() -> None:
    said: list[tuple[float, float, str]] = []
    how_far = ComparisonProgress({SMALL: [part(done=True)]}, {SMALL: 0})
    how_far.show(lambda done, total, detail="": said.append((done, total, detail)), [SMALL], 1)
    assert said == [(1, 1, "1 of 1 tables; 0 of about 0 rows read by the server")]
