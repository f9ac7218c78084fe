"""The lake's storage when it fails: what was told by Python, Java or Rust, as one line, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from binlake.errors import LakeError

FREE = "free space on the lake's disk, then run again: nothing is lost"
ALLOW = "make the lake's folder writable for this account, then run again: nothing is lost"
EITHER = "free space on the lake's disk, or make its folder writable for this account; then run again: nothing is lost"
OTHER = "mend what the message names, then run again: nothing is lost"

_FULL = ("no space left", "quota exceeded", "file too large")
_FORBIDDEN = (
    "read-only file system", "permission denied", "operation not permitted", "access denied", "not a directory",
)  # fmt: skip
_EITHER = ("mkdirs failed", "cannot create")
"""Hadoop doesn't say why a folder can't be made."""
_OF_STORAGE = re.compile(r"java\.n?io\.|org\.apache\.hadoop\.|.*IOException$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"^\s*0: ", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z0-9_.]+\]")


def failed(doing: str, error: BaseException) -> LakeError:
    """The error of our tree. doing: what was tried, with the path."""
    cause = cause_of(error)
    return LakeError(f"{doing}: {cause}", remedy=_remedy(cause))


def _remedy(cause: str) -> str:
    told = cause.lower()
    for signs, remedy in ((_FULL, FREE), (_FORBIDDEN, ALLOW), (_EITHER, EITHER)):
        if any(sign in told for sign in signs):
            return remedy
    return OTHER


def cause_of(error: BaseException) -> str:
    """One line. Of Java's errors that of the storage, else no more than kind and condition: Spark's quote rows."""
    chain = list(_java_causes(error))
    if not chain:
        return _one_line(str(error)) or type(error).__name__
    for kind, message in reversed(chain):
        if _OF_STORAGE.match(kind) and message:
            return f"{kind.rpartition('.')[2]}: {_one_line(message)}"
    kind, message = chain[0]
    condition = _CONDITION.match(message)
    return " ".join([kind.rpartition(".")[2], *([condition.group()] if condition else [])])


def is_cause(error: BaseException) -> bool:
    """Whether Java's error says that the storage is full, or can't be written."""
    told = messages(error).lower()
    return any(sign in told for sign in (*_FULL, *_FORBIDDEN, *_EITHER))


def messages(error: BaseException) -> str:
    """All that Java's errors say, to look for a path in; not to be shown."""
    return "\n".join(message for _, message in _java_causes(error))


def _java_causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """(class, message) from the outermost on."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield str(cause.getClass().getName()), str(cause.getMessage() or "")
        cause = cause.getCause()


def _one_line(text: str) -> str:
    """Rust's errors come coloured, over several lines, some with a backtrace."""
    plain = _BACKTRACE.split(_COLOUR.sub("", text).replace("↳", ""))[0]
    return ": ".join(line.strip() for line in plain.splitlines() if line.strip())
