"""Named time zones for a private server, a few: the full tables take half a minute to load."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pymysql.cursors import Cursor

NAMES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
FIRST = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())
LAST = int(datetime(2038, 1, 1, tzinfo=UTC).timestamp())
WEEK = 7 * 24 * 3600

Period = tuple[int, bool, str]
"""Offset in seconds, summer time, abbreviation."""


def period(zone: ZoneInfo, second: int) -> Period:
    local = datetime.fromtimestamp(second, zone)
    offset, summer = local.utcoffset(), local.dst()
    return int(offset.total_seconds() if offset else 0), bool(summer), local.tzname() or ""


def transitions(zone: ZoneInfo) -> list[tuple[int, Period]]:
    """Each second at which another period begins; the first entry holds from FIRST on."""
    periods = [(FIRST, period(zone, FIRST))]
    for week in range(FIRST, LAST, WEEK):
        current = periods[-1][1]
        if period(zone, week + WEEK) != current:
            begins = _first_second_after(current, zone, week, week + WEEK)
            periods.append((begins, period(zone, begins)))
    return periods


def _first_second_after(old: Period, zone: ZoneInfo, low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if period(zone, middle) == old else (low, middle)
    return high


def load(cursor: Cursor) -> None:
    """Into the tables of the server's mysql database."""
    for zone_id, name in enumerate(NAMES, start=1):
        changes = transitions(ZoneInfo(name))
        periods = sorted({change[1] for change in changes}, key=[change[1] for change in changes].index)
        cursor.execute("INSERT INTO time_zone VALUES (%s, 'N')", (zone_id,))
        cursor.execute("INSERT INTO time_zone_name VALUES (%s, %s)", (name, zone_id))
        cursor.executemany(
            "INSERT INTO time_zone_transition_type VALUES (%s, %s, %s, %s, %s)",
            [(zone_id, number, *each) for number, each in enumerate(periods)],
        )
        cursor.executemany(
            "INSERT INTO time_zone_transition VALUES (%s, %s, %s)",
            [(zone_id, second, periods.index(each)) for second, each in changes],
        )
