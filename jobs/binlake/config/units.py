"""Units in the names of settings: ``_mb``, ``_gb``, ``_hours`` and ``_days``.

A megabyte is 10**6 bytes and a gigabyte 10**9 bytes, as disks and object stores count; an hour is 3600 seconds and a
day 24 hours. Settings may be fractions.
"""

from __future__ import annotations

HOUR_SECONDS = 3600
HOUR_US = HOUR_SECONDS * 1_000_000
DAY_US = 24 * HOUR_US
_MB, _GB = 10**6, 10**9


def bytes_of_mb(mb: float) -> int:
    """Return megabytes as whole bytes."""
    return int(mb * _MB)


def bytes_of_gb(gb: float) -> int:
    """Return gigabytes as whole bytes."""
    return int(gb * _GB)


def gb_of_bytes(size: int) -> float:
    """Return bytes as gigabytes."""
    return size / _GB
