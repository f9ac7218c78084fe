"""The log of a task: progress and lines of Spark's driver at the level that they deserve."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from typing import Any, Protocol

from binlake.report import Report, harmless, harmless_entry
from binlake.spark.starting import is_worth_reading

_LEVEL = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>WARN|ERROR|FATAL) ")
"""Start of a line of Spark's log (log4j's pattern in Spark's defaults)."""
_OF_BINLAKE = re.compile(r"^binlake: ")
"""Start of the line with which a job ends if it fails."""


class Logger(Protocol):
    """The methods that a task's ``self.log`` and Python's loggers share."""

    def log(self, level: int, msg: str, /, *arguments: object) -> object:
        """Write a message with its arguments at a level of ``logging``."""


class HarmlessLogger:
    """A logger whose arguments are written without characters that rule a terminal, or hide others."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def info(self, msg: str, *arguments: object) -> None:
        """Write a message at INFO."""
        self.log(logging.INFO, msg, *arguments)

    def warning(self, msg: str, *arguments: object) -> None:
        """Write a message at WARNING."""
        self.log(logging.WARNING, msg, *arguments)

    def error(self, msg: str, *arguments: object) -> None:
        """Write a message at ERROR."""
        self.log(logging.ERROR, msg, *arguments)

    def log(self, level: int, msg: str, /, *arguments: object) -> None:
        """Write a message at a level; numbers are passed as they are, other arguments as harmless text."""
        texts = (text if isinstance(text, int | float) else harmless_entry(str(text)) for text in arguments)
        self._logger.log(level, msg, *texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class LogsHarmlessly:
    """An operator or sensor whose ``log`` is a HarmlessLogger: its lines have names of tables."""

    @property
    def log(self) -> Any:
        """Return Airflow's logger, through which only harmless arguments are written."""
        return HarmlessLogger(super().log)  # type: ignore[misc]

    @log.setter
    def log(self, logger: Any) -> None:
        raise AttributeError("the log is Airflow's")


class TaskReport(Report):
    """Report whose lines are in the task's log at INFO, its warnings at WARNING. Airflow logs standard error at
    ERROR."""

    def __init__(self, log: Logger) -> None:
        super().__init__(io.StringIO())
        self._log = log

    def say(self, text: str) -> None:
        """Write a line at INFO."""
        self._log.log(logging.INFO, "%s", harmless_entry(text))

    def warn(self, text: str) -> None:
        """Write a line at WARNING."""
        self._log.log(logging.WARNING, "%s", harmless_entry(text))


def at_their_level(lines: Iterator[str], log: Logger) -> Iterator[str]:
    """Yield a driver's lines that are worth reading, but log its warnings and errors here.

    Airflow's hook, for which the others are, logs all lines at INFO.
    """
    for line in lines:
        if not is_worth_reading(line):
            continue
        line = harmless(line)
        if match := _LEVEL.match(line):
            level = logging.WARNING if match["level"] == "WARN" else logging.ERROR
        elif _OF_BINLAKE.match(line):
            level = logging.ERROR
        else:
            yield line
            continue
        log.log(level, "%s", line.rstrip())
