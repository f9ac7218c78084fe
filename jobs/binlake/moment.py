"""Times as people write and read them."""

from __future__ import annotations

from datetime import UTC, datetime

from binlake.errors import UsageError


def parse_moment(text: str, option: str, *, instead: str = "") -> datetime:
    """Parse a time in ISO 8601, in UTC unless it names another zone. Raises UsageError.

    option, instead: for the error, where the text was written and what else may be written there.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        remedy = f"write {instead and f'{instead}, or '}a time such as 2026-01-31T13:00:00+00:00"
        raise UsageError(f"{option} {text!r} is not a time", remedy=remedy) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment_text(us: int) -> str:
    """Return a time in microseconds since 1970 as text: ``2026-01-31 13:00:00 UTC``."""
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration_text(seconds: float) -> str:
    """Return a length of time in the largest unit of which it has two: ``36 s``, ``12 min``, ``29 days``."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
