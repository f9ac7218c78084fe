"""The named points of a run, where tests kill it, put it to sleep or raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

FaultPoint = Literal[
    "planned", "slice staged", "manifest written", "schema evolved", "rows marked", "data file written",
    "epoch committed", "table merged", "merged", "recorded",
    "lock taken", "chunk copied", "chunks written", "commit begun", "rows committed", "snapshot committed",
    "bootstrap noted", "lives begun",
    "rows rewritten", "layout committed", "versions known", "vacuumed", "log shortened",
    "metadata compacted", "leftovers removed",
    "name registered",
    "feed sent", "feed flushed", "sink committed", "feed committed",
]  # fmt: skip


def _pass(point: FaultPoint) -> None:
    """A run that isn't tested goes on."""


at_point: Callable[[FaultPoint], None] = _pass
"""Tests put their own in its place."""


def fault(point: FaultPoint) -> None:
    """A run has come to the point."""
    at_point(point)
