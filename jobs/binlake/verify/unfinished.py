"""Verifications of everything that didn't come to their end: the next one continues with the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence

from binlake.config.units import DAY_US
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import UnfinishedRow

_FORGOTTEN_AFTER = 7 * DAY_US
"""Microseconds after which an unfinished verification is begun again."""


def begin(metadata: Metadata, patterns: Sequence[str] | None) -> int | None:
    """Return when the unfinished verification of tables that these patterns match began, in microseconds.

    Without one, or with one that is too old, note that one begins, and return None. Raises LakeError.
    """
    since_us = begun(metadata, patterns)
    if since_us is None:
        UnfinishedRow.replace(metadata, _where(patterns), [UnfinishedRow(tables=_text(patterns), begun_us=now_us())])
    return since_us


def begun(metadata: Metadata, patterns: Sequence[str] | None) -> int | None:
    """Return when it began, as ``begin`` does, and note nothing; None without one or with one that is too old. Raises
    LakeError."""
    times = [row.begun_us for row in UnfinishedRow.read(metadata, where=_where(patterns))]
    return min(times) if times and min(times) > now_us() - _FORGOTTEN_AFTER else None


def end(metadata: Metadata, patterns: Sequence[str] | None) -> None:
    """Note that the verification came to its end, if it was noted to begin. Raises LakeError."""
    if UnfinishedRow.count(metadata, _where(patterns)):
        UnfinishedRow.replace(metadata, _where(patterns))


def _where(patterns: Sequence[str] | None) -> str:
    return f"tables = {literal(_text(patterns))}"


def _text(patterns: Sequence[str] | None) -> str:
    return json.dumps(sorted(patterns or ()), ensure_ascii=False)
