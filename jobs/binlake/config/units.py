"""Units in the names of settings, ``_mb``, ``_gb``, ``_hours`` and ``_days``, and in durations such as ``1s``.

A megabyte is 10**6 bytes and a gigabyte 10**9 bytes, as disks and object stores count; an hour is 3600 seconds and a
day 24 hours. Settings may be fractions.
"""

from __future__ import annotations

import re

HOUR_SECONDS = 3600
HOUR_US = HOUR_SECONDS * 1_000_000
DAY_US = 24 * HOUR_US
_MB, _GB = 10**6, 10**9
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": HOUR_SECONDS, "d": 24 * HOUR_SECONDS}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration: ``500ms``, ``1s``, ``5min`` or ``5m``, ``2h``, ``1d``. Raises ValueError."""
    match = _DURATION.fullmatch(duration)
    if match is None or not float(match[1]):
        raise ValueError(f"{duration!r} is no duration; write 500ms, 1s, 5min, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def bytes_of_mb(mb: float) -> int:
    """Return megabytes as whole bytes."""
    return int(mb * _MB)


def bytes_of_gb(gb: float) -> int:
    """Return gigabytes as whole bytes."""
    return int(gb * _GB)


def gb_of_bytes(size: int) -> float:
    """Return bytes as gigabytes."""
    return size / _GB
