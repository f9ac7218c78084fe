"""Masks of columns: what is written of a value in the place of the value.

| kind     | value in the lake |
|----------|-------------------|
| hash     | the first ``length`` hexadecimal digits of HMAC-SHA-256 of the value's text, by a key that isn't recorded |
| keep     | the first ``first`` and the last ``last`` characters of a text, and ``fill`` for each other one |
| truncate | a moment at the beginning of its ``unit``; the first ``length`` characters of a text; a number whose last |
|          | ``length`` digits before the point are zero, without those behind it |
| nothing  | NULL |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["", "year", "month", "day", "hour"]
FEWEST_DIGITS, MOST_DIGITS = 8, 64
"""Hexadecimal digits that a hash may have."""
FEWEST_OF_KEY = 32
"""The fewest that a key's column may have: 128 bits, so that no two keys of a table have one hash."""


@dataclass(frozen=True)
class Mask:
    """The mask of one column. key: a fingerprint of the hash's key, which is nowhere recorded itself."""

    kind: Literal["hash", "keep", "truncate", "nothing"]
    length: int = 0
    key: str = ""
    first: int = 0
    last: int = 0
    fill: str = ""
    unit: Unit = ""

    def __str__(self) -> str:
        """Return what a value becomes, for people."""
        if self.kind == "hash":
            return f"hash of {self.length} digits"
        if self.kind == "keep":
            kept = [f"the {side} {count}" for side, count in (("first", self.first), ("last", self.last)) if count]
            return f"{' and '.join(kept)} characters, {self.fill!r} for each other one"
        if self.kind == "truncate":
            return f"truncated to {self.unit or self.length}"
        return "NULL"
