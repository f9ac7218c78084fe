"""Progress: rich's bars where somebody looks on, plain lines in a log; what ended well ended at 100 %."""

from __future__ import annotations

import io
import os
import pty
import re
from collections.abc import Callable
from typing import Any

import pytest

from binlake import report
from binlake.report import Report


class Ended(Exception):
    """Of the work itself."""


def on_terminal(work: Callable[[Report], Any]) -> str:
    """What a terminal of 100 columns is sent."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        work(Report(stream))
    sent = b""
    while True:
        try:
            sent += os.read(ours, 65536)
        except OSError:  # the other end is closed and nothing is left
            os.close(ours)
            return sent.decode()


def in_log(work: Callable[[Report], Any]) -> list[str]:
    stream = io.StringIO()
    work(Report(stream))
    return stream.getvalue().splitlines()


def in_steps(report: Report) -> None:
    """Its last step comes too soon after the others to be shown by itself, and an estimate was too high."""
    with report.progress("staged") as progress:
        progress(1, 10, "1 MB")
        report.say("a [bold] word about table t")
        progress(5, 10, "5 MB")
        progress(8, 10, "8 MB")


def breaking_off(report: Report) -> None:
    with report.progress("staged") as progress:
        progress(3, 10)
        raise Ended


def test_a_bar_ends_at_100_percent() -> None:
    sent = on_terminal(in_steps)
    last = re.findall(r"(\d+)%", sent)[-1]
    assert last == "100"
    assert "8 MB" in sent
    assert "a [bold] word about table t" in sent
    assert sent.endswith("\x1b[?25h")  # the cursor is back


def test_a_bar_of_what_failed_stays_where_it_was() -> None:
    def work(report: Report) -> None:
        with pytest.raises(Ended):
            breaking_off(report)

    sent = on_terminal(work)
    assert re.findall(r"(\d+)%", sent)[-1] == "30"
    assert sent.endswith("\x1b[?25h")


def test_two_things_in_progress_at_once() -> None:
    def work(report: Report) -> None:
        with report.progress("compared") as outer:
            outer(1, 2)
            in_steps(report)
            outer(2, 2)
        in_steps(report)

    sent = on_terminal(work)
    assert "compared" in sent
    assert "staged" in sent


def test_a_log_has_a_line_now_and_then_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_log(in_steps) == ["a [bold] word about table t", "staged 100% 8 MB"]
    monkeypatch.setattr(report, "_PLAIN_INTERVAL", 0)
    said = ["staged  10% 1 MB", "a [bold] word about table t", "staged  50% 5 MB", "staged  80% 8 MB"]
    assert in_log(in_steps) == [*said, "staged 100% 8 MB"]


def test_a_log_has_no_line_twice_until_a_minute_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(report: Report) -> None:
        with report.progress("merged") as progress:
            for _ in range(3):
                progress(0, 3, "0 of 3 tables; now a")
            progress(1, 3, "1 of 3 tables; now b")

    monkeypatch.setattr(report, "_PLAIN_INTERVAL", 0)
    said = ["merged   0% 0 of 3 tables; now a", "merged  33% 1 of 3 tables; now b", "merged 100% 1 of 3 tables; now b"]
    assert in_log(waiting) == said
    monkeypatch.setattr(report, "_REPEATED_AFTER", 0)
    assert len(in_log(waiting)) == len(said) + 2


def test_a_log_does_not_say_100_percent_twice_nor_of_what_failed() -> None:
    def done_at_once(report: Report) -> None:
        with report.progress("staged") as progress:
            progress(10, 10, "10 MB")

    def failing(report: Report) -> None:
        with pytest.raises(Ended):
            breaking_off(report)

    assert in_log(done_at_once) == ["staged 100% 10 MB"]
    assert in_log(failing) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no row changed"),
        ([0, 0], "no row changed"),
        ([1, 0], "1 row of 1 table"),
        ([8000, 181], "8,181 rows of 2 tables"),
    ],
)
def test_what_a_batch_did(rows: list[int], words: str) -> None:
    assert report.rows_of_tables(rows) == words


def test_a_report_of_warnings_prints_nothing_else() -> None:
    stream = io.StringIO()
    warnings = Report(stream).of_warnings()
    warnings.say("batch 7: 3 mutations staged")
    warnings.warn("shop.orders can't be published")
    assert stream.getvalue() == "shop.orders can't be published\n"
