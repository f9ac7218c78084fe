"""The level at which lines stand in a task's log."""

from __future__ import annotations

import logging

import pytest

from binlake_airflow.task_log import TaskReport, at_their_level

log = logging.getLogger("a task")

DRIVER = """26/11/26 09:00:01 WARN TaskSetManager: Stage 3 contains a task of very large size
26/11/26 09:00:02 INFO DAGScheduler: Job 4 finished
merge 100% 3 of 3 tables
26/11/26 09:00:03 ERROR Executor: Exception in task 0.0
binlake: the disk is full
  → free some space
"""


def test_progress_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), TaskReport(log).progress("merge") as progress:
        progress(3, 3, "3 of 3 tables")
    assert [(record.levelname, record.message) for record in caplog.records] == [("INFO", "merge 100% 3 of 3 tables")]


def test_a_warning_stands_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    TaskReport(log).warn("the server is away")
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", "the server is away")]


def test_the_lines_of_a_driver(caplog: pytest.LogCaptureFixture) -> None:
    left = list(at_their_level(iter(DRIVER.splitlines(keepends=True)), log))
    assert [(record.levelname, record.message.split()[2]) for record in caplog.records] == [
        ("WARNING", "WARN"), ("ERROR", "ERROR"), ("ERROR", "disk"),
    ]  # fmt: skip
    assert [line.split()[0] for line in left] == ["26/11/26", "merge", "→"]
