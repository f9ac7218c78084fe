"""The named points of a run at which tests kill it, delay it or raise errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

FaultPoint = Literal[
    "planned", "slice staged", "manifest written", "schema evolved", "rows marked", "data file written",
    "epoch committed", "table merged", "table composed", "merged", "recorded",
    "lock taken", "chunk copied", "chunks written", "commit begun", "rows committed", "snapshot committed",
    "bootstrap noted", "lives begun", "answer known",
    "rows rewritten", "layout committed", "versions known", "versions thinned", "vacuumed", "log shortened",
    "metadata compacted", "leftovers removed",
    "past left", "past removed", "staging purged", "rows purged", "metadata purged",
    "name registered",
    "feed sent", "feed flushed", "sink committed", "feed committed",
]  # fmt: skip


def _pass(point: FaultPoint) -> None:
    """Do nothing, outside of tests."""


at_point: Callable[[FaultPoint], None] = _pass
"""The function called at each point. Tests replace it."""


def fault(point: FaultPoint) -> None:
    """Mark a point of a run, at which tests let it fail."""
    at_point(point)
