"""Tables of a query at versions of their own: ``shop.orders AT (BATCH 120)``, and ``changes('shop.orders', 120, 125)``.

A query without either is left as it is, to the letter. In one that has them these places alone are replaced: text in
quotes and comments isn't looked into, and the rest isn't parsed, so that the engine sees what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from binlake.errors import UsageError
from binlake.moment import parse_moment

QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Matches the quoted parts and the comments of a statement."""
_NAME = r"(?:[^\W\d][\w$#]*|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`)"
_TEXT = r"'(?:[^']|'')*'"
_MOMENT = rf"(?:BATCH|TIMESTAMP|PIN)\s+(?:{_TEXT}|[^\s()'][^()']*)"
_PLACE = re.compile(
    rf"(?<![\w$#.])(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)\s+AT\s*\(\s*(?P<at>{_MOMENT})\s*\)"
    rf"|(?<![\w$#.])changes\s*\(\s*(?P<changed>{_TEXT})\s*,\s*(?P<first>[^(),']+|{_MOMENT})\s*,"
    rf"\s*(?P<last>[^(),']+|{_MOMENT})\s*\)"
    rf"|{QUOTED.pattern}",
    re.IGNORECASE | re.DOTALL,
)
_KINDS = {
    "BATCH": "a batch's number, AT (BATCH 120)",
    "TIMESTAMP": "a time in quotes, AT (TIMESTAMP '2026-01-31T12:00')",
    "PIN": "the name of a pinned version, AT (PIN month_end)",
}
_PIN = re.compile(r"\w+")


@dataclass(frozen=True)
class AskedVersion:
    """A version of the lake, as a query asks for it: by its batch, a time or a name; the others are None."""

    batch: int | None = None
    time: datetime | None = None
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> AskedVersion:
        """Read ``BATCH 120``, ``TIMESTAMP '…'``, ``PIN name``, or a batch's number alone. Raises UsageError."""
        words = text.split(maxsplit=1)
        kind, value = (words[0].upper(), words[1].strip()) if len(words) > 1 else ("BATCH", text.strip())
        plain = value[1:-1].replace("''", "'") if value.startswith("'") else value
        if kind == "BATCH" and value.isascii() and value.isdigit():
            return cls(batch=int(value))
        if kind == "TIMESTAMP" and value.startswith("'"):
            return cls(time=parse_moment(plain, "AT (TIMESTAMP …)"))
        if kind == "PIN" and _PIN.fullmatch(plain):
            return cls(name=plain)
        remedy = f"write {_KINDS[kind] if len(words) > 1 and kind in _KINDS else _ANY}"
        raise UsageError(f"{text.strip()!r} names no version of the lake", remedy=remedy)


_ANY = "a batch's number, as in changes('shop.orders', 120, 125)"


def replaced(
    sql: str,
    table: Callable[[str, AskedVersion], str],
    changes: Callable[[str, AskedVersion, AskedVersion], str],
) -> str:
    """Return a query with what the functions give in the place of tables at versions of their own, and of changes.

    table: takes the table's name as it is written. changes: the table's name without its quotes. Raises UsageError, and
    what they raise.
    """

    def put(place: re.Match[str]) -> str:
        if place["table"]:
            return table(re.sub(r"\s*\.\s*", ".", place["table"], count=1), AskedVersion.parse(place["at"]))
        if place["changed"]:
            ends = (AskedVersion.parse(place[end]) for end in ("first", "last"))
            return changes(place["changed"][1:-1].replace("''", "'"), *ends)
        return place[0]

    return _PLACE.sub(put, sql)
