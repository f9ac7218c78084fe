"""Java's errors without the values of rows: the chain of causes, and where a task ran.

Messages of Spark and Java quote the values that they reject: texts in quotes and bare numbers are left out, and of an
error about data (SQLSTATE classes 22 and 23) only the condition's name is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]*\]")
_SQLSTATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
_ABOUT_DATA = {"22", "23", None}
_VALUE = re.compile(r"(['\"`]).*\1|(?<![\w.$])[-+]?\d[\d.,:eE+-]*\b")
_NAMES_CODE_ALONE = "java.lang.NullPointerException"
_TELLS_A_VALUE = {"scala.MatchError", "java.util.NoSuchElementException", "java.lang.NumberFormatException"}
_LOST_TASK = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor (?P<executor>[^)\s]+)\): (?P<reason>.*)"
)
_KIND = re.compile(r"(?P<kind>(?:[a-z]\w*\.)+[A-Z][\w$.]*)(?:: (?P<message>.*))?\Z", re.DOTALL)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(executor .*?\)(?: Reason: (?P<reason>.*))?")
_DEEPEST = 50


@dataclass(frozen=True)
class JavaCause:
    """An error in a chain of causes. kind: the class with its package."""

    kind: str
    message: str

    def __str__(self) -> str:
        """Return one line: the class, and its condition or the first line of its message, without values."""
        name = self.kind.rpartition(".")[2]
        condition = _CONDITION.match(self.message)
        if condition:
            state = _SQLSTATE.search(self.message)
            if (state and state[1]) in _ABOUT_DATA:
                return f"{name} {condition.group()}"
        line = "" if self.kind in _TELLS_A_VALUE else self.message.partition("\n")[0].strip()
        if self.kind != _NAMES_CODE_ALONE:
            line = _VALUE.sub("…", line)
        return f"{name}: {line}" if line else name


def causes(error: BaseException) -> list[JavaCause]:
    """Return an error's chain of causes from the outermost on; empty where the error isn't Java's."""
    chain: list[JavaCause] = []
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and len(chain) < _DEEPEST:
        chain.append(JavaCause(str(cause.getClass().getName()), str(cause.getMessage() or "")))
        cause = cause.getCause()
    return chain


def root_cause(chain: list[JavaCause]) -> str:
    """Return the last cause of a chain as one line; where Spark reports a task's failure as text alone, what the text
    says."""
    last = chain[-1]
    if not (lost := _LOST_TASK.search(last.message)):
        return str(last)
    if gone := _EXECUTOR_LOST.match(lost["reason"]):
        return f"its executor was lost: {gone['reason'] or 'Spark names no reason'}"
    match = _KIND.match(lost["reason"])
    return str(JavaCause(match["kind"], match["message"] or "") if match else JavaCause(last.kind, lost["reason"]))


def executor_lost(error: BaseException) -> bool:
    """Return whether the process or machine in which a task ran has ended."""
    return any(
        (lost := _LOST_TASK.search(cause.message)) and _EXECUTOR_LOST.match(lost["reason"]) for cause in causes(error)
    )


def place(chain: list[JavaCause]) -> str:
    """Return where the task that failed ran, as ``executor 3 on 10.0.0.7``; empty on the driver."""
    for cause in chain:
        if (lost := _LOST_TASK.search(cause.message)) and lost["executor"] != "driver":
            return f"executor {lost['executor']} on {lost['host']}"
    return ""
