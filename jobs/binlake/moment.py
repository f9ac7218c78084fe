"""A moment, as people write it."""

from __future__ import annotations

from datetime import UTC, datetime

from binlake.errors import UsageError


def parse_moment(text: str, option: str, *, instead: str = "") -> datetime:
    """ISO 8601, UTC unless it names another zone.

    option: where it was written; instead: what else may stand there, both for the error. Raises UsageError.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        remedy = f"write {instead and f'{instead}, or '}a time such as 2026-01-31T13:00:00+00:00"
        raise UsageError(f"{option} {text!r} is not a time", remedy=remedy) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
