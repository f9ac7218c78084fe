"""One result of the preflight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

GRANTS = "grants"
"""The field of a check's detail with the statements that give what is missing."""


@dataclass(frozen=True)
class Check:
    """One line of the doctor. found: what was observed. remedy: what to do about it. detail: fields for programs."""

    name: str
    ok: Literal[True, False, "warn"]
    found: str
    remedy: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the line, with the remedy below it."""
        return f"{self.name}: {self.found}" + (f"\n  → {self.remedy}" if self.remedy else "")


def missing_grants(checks: Iterable[Check]) -> list[str]:
    """Return the statements that give the account all that it lacks, each once."""
    return list(dict.fromkeys(sql for check in checks for sql in check.detail.get(GRANTS, ())))
