"""The log of a task: progress and lines of Spark's driver at the level that they deserve."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from typing import Protocol

from binlake.report import Report
from binlake.spark.starting import is_worth_reading

_LEVEL = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>WARN|ERROR|FATAL) ")
"""Start of a line of Spark's log (log4j's pattern in Spark's defaults)."""
_OF_BINLAKE = re.compile(r"^binlake: ")
"""Start of the line with which a job ends if it fails."""


class Logger(Protocol):
    """What a task's ``self.log`` and Python's loggers share."""

    def log(self, level: int, msg: str, /, *arguments: object) -> object: ...


class TaskReport(Report):
    """Report whose lines stand in the task's log at INFO, its warnings at WARNING. What is printed to standard error
    stands there at ERROR."""

    def __init__(self, log: Logger) -> None:
        super().__init__(io.StringIO())
        self._log = log

    def say(self, text: str) -> None:
        self._log.log(logging.INFO, "%s", text)

    def warn(self, text: str) -> None:
        self._log.log(logging.WARNING, "%s", text)


def at_their_level(lines: Iterator[str], log: Logger) -> Iterator[str]:
    """Yield a driver's lines that are worth reading, but log its warnings and errors here.

    Airflow's hook, for which the others are, logs all lines at INFO.
    """
    for line in lines:
        if not is_worth_reading(line):
            continue
        if match := _LEVEL.match(line):
            level = logging.WARNING if match["level"] == "WARN" else logging.ERROR
        elif _OF_BINLAKE.match(line):
            level = logging.ERROR
        else:
            yield line
            continue
        log.log(level, "%s", line.rstrip())
