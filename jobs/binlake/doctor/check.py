"""What the preflight says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Check:
    """One line of the doctor: ``found`` says what is, ``remedy`` what mends it; ``detail`` has fields for programs."""

    name: str
    ok: Literal[True, False, "warn"]
    found: str
    remedy: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """With the remedy below it."""
        return f"{self.name}: {self.found}" + (f"\n  → {self.remedy}" if self.remedy else "")
