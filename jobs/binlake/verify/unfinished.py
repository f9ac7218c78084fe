"""Verifications of everything that didn't come to their end: the next one goes on with what is left."""

from __future__ import annotations

import json
from collections.abc import Sequence

from binlake.config.units import DAY_US
from binlake.metadata.metadata import Metadata, literal, now_us

_TABLE = "unfinished_verifications"
_FORGOTTEN_AFTER = 7 * DAY_US
"""Microseconds after which an unfinished verification is begun anew."""


def begin(metadata: Metadata, patterns: Sequence[str] | None) -> int | None:
    """Return when the unfinished verification of tables that these patterns match began, in microseconds.

    Without one, or with one that is too old, note that one begins, and return None. Raises LakeError.
    """
    since_us = begun(metadata, patterns)
    if since_us is None:
        metadata.replace(_TABLE, _where(patterns), [{"tables": _text(patterns), "begun_us": now_us()}])
    return since_us


def begun(metadata: Metadata, patterns: Sequence[str] | None) -> int | None:
    """Return the same, None without one or with one that is too old, and note nothing. Raises LakeError."""
    times = [row["begun_us"] for row in metadata.read(_TABLE, where=_where(patterns))]
    return int(min(times)) if times and min(times) > now_us() - _FORGOTTEN_AFTER else None


def end(metadata: Metadata, patterns: Sequence[str] | None) -> None:
    """Note that the verification came to its end, if it was noted to begin. Raises LakeError."""
    if metadata.count(_TABLE, _where(patterns)):
        metadata.replace(_TABLE, _where(patterns), [])


def _where(patterns: Sequence[str] | None) -> str:
    return f"tables = {literal(_text(patterns))}"


def _text(patterns: Sequence[str] | None) -> str:
    return json.dumps(sorted(patterns or ()), ensure_ascii=False)
